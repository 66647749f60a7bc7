"""Torch's switches of products in fewer bits: both of its interfaces, mixed ones too, are read, set
for a while, and put back."""

import pytest
import torch
from live import check, codes, randn
from torch.autograd import Function

from gradverify.subject.fewer_bits import float32_products, set_float32_products, tf32
from gradverify.subject.machine import undisturbed


def by_the_newer_one(where):
    def write():
        where.fp32_precision = "tf32"

    return write


SAID = {
    "older, products": lambda: torch.set_float32_matmul_precision("medium"),
    "older, convolutions": lambda: torch._C._set_cudnn_allow_tf32(False),
    "newer, everywhere": by_the_newer_one(torch.backends),
    "newer, products": by_the_newer_one(torch.backends.cuda.matmul),
    "newer, convolutions": lambda: torch._C._set_fp32_precision_setter("cuda", "conv", "ieee"),
    "newer, on the CPU": by_the_newer_one(torch.backends.mkldnn.matmul),
}
newer = pytest.mark.skipif(
    not hasattr(torch._C, "_get_fp32_precision_getter"), reason="torch before 2.9 has one interface"
)
SAYINGS = [
    pytest.param(write, marks=newer if name.startswith("newer") else ())
    for name, write in SAID.items()
]


@pytest.fixture(autouse=True)
def _torchs_test_utilities_freeze_these_switches_where_they_were_imported(monkeypatch):
    monkeypatch.setitem(
        torch.backends.disable_global_flags.__globals__, "__allow_nonbracketed_mutation_flag", True
    )


@pytest.mark.parametrize("say", SAYINGS)
@pytest.mark.parametrize("on", [True, False])
def test_tf32_is_on_or_off_whatever_was_said_and_then_as_it_was(say, on):
    start = float32_products()
    with undisturbed():
        say()
        before = float32_products()
        with pytest.raises(ValueError, match="inside"), tf32(on):
            assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is on
            assert torch.get_float32_matmul_precision() == ("high" if on else "highest")
            assert set(float32_products().places[1:]) <= {"tf32" if on else "ieee"}
            raise ValueError("inside")
        assert float32_products() == before
    assert float32_products() == start


def convolved(x):
    """As cuDNN does where TF32 is allowed, which is torch's own default: operands of 10 bits."""
    if torch.backends.cudnn.allow_tf32:
        x = torch.ldexp(torch.frexp(x).mantissa.half().float(), torch.frexp(x).exponent)
    return x


class Differences(Function):
    """Of neighbours, by a convolution; its forward refuses float64, so that all is computed in
    float32."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (convolved(x[1:] ** 2) - convolved(x[:-1] ** 2)).float()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        zero = g.new_zeros(1)
        return (
            2 * convolved(x) * (torch.cat([zero, convolved(g)]) - torch.cat([convolved(g), zero]))
        )


@pytest.mark.parametrize("seed", range(3))
def test_a_right_convolution_is_not_accused_for_torchs_default_and_a_wrong_one_is(seed):
    class Faulty(Differences):
        @staticmethod
        def backward(ctx, g):
            return 1.01 * Differences.backward(ctx, g)

    assert torch.backends.cudnn.allow_tf32  # torch's own default
    x = randn(8, seed=seed, dtype=torch.float32)
    assert codes(check(Differences, x, dtype="float32")) <= {"GV226"}
    assert "GV101" in codes(check(Faulty, x, dtype="float32"))


@newer
def test_a_state_that_torch_refuses_to_read_can_be_put_back():
    with undisturbed():
        start = float32_products()
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        with pytest.raises(RuntimeError, match="mix"):
            torch.get_float32_matmul_precision()
        mixed = float32_products()
        assert mixed.matmul == start.matmul and mixed.places != start.places
        set_float32_products(start)
        assert torch.get_float32_matmul_precision() == start.matmul and float32_products() == start
        set_float32_products(mixed)
        assert float32_products() == mixed
        with pytest.raises(RuntimeError, match="mix"):
            torch.get_float32_matmul_precision()
