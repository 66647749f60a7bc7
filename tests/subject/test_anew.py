"""Every operation an ulp off at random, in its own dtype; what no way to round changes is left
alone."""

from __future__ import annotations

import pytest
import torch
from live import randn

from gradverify.numerics.function.coordinates import UNITS
from gradverify.subject.rounding import Anew

X = randn(50)
EXACT = {
    "the largest": lambda x: x.amax(),
    "a choice": lambda x: torch.where(x > 0, x, 0.0),
    "a copy": torch.clone,
    "a view": lambda x: x.view(5, 10),
    "more bits": lambda x: x.double(),
    "rectified": torch.relu,
    "sorted": lambda x: x.sort().values,
    "a mask": lambda x: (x > 0).to(x.dtype),
    "signs": torch.sign,
    "a count": lambda x: (x > 1).to(x.dtype).sum(),
    "a constant": lambda x: torch.full_like(x, 0.3),
    "ones": torch.ones_like,
    "written": lambda x: torch.empty_like(x).copy_(x),
    "filled": lambda x: torch.empty_like(x).fill_(0.3),
    "a place": lambda x: x.argmax(),
}
ROUNDED = {
    "a sum": lambda x: x.sum(),
    "a product": lambda x: x * x,
    "a factor": lambda x: 3 * x,
    "in place": lambda x: x.clone().mul_(0.3),
    "a matrix": lambda x: x.view(5, 10) @ x.view(10, 5),
    "log_softmax": lambda x: x.log_softmax(0),
    "into": lambda x: torch.exp(x, out=torch.empty_like(x)),
}


def anew(f, x, seed=0):
    with Anew(torch.Generator().manual_seed(seed)):
        return f(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("f", EXACT.values(), ids=EXACT)
def test_what_is_exact_stays(f, dtype):
    x = X.to(dtype)
    assert torch.equal(anew(f, x), f(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("f", ROUNDED.values(), ids=ROUNDED)
def test_what_is_rounded_is_off_by_some_roundings(f, dtype):
    x = X.to(dtype) if not dtype.is_complex else torch.complex(X, X.flip(0)).to(dtype)
    if f is ROUNDED["log_softmax"] and dtype in (torch.bfloat16, torch.complex64):
        pytest.skip(
            "its steps round in 16 bits, and log_softmax itself in 32; there is none of complex "
            "numbers"
        )
    off = (anew(f, x) - f(x)).abs().max() / f(x).abs().max()
    assert 0 < float(off) <= (600 if f is ROUNDED["a sum"] else 40) * UNITS[dtype]


def test_a_part_in_float32_is_off_by_roundings_of_float32():
    def part(x):
        return x - x.float().mean().to(x.dtype)

    off = [float((anew(part, X, seed) - part(X)).abs().max()) for seed in range(8)]
    assert sorted(off)[-2] > 2.0**-30 and max(off) < 2.0**-20
    assert float((anew(lambda x: x - x.mean(), X) - (X - X.mean())).abs().max()) < 2.0**-49


def test_what_is_drawn_is_drawn_once():
    def drawn(f):
        torch.manual_seed(5)
        return f(X) != 0

    def dropped(x):
        return torch.nn.functional.dropout(2 * x, 0.5)

    assert torch.equal(drawn(lambda x: anew(dropped, x)), drawn(dropped))
