"""Another point of the same kind: the recipes drawn with another seed, given numbers in another order and perturbed, within their kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.draw import DTYPES, generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.layout import reversed_along
from gradverify.subject.machine import seeded
from gradverify.subject.prepare import redrawn
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import Target, live
from gradverify.subject.vmapped import Batch, Batcher, Dims

# ---- Another point of the same kind: the recipes drawn with another seed, given numbers in
# another order and perturbed, within their kind
OTHER_SEED = 1_000_003      # added to the check's own: no neighbour in a matrix of seeds
DRAWS = 4                   # seeds and orders that are tried until signs and order are others: every second draw of two numbers has the old order
BESIDE = 2.0**-10   # of each element's size: far enough that whatever is computed from it is rounded anew
FAR, NEAR = 0.25, 0.01      # of each element's size: how far given numbers go at first, and where the function refuses that
FEW = 8                     # numbers that may have one sign by chance
SORTED = 4                  # numbers in order beside another input are a grid (knots, times), and stay in order; of fewer that is chance
Other = list[Argument]


def other_points(subject: Subject) -> Iterator[Other]:
    """The arguments at other points, the boldest first: what a recipe draws is drawn anew, what was given changes places, sizes and signs.

    Then, where that is refused, sizes and signs alone; then all of it perturbed by little. Signs and order are others than at the first point as
    far as that goes: a mask or an arg-max that was kept does not fit. Zeros stay zeros, square matrices stay symmetric, positive definite or
    triangular, the numbers of a tensor keep the signs they have together, and every element stays in its domain.
    """
    seen: list[Other] = []
    for moved in _attempts(subject):
        if _differs(subject.arguments, moved) and not any(not _differs(earlier, moved) for earlier in seen):
            seen.append(moved)
            yield moved


def _attempts(subject: Subject) -> Iterator[Other]:
    source = generator(subject.case.settings.seed, subject.case.check, "second point")
    drawn, grid = _redrawn(subject), len(subject.differentiable) > 1
    yield _moved(subject, drawn, lambda x: _rearranged(x, source, grid))
    yield _moved(subject, drawn, lambda x: _inside(x, _exchanged(_stretched(x.value, FAR, source), source)))
    yield _moved(subject, subject.arguments, lambda x: _inside(x, _stretched(x.value, NEAR, source)))


def beside(subject: Subject, number: int) -> list[Tensor]:
    """The differentiable inputs a little off, of the same kind as they are; others for each number."""
    source = generator(subject.case.settings.seed, subject.case.check, f"beside {number}")
    return [_inside(argument, _stretched(argument.value, BESIDE, source)) for argument in subject.differentiable]


def _moved(subject: Subject, drawn: Sequence[Argument], move: Callable[[Argument], Tensor]) -> Other:
    """What was drawn anew as it is, `move` for what was not."""
    pairs = zip(subject.arguments, drawn, strict=True)
    return [replace(old, value=move(old), invented=True) if old.differentiable and same(old.value, new.value) else new for old, new in pairs]


def _differs(old: Sequence[Argument], new: Sequence[Argument]) -> bool:
    return any(a.differentiable and not same(a.value, b.value) for a, b in zip(old, new, strict=True))


def _redrawn(subject: Subject) -> Sequence[Argument]:
    """Drawn with another seed, the first one that leaves no input its signs and order; as they are where that does not work out."""
    drawn: Sequence[Argument] = subject.arguments
    for attempt in range(1, DRAWS + 1):
        try:
            drawn = redrawn(subject, subject.case.settings.seed + attempt * OTHER_SEED)
        except UserCodeError:
            return subject.arguments
        fits = [a.differentiable == b.differentiable and a.is_tensor == b.is_tensor for a, b in zip(subject.arguments, drawn, strict=False)]
        if len(drawn) != len(subject.arguments) or not all(fits):
            return subject.arguments
        pairs = [(a.value, b.value) for a, b in zip(subject.arguments, drawn, strict=True) if a.is_tensor and not same(a.value, b.value)]
        if all(is_another(old, new, of_chance=old.numel() < FEW) for old, new in pairs):
            break
    return drawn


def is_another(x: Tensor, y: Tensor, of_chance: bool = False) -> bool:
    """Has y other signs than x, where x has both, and along every dimension its largest elements elsewhere?

    `of_chance`: that x has one sign only may be the luck of the draw. Largest elements in one place throughout (of the last corner of boxes) are not.
    """
    if x.shape != y.shape or not x.numel() or x.layout != torch.strided:
        return True
    a, b = (each.real.double() if each.is_complex() else each.double() for each in (x, y))
    both = of_chance or bool((a > 0).any() and (a < 0).any())
    return not (both and torch.equal(a.sign(), b.sign())) and all(_order_differs(a, b, dim) for dim in range(a.dim()) if a.shape[dim] > 1)


def _order_differs(a: Tensor, b: Tensor, dim: int) -> bool:
    first, second = a.argmax(dim), b.argmax(dim)
    throughout = first.numel() >= SORTED and bool((first == first.reshape(-1)[0]).all())
    return throughout or bool((a == a.select(dim, 0).unsqueeze(dim)).all()) or not torch.equal(first, second)


# ---- numbers that were given
def _rearranged(argument: Argument, source: torch.Generator, grid: bool) -> Tensor:
    """In another order, sizes perturbed, signs exchanged where the order alone leaves them as they were: the first way whose signs and order are
    others, the mildest first (a row of a batch stays together)."""
    x: Tensor = argument.value
    moved, keeps_order = x, grid and _is_sorted(x)
    for move in (_kept,) if keeps_order else _moves(x):
        moved = _inside(argument, _stretched(move(x, source), FAR, source))
        if is_another(x, moved):
            break
    return _ordered_like(x, moved) if keeps_order else moved


def _moves(x: Tensor) -> tuple[Callable[[Tensor, torch.Generator], Tensor], ...]:
    """The ways to rearrange numbers, the mildest first."""
    if not is_square(x):
        return _rows, _slices, _elements, _all_exchanged
    together = (_congruent,) * DRAWS
    return together if _is_triangular(x) or _is_nearly_symmetric(x) else (*together, _rows, _slices)


def _kept(x: Tensor, source: torch.Generator) -> Tensor:
    return x


def _rows(x: Tensor, source: torch.Generator) -> Tensor:
    """Slices along the first dimension change places."""
    return x if not x.dim() or not bool(x.all()) else x[_cycle(x.shape[0], source)]


def _slices(x: Tensor, source: torch.Generator) -> Tensor:
    """Slices along every dimension do."""
    for dim in range(x.dim() if bool(x.all()) else 0):
        x = x.index_select(dim, _cycle(x.shape[dim], source).to(device=x.device))
    return x


def _elements(x: Tensor, source: torch.Generator) -> Tensor:
    """All nonzero elements do."""
    flat = x.reshape(-1).clone()
    places = flat.nonzero().reshape(-1)
    flat[places] = flat[places][_cycle(len(places), source).to(device=x.device)]
    return flat.reshape(x.shape)


def _all_exchanged(x: Tensor, source: torch.Generator) -> Tensor:
    return _exchanged(_elements(x, source), source)


def _congruent(x: Tensor, source: torch.Generator) -> Tensor:
    """P D x D P of square matrices, of a permutation P (not of triangular ones) and of signs D where both occur: symmetric, definite and
    orthogonal ones stay what they are."""
    if not _is_triangular(x):
        order = _cycle(x.shape[-1], source).to(device=x.device)
        x = x.index_select(-1, order).index_select(-2, order)
    real = x.real if x.is_complex() else x
    if bool((real > 0).any()) and bool((real < 0).any()):
        signs = signed(real.reshape(-1, real.shape[-1])[0], source).sign()
        x = x * (signs[:, None] * signs)
    return x


def _cycle(n: int, source: torch.Generator) -> Tensor:
    """A random order of n places that leaves none where it is."""
    order = torch.randperm(n, generator=source)
    places = torch.empty_like(order)
    places[order] = order.roll(1)
    return places


def _stretched(x: Tensor, size: float, source: torch.Generator) -> Tensor:
    if is_square(x):
        factor = 1 + size * signed(x.real[..., 0], source)
        moved = x * (factor[..., :, None] * factor[..., None, :])     # a congruence: definite stays definite, triangular triangular
    else:
        moved = x * (1 + size * signed(x.real if x.is_complex() else x, source))
    return moved.to(dtype=x.dtype)


def _inside(argument: Argument, moved: Tensor) -> Tensor:
    """Elements that would leave the domain stay where they are."""
    if argument.domain is None:
        return moved
    return torch.where((moved >= argument.domain[0]) & (moved <= argument.domain[1]), moved, argument.value)


def _exchanged(x: Tensor, source: torch.Generator) -> Tensor:
    """Where both signs occur, the signs of all nonzero elements in another order: moved on, by one place where more leaves them as they are."""
    if x.is_complex() or is_square(x):
        return x
    flat = x.reshape(-1).clone()
    places = flat.nonzero().reshape(-1)
    signs = flat[places].sign()
    moved = signs.roll(int(torch.randint(1, max(len(places), 2), (1,), generator=source)))
    flat[places] = flat[places].abs() * (signs.roll(1) if torch.equal(moved, signs) else moved)
    return flat.reshape(x.shape)


def _is_sorted(x: Tensor) -> bool:
    """Are its numbers, one after the other, in order?"""
    if x.dim() != 1 or len(x) < SORTED or x.is_complex():
        return False
    steps = x.diff()
    return bool((steps > 0).all() or (steps < 0).all())


def _ordered_like(x: Tensor, moved: Tensor) -> Tensor:
    ordered: Tensor = moved.sort(descending=bool(x[0] > x[1])).values
    return ordered


def is_square(x: Tensor) -> bool:
    """Is x a batch of square matrices? Then its numbers may belong together."""
    return x.dim() >= 2 and x.shape[-1] == x.shape[-2] > 1 and x.layout == torch.strided


def _is_triangular(x: Tensor) -> bool:
    return torch.equal(x, x.tril()) or torch.equal(x, x.triu())


def _is_nearly_symmetric(x: Tensor) -> bool:
    """Symmetric, skew or Hermitian up to what computing with them leaves."""
    size = float(x.abs().max()) * NEAR
    return any(float((x - sign * x.mH).abs().max()) <= size for sign in (1, -1))


def looks_symmetric(x: Tensor) -> bool:
    """Is x a batch of square matrices, each bitwise its own (conjugate) transpose?"""
    return is_square(x) and bool((x == x.mH).all())


# ---- Another point of the same kind: other values of the same sizes, without a draw and without
# a call
CLEAR = 512         # bytes in front of a tensor: as well aligned as torch's own, and not where one begins that was allocated by itself
STRETCH = 1.01      # so that a tensor of equal numbers moves too, and one number alone
NEAR_ZERO = 0.01    # for a tensor that is zero throughout


def elsewhere(argument: Argument) -> Tensor:
    """A differentiable input with its elements moved on by one place and stretched, inside its domain. Symmetric matrices are stretched only."""
    x = argument.value.detach()
    moved: Tensor = (x if argument.symmetric else x.reshape(-1).roll(1).reshape(x.shape)) * STRETCH
    moved = moved if moved.any() else moved + NEAR_ZERO
    if argument.domain is None or moved.is_complex():
        return moved
    low, high = argument.domain
    return torch.clamp(moved, low, high)


def leaf_elsewhere(argument: Argument, like: Tensor) -> Tensor:
    """The same as a leaf that requires grad, with the strides of another one, at an address where no tensor of an earlier call began: what a
    function keeps by address it keeps anew."""
    x = elsewhere(argument)
    if type(x) is not Tensor or x.device.type != "cpu" or not x.numel() or not like.is_contiguous():
        return x.requires_grad_()
    memory = torch.empty(CLEAR + x.numel() * x.element_size(), dtype=torch.uint8)
    leaf = torch.frombuffer(memory.numpy(), dtype=x.dtype, count=x.numel(), offset=CLEAR)      # a storage of its own, which begins there
    return leaf.as_strided(x.shape, like.stride()).detach().copy_(x).requires_grad_()


# ---- Plain numbers among the arguments (a scale, a slope), other ones of the same kind:
# for a backward that is right for one of them only
BOLD = 1.37         # times each number: no ratio that a formula has by itself
MILD = 1.03         # an error of 3 % is far above every tolerance, and a solver whose step or damping is that far off still converges
TINY = 1e-3         # below: an eps, or a solver's tolerance, which is never tightened


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
    """How numbers are varied: `size` times; `whole`: the names of whole numbers that are reals to forward; `only`: this name alone."""

    size: float
    whole: frozenset[str] = frozenset()
    only: str | None = None
    divided: bool = False

    def takes(self, name: str, number: float) -> bool:
        return self.only in (None, name) and (type(number) is float or name in self.whole)

    def of(self, name: str, number: float) -> float:
        """The number in its place, as short as somebody would write it."""
        if type(number) is int:
            return float(number + 1)
        moved = number / self.size if self.divided and abs(number) >= TINY else number * self.size
        return float(f"{moved:.6g}")


def with_other_numbers(subject: Subject, arguments: Sequence[Argument], variation: Variation) -> Numbers | None:
    """The arguments with other numbers among them; None where there is none.

    Those between 0 and 1 stay there (a probability, a momentum): all others but tiny ones are then divided too, so that they keep their order.
    """
    plain, init = _plain(subject, arguments), _init(subject)
    found = [number for name, value in (*plain.items(), *init.items()) for number in _numbers(value) if variation.takes(name, number)]
    variation = replace(variation, divided=any(TINY <= abs(number) < 1 <= abs(number) * variation.size for number in found))
    moved = {name: _moved_number(name, value, variation) for name, value in plain.items()}
    built = _rebuilt(subject, {name: _moved_number(name, value, variation) for name, value in init.items()}) if init else None
    if built is not None:
        plain, moved = plain | init, moved | {name: _moved_number(name, value, variation) for name, value in init.items()}
    words = {name: f"{name} = {moved[name]!r} instead of {value!r}" for name, value in plain.items() if moved[name] != value}
    if not words:
        return None
    own = tuple(replace(a, value=_like(a.value, moved[a.name])) if a.name in words and not a.differentiable else a for a in arguments)
    return Numbers(own, {name: moved.get(name, value) for name, value in subject.kwargs.items()}, built or subject.target, words)


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


def _moved_number(name: str, value: Any, variation: Variation) -> Any:
    if type(value) in (float, int):
        return variation.of(name, value) if any(variation.takes(name, number) for number in _numbers(value)) else value
    if type(value) is dict:
        return {key: _moved_number(name, item, variation) for key, item in value.items()}
    return type(value)(_moved_number(name, item, variation) for item in value) if type(value) in (list, tuple) else value


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


# ---- Which batches vmap is tried on: three points of the same kind, and the in_dims they come
# along
SPREAD = 0.3            # of each element: how far the second point is from the first; zeros, signs and symmetry stay
NEARBY = 0.02           # where the function is not defined there
THIRD = 1.01            # times x
SIZE = 3


class Batches:
    """`cotangents`: one per checked output for each of SIZE examples; `random`: does the function draw random numbers? Loops are run once for
    each choice of in_dims."""

    def __init__(self, subject: Subject, checked: Sequence[int], cotangents: Sequence[Sequence[Tensor]], source: torch.Generator,
                 random: bool = False) -> None:
        self._subject, self._batcher, self._cotangents, self._random = subject, Batcher(subject, checked), cotangents, random
        self._arguments = [argument for argument in subject.arguments if argument.is_tensor]
        self._noise = [torch.rand(x.shape, generator=source, dtype=torch.float64) * 2 - 1 for x in self._batcher.base]
        self._loops: dict[Dims, Batch] = {}

    @property
    def differentiable(self) -> tuple[bool, ...]:
        """Of each tensor argument."""
        return self._batcher.differentiable

    @cached_property
    def variants(self) -> tuple[Dims, ...]:
        """in_dims: all along 0, all along −1, each alone along −1."""
        n = len(self._arguments)
        alone = [tuple(-1 if i == k else None for i in range(n)) for k in range(n)] if n > 1 else []
        return ((0,) * n, (-1,) * n, *alone)

    def points(self, dims: Dims) -> list[list[Tensor]]:
        """Per example its tensor arguments; one that is not batched stays where it is."""
        base = self._batcher.base
        return [[x if dim is not None else base[i] for i, (x, dim) in enumerate(zip(point, dims, strict=True))] for point in self._chosen[0]]

    @cached_property
    def impossible(self) -> str | None:
        """Why there is nothing to compare; None where there is a loop."""
        if self._subject.writes:
            return "the function writes into its inputs"
        if self._random:
            return "the function draws random numbers"
        if any(argument.value.layout != torch.strided for argument in self._arguments):
            return "an argument is sparse"
        return self._chosen[1]

    @cached_property
    def first(self) -> Batch | UserCodeError:
        """The vmapped call along in_dims 0."""
        return self.vmapped(self.variants[0])

    def vmapped(self, dims: Dims) -> Batch | UserCodeError:
        """The vmapped call, or what it raised."""
        try:
            return self._batcher.vmap(self.points(dims), self._cotangents, dims)
        except UserCodeError as error:
            return error

    def looped(self, dims: Dims) -> Batch:
        """One call per example. Raises UserCodeError."""
        if dims not in self._loops:
            self._loops[dims] = self._batcher.loop(self.points(dims), self._cotangents, dims)
        return self._loops[dims]

    def nudged(self, dims: Dims, step: float) -> Batch:
        """The loop at points a little off: every element by up to `step` of itself. Raises UserCodeError."""
        moved = [[_scaled(x, 1 + step * noise) if wanted else x for x, noise, wanted in zip(point, self._noise, self.differentiable, strict=True)]
                 for point in self.points(dims)]
        return self._batcher.loop(moved, self._cotangents, dims)

    @cached_property
    def _chosen(self) -> tuple[list[list[Tensor]], str | None]:
        """x, a second point, 1.01 x: far apart where the function is defined there, else near; and why there are none."""
        error = "the function is not defined at other points"
        for spread in (SPREAD, NEARBY):
            points = self._drawn(spread)
            try:
                looped = self._batcher.loop(points, self._cotangents, self.variants[0])
            except UserCodeError as raised:
                error = raised.message
                continue
            if all(bool(torch.isfinite(y[1:]).all()) or not bool(torch.isfinite(y[0]).all()) for y in looped.outputs):
                self._loops[self.variants[0]] = looped
                return points, None
        return [], f"a loop over other points is refused: {error}"

    def _drawn(self, spread: float) -> list[list[Tensor]]:
        base, second, third = list(self._batcher.base), [], []
        for argument, noise in zip(self._arguments, self._noise, strict=True):
            x = argument.value
            if not argument.differentiable:
                second.append(reversed_along(x, (0,)) if x.dim() and spread == SPREAD else x)     # the same indices or classes in another order
                third.append(x)
                continue
            both = noise if not argument.symmetric else (noise + noise.mT) / 2
            second.append(_inside_batches(_scaled(x, 1 + spread * both), argument.domain))
            third.append(_inside_batches(_scaled(x, torch.tensor(THIRD)), argument.domain))
        return [base, second, third]


def _scaled(x: Tensor, factor: Tensor) -> Tensor:
    return x * factor.to(device=x.device, dtype=x.dtype)


def _inside_batches(x: Tensor, domain: tuple[float, float] | None) -> Tensor:
    return x if domain is None else x.clamp(*domain)
