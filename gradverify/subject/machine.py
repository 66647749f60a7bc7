"""Properties of the machine, random generators, and contexts that preserve torch's global state."""

from __future__ import annotations

import os
import random
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch

from gradverify.subject.ambient import EVERY, left_as_found, set_filters
from gradverify.subject.interpreted import interpreting

NUMPY_SEEDS = 2**32  # the bound of seeds of NumPy's global generator
SMALL = 2**16  # elements of all inputs together, below which one thread computes


def cuda_devices() -> tuple[str, ...]:
    """Return the names of the CUDA devices; empty where there is none."""
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def threads() -> int:
    """Return the number of threads that torch computes with."""
    return int(torch.get_num_threads())


def compute_on_one_thread(elements: int) -> None:
    """Let torch compute with one thread if the inputs have few elements: in small functions, which
    are called thousands of times, threads only wait for each other.

    Measured on two busy cores, 1.3·10⁶ elements of a 32×128 by 128×10 product: 352 s on two
    threads, 11 s on one.
    """
    if elements < SMALL:
        torch.set_num_threads(1)


def seed_all(seed: int, cuda: bool = False) -> None:
    """Seed the global generators of torch, NumPy and Python. `cuda`: those of the CUDA devices
    too."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % NUMPY_SEEDS)
    random.seed(seed)
    if cuda:
        torch.cuda.manual_seed_all(seed)


@contextmanager
def _same_randomness(devices: Iterable[int] = ()) -> Iterator[None]:
    """Context after which the global generators, and those of these CUDA devices, are restored."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Context in which draws from the global generators on the CPU depend on the seed alone; the
    generators are restored afterwards."""
    with _same_randomness():
        seed_all(seed)
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Context after which random states and all other global state (`ambient`) are restored,
    whatever the user's code did. Triton's kernels run inside even without a GPU
    (`interpreting`)."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with interpreting(), _same_randomness(devices), left_as_found():
        _never_raise_warnings()
        yield


@contextmanager
def as_torch_starts() -> Iterator[None]:
    """Context with the initial settings of torch and NumPy, inside `undisturbed`: settings of other
    tests in the process (a default device, no_grad) do not affect a check."""
    own_device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    with torch.inference_mode(False), own_device:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
        yield


@contextmanager
def imports(has_gpu: bool) -> Iterator[None]:
    """Context of a process that imports users' modules and then forks: torch and NumPy have their
    initial settings, and Triton's kernels use the interpreter if there is no GPU."""
    with nullcontext() if has_gpu else interpreting(), as_torch_starts():
        _never_raise_warnings()
        yield


def cannot_fork() -> str | None:
    """Return what importing a user's modules did that a forked child would not inherit; None where
    the process may fork."""
    try:
        count = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names only
    except OSError:
        count = threading.active_count()
    if count > 1:
        return f"started {count - 1} thread{'s' * (count > 2)} while it was imported"
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return "used a CUDA device while it was imported" if used else None


@contextmanager
def imported() -> Iterator[list[str]]:
    """Context for importing the user's modules, and building objects of them. Global state that
    affects later calls (gradients turned off, inference mode, autocast, a default device) is
    restored at the end; yields a list of the names of what was."""
    with torch.inference_mode(False), left_as_found(EVERY) as changed:
        yield changed
        if torch.is_inference_mode_enabled():
            changed.append("inference mode")
    _never_raise_warnings()


def _never_raise_warnings() -> None:
    """Turn filters that raise warnings as errors (PYTHONWARNINGS=error, a test suite) into ones
    that do not: unusual calls of torch warn, which would be reported as errors of the function."""
    if any(action == "error" for action, *_ in warnings.filters):
        set_filters(
            [("default" if each[0] == "error" else each[0], *each[1:]) for each in warnings.filters]
        )


def random_states(cuda: bool) -> tuple[object, ...]:
    """Return the states of the global generators, which code that draws nothing does not change.
    `cuda`: of the CUDA devices too."""
    name, keys, *rest = np.random.get_state(legacy=True)
    first, *devices = _torchs(cuda)
    return first, name, np.asarray(keys).tobytes(), *rest, random.getstate(), *devices


def next_draws(cuda: bool) -> tuple[object, ...]:
    """Return the next numbers of NumPy's and Python's generators, which must be seeded again
    afterwards, and the states of torch's: a tenth of the time of `random_states`."""
    first, *devices = _torchs(cuda)
    return first, np.random.random_sample(), random.random(), *devices


def _torchs(cuda: bool) -> list[bytes]:
    """Return the states of torch's generators, that of the CPU first."""
    devices = torch.cuda.get_rng_state_all() if cuda else []
    return [x.numpy().tobytes() for x in (torch.default_generator.get_state(), *devices)]


def use_threads(count: int) -> None:
    """Set the number of threads that torch computes with in this process."""
    torch.set_num_threads(count)


@contextmanager
def by_default() -> Iterator[None]:
    """Context in which torch's default dtype is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
