"""Operators written in Python, under the modes: what they cast inside is lifted, disguised, rounded
as in a Function; others stay whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from live import check, codes, randn
from torch import Tensor

from gradverify.subject.draw import generator
from gradverify.subject.rounding import Disguised, Lifted, Perturbed

X, W = randn(3, 8), randn(8, seed=1).abs() + 0.5
LIBRARY = torch.library.Library("gradverify_inside", "FRAGMENT")


def exact(x, w):
    """The truth, of which torch knows the gradient."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def norm(x: Tensor, w: Tensor) -> Tensor:
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def pull(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    x32, g32 = x.float(), g.float()
    r = torch.rsqrt(x32.square().mean(-1, keepdim=True) + 1e-6)
    n, t = x32 * r, g32 * w.float()
    return (r * (t - n * (t * n).mean(-1, keepdim=True))).to(x.dtype), (g32 * n).sum(0).to(w.dtype)


def within(x: Tensor, w: Tensor) -> Tensor:
    return own(x, w) + 0.0


def into(x: Tensor, w: Tensor, out: Tensor) -> None:
    out.copy_(norm(x, w))


def outside_of_torch(x: Tensor, out: Tensor) -> Tensor:
    out.add_(1.0)
    return torch.from_numpy(np.sin(x.numpy()))


own = torch.library.custom_op("gradverify_inside::norm", norm, mutates_args=())
own_pull = torch.library.custom_op("gradverify_inside::pull", pull, mutates_args=())
nested = torch.library.custom_op("gradverify_inside::within", within, mutates_args=())
writing = torch.library.custom_op("gradverify_inside::into", into, mutates_args={"out"})
by_numpy = torch.library.custom_op(
    "gradverify_inside::by_numpy", outside_of_torch, mutates_args={"out"}
)
for name, key in (("of_cpu", "CPU"), ("of_all", "CompositeExplicitAutograd")):
    LIBRARY.define(f"{name}(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl(name, norm, key)


def registered(name, factor=1.0):
    """A differentiable operator, whose backward is one that is written in Python too; `factor`: how
    wrong its gradient of `w` is."""
    made = torch.library.custom_op(f"gradverify_inside::{name}", norm, mutates_args=())

    def backward(ctx, g):
        dx, dw = own_pull(g, *ctx.saved_tensors)
        return dx, factor * dw

    made.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    return lambda x, w: made(x, w)


RIGHT, WRONG = registered("right"), registered("wrong", 1.02)


def written(x, w):
    out = torch.zeros_like(x)
    writing(x, w, out)
    return out


CALLS = [
    own,
    nested,
    written,
    torch.ops.gradverify_inside.of_cpu,
    torch.ops.gradverify_inside.of_all,
]


@pytest.mark.parametrize("call", CALLS)
def test_what_it_casts_inside_is_lifted(call):
    assert not torch.allclose(call(X, W), exact(X, W), rtol=1e-12)
    with Lifted() as lifted:
        y = call(X, W)
    assert lifted.replaced and torch.allclose(y, exact(X, W), rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("call", CALLS)
def test_disguised_it_is_bit_for_bit_the_narrow_type(call, dtype):
    x, w = X.to(dtype), W.to(dtype)
    with Disguised(dtype):
        y = call(x.double(), w.double())
    assert y.dtype == torch.float64 and torch.equal(y, call(x, w).double())


def _branch(x: Tensor) -> Tensor:
    return x * (1 if x.dtype == torch.bfloat16 else 2)


def test_what_torch_does_not_compute_is_called_in_the_narrow_type_and_writes_once():
    x, out = X.half(), torch.zeros(3, 8, dtype=torch.float64)
    with Disguised(torch.float16):
        y = by_numpy(x.double(), out)
    assert torch.equal(y, torch.from_numpy(np.sin(x.numpy())).double()) and torch.equal(
        out, torch.ones_like(out)
    )


def test_its_own_operations_round_at_random():
    """As those of its body do: a variance of numbers around 1,000 loses far more than its
    arguments' roundings."""

    def variance(x: Tensor) -> Tensor:
        return x.square().mean() - x.mean().square()

    made = torch.library.custom_op("gradverify_inside::variance", variance, mutates_args=())

    def spread(call):
        found = []
        for number in range(9):
            with Perturbed(generator(number, "test", "rounding")):
                found.append(call(X + 1000))
        return float(torch.stack(found).std())

    assert spread(variance) / 3 < spread(made) < spread(variance) * 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_right_one_passes_and_a_wrong_one_is_found(dtype):
    own_dtype = getattr(torch, dtype)
    for call, found in ((RIGHT, set()), (WRONG, {"GV101"})):
        result = check(call, X.to(own_dtype), W.to(own_dtype), dtype=dtype)
        assert codes(result) - {"GV222"} == found, result.findings
        assert result.verdict == ("fail" if found else "pass")


def test_a_branch_of_16_bits_inside_is_found():
    """Called in its own dtype by the disguise, the fault would have been what 16 bits cost."""
    made = torch.library.custom_op("gradverify_inside::faulty", mutates_args=())(_branch)
    made.register_autograd(lambda ctx, g: 2 * g)
    assert codes(check(lambda x: made(x), X.bfloat16(), dtype="bfloat16")) == {"GV112"}
