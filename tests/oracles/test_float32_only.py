"""Kernels that take float32 alone and have no reference: right ones pass, damaged twins fail.

In torch, NumPy and custom operators; what can be computed in float32 alone stays with float32's own
noise.
"""

import re

import numpy as np
import pytest
import torch
from corpus.float32_only import DAMAGES, drawn, kernel, verdict
from live import check, evidence, randn
from torch.autograd import Function

from gradverify.oracles.legs import InFloat64

SAMPLE = [
    ("torch", "softmax of a product"),
    ("torch", "residual rms_norm"),
    ("numpy", "swiglu"),
    ("numpy", "attention"),
    ("custom op", "layer_norm"),
    ("custom op", "cross entropy"),
]


@pytest.mark.parametrize(("style", "name"), SAMPLE)
def test_a_right_one_is_decided_in_float64(style, name):
    seen = evidence(kernel(style, name), *drawn(name, 1), dtype="float32")
    assert isinstance(seen.in_float64, InFloat64)
    assert verdict(style, name, 1).verdict == "pass"


@pytest.mark.population("damage", most=3)
@pytest.mark.parametrize("damage", list(DAMAGES))
@pytest.mark.parametrize(("style", "name"), SAMPLE[::2])
def test_a_damaged_one_is_found(style, name, damage):
    assert verdict(style, name, 2, DAMAGES[damage]).verdict == "fail"


def only(forward, backward):
    class Kernel(Function):
        @staticmethod
        def forward(ctx, x):
            assert x.dtype == torch.float32 and x.type() == "torch.FloatTensor"
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            return backward(ctx.saved_tensors[0], g)

    return Kernel


def by_its_size(x):
    assert x.element_size() == x.itemsize == 4 and x.nbytes == 4 * x.numel()
    return x.sin()


def test_a_kernel_that_looks_at_the_size_of_an_element_is_decided_in_float64():
    x = randn(8, dtype=torch.float32)
    right = only(by_its_size, lambda x, g: g * x.cos())
    assert isinstance(evidence(right, x, dtype="float32").in_float64, InFloat64)
    assert check(right, x, dtype="float32").verdict == "pass"
    wrong = only(by_its_size, lambda x, g: 1.002 * g * x.cos())
    assert check(wrong, x, dtype="float32").verdict == "fail"


def by_bits(x):
    """1 / √x from the bits of float32, and three steps of Newton's."""
    y = (0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(3):
        y = y * (1.5 - 0.5 * x * y * y)
    return y


def in_float32_arrays(x):
    """NumPy, which writes into memory of float32."""
    out = np.empty(x.shape, np.float32)
    np.multiply(x.detach().numpy(), 2.0, out=out, casting="same_kind")
    return torch.from_numpy(out)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [(by_bits, lambda x, g: -0.5 * g * x**-1.5), (in_float32_arrays, lambda x, g: 2 * g)],
)
def test_what_is_another_function_in_float64_is_taken_in_float32_and_not_accused(forward, backward):
    x = randn(8, dtype=torch.float32).abs() + 0.5
    assert not isinstance(
        evidence(only(forward, backward), x, dtype="float32").in_float64, InFloat64
    )
    assert check(only(forward, backward), x, dtype="float32").verdict in ("pass", "undecided")
    assert (
        check(only(forward, lambda x, g: 1.1 * backward(x, g)), x, dtype="float32").verdict
        == "fail"
    )


def beyond_its_bits(x):
    """Out of everybody's sight: an array of float32, in which larger numbers cancel."""
    a = np.array(x.detach().tolist(), np.float32)
    return torch.from_numpy((a + np.float32(1e4)) - np.float32(1e4) + a * a)


def test_what_stays_undecided_names_a_remedy_that_decides_it():
    function, x = only(beyond_its_bits, lambda x, g: g * (1 + 2 * x)), randn(6, dtype=torch.float32)
    result = check(function, x, dtype="float32")
    assert result.verdict == "undecided"
    hint = next(finding.hint for finding in result.findings)
    assert "`reference`" in hint
    told = re.search(r"`atol: (1e-?\d+)`", hint)
    assert (
        told is None or check(function, x, dtype="float32", atol=float(told[1])).verdict == "pass"
    )
