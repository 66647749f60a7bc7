"""Triton kernels where there is no GPU: Triton's interpreter computes them with NumPy, on the CPU.
Triton itself is never imported here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

VARIABLE = "TRITON_INTERPRET"
# Whose calls are launches of a kernel
MODULE, LAUNCHES = "triton.runtime.interpreter", "GridExecutor"
INSTALL = (
    "`pip install 'gradverify[triton]'`: where there is no GPU, its kernels are then checked under "
    "Triton's interpreter"
)
TOO_LATE = (
    f"its kernels run on a GPU (`device: cuda`), or under Triton's interpreter, where {VARIABLE}=1 "
    "is set before they are imported"
)


@contextmanager
def interpreting() -> Iterator[None]:
    """Kernels that are imported inside run under the interpreter, where there is no CUDA device and
    the environment does not say what shall be.

    Also what torch imports of Triton by itself (torch.compile) has to be made so: kernels call it.
    """
    if VARIABLE in os.environ or torch.cuda.is_available():
        yield
        return
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


def launches(call: Callable[[], object]) -> int:
    """How many kernels a call launches under the interpreter; it is not made where the interpreter
    is not loaded."""
    executor: Any = getattr(sys.modules.get(MODULE), LAUNCHES, None)
    if executor is None:
        return 0
    counted, launch = 0, executor.__call__

    def counting(*given: Any, **named: Any) -> Any:
        nonlocal counted
        counted += 1
        return launch(*given, **named)

    executor.__call__ = counting
    try:
        call()
    finally:
        executor.__call__ = launch
    return counted
