"""The same function at the same numbers on another device; and products on both in all the bits that their numbers have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.subject.arguments import Argument
from gradverify.subject.failure import UserCodeError
from gradverify.subject.find import CODE
from gradverify.subject.modules import copied
from gradverify.subject.on_cuda import reductions, set_reductions
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


@contextmanager
def in_all_bits() -> Iterator[None]:
    """Inside, neither TF32 nor sums in fewer bits: that would be the difference of two devices."""
    products, reduced, cudnn = torch.get_float32_matmul_precision(), reductions(), torch._C._get_cudnn_allow_tf32()
    try:
        torch.set_float32_matmul_precision("highest")
        torch._C._set_cudnn_allow_tf32(False)
        set_reductions(dict.fromkeys(reduced, False))
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch._C._set_cudnn_allow_tf32(cudnn)
        set_reductions(reduced)


def back(x: Tensor, like: Tensor) -> Tensor:
    """A tensor of the other device where the one that it is compared with lies."""
    return x.detach().to(device=like.device)
