"""The check for a recorded call: numbers described by kind, or kept where no kind runs, and sizes
as small as forward accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import (
    Case,
    InputRecipe,
    Json,
    Settings,
    SpecPlace,
    TensorRecipe,
    is_cut,
)
from gradverify.model.proposal import SMALL_SIZE, Proposal, Sought
from gradverify.spec.names import own_name
from gradverify.subject.draw import DTYPES
from gradverify.subject.target import Target
from gradverify.trial.call import Level, Outcome, called

MOST = 12  # calls for one check
IN_SPEC = 64  # numbers of a tensor that are written into the spec; more go into a file
CLOSE = 1e-4  # how far from a property rounding may have brought numbers of any precision
LIKELY = 3  # standard errors within which mean and deviation are those of a standard normal draw
FEW = 3  # values of a tensor that is drawn from them
Sizes = Mapping[int, int]
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def replayed(sought: Sought, target: Target) -> Proposal:
    """Return the proposal for a recorded call: the first one tried whose gradients are finite and
    not all zero; else that which came furthest."""
    call = torch.load(str(sought.call), weights_only=True)
    replay = Replay(sought, target, call)
    same = {size: size for size in replay.sizes}
    for kept in range(3):
        if replay.tried(kept, replay.smallest()) or (
            replay.tried(kept, same) and replay.shrunk(kept, same)
        ):
            break
    return replay.proposal()


class Unmarked(Exception):  # noqa: N818 - sizes that do not do are no error
    """Raised where a smaller tensor has no place for its marks."""


class Replay:
    """Trials of one recorded call. `best`: the case that came furthest, with its outcome; `sizes`:
    those that may change; `integers`: the plain ones among the arguments. In a trial, `kept` is 0
    if all numbers are described, 1 if whole numbers are kept as they were, 2 if all are."""

    def __init__(self, sought: Sought, target: Target, call: Mapping[str, Any]) -> None:
        self.sought, self.target, self.calls = sought, target, 0
        self.graded: bool = call["graded"]
        names = _names(target, len(call["arguments"]))
        self.given: dict[str, Any] = dict(zip(names, call["arguments"], strict=True))
        self.keywords: dict[str, Any] = call["keywords"]
        self.tensors = [
            each
            for value in (*self.given.values(), *self.keywords.values())
            for each in (value if isinstance(value, list) else [value])
            if isinstance(each, dict)
        ]
        plain = (*self.given.values(), *self.keywords.values())
        self.integers = sorted({value for value in plain if type(value) is int})
        self.every = sorted({size for each in self.tensors for size in each["shape"]})
        self.sizes = [size for size in self.every if size > SMALL_SIZE]
        floating = [each for each in self.tensors if not _whole(each["numbers"])]
        floating.sort(key=lambda each: not each["requires_grad"])
        self.dtype = NAMES[floating[0]["numbers"].dtype] if floating else "float64"
        self.device = max((each["device"] for each in self.tensors), default="cpu")  # cpu < cuda
        self.best: tuple[Case, Outcome] | None = None

    def smallest(self) -> Sizes:
        """Return sizes in the same order, as small as they can be without being equal."""
        first = max([1, *(size for size in self.every if size <= SMALL_SIZE)]) + 1
        return {size: min(size, first + place) for place, size in enumerate(self.sizes)}

    def shrunk(self, kept: int, sizes: Sizes) -> bool:
        """Make one size after the other smaller, the largest first, where forward accepts that."""
        for size, least in sorted(self.smallest().items(), reverse=True):
            for new in (least, 2 * SMALL_SIZE):
                if new < size and self.tried(kept, {**sizes, size: new}):
                    sizes = {**sizes, size: new}
                    break
        return True

    def tried(self, kept: int, sizes: Sizes) -> bool:
        """Make a call, unless there were too many; return whether it gave gradients, and finite
        outputs for other random numbers too."""
        if self.calls >= MOST:
            return False
        case = self._case(kept, sizes)
        if case is None:
            return False
        self.calls += 1
        outcome = called(case, self.target)
        if outcome.level == Level.WHOLE:
            seed = case.settings.seed + 1
            again = called(replace(case, settings=replace(case.settings, seed=seed)), self.target)
            outcome = again if again.level <= Level.NOT_FINITE or again.stepped else outcome
        whole = outcome.level == Level.WHOLE
        if self.best is None or whole or outcome.reached > self.best[1].reached:
            self.best = case, outcome
        return whole

    def proposal(self) -> Proposal:
        assert self.best is not None
        case, outcome = self.best
        inputs, remarks = list(case.inputs), dict[str, str]()
        for place, each in enumerate(inputs):
            if not self.graded and each.name in outcome.nothing and each.tensor is not None:
                inputs[place] = replace(each, tensor=replace(each.tensor, requires_grad=False))
                remarks[str(each.name)] = "backward gave no gradient for it"
        recorded = {
            name: value["shape"] for name, value in self.given.items() if isinstance(value, dict)
        }
        now = {each.name: list(each.tensor.shape or ()) for each in inputs if each.tensor}
        notes = [f"Recorded with {', '.join(f'{n} {s}' for n, s in recorded.items())}."]
        notes = notes if recorded != now else []
        if outcome.level != Level.WHOLE:
            notes.append(f"Not quite: {outcome.error}.")
        missing = outcome.surrogate
        if outcome.level < Level.NO_BACKWARD:
            missing = f"{outcome.error}, when it was called as recorded"
        return Proposal(
            case.target,
            tuple(inputs),
            (*case.keywords, *(InputRecipe(name, value=v) for name, v in case.kwargs.items())),
            remarks=remarks,
            dtype=self.dtype,
            device=self.device,
            note=" ".join(notes) or None,
            missing=missing,
            advised=outcome.surrogate is not None,
            attempts=self.calls,
        )

    def _case(self, kept: int, sizes: Sizes) -> Case | None:
        """Return the case with these sizes; None where a tensor would lose its marks."""
        own = own_name(self.sought.target)
        try:
            by_name = {
                name: self._argument(name, value, kept, sizes)
                for name, value in {**self.given, **self.keywords}.items()
            }
        except Unmarked:
            return None
        keywords = [by_name[name] for name in self.keywords]
        return Case(
            own,
            own,
            own,
            SpecPlace("", 0),
            self.sought.target,
            tuple(by_name[name] for name in self.given),
            kwargs={str(each.name): each.value for each in keywords if not each.recipes},
            keywords=tuple(each for each in keywords if each.recipes),
            settings=Settings(dtype=self.dtype, device=self.device),
            search=self.sought.search,
        )

    def _argument(self, name: str, value: Any, kept: int, sizes: Sizes) -> InputRecipe:
        if isinstance(value, dict):
            return InputRecipe(name, self._tensor(name, value, kept, sizes))
        if isinstance(value, list) and any(isinstance(each, dict) for each in value):
            return InputRecipe(
                name,
                tensors=tuple(
                    self._tensor(f"{name}{place}", each, kept, sizes)
                    for place, each in enumerate(value)
                ),
            )
        return InputRecipe(name, value=_resized(value, sizes))

    def _tensor(self, name: str, call: Mapping[str, Any], kept: int, sizes: Sizes) -> TensorRecipe:
        numbers: Tensor = call["numbers"]
        dtype, shape = NAMES[numbers.dtype], tuple(sizes.get(n, n) for n in call["shape"])
        asked = call["requires_grad"] or not self.graded or _whole(numbers)
        as_it_was = call["whole"] and kept > (not _whole(numbers))
        recipe = None if as_it_was else described(numbers, call, asked)
        marks = self._marks(numbers)
        resized = [sizes.get(mark, mark) for mark in marks]
        if recipe is None:
            part = numbers[tuple(map(slice, shape))] if call["whole"] else numbers
            if marks and (resized != marks or self._marks(part) != marks):
                raise Unmarked
            recipe = self._data(name, part)
        elif marks and (recipe.draw == "integers" or recipe.arguments == "mask"):
            others = self._others(numbers, {*marks, *resized}, sizes)
            apart = recipe.distinct is not None
            turns = _in_turn(others, resized, math.prod(shape), apart)
            recipe = self._data(name, turns.reshape(shape).to(numbers.dtype))
        elif recipe.draw == "integers":
            low, high = recipe.arguments
            size = self._indexed(high)
            if size is not None:
                low, high = min(low, 0), min(high, sizes.get(size, size))
            recipe = replace(recipe, shape=shape, arguments=[low, high])
        else:
            recipe = replace(recipe, shape=shape)
        kind = str(recipe.arguments) if recipe.draw == "kind" else None
        cut = call["layout"] == "expanded" and is_cut(kind, recipe.symmetric, shape)
        return replace(
            recipe,
            dtype=None if dtype == self.dtype else dtype,
            requires_grad=None if asked else False,
            layout=None if cut else call["layout"],
            device="cpu" if call["device"] != self.device else None,
        )

    def _indexed(self, high: int) -> int | None:
        """Return the size that integers below `high` may be indices of."""
        return next((size for size in self.every if size >= high), None)

    def _marks(self, x: Tensor) -> list[int]:
        """Return the plain arguments that occur in a tensor of integers among other values, as a
        class that is to be ignored does."""
        if not _whole(x) or x.dtype == torch.bool:
            return []
        found = set(torch.unique(x).tolist())
        marks = [value for value in self.integers if value in found]
        return marks if len(found) > len(marks) else []

    def _others(self, x: Tensor, marks: Set[int], sizes: Sizes) -> list[int]:
        """Return the integers of a tensor that are no marks and, if they may be indices, are
        indices of the smaller size too."""
        others = sorted({*torch.unique(x).tolist()} - marks)
        size = self._indexed(others[-1] + 1) if others else None
        if size is None:
            return others
        high = sizes.get(size, size)
        return [each for each in others if each < high] or [*({*range(high)} - marks)]

    def _data(self, name: str, data: Tensor) -> TensorRecipe:
        if data.numel() <= IN_SPEC:
            whole = data.to(torch.int64) if data.dtype == torch.bool else data
            return TensorRecipe(draw="values", arguments=_plain(whole.tolist()))
        path = Path(str(self.sought.call)).with_suffix(f".{name}.pt")
        torch.save(data.clone(), path)
        return TensorRecipe(draw="file", arguments=str(path))


def _names(target: Target, count: int) -> list[str]:
    """Return names for so many positional arguments."""
    names = list[str]()
    for each in target.parameters or ():
        if each.kind is each.VAR_POSITIONAL:
            names += [f"{each.name}{place}" for place in range(count - len(names))]
        elif each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD):
            names.append(each.name)
    return [*names, *map(str, range(len(names), count))][:count]


def _in_turn(others: Sequence[int], marks: Sequence[int], count: int, apart: bool) -> Tensor:
    """Return so many integers, of `others` and of `marks` in turn; each once if `apart`. Raises
    Unmarked where they do not fit."""
    if apart:
        numbers = [*others[:1], *marks, *others[1:]][:count]
    else:
        some = others[:: max(1, 2 * len(others) // count)]
        turns = zip(cycle(some), cycle(marks), strict=False)
        numbers = [*islice(chain.from_iterable(turns), count)]
    if len(numbers) < count or not {*marks} < {*numbers}:
        raise Unmarked
    return torch.tensor(numbers)


def _resized(value: Json, sizes: Sizes) -> Json:
    if isinstance(value, list):
        return [_resized(each, sizes) for each in value]
    return sizes.get(value, value) if type(value) is int else value


def _plain(data: Any) -> Json:
    if isinstance(data, list):
        return [_plain(each) for each in data]
    return str(data).strip("()") if isinstance(data, complex) else data


# ---- numbers by kind
def _whole(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def described(x: Tensor, call: Mapping[str, Any], differentiable: bool) -> TensorRecipe | None:
    """Return how numbers like these are drawn, without a shape; None where no draw has their
    properties: they are sorted, or not finite. `differentiable`: they are moved by steps."""
    wide = x.to(torch.complex128 if x.is_complex() else torch.float64)
    if not bool(torch.isfinite(wide).all()):
        return None
    flat = wide.reshape(-1)
    if bool((flat == flat[0]).all()):
        return TensorRecipe(draw="fill", arguments=_plain(flat[0].item()))
    kind = _kind(wide, x) if call["whole"] else None
    if kind is not None:
        return TensorRecipe(draw="kind", arguments=kind)
    symmetric = call["whole"] and _is_square(wide) and _near(wide, wide.mH)
    if x.is_complex():
        deviation = float(torch.view_as_real(flat).std())
        return TensorRecipe(arguments=[0, _short(deviation)], symmetric=symmetric)
    low, high, mean = float(flat.min()), float(flat.max()), float(flat.mean())
    if x.dim() == 1 and x.numel() > 2 and bool((flat.diff() >= 0).all()):
        return None
    values = torch.unique(flat)
    if x.dtype == torch.bool:
        return TensorRecipe(draw="kind", arguments="mask")
    if _whole(x) or (not differentiable and bool((flat == flat.round()).all())):
        apart = 1.0 if x.dim() == 1 and len(values) == len(flat) > FEW else None
        return TensorRecipe(draw="integers", arguments=[int(low), int(high) + 1], distinct=apart)
    if len(values) <= FEW and len(flat) > 2 * FEW:
        return TensorRecipe(draw="choice", arguments=values.tolist())
    if low > 0 or high < 0:
        return TensorRecipe(
            draw="uniform", arguments=[_short(low), _short(high)], symmetric=symmetric
        )
    deviation, count = float(flat.std()), len(flat)
    mean = 0 if abs(mean) < LIKELY * deviation / count**0.5 else _short(mean)
    deviation = 1 if abs(deviation - 1) < LIKELY / (2 * count) ** 0.5 else _short(deviation)
    return TensorRecipe(arguments=[mean, deviation], symmetric=symmetric)


def _kind(wide: Tensor, x: Tensor) -> str | None:
    """Return the structured draw that has the property of these numbers."""
    if not x.dim() or x.shape[-1] < 2 or x.dtype == torch.bool:
        return None
    binary = bool(((wide == 0) | (wide == 1)).all())
    if _whole(x) and not binary:
        counted = torch.arange(x.shape[-1]).expand_as(x)
        return "permutation" if torch.equal(x.sort(-1).values, counted) else None
    if _is_square(wide) and not _whole(x):
        if _near(wide, wide.mH) and not bool(torch.linalg.cholesky_ex(wide).info.any()):
            return "spd"
        if _near(wide, wide.tril()) and bool((wide.diagonal(dim1=-2, dim2=-1).abs() > 0).all()):
            return "lower_triangular"
    if binary:
        return "one_hot" if bool((wide.sum(-1) == 1).all()) else "mask"
    positive = not x.is_complex() and bool((wide >= 0).all())
    return "simplex" if positive and _near(wide.sum(-1), torch.ones(())) else None


def _is_square(x: Tensor) -> bool:
    return x.dim() > 1 and x.shape[-1] == x.shape[-2] > 1


def _near(x: Tensor, y: Tensor) -> bool:
    return bool((x - y).abs().max() <= CLOSE * max(1.0, float(x.abs().max())))


def _short(value: float) -> float:
    """Return a number with two digits."""
    return float(f"{value:.2g}") if math.isfinite(value) else 0.0
