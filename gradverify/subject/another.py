"""Other points of the same kind: recipes drawn with another seed, given numbers reordered and
perturbed, preserving their properties."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.draw import DTYPES, signed
from gradverify.subject.failure import tried
from gradverify.subject.machine import seeded
from gradverify.subject.prepare import redrawn
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import live
from gradverify.torch_private import pytree

# ---- Other points: recipes drawn with another seed, given numbers reordered and perturbed
OTHER_SEED = 1_000_003  # added to the check's own, far from other seeds of a test matrix
# Seeds and orders that are tried until signs and order differ: every second draw of two numbers
# has the old order
DRAWS = 4
# Of each element's size: far enough that all results are rounded differently
NEARBY = 2.0**-10
# Of each element's size: how far given numbers move, and how far where the function refuses that
FAR, NEAR = 0.25, 0.01
FEW = 8  # numbers that may have one sign by chance
# Sorted numbers are a grid (knots, times) if there is another input, and stay sorted; fewer numbers
# may be sorted by chance
SORTED = 4
Other = list[Argument]


def other_points(subject: Subject) -> Iterator[Other]:
    """Yield the arguments at other points, the most different first: recipes are drawn again, and
    given numbers change places, sizes and signs.

    For functions that refuse such a point, only sizes and signs change next; then everything is
    perturbed slightly. Signs and order differ from the first point where possible, so that a kept
    mask or arg-max does not fit. Zeros stay zeros, square matrices stay symmetric, positive
    definite or triangular, the numbers of a tensor keep their set of signs, and every element stays
    in its domain.
    """
    source = subject.generator("second point")
    grid, seen, drawn = len(subject.differentiable) > 1, [subject.arguments], subject.arguments
    # The first seed with which every input changes its signs and order, if there is one
    for attempt in range(1, DRAWS + 1):
        seed = subject.case.settings.seed + attempt * OTHER_SEED
        drawn = tuple(tried(redrawn, subject, seed) or ())
        if [(a.differentiable, a.is_tensor) for a in drawn] != [
            (a.differentiable, a.is_tensor) for a in subject.arguments
        ]:
            drawn = subject.arguments
            break
        if all(
            not a.is_tensor
            or same(a.value, b.value)
            or is_another(a.value, b.value, of_chance=a.value.numel() < FEW)
            for a, b in zip(subject.arguments, drawn, strict=True)
        ):
            break
    ways: tuple[tuple[Sequence[Argument], Callable[[Argument], Tensor]], ...] = (
        (drawn, lambda x: _rearranged(x, source, grid)),
        (drawn, lambda x: inside(x, _exchanged(stretched(x.value, FAR, source), source))),
        (subject.arguments, lambda x: inside(x, stretched(x.value, NEAR, source))),
    )
    for start, move in ways:
        moved = [
            replace(old, value=move(old), invented=True)
            if old.differentiable and same(old.value, new.value)
            else new
            for old, new in zip(subject.arguments, start, strict=True)
        ]
        if all(
            any(
                a.differentiable and not same(a.value, b.value)
                for a, b in zip(earlier, moved, strict=True)
            )
            for earlier in seen
        ):
            seen.append(tuple(moved))
            yield moved


def nearby(subject: Subject, number: int) -> list[Tensor]:
    """Return the differentiable inputs slightly perturbed, preserving their properties; different
    for each number."""
    source = subject.generator(f"beside {number}")
    return [inside(a, stretched(a.value, NEARBY, source)) for a in subject.differentiable]


def is_another(x: Tensor, y: Tensor, of_chance: bool = False) -> bool:
    """Return whether y has other signs than x, if x has both, and its largest elements along every
    dimension at other indices.

    `of_chance`: whether x may have only one sign by chance. Largest elements at one index
    throughout (as of the last corner of boxes) are not by chance, and ignored.
    """
    if x.shape != y.shape or not x.numel() or x.layout != torch.strided:
        return True
    a, b = (_real(each).double() for each in (x, y))
    if (of_chance or bool((a > 0).any() and (a < 0).any())) and torch.equal(a.sign(), b.sign()):
        return False
    for dim in (dim for dim in range(a.dim()) if a.shape[dim] > 1):
        first = a.argmax(dim)
        throughout = first.numel() >= SORTED and bool((first == first.reshape(-1)[0]).all())
        constant = bool((a == a.select(dim, 0).unsqueeze(dim)).all())
        if not throughout and not constant and torch.equal(first, b.argmax(dim)):
            return False
    return True


def _real(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


# ---- given numbers
def _rearranged(argument: Argument, source: torch.Generator, grid: bool) -> Tensor:
    """Return the numbers of an argument reordered and perturbed, and with signs exchanged if the
    order alone does not change them: by the mildest rearrangement that changes signs and order.
    `grid`: sorted numbers stay sorted."""
    x: Tensor = argument.value
    steps = x.diff() if grid and x.dim() == 1 and len(x) >= SORTED and not x.is_complex() else None
    if steps is not None and bool((steps > 0).all() or (steps < 0).all()):
        return inside(argument, stretched(x, FAR, source)).sort(descending=bool(x[0] > x[1]))[0]
    moved = x
    for other in _moves(x, source):
        moved = inside(argument, stretched(other, FAR, source))
        if is_another(x, moved):
            break
    return moved


def _moves(x: Tensor, source: torch.Generator) -> Iterator[Tensor]:
    """Yield rearrangements, the mildest first: for square matrices P D x D P, with a permutation P
    (not for triangular ones) and signs D if both signs occur, which keeps matrices symmetric,
    definite or orthogonal; permuted slices along the first dimension, so that a row of a batch
    stays together; permuted slices along every dimension; all nonzero elements, and then their
    signs too."""
    square = is_square(x)
    if square:
        triangular, real = torch.equal(x, x.tril()) or torch.equal(x, x.triu()), _real(x)
        for _ in range(DRAWS):
            moved = x
            if not triangular:
                order = _cycle(x.shape[-1], source).to(device=x.device)
                moved = x.index_select(-1, order).index_select(-2, order)
            if bool((real > 0).any()) and bool((real < 0).any()):
                signs = signed(real.reshape(-1, real.shape[-1])[0], source).sign()
                moved = moved * (signs[:, None] * signs)
            yield moved
        # Symmetric, skew or Hermitian, up to rounding
        size = float(x.abs().max()) * NEAR
        if triangular or any(float((x - sign * x.mH).abs().max()) <= size for sign in (1, -1)):
            return
    if x.dim() and bool(x.all()):
        yield x[_cycle(x.shape[0], source)]
        moved = x
        for dim in range(x.dim()):
            moved = moved.index_select(dim, _cycle(x.shape[dim], source).to(device=x.device))
        yield moved
    if not square:
        moved = x.clone()
        held = x != 0
        moved[held] = x[held][_cycle(int(held.sum()), source).to(device=x.device)]
        yield moved
        yield _exchanged(moved, source)


def _cycle(n: int, source: torch.Generator) -> Tensor:
    """Return a random permutation of n elements without fixed points."""
    order = torch.randperm(n, generator=source)
    places = torch.empty_like(order)
    places[order] = order.roll(1)
    return places


def stretched(x: Tensor, size: float, source: torch.Generator) -> Tensor:
    """Return x with every element multiplied by 1 ± up to 1.4 `size`: zeros and signs stay, and
    square matrices stay symmetric or definite."""
    if is_square(x):
        factor = 1 + size * signed(x.real[..., 0], source)
        # A congruence: definite stays definite, triangular triangular
        moved = x * (factor[..., :, None] * factor[..., None, :])
    else:
        moved = x * (1 + size * signed(_real(x), source))
    return moved.to(dtype=x.dtype)


def inside(argument: Argument, moved: Tensor) -> Tensor:
    """Return the moved elements, or the original ones where the moved ones leave the domain."""
    if argument.domain is None:
        return moved
    low, high = argument.domain
    return torch.where((moved >= low) & (moved <= high), moved, argument.value)


def _exchanged(x: Tensor, source: torch.Generator) -> Tensor:
    """Return x with the signs of its nonzero elements rotated by a random number of places, or by
    one where that does not change them."""
    if x.is_complex() or is_square(x):
        return x
    held, other = x != 0, x.clone()
    signs = x[held].sign()
    moved = signs.roll(int(torch.randint(1, max(len(signs), 2), (1,), generator=source)))
    other[held] = x[held].abs() * (signs.roll(1) if torch.equal(moved, signs) else moved)
    return other


def is_square(x: Tensor) -> bool:
    """Return whether x is a batch of square matrices, whose numbers may belong together."""
    return x.dim() >= 2 and x.shape[-1] == x.shape[-2] > 1 and x.layout == torch.strided


def looks_symmetric(x: Tensor) -> bool:
    """Return whether x is a batch of square matrices, each bitwise its own (conjugate)
    transpose."""
    return is_square(x) and bool((x == x.mH).all())


# ---- Another point of the same kind: values of the same sizes, made without random draws and
# without calls
# Bytes before a tensor: aligned like torch's own tensors, and at an address where no separately
# allocated tensor begins
CLEAR = 512
STRETCH = 1.01  # so that a single number, or a tensor of equal numbers, moves too
NEAR_ZERO = 0.01  # for a tensor that is zero throughout


def elsewhere(argument: Argument) -> Tensor:
    """Return a differentiable input with its elements rotated by one place and stretched, inside
    its domain. Symmetric matrices are only stretched."""
    x = argument.value.detach()
    moved: Tensor = (x if argument.symmetric else x.reshape(-1).roll(1).reshape(x.shape)) * STRETCH
    moved = moved if moved.any() else moved + NEAR_ZERO
    if argument.domain is None or moved.is_complex():
        return moved
    low, high = argument.domain
    return torch.clamp(moved, low, high)


def leaf_elsewhere(argument: Argument, like: Tensor) -> Tensor:
    """Return `elsewhere` as a leaf that requires grad, with the strides of `like`, at an address
    where no tensor of an earlier call began, so that a cache keyed by address does not match."""
    x = elsewhere(argument)
    if type(x) is not Tensor or x.device.type != "cpu" or not x.numel() or not like.is_contiguous():
        return x.requires_grad_()
    memory = torch.empty(CLEAR + x.numel() * x.element_size(), dtype=torch.uint8)
    # A storage that begins at that address
    leaf = torch.frombuffer(memory.numpy(), dtype=x.dtype, count=x.numel(), offset=CLEAR)
    return leaf.as_strided(x.shape, like.stride()).detach().copy_(x).requires_grad_()


# ---- Other values of plain numbers among the arguments (a scale, a slope), for a backward that is
# right for one of them only
BOLD = 1.37  # factor of each number: not a ratio that occurs in formulas
# An error of 3 % is far above every tolerance, and a solver whose step or damping changes by that
# still converges
MILD = 1.03
TINY = 1e-3  # smaller numbers may be an eps, or a solver's tolerance, and are never made smaller


def with_other_numbers(
    subject: Subject,
    arguments: Sequence[Argument],
    size: float,
    whole: Collection[str] = (),
    only: str | None = None,
) -> tuple[Subject, Mapping[str, str]] | None:
    """Return the function at these arguments with plain numbers `size` times as large, and a text
    such as "k = 0.685 instead of 0.5" for each varied value, by name; None where there is no such
    number. `whole`: the names of integers that forward treats as reals; `only`: vary this name
    alone.

    Numbers between 0 and 1 stay there (a probability, a momentum). If multiplying would take one
    above 1, all numbers that are not tiny are divided instead, so that they keep their order.
    """
    settings, target, plain = subject.case.settings, subject.target, _plain(subject, arguments)
    # The arguments that a module is built with
    init: Mapping[str, Any] = subject.case.init or {} if target.kind == "module" else {}
    init = init if any(type(number) is float for number in pytree.tree_leaves(init)) else {}

    def takes(name: str, number: Any) -> bool:
        is_number = type(number) in (float, int) and math.isfinite(number) and number != 0
        return is_number and only in (None, name) and (type(number) is float or name in whole)

    divided = any(
        takes(name, x) and TINY <= abs(x) < 1 <= abs(x) * size
        for name, value in (*plain.items(), *init.items())
        for x in pytree.tree_leaves(value)
    )

    def other(name: str, value: Any) -> Any:
        """Return a value with its numbers replaced, rounded to a few digits."""

        def moved(number: Any) -> Any:
            if not takes(name, number) or type(number) is int:
                return number
            new = number / size if divided and abs(number) >= TINY else number * size
            return float(f"{new:.6g}")

        if type(value) is int and takes(name, value):
            return float(value + 1)
        return pytree.tree_map(moved, value)

    moved, built = (
        {name: other(name, value) for name, value in values.items()} for values in (plain, init)
    )
    if init:
        dtype = DTYPES[settings.dtype]
        with seeded(settings.seed):
            new = tried(live, target.name, type(target.subject), built, dtype)
        if new is not None:
            new.subject.to(device=torch.device(settings.device), dtype=dtype)
            mine, theirs = (
                {name: parameter.shape for name, parameter in each.subject.named_parameters()}
                for each in (new, target)
            )
            if mine == theirs:  # otherwise these numbers determine the parameters' shapes
                target, plain, moved = new, {**plain, **init}, moved | built
    words = {
        name: f"{name} = {value!r} instead of {plain[name]!r}"
        for name, value in moved.items()
        if value != plain[name]
    }
    if not words:
        return None

    def varied(a: Argument) -> Argument:
        if a.differentiable or a.name not in words:
            return a
        new = moved[a.name]
        return replace(a, value=torch.full_like(a.value, new) if a.is_tensor else new)

    kwargs = {name: moved.get(name, value) for name, value in subject.kwargs.items()}
    return subject.twin(tuple(map(varied, arguments)), kwargs, target), words


def names_of_whole(subject: Subject, arguments: Sequence[Argument]) -> tuple[str, ...]:
    """Return the names of positive integers among the arguments."""
    plain = _plain(subject, arguments).items()
    return tuple(name for name, value in plain if type(value) is int and value > 0)


def _plain(subject: Subject, arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return the plain values among the arguments, by name. A tensor without dimensions counts as a
    number if it is unchanged from the subject's."""
    found = dict[str, Any]()
    for a, b in zip(subject.arguments, arguments, strict=True):
        x = a.value
        if not isinstance(x, Tensor):
            found[a.name] = x
        elif (
            not a.differentiable
            and x.dim() == 0
            and x.is_floating_point()
            and x.layout == torch.strided
            and same(x, b.value)
        ):
            found[a.name] = float(x)
    return found | {
        name: value for name, value in subject.kwargs.items() if not isinstance(value, Tensor)
    }
