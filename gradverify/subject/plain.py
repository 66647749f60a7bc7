"""Plain numbers among the arguments (a scale, a slope, an eps), other ones of the same kind: for a backward that is right for one of them only.

Floating numbers alone are varied. A whole number is a size, a dimension, a count or an index that belongs to the tensors; a kernel that takes another
one may read beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradverify.subject.draw import DTYPES
from gradverify.subject.failure import UserCodeError
from gradverify.subject.machine import seeded
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import Target, live

BOLD = 1.37         # times each number: no ratio that a formula has by itself
MILD = 1.03         # an error of 3 % is far above every tolerance, and a solver whose step or damping is that far off still converges
TINY = 1e-3         # an eps or a solver's tolerance: larger, never smaller than what can be reached
Move = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a call gets beside its tensors. `words`: "k = 0.685 instead of 0.5" for each number that was varied."""

    arguments: tuple[Argument, ...]
    kwargs: Mapping[str, Any]
    target: Target
    words: tuple[str, ...]

    def twin(self, subject: Subject) -> Subject:
        """The function with these numbers, at these arguments."""
        return subject.twin(self.arguments, self.kwargs, self.target)


def with_other_numbers(subject: Subject, arguments: Sequence[Argument], size: float) -> Numbers | None:
    """The arguments with every floating number among them `size` times as large; None where there is none.

    Those between 0 and 1 stay there (a probability, a momentum): all others but tiny ones are then divided too, so that they keep their order.
    """
    plain = [(a.name, a.value) for a in arguments if not a.is_tensor] + list(subject.kwargs.items())
    init = list((subject.case.init or {}).items()) if subject.target.kind == "module" else []
    found = [number for _, value in plain + init for number in _numbers(value)]
    divided = any(TINY <= abs(number) < 1 <= abs(number) * size for number in found)

    def move(number: float) -> float:
        return number / size if divided and abs(number) >= TINY else number * size

    target = _rebuilt(subject, move) if any(_numbers([value for _, value in init])) else None
    varied = [(name, value) for name, value in plain + (init if target else []) if any(_numbers(value))]
    if not varied:
        return None
    own = tuple(a if a.is_tensor else replace(a, value=_moved(a.value, move)) for a in arguments)
    words = tuple(f"{name} = {_moved(value, move)!r} instead of {value!r}" for name, value in varied)
    return Numbers(own, _moved(subject.kwargs, move), target or subject.target, words)


def _numbers(value: Any) -> Iterator[float]:
    """The numbers that are varied: not whole ones by type, nor 0, nor infinite ones."""
    if type(value) is float and math.isfinite(value) and value:
        yield value
    elif type(value) in (list, tuple):
        for item in value:
            yield from _numbers(item)
    elif type(value) is dict:
        yield from _numbers(list(value.values()))


def _moved(value: Any, move: Move) -> Any:
    if type(value) is float:
        return float(f"{move(value):.6g}") if any(_numbers(value)) else value       # as short as somebody would write it
    if type(value) is dict:
        return {key: _moved(item, move) for key, item in value.items()}
    return type(value)(_moved(item, move) for item in value) if type(value) in (list, tuple) else value


def _rebuilt(subject: Subject, move: Move) -> Target | None:
    """The module built with other numbers; None where its class refuses them, or has other parameters then."""
    settings, found = subject.case.settings, subject.target
    try:
        with seeded(settings.seed):
            built = live(found.name, type(found.subject), _moved(dict(subject.case.init or {}), move), DTYPES[settings.dtype])
    except UserCodeError:
        return None
    built.subject.to(device=torch.device(settings.device), dtype=DTYPES[settings.dtype])
    return built if _shapes(built.subject) == _shapes(found.subject) else None


def _shapes(module: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in module.named_parameters()}
