"""Who judges a function in low precision: GV112, and beside it `torch.allclose`, the rule of three
times the plain error, and gradcheck.

How large a mistake is, is told without gradverify: by the plain computation in the same dtype at 16
points of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import sixteen_kit as kits
import sixteen_set as kit
import torch
from torch import Tensor

from gradverify.model.case import Case, Oracles, Search, Settings, SpecPlace
from gradverify.oracles.legs import Kernel
from gradverify.subject.prepare import assemble
from gradverify.subject.subject import Argument
from gradverify.subject.target import live
from gradverify.verify import evidence_of

DAMAGES = ("dropped tail", "zeroed row", "branch of 16 bits")
WIDE = {"no maximum": 40.0}  # how large its inputs are
POINTS = 16
# Rows and columns in float32, where every element of the Jacobian is compared
FEWER = {24: 6, 40: 24}
# As torch.testing.assert_close has it
CLOSE: dict[torch.dtype, dict[str, float]] = {torch.float32: {"rtol": 1.3e-6, "atol": 1e-5}}
# gradcheck's own
STEPS: dict[torch.dtype, dict[str, Any]] = {torch.float32: {}}


class Damaged(torch.autograd.Function):
    """A right function whose backward is damaged in low precision."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], how: str, *inputs: Tensor) -> Tensor:
        ctx.function, ctx.how = function, how
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Any, ...]:
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            found = list(torch.autograd.grad(ctx.function(*leaves), leaves, cotangent))
        if kits.is_low(leaves[0]):
            found = damaged(found, ctx.how)
        return None, None, *found


def damaged(gradients: list[Tensor], how: str) -> list[Tensor]:
    """The first gradient without its last eight columns, or without its smallest row; the last one
    negative."""
    first, last = gradients[0].clone(), gradients[-1].clone()
    if how == "dropped tail":
        first[..., -8:] = 0
    elif how == "zeroed row":
        rows = first.view(-1, first.shape[-1])
        sizes = rows.float().square().mean(1)
        rows[torch.where(sizes > 0, sizes, torch.inf).argmin()] = 0
    else:
        return [*gradients[:-1], -last]
    return [first, *gradients[1:]]


def inputs_of(name: str, dtype: torch.dtype, seed: int, size: float = 1.0) -> list[Tensor]:
    """Standard normal ones, of rows of different sizes."""
    source, fewer = torch.Generator().manual_seed(seed), FEWER if dtype == torch.float32 else {}
    made = [
        torch.randn([fewer.get(n, n) for n in shape], generator=source, dtype=torch.float64)
        for shape in kit.OPERATORS[name].shapes
    ]
    made[0] = (
        made[0]
        * (
            4.0 ** torch.randn(made[0].shape[:-1], generator=source, dtype=torch.float64)[..., None]
        ).clamp(0.05, 4)
        ** 0.5
    )
    return [(x * size).to(dtype).requires_grad_() for x in made]


def function_of(name: str, how: str) -> Callable[..., Tensor]:
    operator = kit.OPERATORS[name]
    if how in DAMAGES:
        return partial(Damaged.apply, partial(operator.function, kits.Upcast()), how)
    if how == "torch's own":
        assert operator.torchs is not None
        return operator.torchs
    return partial(operator.function, {**kits.RIGHT, **kits.WRONG, **kits.SMALL}[how])


def pulled(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], cotangent: Tensor
) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = function(*leaves)
    return [
        y.detach().double(),
        *(g.double() for g in torch.autograd.grad(y, leaves, cotangent.to(y.dtype).expand_as(y))),
    ]


class Shared(Kernel):
    """GV112's second leg, whose runs of the reference are made once for all ways to compute an
    operator."""

    runs: list[Any]

    @cached_property
    def _native(self) -> Any:
        if not self.runs:
            self.runs.append(super()._native)
        return self.runs[0]


