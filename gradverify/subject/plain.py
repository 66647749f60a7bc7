"""Plain numbers among the arguments (a scale, a slope, an eps), other ones of the same kind: for a backward that is right for one of them only.

Floating numbers are varied, a tensor without dimensions that is given and not differentiated among them; and a whole number as far as forward takes a
real one in its place (a power): sizes, dimensions, counts and indices are refused by torch as such, so that nothing reads beyond the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.draw import DTYPES
from gradverify.subject.failure import UserCodeError
from gradverify.subject.machine import seeded
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import Target, live

BOLD = 1.37         # times each number: no ratio that a formula has by itself
MILD = 1.03         # an error of 3 % is far above every tolerance, and a solver whose step or damping is that far off still converges
TINY = 1e-3         # below: an eps, whose root is large enough to be seen; or a solver's tolerance, which is never tightened
ROOT = 1 / 3        # of a tiny number: 1e-5 becomes 0.02, 1e-12 becomes 1e-4
TOLERANCE = "tol"   # in the name of one
SMOOTH = (1.0, 1.003, 1.01, 1.03)       # times a number of a formula: the output is another one each time; a tolerance counts iterations


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a call gets in the place of its own numbers. `words`: "k = 0.685 instead of 0.5" for each number, by name, that was varied."""

    arguments: tuple[Argument, ...]
    kwargs: Mapping[str, Any]
    target: Target
    words: Mapping[str, str]

    def twin(self, subject: Subject) -> Subject:
        """The function with these numbers, at these arguments."""
        return subject.twin(self.arguments, self.kwargs, self.target)


@dataclass(frozen=True, slots=True)
class Variation:
    """How numbers are varied: `size` times; `tiny`: those below TINY by much; `whole`: the names of whole numbers that are reals to forward;
    `only`: this name alone."""

    size: float
    tiny: bool = False
    whole: frozenset[str] = frozenset()
    only: str | None = None
    divided: bool = False

    def takes(self, name: str, number: float) -> bool:
        return self.only in (None, name) and (type(number) is float or name in self.whole)

    def of(self, name: str, number: float) -> float:
        """The number in its place, as short as somebody would write it."""
        if type(number) is int:
            return float(number + 1)
        if self.tiny and is_tiny(name, number):
            moved = math.copysign(abs(number) ** ROOT, number) * self.size
        else:
            moved = number / self.size if self.divided and abs(number) >= TINY else number * self.size
        return float(f"{moved:.6g}")


def is_tiny(name: str, number: float) -> bool:
    """Is it an eps, as far as its size and name tell?"""
    return type(number) is float and 0 < abs(number) < TINY and TOLERANCE not in name.lower()


def with_other_numbers(subject: Subject, arguments: Sequence[Argument], variation: Variation) -> Numbers | None:
    """The arguments with other numbers among them; None where there is none.

    Those between 0 and 1 stay there (a probability, a momentum): all others but tiny ones are then divided too, so that they keep their order.
    """
    plain, init = _plain(subject, arguments), _init(subject)
    found = [number for name, value in (*plain.items(), *init.items()) for number in _numbers(value) if variation.takes(name, number)]
    variation = replace(variation, divided=any(TINY <= abs(number) < 1 <= abs(number) * variation.size for number in found))
    moved = {name: _moved(name, value, variation) for name, value in plain.items()}
    built = _rebuilt(subject, {name: _moved(name, value, variation) for name, value in init.items()}) if init else None
    if built is not None:
        plain, moved = plain | init, moved | {name: _moved(name, value, variation) for name, value in init.items()}
    words = {name: f"{name} = {moved[name]!r} instead of {value!r}" for name, value in plain.items() if moved[name] != value}
    if not words:
        return None
    own = tuple(replace(a, value=_like(a.value, moved[a.name])) if a.name in words and not a.differentiable else a for a in arguments)
    return Numbers(own, {name: moved.get(name, value) for name, value in subject.kwargs.items()}, built or subject.target, words)


def names_of_tiny(subject: Subject, arguments: Sequence[Argument]) -> frozenset[str]:
    """The names of what holds an eps."""
    plain = _plain(subject, arguments) | _init(subject)
    return frozenset(name for name, value in plain.items() if any(is_tiny(name, number) for number in _numbers(value)))


def names_of_whole(subject: Subject, arguments: Sequence[Argument]) -> tuple[str, ...]:
    """The names of positive whole numbers among the arguments."""
    return tuple(name for name, value in _plain(subject, arguments).items() if type(value) is int and value > 0)


def _plain(subject: Subject, arguments: Sequence[Argument]) -> dict[str, Any]:
    """The values among the arguments, by name, that may be numbers. A tensor without dimensions counts as one where it is as it was given."""
    given = {a.name: a.value for a in subject.arguments if not a.is_tensor}
    return given | {a.name: float(a.value) for a, b in zip(subject.arguments, arguments, strict=True) if _is_number(a) and same(a.value, b.value)} \
        | {name: value for name, value in subject.kwargs.items() if not isinstance(value, Tensor)}


def _is_number(argument: Argument) -> bool:
    x = argument.value
    return isinstance(x, Tensor) and not argument.differentiable and x.dim() == 0 and x.is_floating_point() and x.layout == torch.strided


def _like(old: Any, number: Any) -> Any:
    return torch.full_like(old, number) if isinstance(old, Tensor) else number


def _init(subject: Subject) -> dict[str, Any]:
    """What a module is built with, where that holds a floating number."""
    init = dict(subject.case.init or {}) if subject.target.kind == "module" else {}
    return init if any(type(number) is float for number in _numbers(init)) else {}


def _numbers(value: Any) -> Iterator[float]:
    """The numbers in a value but 0, and infinite ones; whole ones by themselves only."""
    if type(value) in (float, int) and math.isfinite(value) and value:
        yield value
    elif type(value) in (list, tuple):
        for item in value:
            yield from (number for number in _numbers(item) if type(number) is float)
    elif type(value) is dict:
        yield from _numbers(list(value.values()))


def _moved(name: str, value: Any, variation: Variation) -> Any:
    if type(value) in (float, int):
        return variation.of(name, value) if any(variation.takes(name, number) for number in _numbers(value)) else value
    if type(value) is dict:
        return {key: _moved(name, item, variation) for key, item in value.items()}
    return type(value)(_moved(name, item, variation) for item in value) if type(value) in (list, tuple) else value


def _rebuilt(subject: Subject, init: Mapping[str, Any]) -> Target | None:
    """The module built with other numbers; None where its class refuses them, or has other parameters then."""
    settings, found = subject.case.settings, subject.target
    try:
        with seeded(settings.seed):
            built = live(found.name, type(found.subject), init, DTYPES[settings.dtype])
    except UserCodeError:
        return None
    built.subject.to(device=torch.device(settings.device), dtype=DTYPES[settings.dtype])
    return built if _shapes(built.subject) == _shapes(found.subject) else None


def _shapes(module: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in module.named_parameters()}
