"""What only CUDA devices have: kernels that run on after their call, and memory of their own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def devices_of(tensors: Iterable[Tensor]) -> tuple[torch.device, ...]:
    """The CUDA devices that they lie on."""
    return tuple({each.device: None for each in tensors if each.is_cuda})


def finished(devices: tuple[torch.device, ...]) -> None:
    """Waits for all that runs there. What a kernel raises is raised here: by the call that launched
    it, and not by a later one."""
    for device in devices:
        torch.cuda.synchronize(device)


def lost(devices: Iterable[torch.device]) -> bool:
    """Does every later call there fail in this process, as after an error in a kernel? The device
    is asked: its errors have many wordings."""
    try:
        finished(tuple(devices))
    except RuntimeError:
        return True
    return False


def after_a_check(device: str) -> bool:
    """Gives memory back that is kept for later tensors, as another worker may need it. True where
    the device is `lost`."""
    if not device.startswith("cuda") or lost([torch.device(device)]):
        return device.startswith("cuda")
    torch.cuda.empty_cache()
    return False


def start_of_memory(device: str) -> None:
    """From now on the most memory that is held at a time is measured."""
    if device.startswith("cuda"):
        torch.cuda.init()  # type: ignore[no-untyped-call]   # without which torch refuses the device
        torch.cuda.reset_peak_memory_stats(device)


def most_memory(device: str) -> int | None:
    """The most bytes that tensors held there at a time; None on the CPU."""
    return int(torch.cuda.max_memory_allocated(device)) if device.startswith("cuda") else None
