"""Forward mode: tangents of the checked outputs by one forward on dual numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import Snapshot
from gradverify.subject.subject import Subject

CODE = "GV108"


@dataclass(frozen=True, slots=True)
class Pushed:
    """The tangent of each checked output (zeros where it has none), and the places of the inputs whose tangents were written to."""

    tangents: tuple[Tensor, ...]
    damaged: tuple[int, ...]


def push(subject: Subject, checked: Sequence[int], tangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> Pushed:
    """The tangents of the checked outputs for one tangent per differentiable input; None: that input is no dual number. `inputs`: other ones.

    The inputs do not require grad, as under `torch.func.jvp`. Raises UserCodeError (GV108) for what the call raises, its cause the exception.
    """
    places = [place for place, tangent in enumerate(tangents) if tangent is not None]
    before = Snapshot([tangent for tangent in tangents if tangent is not None])
    with forward_ad.dual_level():
        try:
            primals = subject.inputs if inputs is None else inputs
            outputs = subject.forward([_dual(x.detach().clone(), tangent) for x, tangent in zip(primals, tangents, strict=True)])
        except UserCodeError as error:
            raise UserCodeError(CODE, f"in forward mode {error.message}", error.frames) from error.__cause__
        seen = tuple(_tangent(outputs[place]) for place in checked)
    return Pushed(seen, tuple(places[i] for i in before.changed()))


def _dual(x: Tensor, tangent: Tensor | None) -> Tensor:
    return x if tangent is None else forward_ad.make_dual(x, tangent)  # type: ignore[no-untyped-call]


def _tangent(output: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(output)  # type: ignore[no-untyped-call]
    return torch.zeros_like(primal).detach() if tangent is None else tangent.detach().clone()
