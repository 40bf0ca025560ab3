"""The device that a run computes on: NumPy on the CPU where none is named, PyTorch where one is.

"cpu" is PyTorch's own CPU device: the same code as on a GPU, for tests and for checking results where there is no GPU. All
arithmetic on a device is in float64.
"""

import re
from typing import Any

from richobs.core.errors import InvalidInput

NAME = re.compile(r"cpu|cuda(:\d{1,3})?")
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


def check_device_name(name: object) -> None:
    """Raises `InvalidInput` where `name` is not None, "cpu", "cuda" or "cuda:1"; whether it is there is not asked."""
    if name is None or (isinstance(name, str) and NAME.fullmatch(name)):
        return
    raise InvalidInput(
        f"device must be 'cuda', 'cuda:1' (the second one) or 'cpu' (the same code without a GPU); got {name!r}. Leave it "
        "out to compute with NumPy."
    )


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
