"""What only CUDA devices have: kernels that run on after their call, memory of their own, products in fewer bits than their numbers have."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

REDUCED = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation")
"""Switches of products (`torch.backends.cuda.matmul`), beside TF32."""


def devices_of(tensors: Iterable[Tensor]) -> tuple[torch.device, ...]:
    """The CUDA devices that they lie on."""
    return tuple({each.device: None for each in tensors if each.is_cuda})


def finished(devices: tuple[torch.device, ...]) -> None:
    """Waits for all that runs there. What a kernel raises is raised here: by the call that launched it, and not by a later one."""
    for device in devices:
        torch.cuda.synchronize(device)


def start_of_memory(device: str) -> None:
    """From now on the most memory that is held at a time is measured."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)


def most_memory(device: str) -> int | None:
    """The most bytes that tensors held there at a time; None on the CPU."""
    return int(torch.cuda.max_memory_allocated(device)) if device.startswith("cuda") else None


def reductions() -> dict[str, bool]:
    """The switches by which products of 16-bit numbers are summed in fewer bits, and whether they are on."""
    matmul = torch.backends.cuda.matmul
    return {name: bool(getattr(matmul, name)) for name in REDUCED if hasattr(matmul, name)}


def set_reductions(switches: dict[str, bool]) -> None:
    """As `reductions` gave them."""
    for name, on in switches.items():
        setattr(torch.backends.cuda.matmul, name, on)


def in_fewer_bits() -> tuple[str, ...]:
    """What makes products and convolutions on CUDA devices compute in fewer bits than their numbers have."""
    switches = {"cudnn.allow_tf32": torch.backends.cudnn.allow_tf32, "matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
                **{f"matmul.{name}": on for name, on in reductions().items()}}
    return tuple(name for name, on in switches.items() if on)
