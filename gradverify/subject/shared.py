"""What all checks of one process share, and what of it a check left changed: torch's entry points and switches, Python's, the process's own."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from gradverify.subject.ambient import ambient
from gradverify.subject.interpreted import VARIABLE

TABLES: Mapping[str, Any] = MappingProxyType({
    "torch": torch, "torch.autograd": torch.autograd, "torch.autograd.Function": torch.autograd.Function, "torch.Tensor": torch.Tensor,
    "torch.autograd.function": torch.autograd.function, "torch.nn.functional": torch.nn.functional, "torch.nn.Module": torch.nn.Module,
    "torch.autograd.forward_ad": torch.autograd.forward_ad, "torch.func": torch.func})
"""Where functions and classes are looked up by everybody."""

DESCRIPTORS = Path("/proc/self/fd")
THREADS, SIGNALS = "threads", "what signals do"
OFTEN = ("warnings",)        # many modules set filters when they are imported; they are put back
NUMBERS = frozenset({"changed default dtype", "changed deterministic algorithms", "changed float32 products", "changed denormal numbers",
                     "changed reductions on CUDA", "changed cudnn"})
TORCH = f"{Path(torch.__file__).parent}{os.sep}"
OWN = ("TORCHINDUCTOR_", VARIABLE)     # variables that torch's compiler sets when it is imported, and that a check sets for its time


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


def replaced() -> tuple[str, ...]:
    """Which entries of `TABLES` are not what they were when gradverify was imported, one phrase each."""
    return tuple(_replaced(AT_FIRST, Shared({name: _entries(table) for name, table in TABLES.items()}, {}, {})))


def switched(before: Shared, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The settings, by the words for them, that are not as they were before; without those of `but`."""
    return tuple(_switched({name: value for name, value in before.switches.items() if name not in but},
                           {name: value for name, value in _switches() if name not in but}))


def computes_otherwise(changed: Iterable[str]) -> bool:
    """Does what a check set, and what was put back, change numbers? A module that set it as it was imported would be without it in the next check,
    as it is not imported once more."""
    return not NUMBERS.isdisjoint(changed)


def _entries(table: Any) -> dict[str, object]:
    """Functions, classes and descriptors, of a class what is looked up in its bases too: `Tensor.__mul__` is replaced by a new name in Tensor's own
    dict. Private names of modules come and go with lazy imports."""
    if isinstance(table, type):
        found = {name: value for base in reversed(table.__mro__) for name, value in vars(base).items()}
    else:
        found = {name: value for name, value in vars(table).items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if callable(value) or hasattr(value, "__get__")}


def _switches() -> Iterator[tuple[str, object]]:
    yield from ((state.name, state.read()) for state in ambient() if state.name not in OFTEN)
    yield "inference mode", torch.is_inference_mode_enabled()
    yield SIGNALS, tuple(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV))
    yield from ((f"environment variable {name}", value) for name, value in os.environ.items() if not name.startswith(OWN))


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


AT_FIRST = Shared({name: _entries(table) for name, table in TABLES.items()}, {}, {})
"""Before any code of the user's was imported, in a process that is ours."""
