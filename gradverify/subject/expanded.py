"""One forward and backward on inputs whose elements share memory: one slice repeated with stride 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.layout import expanded
from gradverify.subject.subject import Argument, Subject


def expanded_call(subject: Subject, checked: Sequence[int], cotangents: Sequence[Tensor]) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
    """The checked outputs and the gradients (of the shape of their inputs), with every input expanded that the spec calls so.

    Raises UserCodeError: GV002 where the forward refuses, GV003 where backward does.
    """
    named = " and ".join(argument.name for argument in subject.arguments if argument.layout == "expanded")
    if subject.writes:
        raise UserCodeError("GV002", f"the function writes into its inputs, which {named}, expanded, cannot take: its elements share memory")
    twin = Subject(subject.case, subject.target, [_expanded(argument) for argument in subject.arguments], subject.kwargs)
    leaves = [argument.value.detach().requires_grad_() for argument in twin.differentiable]
    try:
        outputs = twin.forward(leaves)
        twin.counted_backward()
        with blamed("GV003", "backward"):
            gradients = torch.autograd.grad([outputs[place] for place in checked], leaves, [v.clone() for v in cotangents], allow_unused=True)
    except UserCodeError as error:
        raise UserCodeError(error.code, f"with {named} expanded (stride 0) {error.message}", error.frames, error.hint) from error
    finally:
        subject.calls = subject.calls + twin.calls
    return [outputs[place] for place in checked], gradients


def _expanded(argument: Argument) -> Argument:
    return replace(argument, value=expanded(argument.value)) if argument.layout == "expanded" else argument
