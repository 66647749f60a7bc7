"""Global state of torch, NumPy and Python that a call may change: read before, compared and
restored after."""

from __future__ import annotations

import contextlib
import gc
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch

from gradverify.subject.fewer_bits import (
    Float32,
    float32_products,
    reductions,
    set_float32_products,
    set_reductions,
)
from gradverify.torch_private import (
    backward_is_threaded,
    dispatch_modes,
    function_modes,
    pop_dispatch_mode,
    pop_function_mode,
    pop_saved_tensors_hooks,
    saved_tensors_hooks,
    set_backward_threaded,
    set_cudnn,
)

# ---- Global state of torch, NumPy and Python
AUTOCAST = {"cpu": "the CPU", "cuda": "CUDA"}
GRADIENT_MODE = "the gradient mode"
DENORMAL = 1e-310  # of float64: 0 where denormal numbers are flushed


class Ambient(NamedTuple):
    """One piece of global state. `words`: its name in findings, if a call must not leave it
    changed."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    words: str = ""


@contextmanager
def left_as_found(names: Sequence[str] = ()) -> Iterator[list[str]]:
    """Context after which the states with these names (by default all) are restored, in this order.
    Yields a list that holds the names of the changed states afterwards."""
    known = {state.name: state for state in ambient()}
    states = [known[name] for name in names or known]
    before, changed = [state.read() for state in states], list[str]()
    try:
        yield changed
    finally:
        for state, value in zip(states, before, strict=True):
            if state.read() != value:
                changed.append(state.name)
                state.write(value)


def ambient() -> tuple[Ambient, ...]:
    """Return all states, those first that affect how others are restored: a default device is a
    function mode."""
    return (
        Ambient(
            "function modes",
            lambda: len(function_modes()),
            _popped(function_modes, pop_function_mode),
            "torch's function modes",
        ),
        Ambient(
            "dispatch modes",
            lambda: len(dispatch_modes()),
            _popped(dispatch_modes, pop_dispatch_mode),
            "torch's dispatch modes",
        ),
        Ambient(
            "saved tensors hooks", saved_tensors_hooks, _without_hooks, "hooks on saved tensors"
        ),
        Ambient(
            "default dtype",
            torch.get_default_dtype,
            torch.set_default_dtype,
            "torch's default dtype",
        ),
        # No default device means the CPU, without a mode that passes every call through Python
        Ambient(
            "default device",
            torch.get_default_device,
            lambda old: torch.set_default_device(None if old == torch.device("cpu") else old),
            "torch's default device",
        ),
        Ambient("gradient mode", torch.is_grad_enabled, torch.set_grad_enabled, GRADIENT_MODE),
        Ambient(
            "threads", torch.get_num_threads, torch.set_num_threads, "the number of torch's threads"
        ),
        Ambient(
            "anomaly mode",
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda old: torch.set_anomaly_enabled(*old),
            "anomaly mode",
        ),
        Ambient(
            "deterministic algorithms",
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda old: torch.use_deterministic_algorithms(old[0], warn_only=old[1]),
            "the choice of deterministic algorithms",
        ),
        Ambient(
            "float32 products",
            float32_products,
            set_float32_products,
            "the precision of float32 products",
        ),
        Ambient(
            "backward's threads", backward_is_threaded, set_backward_threaded, "threads of backward"
        ),
        # Not by `*`, which the check may have replaced
        Ambient(
            "denormal numbers",
            lambda: torch.tensor(DENORMAL, dtype=torch.float64, device="cpu").mul(1).item() == 0.0,
            torch.set_flush_denormal,
            "flushing of denormal numbers",
        ),
        *(
            Ambient(f"autocast on {device}", *_autocast(device), f"autocast on {words}")
            for device, words in AUTOCAST.items()
        ),
        Ambient(
            "reductions on CUDA", reductions, set_reductions, "the precision of reductions on CUDA"
        ),
        # By torch's private setters: the attributes of torch.backends.cudnn cannot be set once
        # torch's own test utilities are imported
        Ambient(
            "cudnn",
            lambda: tuple(getattr(torch.backends.cudnn, name) for name in CUDNN),
            lambda old: [*map(set_cudnn, CUDNN, old)],
            "a setting of cuDNN",
        ),
        Ambient(
            "NumPy's errors", np.geterr, lambda old: np.seterr(**old), "NumPy's handling of errors"
        ),
        Ambient("warnings", lambda: list(warnings.filters), set_filters),
        Ambient(
            "garbage collector",
            gc.isenabled,
            lambda on: gc.enable() if on else gc.disable(),
            "the garbage collector",
        ),
        Ambient("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
        Ambient(
            "sys.path",
            lambda: list(sys.path),
            lambda old: operator.setitem(sys.path, slice(None), old),
        ),
        Ambient(
            "current folder",
            _current_folder,
            lambda folder: os.chdir(folder) if folder is not None else None,
        ),
    )


OURS = ("default device", "NumPy's errors", "warnings", "recursion limit", "sys.path")
"""States that affect our own computations (torch imports parts of itself meanwhile), restored after
every call if a forward sets them."""
EVERY = (
    "default device",
    "function modes",
    "dispatch modes",
    "saved tensors hooks",
    "gradient mode",
    "anomaly mode",
    "backward's threads",
    "autocast on cpu",
    "autocast on cuda",
    "NumPy's errors",
)
"""States that affect all later calls, restored after the import of a module that sets them; the
default device first, as it is a function mode."""


CUDNN = ("enabled", "benchmark", "deterministic")


def _autocast(device: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    def write(old: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, old[0])
        torch.set_autocast_dtype(device, old[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), write


def _popped(stack: Callable[[], Sequence[Any]], pop: Callable[[], Any]) -> Callable[[int], None]:
    def write(depth: int) -> None:
        while len(stack()) > depth:
            pop()

    return write


def _without_hooks(old: Any) -> None:
    while saved_tensors_hooks() not in (None, old):
        pop_saved_tensors_hooks()


def set_filters(old: list[Any]) -> None:
    """Set the filters of Python's warnings."""
    warnings.filters[:] = old  # type: ignore[index]
    with warnings.catch_warnings():  # invalidates Python's cache of the filters
        pass