@dataclass
class Point:
    """An operator at one point, in one dtype: what is the same for all ways to compute it."""

    name: str
    dtype: torch.dtype
    seed: int
    size: float = 1.0
    runs: list[Any] = field(default_factory=list)

    @cached_property
    def inputs(self) -> list[Tensor]:
        return inputs_of(self.name, self.dtype, self.seed, self.size)

    @cached_property
    def _at(self) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
        """A cotangent, the exact results, those of the plain computation in the dtype, and their
        native errors, squared."""
        plain = kit.plain(self.name)
        at = [x.detach().double() for x in self.inputs]
        source = torch.Generator().manual_seed(self.seed + 1)
        cotangent = (
            torch.randn(plain(*at).shape, generator=source, dtype=torch.float64)
            .to(self.dtype)
            .double()
        )
        exact, errors = pulled(plain, at, cotangent), [torch.zeros(())] * (len(at) + 1)
        for _ in range(POINTS):
            signs = [torch.randint(0, 2, x.shape, generator=source) * 2.0 - 1 for x in at]
            half = [
                torch.finfo(self.dtype).eps / 2 * 2.0 ** x.abs().clamp_min(1e-4).log2().floor()
                for x in at
            ]
            moved = [x + sign * ulp for x, sign, ulp in zip(at, signs, half, strict=True)]
            narrow = [x.to(self.dtype) for x in moved]
            there = zip(
                pulled(plain, narrow, cotangent),
                pulled(plain, [x.double() for x in narrow], cotangent),
                strict=True,
            )
            beside = pulled(plain, moved, cotangent)
            errors = [
                e + ((a - b).square() + (m - x).square()) / POINTS
                for e, (a, b), m, x in zip(errors, there, beside, exact, strict=True)
            ]
        return cotangent, exact, pulled(plain, self.inputs, cotangent), errors

    def others(self, how: str) -> tuple[float, bool, bool]:
        """The mistake over the native error, in the worst row of eight or more; does allclose, does
        the 3 × rule find it?"""
        cotangent, exact, theirs, errors = self._at
        mine = pulled(function_of(self.name, how), self.inputs, cotangent)
        limits = CLOSE.get(self.dtype, {"rtol": 1e-2, "atol": 1e-2})
        close = all(torch.allclose(a, b, **limits) for a, b in zip(mine, exact, strict=True))
        three = all(
            float((a - b).abs().max()) <= 3 * float((c - b).abs().max()) + 1e-30
            for a, b, c in zip(mine, exact, theirs, strict=True)
        )
        return max(map(_excess, mine, exact, errors)), not close, not three

    def gradcheck(self, how: str) -> bool:
        """Does it raise, at a step that 16 bits can take; in float32 at its own?"""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                settings = STEPS.get(
                    self.dtype, {"eps": 2.0**-4, "atol": 1e-2, "rtol": 1e-2, "fast_mode": True}
                )
                leaves = [x.detach().requires_grad_() for x in self.inputs]
                return not torch.autograd.gradcheck(
                    function_of(self.name, how), leaves, raise_exception=False, **settings
                )
        except (RuntimeError, NotImplementedError):
            return True

    def gv112(self, how: str, reference: bool) -> list[str]:
        """What the second leg finds wrong, a sentence each."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evidence = evidence_of(self.subject(how, reference))
            assert evidence.subject.narrow is not None
            kernel = Shared(evidence.subject, evidence.subject.narrow, evidence.forward.checked)
            kernel.runs = self.runs if reference else []
            with evidence.first_leg.mode():
                seen = kernel.judged
        return [
            f"{n}: {each.miss}, {each.ratio:.3g} × the native error, gain {each.gain:.4f}"
            for n, each in enumerate(seen)
            if each.miss
        ]

    def subject(self, how: str, reference: bool) -> Any:
        """What a check of it would be."""
        function = function_of(self.name, how)
        oracles = Oracles(reference=f"sixteen_set:plain_{self.name}") if reference else Oracles()
        settings = Settings(dtype=str(self.dtype).removeprefix("torch."), seed=self.seed)
        case = Case(
            "sixteen",
            self.name,
            f"{self.name} {self.seed}",
            SpecPlace("sixteen.py", 1),
            self.name,
            settings=settings,
            oracles=oracles,
            search=Search(str(Path(__file__).parent)),
        )
        given = [Argument(f"x{n}", x.detach(), True) for n, x in enumerate(self.inputs)]
        return assemble(
            case, live(self.name, lambda *args: function(*args), None, torch.float64), given
        )


def _excess(mine: Tensor, exact: Tensor, squares: Tensor) -> float:
    if not exact.shape or exact.shape[-1] < 8:
        return 0.0
    native = squares.mean(-1).sqrt().clamp_min(1e-30)
    ratio = (mine - exact).square().mean(-1).sqrt() / native
    alive = exact.square().mean(-1) > 1e-18 * exact.square().mean()
    return float(torch.where(alive, ratio.nan_to_num(torch.inf), 0.0).max())
