"""The checked function at the same numbers in float64 (complex128), for finite differences of a
check in float32 or 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import SIXTEEN, WIDE
from gradverify.subject.failure import tried
from gradverify.subject.forms import dtype_name
from gradverify.subject.machine import by_default
from gradverify.subject.rounding import Lifted, Shown
from gradverify.subject.subject import Subject
from gradverify.torch_private import pytree

LIFTED = {**WIDE, **SIXTEEN}
"""The dtypes that float64 (complex128) replaces."""


def is_narrow(subject: Subject) -> bool:
    """Return whether a differentiable input is in float32 or complex64."""
    return any(x.dtype in WIDE for x in subject.inputs)


def on_two_legs(subject: Subject) -> Subject:
    """Return the subject in float64, for finite differences, with the original as its `narrow`, if
    a differentiable input has 16 bits; any other subject unchanged. The returned subject counts all
    calls.
    """
    if not any(x.dtype in SIXTEEN for x in subject.inputs):
        return subject
    wide = widened(subject)
    wide.case = replace(subject.case, settings=replace(subject.case.settings, dtype="float64"))
    wide.narrow = subject
    wide.count_for(subject)
    return wide


class InDouble:
    """Context of calls in float64: tensors made without a dtype are float64, and while it `lifts`,
    casts to float32 (`.float()`, a constant of that dtype) give float64. Casts to 16 bits are taken
    to be deliberate, and kept, unless `wider` has these dtypes. `replaced`: the dtypes that were
    replaced."""

    def __init__(
        self, *, lifts: bool, wider: Mapping[torch.dtype, torch.dtype] = WIDE, shows: bool = False
    ) -> None:
        """`wider`: the replacement of each dtype. `shows`: float64 tensors report float32, for code
        that asserts that dtype."""
        self.lifts, self.shows, self._lifted = lifts, shows, Lifted(wider, shows)
        self.replaced = self._lifted.replaced

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with (
            by_default(),
            self._lifted if self.lifts else nullcontext(),
            Shown() if self.lifts and self.shows else nullcontext(),
        ):
            yield


def widened(
    subject: Subject, mode: Callable[[], AbstractContextManager[None]] | None = None
) -> Subject:
    """Return a twin with every given tensor in float64: inputs, parameters, arguments that are not
    differentiated, keyword arguments, buffers.

    Forward runs in `mode`; by default tensors made without a dtype are float64 in it. Its calls are
    counted by the subject.
    """
    twin = subject.mapped(lambda a: wide(a.value))
    twin.kwargs = pytree.tree_map_only(Tensor, wide, twin.kwargs)
    twin.around, twin.lent = mode or by_default, wide
    return twin


def lifted(subject: Subject) -> tuple[Subject, InDouble]:
    """Return the subject in float64 throughout, without casts to 32 or 16 bits inside; and the
    context that records these casts."""
    casts = InDouble(lifts=True, wider=LIFTED)
    return widened(subject, casts), casts


def casts_inside(subject: Subject) -> set[torch.dtype]:
    """Return the dtypes of less than float64 that forward casts to, or makes tensors of. Makes one
    call. Raises UserCodeError (GV002)."""
    twin, casts = lifted(subject)
    twin.called(twin.leaves())
    return casts.replaced


def casts_to_single(subject: Subject) -> bool:
    """Return whether forward casts to float32, and not to 16 bits; False where it raises in
    float64."""
    found = tried(casts_inside, subject)
    return bool(found and found <= WIDE.keys())


def sixteen_inside(subject: Subject) -> str:
    """Return the dtype of 16 bits that forward casts to, or makes tensors of; "" where there is
    none, or forward raises in float64."""
    found = tried(casts_inside, subject) or ()
    return next((dtype_name(dtype) for dtype in SIXTEEN if dtype in found), "")


def wide(tensor: Tensor) -> Tensor:
    """Return a floating tensor in float64 (complex128), other tensors unchanged."""
    return tensor.to(dtype=LIFTED[tensor.dtype]) if tensor.dtype in LIFTED else tensor
