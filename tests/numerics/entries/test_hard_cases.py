"""Hard cases of the method's references: what each must come to. `kink`: passes, counted as a kink;
`open`: may stay undecided, never a mismatch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, check, leaf, normal, spd, times, verdict, with_backward

RNG = np.random.default_rng(0)
LOGITS = np.random.default_rng(3).normal(size=8) * 4
TERMS = np.arange(1, 20_001) * 1e-2


def softmax_first(x, kind=np.float64):
    z = kind(LOGITS) * kind(x)
    p = np.exp(z - z.max())
    return float(p[0] / p.sum(dtype=kind))


def softmax_slope(x):
    p = np.exp(LOGITS * x - (LOGITS * x).max())
    p /= p.sum()
    return p[0] * (LOGITS[0] - (p * LOGITS).sum())


def bfloat16(x):
    bits = int(np.float32(x).view(np.uint32))
    return float(np.uint32((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32))


def iterated_sqrt(x, tol=1e-8):
    y = 1.0
    for _ in range(2000):
        if abs(y * y - x) <= tol * x:
            break
        y -= 0.05 * (y * y - x)
    return y


def hashed(x):
    bits = (int(np.float64(x).view(np.uint64)) * 0x9E3779B97F4A7C15) & (2**64 - 1)
    return (((bits ^ (bits >> 29)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)) / 2**64 - 0.5


SCALAR = {  # f, x, slope, expected
    "sin": (np.sin, 1.0, math.cos(1.0), "right"),
    "sin(1e6 x)": (lambda x: np.sin(1e6 * x), 0.7, 1e6 * math.cos(7e5), "right"),
    "sin at 1e8": (np.sin, 1e8, math.cos(1e8), "right"),
    "|x - 1|, 1e-7 beside": (lambda x: abs(x - 1.0), 1.0 + 1e-7, 1.0, "right"),
    "max(x², 1) at 1": (lambda x: max(x * x, 1.0), 1.0, 1.0, "kink"),
    "step at x": (lambda x: (x >= 0.3) + x, 0.3, 1.0, "open"),
    "step 1e-5 away": (lambda x: (x >= 0.3) + x, 0.3 + 1e-5, 1.0, "right"),
    "round(8x)": (lambda x: np.round(8 * x), 0.3, 0.0, "right"),
    "sum of 20000 terms": (
        lambda x: float(np.sum(np.sin(x + TERMS))),
        0.4,
        float(np.sum(np.cos(0.4 + TERMS))),
        "right",
    ),
    "1e8 + sin x": (lambda x: 1e8 + np.sin(x), 1.0, math.cos(1.0), "open"),
    "softmax": (softmax_first, 1.3, softmax_slope(1.3), "right"),
    "√(x² + 1e-16)": (lambda x: np.sqrt(x * x + 1e-16), 3e-8, 3e-8 / math.sqrt(1e-15), "right"),
    "1e-3 from a pole": (lambda x: 1 / (x - 1.0), 1.001, -1 / (1.001 - 1.0) ** 2, "right"),
    "float32 softmax": (lambda x: softmax_first(x, np.float32), 1.3, softmax_slope(1.3), "open"),
    "float32 inside, float64 out": (
        lambda x: float(np.sin(np.float32(x))) * 1.1,
        1.0,
        1.1 * math.cos(1.0),
        "open",
    ),
    "bfloat16 tanh": (
        lambda x: bfloat16(np.tanh(bfloat16(x))),
        0.5,
        1 / math.cosh(0.5) ** 2,
        "open",
    ),
    "random noise 1e-5": (
        lambda x: np.sin(x) + 1e-5 * RNG.standard_normal(),
        1.0,
        math.cos(1.0),
        "open",
    ),
    "hashed noise 1e-8": (lambda x: np.sin(x) + 1e-8 * hashed(x), 1.0, math.cos(1.0), "open"),
    "ripple": (
        lambda x: np.sin(x) + 1e-8 * np.sin(3e9 * x),
        1.0,
        math.cos(1.0) + 30 * math.cos(3e9),
        "open",
    ),
    "iterative solver": (iterated_sqrt, 2.0, 0.5 / math.sqrt(2.0), "right"),
}


def small():
    """Twelve numbers, three of them far below the others."""
    x = normal(1, 12)
    x[3], x[7], x[9] = 1e-8, -1e-11, 3e-5
    return x


W, DATA = normal(5, 6, 6), normal(9, 2000, 5)


def straight_through(forward):
    return with_backward(forward, lambda x, g: g)


def batch_norm(x, w=None, b=None):
    return F.batch_norm(x, None, None, w, b, training=True)


TENSOR = {  # forward, inputs, expected
    "small: sum of squares": (lambda x: (x * x).sum(), (small(),), "right"),
    "small: matmul": (lambda x: x.view(2, 6) @ W, (small(),), "right"),
    "constant: batch_norm": (
        lambda *a: batch_norm(*a).sum(0),
        (normal(3, 6, 3), normal(4, 3), normal(5, 3)),
        "right",
    ),
    "zeros: tanh, x³": (lambda x: (x.tanh().sum(), (x**3).sum()), (leaf(0.0, 0.0, 0.0),), "right"),
    "zeros: linear": (
        F.linear,
        (leaf(*[0.0] * 12).view(3, 4), leaf(*[0.0] * 8).view(2, 4), leaf(0.0, 0.0)),
        "right",
    ),
    "sizes: cumprod": (lambda x: x.cumprod(0), (normal(1, 40).abs() + 1,), "right"),
    "sizes: 1e-20, 1, 1e20": (
        lambda x: torch.cat([1e-20 * x.sin(), x.cos(), 1e20 * x.exp()]),
        (normal(1, 4),),
        "right",
    ),
    # "open", as sin(1e9 x) is like noise 1e-2 away from x
    "sizes: inputs 1e-9, 1e9": (
        lambda x, y: (x * 1e9).sin() * (y * 1e-9).cos(),
        (normal(1, 4, k=1e-9), normal(2, 4, k=1e9)),
        "open",
    ),
    "offset 1e10": (lambda x: x + 1e10, (normal(1, 4),), "right"),
    "round": (torch.round, (normal(1, 8, k=3.0),), "right"),
    "fake quantisation": (
        straight_through(lambda x: (x * 1000).round() / 1000),
        (normal(1, 8),),
        "open",
    ),
    "sqrt, log at 1e-12": (lambda x: (x.sqrt(), x.log()), (leaf(1e-12, 1.0, 3e-5),), "right"),
    "acos, asin at 1 - 1e-7": (
        lambda x: (x.acos(), x.asin()),
        (leaf(1 - 1e-7, 0.3, -1 + 1e-10),),
        "open",
    ),
    "sqrt at 0": (torch.sqrt, (leaf(0.0, 1.0),), "open"),
    "cholesky, near singular": (
        lambda a: torch.linalg.cholesky((a + a.mT) / 2),
        (spd(eps=1e-6),),
        "right",
    ),
    "eigvalsh, symmetric": (torch.linalg.eigvalsh, (spd(),), "open"),
    "inverse, condition 1e10": (
        torch.linalg.inv,
        (torch.diag(torch.logspace(0, -10, 4, dtype=DOUBLE)) + 1e-12 * W[:4, :4],),
        "open",
    ),
    "saturated": (
        lambda x: (x.tanh(), x.sigmoid()),
        (leaf(25.0, -30.0, 40.0, 12.0, -17.0),),
        "open",
    ),
    "logits 50 apart": (lambda x: x.softmax(0), (normal(1, 8, k=25.0),), "right"),
    "purely imaginary 1e-9": (
        lambda z: (z * z).exp(),
        (leaf(1e-9j, 1.0, dtype=torch.complex128),),
        "right",
    ),
    "relu(x).sum, two zeros": (lambda x: x.relu().sum(), (leaf(0.0, 0.0, 1.0, -1.0),), "kink"),
    "median, two equal": (lambda x: x.median(), (leaf(1.0, 2.0, 2.0, 3.0, 0.5),), "kink"),
}


def assert_expected(entries, expected):
    kinks = sum(pair.count(Outcome.KINK) for pair in entries.pairs)
    if expected == "open":
        assert verdict(entries) != Verdict.MISMATCH
    else:
        assert verdict(entries) == Verdict.PASS
        assert (kinks > 0) == (expected == "kink")


def scalar_case(name, factor=1.0):
    f, x, slope, _ = SCALAR[name]
    forward = with_backward(
        lambda x: torch.tensor([float(f(np.float64(x.item())))], dtype=DOUBLE),
        lambda x, g: g * slope * factor,
    )
    return check(forward, leaf(x))


@pytest.mark.parametrize("name", SCALAR)
def test_a_right_slope_is_no_false_alarm(name):
    assert_expected(scalar_case(name), SCALAR[name][3])


@pytest.mark.parametrize(
    "name", [n for n, case in SCALAR.items() if case[3] == "right" and case[2]]
)
def test_a_slope_off_by_one_in_a_hundred_is_found(name):
    assert verdict(scalar_case(name, 1.01)) == Verdict.MISMATCH


@pytest.mark.parametrize("name", TENSOR)
def test_a_right_gradient_is_no_false_alarm(name):
    forward, inputs, expected = TENSOR[name]
    assert_expected(check(forward, *inputs), expected)


FLAT = ("constant", "round", "floor", "zeros", "relu", "median", "integer")


@pytest.mark.parametrize(
    "name", [n for n, case in TENSOR.items() if case[2] == "right" and not n.startswith(FLAT)]
)
def test_a_gradient_off_by_one_in_ten_thousand_is_found(name):
    forward, inputs, _ = TENSOR[name]
    found = verdict(check(forward, *inputs, damage=times(1 + 1e-4)))
    # 1e-4 of the slope is below the noise near x
    assert found == Verdict.MISMATCH or (name == "offset 1e10" and found == Verdict.UNDECIDED)
