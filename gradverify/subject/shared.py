"""What all checks of one process share, and what of it a check left changed: torch's entry points and switches, Python's, the process's own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

TABLES: Mapping[str, Any] = MappingProxyType({
    "torch": torch, "torch.autograd": torch.autograd, "torch.autograd.Function": torch.autograd.Function, "torch.Tensor": torch.Tensor,
    "torch.autograd.function": torch.autograd.function, "torch.nn.functional": torch.nn.functional, "torch.nn.Module": torch.nn.Module,
    "torch.autograd.forward_ad": torch.autograd.forward_ad, "torch.func": torch.func, "torch._C.TensorBase": torch._C.TensorBase})
"""Where functions and classes are looked up by everybody."""

DESCRIPTORS = Path("/proc/self/fd")
THREADS, SIGNALS = "the number of threads", "what signals do"
TORCH = f"{Path(torch.__file__).parent}{os.sep}"
COMPILERS = "TORCHINDUCTOR_"     # variables that torch sets itself when its compiler is imported
SUBNORMAL = 1e-310      # a float64 that turns 0 where subnormal numbers are flushed


@dataclass(frozen=True)
class Shared:
    """`entries`: what each name of a table is; `switches`: settings by the words for them; `kept`: names of things that are to be given back."""

    entries: Mapping[str, Mapping[str, object]]
    switches: Mapping[str, object]
    kept: Mapping[str, frozenset[object]]


def look() -> Shared:
    """As it is now. About a millisecond."""
    return Shared({name: _entries(table) for name, table in TABLES.items()}, dict(_switches()), dict(_kept()))


def changes(before: Shared, after: Shared) -> tuple[str, ...]:
    """In words, one phrase each; empty where all is as it was."""
    return (*_replaced(before, after), *_switched(before.switches, after.switches), *_left(before, after))


def switched(before: Shared, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The settings, by the words for them, that are not as they were before; without those of `but`."""
    return tuple(_switched({name: value for name, value in before.switches.items() if name not in but},
                           {name: value for name, value in _switches() if name not in but}))


def _entries(table: Any) -> dict[str, object]:
    """Functions, classes and descriptors; private names of modules come and go with lazy imports."""
    private = not isinstance(table, type)
    return {name: value for name, value in vars(table).items()
            if not (private and name.startswith("_")) and (callable(value) or hasattr(value, "__get__"))}


def _switches() -> Iterator[tuple[str, object]]:
    yield "the default dtype", torch.get_default_dtype()
    yield "the default device", torch.get_default_device()
    yield "whether gradients are recorded", torch.is_grad_enabled()
    yield "inference mode", torch.is_inference_mode_enabled()
    yield "anomaly detection", torch.is_anomaly_enabled()
    yield "deterministic algorithms", (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    yield THREADS, torch.get_num_threads()
    yield "the precision of float32 products", torch.get_float32_matmul_precision()
    yield "autocast on the CPU", torch.is_autocast_enabled("cpu")
    yield "what becomes of subnormal numbers", float(torch.full((1,), SUBNORMAL, dtype=torch.float64) * 1.0)
    yield "NumPy's error handling", tuple(sorted(np.geterr().items()))
    yield "sys.path", tuple(sys.path)
    yield "the recursion limit", sys.getrecursionlimit()
    yield "the current folder", _folder()
    yield from ((f"the environment variable {name}", value) for name, value in os.environ.items() if not name.startswith(COMPILERS))
    yield SIGNALS, tuple(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV))


def _kept() -> Iterator[tuple[str, frozenset[object]]]:
    yield "thread", frozenset(thread.ident for thread in threading.enumerate())
    with contextlib.suppress(OSError):
        tasks = Path("/proc/self/task")
        yield "child process", frozenset(child for task in tasks.iterdir() for child in (task / "children").read_text().split())
    with contextlib.suppress(OSError):
        yield "file descriptor", _descriptors()


def _descriptors() -> frozenset[object]:
    """Numbers with what they lead to, without the one that lists the folder itself."""
    found = set[object]()
    for entry in os.listdir(DESCRIPTORS):  # noqa: PTH208 - names only, in a third of the time
        with contextlib.suppress(OSError):
            found.add((int(entry), os.readlink(DESCRIPTORS / entry)))  # noqa: PTH115 - as above
    return frozenset(found)


def _folder() -> str | None:
    with contextlib.suppress(OSError):
        return os.getcwd()  # noqa: PTH109
    return None


def _replaced(before: Shared, after: Shared) -> Iterator[str]:
    for table, entries in before.entries.items():
        now = after.entries[table]
        yield from (f"replaced {table}.{name}" if name in now else f"removed {table}.{name}"
                    for name, value in entries.items() if not _is_same(now.get(name), value))


def _is_same(now: object, before: object) -> bool:
    """Also as torch itself wraps it, when its compiler is imported."""
    code = getattr(now, "__code__", None)
    return now is before or (getattr(now, "__wrapped__", None) is before and code is not None and code.co_filename.startswith(TORCH))


def _switched(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    return (f"changed {name}" for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name))


def _left(before: Shared, after: Shared) -> Iterator[str]:
    for name, members in before.kept.items():
        now = after.kept.get(name, members)
        left, gone = len(now - members), len(members - now)
        if left:
            yield f"left {left} {name}{'' if left == 1 else 'es' if name.endswith('s') else 's'}"
        if gone and name == "file descriptor":
            yield f"closed or changed {gone} {name}{'' if gone == 1 else 's'} that it did not open"
