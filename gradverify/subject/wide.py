"""The same function at the same numbers in float64 (complex128): what its finite differences are
taken of where the check is in float32."""

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
"""All that float64 (complex128) stands in for."""


def is_narrow(subject: Subject) -> bool:
    """Is a differentiable input in float32 or complex64?"""
    return any(x.dtype in WIDE for x in subject.inputs)


def on_two_legs(subject: Subject) -> Subject:
    """The subject in float64, whose finite differences are taken, with itself beside it (`narrow`),
    where a differentiable input has 16 bits; any other one as it is. All calls are counted by what
    is returned.
    """
    if not any(x.dtype in SIXTEEN for x in subject.inputs):
        return subject
    wide = widened(subject)
    wide.case = replace(subject.case, settings=replace(subject.case.settings, dtype="float64"))
    wide.narrow = subject
    wide.count_for(subject)
    return wide


class InDouble:
    """What every call in float64 runs in: what is made without a dtype is float64, and while it
    `lifts`, what asks for float32 is too (`.float()`, a constant of that dtype). What asks for 16
    bits does so on purpose, and gets them, unless `wider` has them too. `asked`: what was
    lifted."""

    def __init__(
        self, *, lifts: bool, wider: Mapping[torch.dtype, torch.dtype] = WIDE, shows: bool = False
    ) -> None:
        """`wider`: what is lifted, and to what. `shows`: float64 says that it is float32, to code
        that asserts that."""
        self.lifts, self.shows, self._lifted = lifts, shows, Lifted(wider, shows)
        self.asked = self._lifted.asked

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
    """The subject with every tensor that it is given in float64: inputs, parameters, what is not
    differentiated, keyword arguments, buffers.

    Tensors that forward makes without a dtype are float64 too, or `mode` is what it runs in. Its
    calls are counted by the subject.
    """
    twin = subject.twin(
        [replace(a, value=wide(a.value)) if a.is_tensor else a for a in subject.arguments]
    )
    twin.kwargs = pytree.tree_map_only(Tensor, wide, twin.kwargs)
    twin.around, twin.lent = mode or by_default, wide
    return twin


def lifted(subject: Subject) -> tuple[Subject, InDouble]:
    """The subject in float64 throughout, what it casts to 32 or 16 bits inside too; and what counts
    these casts."""
    casts = InDouble(lifts=True, wider=LIFTED)
    return widened(subject, casts), casts


def casts_inside(subject: Subject) -> set[torch.dtype]:
    """The dtypes of less than float64 that forward casts to, or makes numbers of. One call. Raises
    UserCodeError (GV002)."""
    twin, casts = lifted(subject)
    twin.called(twin.leaves())
    return casts.asked


def casts_to_single(subject: Subject) -> bool:
    """Does forward cast to float32, and nothing to 16 bits? What raises in float64 does not."""
    found = tried(casts_inside, subject)
    return bool(found and found <= WIDE.keys())


def sixteen_inside(subject: Subject) -> str:
    """The dtype of 16 bits that forward casts to, or makes numbers of; nothing where it does not,
    or raises in float64."""
    found = tried(casts_inside, subject) or ()
    return next((dtype_name(dtype) for dtype in SIXTEEN if dtype in found), "")


def wide(tensor: Tensor) -> Tensor:
    """The same numbers in float64 (complex128); as it is where it is of another kind."""
    return tensor.to(dtype=LIFTED[tensor.dtype]) if tensor.dtype in LIFTED else tensor
