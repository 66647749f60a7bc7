"""CUDA devices: waiting for kernels, detecting unusable devices, and measuring memory."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def devices_of(tensors: Iterable[Tensor]) -> tuple[torch.device, ...]:
    """Return the CUDA devices of tensors."""
    return tuple({each.device: None for each in tensors if each.is_cuda})


def finished(devices: tuple[torch.device, ...]) -> None:
    """Wait for all kernels on the devices, so that an error of a kernel is raised by the call that
    launched it, and not by a later one."""
    for device in devices:
        torch.cuda.synchronize(device)


def lost(devices: Iterable[torch.device]) -> bool:
    """Return whether all later calls on the devices fail in this process, as after an error in a
    kernel. Tested by a call, as the error messages vary."""
    try:
        finished(tuple(devices))
    except RuntimeError:
        return True
    return False


def after_a_check(device: str) -> bool:
    """Free memory that torch keeps for later tensors, as another worker may need it. Return True if
    the device is `lost`."""
    if not device.startswith("cuda") or lost([torch.device(device)]):
        return device.startswith("cuda")
    torch.cuda.empty_cache()
    return False


def start_of_memory(device: str) -> None:
    """Start the measurement of `most_memory`."""
    if device.startswith("cuda"):
        torch.cuda.init()  # type: ignore[no-untyped-call]   # otherwise torch refuses the device
        torch.cuda.reset_peak_memory_stats(device)


def most_memory(device: str) -> int | None:
    """Return the peak number of bytes of all tensors on a device; None on the CPU."""
    return int(torch.cuda.max_memory_allocated(device)) if device.startswith("cuda") else None
