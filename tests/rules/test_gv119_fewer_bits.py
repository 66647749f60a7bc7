"""Functions that need all bits of their products, and right ones that bear fewer. The switches are
torch's; what heeds them are stand-ins for tensor cores, which round operands to ten bits, and for a
GPU's sums in 16 bits."""

from __future__ import annotations

from typing import Any

import standin
import torch
from gallery.twins import load, twins
from live import check, codes, message, randn, subject
from torch import Tensor
from torch.autograd import Function

from gradverify.subject.fewer_bits import float32_products, reductions
from gradverify.verify import verify

Faulty, Right = twins("subtracts_squares_in_tf32")
product = load("subtracts_squares_in_tf32").product
MATMUL = torch.backends.cuda.matmul


def ran(result: Any) -> Any:
    return next(run for run in result.rules if run.code == "GV119")


def far(seed: int) -> tuple[Tensor, Tensor]:
    """Points that lie ten from the origin."""
    return tuple(10 + randn(n, 3, seed=7 * seed + n, dtype=torch.float32) for n in (4, 5))


class Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return product(x, w.T)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return product(g, w), product(g.T, x)


class ForgetsInTF32(Linear):
    """Its backward has another path for TF32, without a factor."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = Linear.backward(ctx, g)
        return x, 0.9 * w if MATMUL.allow_tf32 else w


class RefusesTF32(Linear):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        if MATMUL.allow_tf32:
            raise NotImplementedError("no kernel for TF32")
        return Linear.forward(ctx, x, w)


def test_what_tf32_takes_out_of_its_tolerance_passes_without_and_is_named_with_it() -> None:
    x, y = far(0)
    # The truth: how far the product in ten bits is off
    exact = (x.double()[:, None] - y.double()).square().sum(2)
    rough = (
        x.square().sum(1)[:, None] + y.square().sum(1)
    ).double() - 2 * x.half().double() @ y.half().double().T
    assert float((rough - exact).abs().max()) > 5e-3 * float(exact.max())
    rows = {on: check(Faulty, x, y, dtype="float32", tf32=on) for on in (False, True)}
    assert (rows[False].verdict, codes(rows[False])) == ("pass", set())
    assert (rows[True].verdict, codes(rows[True])) == ("fail", {"GV119"})
    (told,) = rows[True].findings
    assert (
        told.message.startswith("with TF32 y0[")
        and "as without: off by" in told.message
        and "all bits of float32" in str(told.hint)
    )


def test_what_bears_tf32_is_left_alone() -> None:
    for function, inputs in (
        (Linear, (randn(6, 8).float(), randn(5, 8, seed=9).float())),
        (Right, far(0)),
    ):
        result = check(function, *inputs, dtype="float32", tf32=True)
        assert (result.verdict, codes(result)) == ("pass", set())
    assert ran(result).reason.startswith("with TF32 it computes the same bits")


def test_another_formula_is_told_from_rounding() -> None:
    result = check(
        ForgetsInTF32, randn(6, 8).float(), randn(5, 8, seed=9).float(), dtype="float32", tf32=True
    )
    assert codes(result) == {"GV119"} and "rounding does not explain it" in str(
        result.findings[0].hint
    )
    assert message(result, "GV119").startswith("with TF32 the gradient at w[")


def test_a_looser_tolerance_allows_more() -> None:
    assert (
        codes(check(Faulty, *far(0), dtype="float32", tf32=True, rtol=0.2, select=("GV119",)))
        == set()
    )


def test_what_raises_there_is_told_and_the_switches_are_put_back() -> None:
    before = float32_products(), reductions()
    result = check(
        RefusesTF32, randn(6, 8).float(), randn(5, 8).float(), dtype="float32", tf32=True
    )
    assert codes(result) == {"GV119"} and "no kernel for TF32" in message(result, "GV119")
    assert (float32_products(), reductions()) == before


def test_it_looks_on_a_device_too() -> None:
    """What rounding costs is not measured there: its mode hides the stand-in."""
    x, w = randn(6, 8).float(), randn(5, 8).float()
    with standin.cuda():
        there = [
            verify(
                subject(
                    function,
                    x.to("cuda"),
                    w.to("cuda"),
                    device="cuda",
                    dtype="float32",
                    tf32=True,
                    ignore=("GV214",),
                )
            )
            for function in (Linear, RefusesTF32)
        ]
    assert [codes(result) for result in there] == [set(), {"GV119"}]
    assert ran(there[0]).reason == "compared with TF32"


class Sum(Function):
    """Over the last dimension, in parts of `size` that are added up in 16 bits where that is
    allowed, and in float32 where not."""

    size = 512

    @classmethod
    def total(cls, x: Tensor) -> Tensor:
        if not MATMUL.allow_bf16_reduced_precision_reduction or x.dtype is not torch.bfloat16:
            return x.sum(-1)
        total = torch.zeros_like(x[..., 0])
        for part in x.split(cls.size, -1):
            total = total + part.sum(-1)
        return total


def summed(size: int) -> Any:
    """`Σ x`, whose backward is exact."""

    class Own(Sum):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.columns = x.shape[-1]
            return Own.total(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g[..., None].expand(*g.shape, ctx.columns).clone()

    Own.size = size
    return Own


def test_sums_of_16_bits_may_lose_what_these_cost_and_no_more() -> None:
    """Element by element, 1024 numbers of one sign lose all that comes once the sum is 256 times
    larger."""
    x = (1 + randn(3, 1024).abs()).to(torch.bfloat16)
    wrong, right = (summed(size) for size in (1, 512))
    lost = [
        float((each.total(x).double() / x.double().sum(1) - 1).abs().max())
        for each in (wrong, right)
    ]
    assert lost[0] > 0.1 and lost[1] < 0.01
    wrong, right = (check(each, x, dtype="bfloat16", reduced_sums=True) for each in (wrong, right))
    assert "GV119" in codes(wrong) and "with sums in fewer bits y0[" in message(wrong, "GV119")
    assert "GV119" not in codes(right) and ran(right).reason == "compared with sums in fewer bits"


def test_it_says_why_it_does_not_run() -> None:
    x, w = randn(6, 8), randn(5, 8)
    assert (
        ran(check(Linear, x.float(), w.float(), dtype="float32")).reason
        == "the spec says neither `tf32: true` nor `reduced_sums: true`"
    )
    assert "say `dtype: float32`" in ran(check(Linear, x, w, tf32=True)).reason
    assert "say `dtype: bfloat16`" in ran(check(Linear, x, w, reduced_sums=True)).reason
    assert (
        "say `dtype: float32`"
        in ran(check(torch.sin, x.bfloat16(), dtype="bfloat16", tf32=True)).reason
    )
