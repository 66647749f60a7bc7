"""Triton kernels on machines without a GPU, run by Triton's interpreter with NumPy on the CPU.
Triton itself is never imported here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

VARIABLE = "TRITON_INTERPRET"
# The class whose calls launch kernels
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
    """Context in which imported kernels will use the interpreter, if there is no CUDA device and
    the environment variable is not set.

    Parts of Triton that torch imports (for torch.compile) have to be imported inside too, as
    kernels call them.
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
    """Return the number of kernels that a call launches under the interpreter; without making the
    call, 0 if the interpreter is not loaded."""
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
