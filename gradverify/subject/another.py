"""Another point of the same kind: the recipes drawn with another seed, given numbers perturbed within their kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import redrawn
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject

OTHER_SEED = 1_000_003      # added to the check's own: no neighbour in a matrix of seeds
FAR, NEAR = 0.25, 0.01      # of each element's size: how far given numbers go at first, and where the function refuses that


def other_points(subject: Subject) -> Iterator[list[Argument]]:
    """The arguments at other points, the boldest first: what a recipe draws is drawn anew, what was given is perturbed, signs exchanged.

    Then all of it perturbed by little. Zeros stay zeros, square matrices stay symmetric, positive definite or triangular, and every element
    stays in its domain.
    """
    source = generator(subject.case.settings.seed, subject.case.check, "second point")
    with_other_seed = _redrawn(subject)
    for base, size, bold in ((with_other_seed, FAR, True), (list(subject.arguments), NEAR, False)):
        moved = [_moved(old, new, size, bold, source) for old, new in zip(subject.arguments, base, strict=True)]
        if any(a.differentiable and not same(a.value, b.value) for a, b in zip(subject.arguments, moved, strict=True)):
            yield moved


def _redrawn(subject: Subject) -> list[Argument]:
    """Drawn with another seed; as they are where that does not work out."""
    try:
        drawn = redrawn(subject, subject.case.settings.seed + OTHER_SEED)
    except UserCodeError:
        return list(subject.arguments)
    fits = [a.differentiable == b.differentiable and a.is_tensor == b.is_tensor for a, b in zip(subject.arguments, drawn, strict=False)]
    return drawn if len(drawn) == len(subject.arguments) and all(fits) else list(subject.arguments)


def _moved(old: Argument, new: Argument, size: float, bold: bool, source: torch.Generator) -> Argument:
    if not old.differentiable or not same(old.value, new.value):
        return new
    return replace(old, value=_perturbed(old, size, bold, source))


def _perturbed(argument: Argument, size: float, bold: bool, source: torch.Generator) -> Tensor:
    x: Tensor = argument.value
    if is_square(x):
        factor = 1 + size * signed(x.real[..., 0], source)
        moved = x * (factor[..., :, None] * factor[..., None, :])     # a congruence: definite stays definite, triangular triangular
    else:
        moved = x * (1 + size * signed(x.real if x.is_complex() else x, source))
        moved = _signs_exchanged(moved, source) if bold and not x.is_complex() else moved
    if argument.domain is not None:
        moved = torch.where((moved >= argument.domain[0]) & (moved <= argument.domain[1]), moved, x)
    return moved.to(dtype=x.dtype)


def _signs_exchanged(x: Tensor, source: torch.Generator) -> Tensor:
    """Where both signs occur, the signs of all nonzero elements in another order: moved on, by one place where more leaves them as they are."""
    flat = x.reshape(-1).clone()
    places = flat.nonzero().reshape(-1)
    signs = flat[places].sign()
    moved = signs.roll(int(torch.randint(1, max(len(places), 2), (1,), generator=source)))
    flat[places] = flat[places].abs() * (signs.roll(1) if torch.equal(moved, signs) else moved)
    return flat.reshape(x.shape)


def is_square(x: Tensor) -> bool:
    """Is x a batch of square matrices? Then its numbers may belong together."""
    return x.dim() >= 2 and x.shape[-1] == x.shape[-2] > 1 and x.layout == torch.strided


def looks_symmetric(x: Tensor) -> bool:
    """Is x a batch of square matrices, each bitwise its own (conjugate) transpose?"""
    return is_square(x) and bool((x == x.mH).all())
