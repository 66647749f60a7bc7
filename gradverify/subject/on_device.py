"""The same function at the same numbers on another device."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.subject.arguments import Argument
from gradverify.subject.failure import UserCodeError
from gradverify.subject.find import CODE
from gradverify.subject.modules import copied
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.subject.subject import Subject


def on_device(own: Subject, device: str) -> Subject:
    """The subject's function and inputs there, in its own dtype. Its calls are counted by `own`. Raises UserCodeError where that cannot be had."""
    case = replace(own.case, settings=replace(own.case.settings, device=device), beside=None)
    target = own.target
    if target.kind == "module":     # assembling moves it
        module = copied(target.subject)
        target = replace(target, subject=module, call=module)
    made = assemble(case, target, drawn_inputs(case, torch.device(device))).own
    if [a.name for a in made.arguments] != [a.name for a in own.arguments]:
        raise UserCodeError(CODE, f"the inputs are others on {device}")
    other = own.twin([_same(there, here) for there, here in zip(made.arguments, own.arguments, strict=True)], made.kwargs, target)
    other.case = case
    return other


def _same(there: Argument, here: Argument) -> Argument:
    """With the numbers of `here`: what a function of the user's draws on a device may be others."""
    if not (there.is_tensor and here.is_tensor) or there.form is not None:
        return there
    if there.value.shape != here.value.shape:
        raise UserCodeError(CODE, f"{here.name} has shape {list(there.value.shape)} there, and {list(here.value.shape)} here")
    moved = here.value.to(device=there.value.device)
    return there if torch.equal(there.value, moved) else replace(there, value=moved)


def back(x: Tensor, like: Tensor) -> Tensor:
    """A tensor of the other device where the one that it is compared with lies."""
    return x.detach().to(device=like.device)
