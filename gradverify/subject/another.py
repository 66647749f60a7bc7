"""Another point of the same kind: the recipes drawn with another seed, given numbers in another order and perturbed, within their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import redrawn
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject

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
