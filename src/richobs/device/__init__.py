"""Everything that runs on a device of PyTorch: CUDA and Triton stand here and nowhere else."""
