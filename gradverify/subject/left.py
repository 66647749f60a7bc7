"""Global state that a call of the checked function leaves otherwise than it found it: torch's and NumPy's settings, random generators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from types import MappingProxyType
from typing import Any

from gradverify.subject.ambient import ambient

STATES: Mapping[str, str] = MappingProxyType({
    "default dtype": "torch's default dtype", "default device": "torch's default device", "gradient mode": "the gradient mode",
    "autocast on cpu": "autocast on the CPU", "autocast on cuda": "autocast on CUDA", "saved tensors hooks": "hooks on saved tensors",
    "dispatch modes": "torch's dispatch modes", "function modes": "torch's function modes", "denormal numbers": "flushing of denormal numbers",
    "float32 products": "the precision of float32 products", "reductions on CUDA": "the precision of reductions on CUDA",
    "deterministic algorithms": "the choice of deterministic algorithms", "cudnn": "a setting of cuDNN", "threads": "the number of torch's threads",
    "backward's threads": "threads of backward", "anomaly mode": "anomaly mode", "NumPy's errors": "NumPy's handling of errors",
    "garbage collector": "the garbage collector"})
"""Each of `ambient` that is looked at, in words: first those with which what comes after computes other numbers, or trains no more."""

GENERATORS = ("torch's global generator", "NumPy's global generator", "Python's global generator", "a generator of CUDA")


@dataclass(frozen=True, slots=True)
class Left:
    """One piece of global state, in words, as a call found it and as it left it."""

    what: str
    before: str
    after: str


@contextmanager
def noticed() -> Iterator[list[Left]]:
    """What the code inside leaves changed, known at the end."""
    states = [state for state in ambient() if state.name in STATES]
    before, found = [state.read() for state in states], list[Left]()
    yield found
    after = [state.read() for state in states]
    changed = {state.name: (then, now) for state, then, now in zip(states, before, after, strict=True) if then != now}
    if "default device" in changed:
        changed.pop("function modes", None)     # it is one
    found += (Left(words, *_differing(*changed[name])) for name, words in STATES.items() if name in changed)


GRADIENTS_OFF = Left(STATES["gradient mode"], "on", "off")


def generator_name(place: int) -> str:
    """Of what `next_draws` gives at a place."""
    return GENERATORS[min(place, len(GENERATORS) - 1)]


def _differing(then: Any, now: Any) -> tuple[str, str]:
    """The first part in which two states differ, in words."""
    a, b = _parts(then), _parts(now)
    if a is None or b is None or a.keys() != b.keys():
        return _words(then), _words(now)
    name = next(name for name in a if a[name] != b[name])
    words = _differing(a[name], b[name])
    return (f"{name} {words[0]}", f"{name} {words[1]}") if isinstance(name, str) else words


def _parts(state: Any) -> dict[Any, Any] | None:
    if is_dataclass(state) and not isinstance(state, type):
        return asdict(state)
    return dict(enumerate(state)) if isinstance(state, tuple) else state if isinstance(state, dict) else None


def _words(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else "set" if callable(value) or isinstance(value, tuple) else str(value)
