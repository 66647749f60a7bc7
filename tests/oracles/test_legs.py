"""One kernel of 16 bits against another: which differences are those of two roundings, and which
are another function.

The truth is in float64: there each kernel here is a softmax, or is not, by construction."""

from dataclasses import replace

import pytest
import torch
from live import evidence, randn
from torch.autograd import Function

from gradverify.oracles.legs import Kernel

BF, HALF = torch.bfloat16, torch.float16


def softmax(x):
    return x.softmax(-1)


def by_hand(x):
    """Each operation rounded by itself."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def one_by_one(x):
    """The sum from the end."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / sum(e[..., n] for n in reversed(range(x.shape[-1])))[..., None]


def through(damage):
    """A softmax whose gradient is damaged."""

    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return damage(g)

    return lambda x: softmax(Identity.apply(x))


def without_the_end(g):
    return torch.cat([g[..., :-4], torch.zeros_like(g[..., -4:])], -1)


RIGHT = {"the same": softmax, "by hand": by_hand, "one by one": one_by_one}
WRONG = {
    "output": (lambda x: 1.1 * softmax(x), 0),
    "largest forgotten": (lambda x: softmax(x.clamp(max=0.5)), 0),
    "gradient": (through(lambda g: 1.1 * g), 1),
    "sign": (through(torch.neg), 1),
    "end of rows": (through(without_the_end), 1),
}


def apart(here, there, seed, dtype):
    """Of the output and of the gradient."""
    found = evidence(
        here, randn(12, 24, seed=seed).to(dtype), dtype=str(dtype).removeprefix("torch.")
    )
    own = found.subject.own
    assert found.kernel is not None
    other = Kernel(
        *(
            each.twin(each.arguments, target=replace(each.target, call=there))
            for each in (found.subject, own)
        ),
        found.forward.checked,
    )
    return found.kernel.apart(other)


@pytest.mark.population(most=6)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", [BF, HALF])
@pytest.mark.parametrize(("here", "there"), [(here, there) for here in RIGHT for there in RIGHT])
def test_two_right_kernels_are_not_called_different(here, there, dtype, seed):
    judged = apart(RIGHT[here], RIGHT[there], seed, dtype)
    assert [each.miss for each in judged] == ["", ""] and all(each.elements for each in judged)
    if here == there:
        assert [each.max_error for each in judged] == [0.0, 0.0]


@pytest.mark.population("wrong")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", [BF, HALF])
@pytest.mark.parametrize("right", RIGHT)
@pytest.mark.parametrize("wrong", WRONG)
def test_another_function_is_found_on_whichever_side_it_is(right, wrong, dtype, seed):
    function, place = WRONG[wrong]
    for judged in (
        apart(RIGHT[right], function, seed, dtype),
        apart(function, RIGHT[right], seed, dtype),
    ):
        assert judged[place].miss and (place == 0 or not judged[0].miss)