def _current_folder() -> str | None:
    """Return the current folder; None where it was deleted."""
    with contextlib.suppress(OSError):
        return os.getcwd()  # noqa: PTH109 - a plain text that os.chdir takes back
    return None


# ---- Global state that a call of the checked function leaves changed: settings of torch and NumPy,
# random generators
GENERATORS = (
    "torch's global generator",
    "NumPy's global generator",
    "Python's global generator",
    "a generator of CUDA",
)


class Left(NamedTuple):
    """One piece of global state, in words, before and after a call."""

    what: str
    before: str
    after: str


@contextmanager
def noticed() -> Iterator[list[Left]]:
    """Context that records the global state that the code inside leaves changed, in a list that is
    complete at the end."""
    states = [state for state in ambient() if state.words]
    before, found = [state.read() for state in states], list[Left]()
    yield found
    after = [state.read() for state in states]
    changed = {
        state.name: Left(state.words, *_differing(then, now))
        for state, then, now in zip(states, before, after, strict=True)
        if then != now
    }
    if "default device" in changed:
        changed.pop("function modes", None)  # a default device is a function mode
    found += changed.values()


GRADIENTS_OFF = Left(GRADIENT_MODE, "on", "off")


def generator_name(place: int) -> str:
    """Return the name of the generator at an index of `next_draws`."""
    return GENERATORS[min(place, len(GENERATORS) - 1)]


def _differing(then: Any, now: Any) -> tuple[str, str]:
    """Return the first part in which two states differ, in words."""
    a, b = _parts(then), _parts(now)
    if a is None or b is None or a.keys() != b.keys():
        return _words(then), _words(now)
    name = next(name for name in a if a[name] != b[name])
    words = _differing(a[name], b[name])
    return (f"{name} {words[0]}", f"{name} {words[1]}") if isinstance(name, str) else words


def _parts(state: Any) -> dict[Any, Any] | None:
    if isinstance(state, Float32):
        return asdict(state)
    return (
        dict(enumerate(state))
        if isinstance(state, tuple)
        else state
        if isinstance(state, dict)
        else None
    )


def _words(value: Any) -> str:
    return (
        ("on" if value else "off")
        if isinstance(value, bool)
        else "set"
        if callable(value) or isinstance(value, tuple)
        else str(value)
    )
