"""What torch says of this machine, and its global state, left as it was found."""

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

NUMPY_SEEDS = 2**32  # NumPy's global stream takes no larger seed
SMALL = 2**16  # elements of all inputs together, below which one thread computes


def cuda_devices() -> tuple[str, ...]:
    """The names of the CUDA devices; empty where there is none."""
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def threads() -> int:
    """How many threads torch computes with."""
    return int(torch.get_num_threads())


def compute_on_one_thread(elements: int) -> None:
    """Small functions are called thousands of times: there, threads spend their time waiting for
    each other.

    Measured on two busy cores, 1.3·10⁶ elements of a 32×128 by 128×10 product: 352 s on two
    threads, 11 s on one.
    """
    if elements < SMALL:
        torch.set_num_threads(1)


def seed_all(seed: int, cuda: bool = False) -> None:
    """Sets the global generators of torch, NumPy and Python. `cuda`: those of the CUDA devices
    too."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % NUMPY_SEEDS)
    random.seed(seed)
    if cuda:
        torch.cuda.manual_seed_all(seed)


@contextmanager
def _same_randomness(devices: Iterable[int] = ()) -> Iterator[None]:
    """The global generators, and those of these CUDA devices, are afterwards what they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What is drawn inside from the global generators on the CPU depends on the seed alone; they
    are afterwards what they were."""
    with _same_randomness():
        seed_all(seed)
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Random states and all other global state (`ambient`) are afterwards what they were, whatever
    the user's code did. Triton's kernels run, on a machine without a GPU too (`interpreting`)."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with interpreting(), _same_randomness(devices), left_as_found():
        _tell_no_error_of_warnings()
        yield


@contextmanager
def as_torch_starts() -> Iterator[None]:
    """Inside `undisturbed`: what tests of the same process have set of torch and NumPy (a default
    device, no_grad) is not in a check's way."""
    own_device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    with torch.inference_mode(False), own_device:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
        yield


@contextmanager
def imports(has_gpu: bool) -> Iterator[None]:
    """For a process that imports users' modules and then forks: they find torch and NumPy as these
    start, and kernels are the interpreter's where there is no GPU."""
    with nullcontext() if has_gpu else interpreting(), as_torch_starts():
        _tell_no_error_of_warnings()
        yield


def cannot_fork() -> str | None:
    """What importing a user's modules did that a child of this process would not have; None where
    it may fork."""
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
    """Inside, the user's modules are imported, and what a check needs is built of them. What stands
    in the way of the calls that follow (gradients turned off, inference mode, autocast, a default
    device) is put back at the end; the names of what was."""
    with torch.inference_mode(False), left_as_found(EVERY) as changed:
        yield changed
        if torch.is_inference_mode_enabled():
            changed.append("inference mode")
    _tell_no_error_of_warnings()


def _tell_no_error_of_warnings() -> None:
    """Where warnings are errors (PYTHONWARNINGS=error, a test suite), those that unusual calls of
    torch give would be taken for the function's."""
    if any(action == "error" for action, *_ in warnings.filters):
        set_filters(
            [("default" if each[0] == "error" else each[0], *each[1:]) for each in warnings.filters]
        )


def random_states(cuda: bool) -> tuple[object, ...]:
    """What the global generators would draw next: equal before and after code that drew nothing.
    `cuda`: of the CUDA devices too."""
    name, keys, *rest = np.random.get_state(legacy=True)
    first, *devices = _torchs(cuda)
    return first, name, np.asarray(keys).tobytes(), *rest, random.getstate(), *devices


def next_draws(cuda: bool) -> tuple[object, ...]:
    """`random_states` in a tenth of the time: the next numbers of NumPy's and Python's generators
    are drawn, which are to be seeded anew."""
    first, *devices = _torchs(cuda)
    return first, np.random.random_sample(), random.random(), *devices


def _torchs(cuda: bool) -> list[bytes]:
    """The states of torch's generators, that of the CPU first."""
    devices = torch.cuda.get_rng_state_all() if cuda else []
    return [x.numpy().tobytes() for x in (torch.default_generator.get_state(), *devices)]


def use_threads(count: int) -> None:
    """How many threads torch computes with in this process."""
    torch.set_num_threads(count)


@contextmanager
def by_default() -> Iterator[None]:
    """What is made without a dtype is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
