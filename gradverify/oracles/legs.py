"""A function of 16 bits on two legs: in float64, where finite differences judge it, and in its own
dtype beside that.

The kernel is the function in its own dtype. What it is compared with is the function, or the spec's
`reference`, in float64 at the same numbers; what 16 bits cost anyway is told by the same
computation under `Disguised`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import SIXTEEN
from gradverify.numerics.sixteen_bit import Legs, TensorResult, judge, nudged
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.draw import signed
from gradverify.subject.failure import UserCodeError, attempted
from gradverify.subject.fewer_bits import tf32
from gradverify.subject.forms import dtype_name
from gradverify.subject.rounding import ROWS, Disguised, Lifted
from gradverify.subject.subject import Argument, Subject, Tensors, filled
from gradverify.subject.target import oracle_target
from gradverify.torch_private import without_modes

# Random ones; of the computation in 16 bits at other points, beside one for each cotangent at the
# point itself
COTANGENTS, RUNS = 3, 6
# Rows whose sum may round after each, as in torch's layer_norm; 512 lose 3 % so
ROWS_OF_REFERENCE = 64
REPEATED = 3  # identical calls of the kernel: do they give the same?


class Standing(NamedTuple):
    """What finite differences are taken of, in float64. `lifted`: what it asks for in fewer bits is
    float64 too. `refusal`: why there is nothing."""

    subject: Subject
    lifted: bool = False
    of_reference: bool = False
    refusal: str = ""

    @contextmanager
    def mode(self) -> Iterator[None]:
        """What every call of it runs in: TF32, which torch allows in convolutions on CUDA, would be
        taken for a wrong gradient."""
        with tf32(False), Lifted() if self.lifted else nullcontext():
            yield


def standing(subject: Subject) -> Standing:
    """The first leg of a subject that has a narrow one: the function in float64, else its
    reference. Calls forward and backward once."""
    if subject.narrow is None:
        return Standing(subject)
    lifted, refusal = _lifts(subject)
    if not refusal:
        return Standing(subject, lifted)
    if subject.case.oracles.reference is None or subject.parameter_names:
        return Standing(subject, refusal=refusal)
    reference = as_reference(subject)
    return Standing(reference, _lifts(reference)[0], of_reference=True)


def _lifts(subject: Subject) -> tuple[bool, str]:
    """Does it ask for fewer bits than float64, which it can be given instead? And why it does not
    run in float64 at all, if so."""

    def called() -> None:
        outputs = subject.probed(subject.leaves()).outputs
        checked = {n: y for n, y in enumerate(outputs) if isinstance(y, Tensor) and y.requires_grad}
        if any(y.dtype in SIXTEEN for y in checked.values()):
            raise UserCodeError("GV002", "what it returns for float64 inputs has 16 bits")
        if checked:
            ones = [torch.ones_like(y) for y in checked.values()]
            Differentiable(subject, tuple(checked)).vjp(ones)

    refusal = ""
    for lifted in (Lifted(), None):
        with lifted or nullcontext():
            refused = attempted(called)
        if refused is None:
            return lifted is not None and bool(lifted.asked), ""
        refusal = refused.message
    return False, refusal


def as_reference(subject: Subject) -> Subject:
    """The reference in the place of the function. Raises UserCodeError (GV001)."""
    case = replace(subject.case, oracles=replace(subject.case.oracles, reference=None))
    dtype, device = torch.float64, torch.device(case.settings.device)
    target = oracle_target(
        str(subject.case.oracles.reference), "reference", case.init, dtype, device
    )
    other = subject.twin(subject.arguments, target=target)
    other.case, other.narrow = case, subject.narrow
    if other.narrow is not None:
        other.count_for(other.narrow)
    return other


Pulled = tuple[Tensor, ...]
"""Checked outputs, and gradients after them, in float64."""


class Kernel:
    """The second leg: forward and every gradient of a function in 16 bits, judged by the native
    error; in float32, where those are none. Raises UserCodeError where the kernel raises.

    `wide`: the same function, or its reference (`of_reference`), in float64. Where the spec names a
    reference, it is that which says what 16 bits cost, with its own sums over more than a few rows.
    """

    def __init__(
        self, wide: Subject, narrow: Subject, checked: Sequence[int], of_reference: bool = False
    ) -> None:
        self._wide, self._narrow, self._checked = wide, narrow, tuple(checked)
        self.dtype = next((x.dtype for x in narrow.inputs if x.dtype in SIXTEEN), torch.float32)
        self._source = wide.generator("native error")
        self._of_reference = of_reference or (
            wide.case.oracles.reference is not None and not wide.parameter_names
        )
        self._costs = as_reference(wide) if self._of_reference and not of_reference else wide

    @property
    def name(self) -> str:
        """Of the dtype."""
        return dtype_name(self.dtype)

    @cached_property
    def returned(self) -> dict[int, str]:
        """The dtypes of the tensors that it returns, by place. Calls it once."""
        with without_modes():
            outputs = self._narrow.probed(self._narrow.leaves()).outputs
        return {place: dtype_name(y) for place, y in enumerate(outputs) if isinstance(y, Tensor)}

    @property
    def outputs(self) -> tuple[TensorResult, ...]:
        """One for each checked output."""
        return self._judged[: len(self._checked)]

    @property
    def gradients(self) -> tuple[TensorResult, ...]:
        """One for each differentiable input."""
        return self._judged[len(self._checked) :]

    @cached_property
    def _judged(self) -> tuple[TensorResult, ...]:
        cotangents = self._cotangents
        kernel = self._called(cotangents)
        exact = [_pulled(self._wide, self._checked, each) for each in cotangents]
        legs = [self._legs(n, kernel, exact) for n in range(len(exact[0]))]
        for n, (mine, theirs) in enumerate(zip(kernel[0], exact[0], strict=True)):
            if mine.shape != theirs.shape:
                named = (
                    f"output {self._checked[n]}"
                    if n < len(self._checked)
                    else f"the gradient of {self._wide.differentiable[n - len(self._checked)].name}"
                )
                raise UserCodeError(
                    "GV002",
                    f"in {self.name} {named} has shape {list(mine.shape)}, in float64 "
                    f"{list(theirs.shape)}",
                )
        spreads = []
        for first, *others in self.repeated:
            apart = torch.stack([other - first for other in others])
            apart = apart.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            spreads.append(apart if bool(apart.any()) else None)
        return tuple(
            judge(replace(each, spread=spread), self.dtype)
            for each, spread in zip(legs, spreads, strict=True)
        )

    def _called(
        self,
        cotangents: Sequence[Tensors],
        inside: AbstractContextManager[object] | None = None,
    ) -> list[Pulled]:
        """What the kernel gives for each of them."""
        with without_modes(), inside or nullcontext():
            return [_pulled(self._narrow, self._checked, each) for each in cotangents]

    def apart(
        self, other: Kernel, inside: AbstractContextManager[object] | None = None
    ) -> tuple[TensorResult, ...]:
        """The kernel elsewhere (on another device, `inside` a context) against this one, each off
        by its own native error.

        Raises UserCodeError."""
        here = self._called(self._cotangents)
        there = [
            tuple(y.to(device=x.device) for x, y in zip(a, b, strict=True))
            for a, b in zip(here, other._called(self._cotangents, inside), strict=True)
        ]
        both = (
            (self._legs(n, there, here), other._legs(n, there, here)) for n in range(len(here[0]))
        )
        return tuple(
            judge(
                replace(
                    a,
                    rounded=a.rounded.hypot(b.rounded.to(a.rounded)),
                    moved=a.moved.hypot(b.moved.to(a.moved)),
                ),
                self.dtype,
            )
            for a, b in both
        )

    @property
    def rounds(self) -> bool:
        """Is any output of the computation another one in its dtype? If not, it computes out of
        torch's sight, and what that costs is not known."""
        places = range(len(self._checked))
        return any(
            not torch.equal(exact[n], low[n]) for exact, low in self._native[1] for n in places
        )

    @cached_property
    def repeated(self) -> tuple[tuple[Tensor, ...], ...]:
        """Of each tensor what identical calls of the kernel give."""
        return tuple(zip(*self._called([self._cotangents[0]] * REPEATED), strict=True))

    @cached_property
    def _native(self) -> tuple[list[Pulled], list[tuple[Pulled, Pulled]]]:
        """The computation that says what 16 bits cost: exact, for each cotangent, and in a number
        of runs, exact and in 16 bits."""
        cotangents, runs = self._cotangents, list[tuple[Pulled, Pulled]]()
        own = [_pulled(self._costs, self._checked, each) for each in cotangents]
        low = (self.dtype, *SIXTEEN)
        for n in range(RUNS):  # at inputs an ulp away: the exact computation, and in 16 bits
            v = cotangents[n % COTANGENTS]
            moved = [
                replace(a, value=nudged(a.value, self.dtype, self._source))
                if a.differentiable and b.value.dtype in low
                else a
                for a, b in zip(self._costs.arguments, self._narrow.arguments, strict=True)
            ]
            exact = _pulled(self._costs.twin(moved), self._checked, v)
            runs.append((exact, self._in_its_dtype(moved, v)))
        return own, runs + [
            (exact, self._in_its_dtype(self._costs.arguments, each))
            for exact, each in zip(own, cotangents, strict=True)
        ]

    def _legs(self, n: int, kernel: Sequence[Pulled], exact: Sequence[Pulled]) -> Legs:
        """Of tensor n. Half of a whole ulp's movement is that of half an ulp."""
        own, runs = self._native
        there = torch.stack([at[n] for at, _ in runs])
        here = torch.stack([own[r % COTANGENTS][n] for r in range(RUNS)])
        # No cotangent changes what forward returns
        draws = slice(1) if n < len(self._checked) else slice(None)
        return Legs(
            torch.stack([each[n] for each in kernel[draws]]),
            torch.stack([each[n] for each in exact[draws]]),
            torch.stack([each[n] for _, each in runs]) - there,
            (there[:RUNS] - here) / 2,
            there,
        )

    @cached_property
    def _cotangents(self) -> list[list[Tensor]]:
        """Dense ones, numbers of the narrow dtype."""
        outputs = _pulled(self._wide, self._checked, None)
        return [
            [signed(y, self._source).to(dtype=self.dtype).double() for y in outputs]
            for _ in range(COTANGENTS)
        ]

    def _in_its_dtype(self, arguments: Sequence[Argument], cotangents: Tensors) -> Pulled:
        """What the computation gives when all of its operations run in 16 bits: what is float32 in
        the kernel stays so, 16 bits are disguised as float64."""
        single = torch.float32
        twin = self._costs.twin(
            [
                replace(a, value=a.value.to(dtype=single))
                if self.dtype != single and own.is_tensor and own.value.dtype == single
                else a
                for a, own in zip(arguments, self._narrow.arguments, strict=True)
            ]
        )
        twin.around = None
        rows = ROWS_OF_REFERENCE if self._of_reference else ROWS
        with without_modes(), Disguised(self.dtype, rows):
            return _pulled(twin, self._checked, cotangents)


def _pulled(subject: Subject, checked: Sequence[int], cotangents: Tensors | None) -> Pulled:
    """Outputs and gradients of one fresh forward; outputs alone without cotangents."""
    function = Differentiable(subject, checked)
    if cotangents is None:
        return tuple(y.detach().double() for y in function.values(subject.leaves()))
    outputs, gradients = function.once([cotangent.clone() for cotangent in cotangents])
    found = (*outputs, *filled(gradients, subject.inputs))
    return tuple(each.detach().double() for each in found)
