"""What torch says of this machine, and its global state, left as it was found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def cuda_devices() -> tuple[str, ...]:
    """The names of the CUDA devices; empty where there is none."""
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def threads() -> int:
    """How many threads torch computes with."""
    return int(torch.get_num_threads())


@contextmanager
def undisturbed() -> Iterator[None]:
    """Random states, default dtype, gradient mode and threads are afterwards what they were, whatever the user's code did."""
    dtype, mode, count = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else []):
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(mode)
            torch.set_num_threads(count)
            random.setstate(python)
            np.random.set_state(numpy)
