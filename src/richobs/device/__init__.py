"""What runs on a device of PyTorch: whether it is there, and the pairs of the betting search.

NumPy computes where no device is named. "cpu" is PyTorch's own CPU device: the same code as on a GPU, for tests and for
checking results where there is no GPU. All arithmetic is in float64.
"""

from typing import Any

from richobs.core.errors import InvalidInput
from richobs.core.settings import check_device_name

DTYPE = "float64"


def pytorch(who: str) -> Any:
    """Returns the module `torch`.

    Args:
        who: needs it, for the message.

    Raises:
        InvalidInput: it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise InvalidInput(f"{who} needs PyTorch, which is not installed: pip install 'richobs[gpu]'.") from error
    return torch


def torch_device(name: str) -> Any:
    """Returns the `torch.device` of a name, once it is known to be there.

    Raises:
        InvalidInput: PyTorch is not installed, or the machine has no such device.
    """
    check_device_name(name)
    torch = pytorch(f"device {name!r}")
    if name != "cpu":
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        wanted = int(name.partition(":")[2] or 0)
        if wanted >= there:
            raise InvalidInput(
                f"device {name!r} is not there: PyTorch {torch.__version__} finds {there} GPUs on this machine. "
                "device='cpu' runs the same code without one, and without `device` NumPy computes."
            )
    return torch.device(name)


def has_device(name: str) -> bool:
    """Whether PyTorch is installed and the machine has the device."""
    try:
        torch_device(name)
    except InvalidInput:
        return False
    return True
