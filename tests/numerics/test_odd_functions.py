"""Odd but right functions are no false alarm in any comparison and cost no multiple of gradcheck's
calls; their faulty twins are named."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, Differentiable, normal

ORDER = torch.randperm(120, generator=torch.Generator().manual_seed(1))
SPARSE = (torch.rand(60, 60, generator=torch.Generator().manual_seed(5)) < 0.03).double() * normal(
    6, 60, 60
) + torch.eye(60, dtype=DOUBLE)
EXPERTS = [normal(20 + k, 6, 5) for k in range(3)]
MASK = normal(2, 20, 6) > 0.5
COMPLEX = torch.complex(normal(1, 15, 3), normal(2, 15, 3))


def routed(x):
    return torch.stack([torch.tanh(row @ EXPERTS[int(row[:3].argmax())]) for row in x])


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = x.clone()
        y.mul_(y)
        y[0].add_(y[1])
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g = g.clone()
        g[1] += g[0]
        return 2 * x * g


class InNumPy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return torch.from_numpy(np.tanh(x.detach().numpy())[:, None] * y.detach().numpy())

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y).sum(1) * (1 - x.tanh() ** 2), (g * x.tanh()[:, None]).sum(0)


ODD = {
    "permuted by index, times itself": (lambda x: x[ORDER] * x, [normal(1, 120)]),
    "sparse without order": (lambda x: (SPARSE @ x) ** 2, [normal(1, 60)]),
    "rows routed by their data": (routed, [normal(2, 16, 6)]),
    "in place": (InPlace.apply, [normal(2, 20, 6)]),
    "in NumPy, two inputs": (InNumPy.apply, [normal(1, 30), normal(2, 20)]),
    "many outputs": (
        lambda x, y: (x @ y, x.sum(), y.T.exp(), torch.ones(3, dtype=DOUBLE), x.softmax(0)),
        [normal(1, 8, 6), normal(2, 6, 9)],
    ),
    "a number among vectors": (
        lambda x, y: x * y.sin(),
        [torch.tensor(1.3, dtype=DOUBLE), normal(2, 40)],
    ),
    "an input that nothing uses": (lambda x, y: y.exp(), [normal(1, 30), normal(2, 30)]),
    "an empty input": (
        lambda x, y: (y.exp(), x * 2),
        [torch.zeros(0, 4, dtype=DOUBLE), normal(2, 20)],
    ),
    "complex": (lambda z: z * z.conj() * z, [COMPLEX]),
    "float32": (F.gelu, [normal(1, 20, 20).float()]),
    "one depends on all": (
        lambda x: torch.cat([x[1:] * x[0], (x * x).sum()[None]]),
        [normal(1, 40)],
    ),
    "a wide row": (lambda x: x.cumsum(-1).sin(), [normal(1, 1, 120)]),
    "very tall": (lambda x: x.softmax(-1), [normal(1, 3000, 2)]),
    "masked by infinity": (
        lambda x: x.masked_fill(MASK, -math.inf).softmax(-1),
        [normal(1, 20, 6)],
    ),
    "kinks at x": (lambda x: x.abs(), [torch.where(normal(1, 60) > 1, 0.0, normal(2, 60))]),
    "near a border": (lambda x: x.log(), [normal(1, 60).abs() * 1e-3]),
    "an input that no step moves": (
        torch.sigmoid,
        [torch.cat([normal(1, 30), torch.tensor([torch.inf], dtype=DOUBLE)])],
    ),
}


def compared(name, mode, damage=None):
    forward, inputs = ODD[name]
    return compare(Differentiable(forward, *inputs, damage=damage), mode=mode, seed=Seed(3))


@pytest.mark.population(most=14)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", ODD)
def test_an_odd_function_is_no_false_alarm(name, mode):
    result = compared(name, mode)
    size = sum(x.numel() * (2 if x.is_complex() else 1) for x in ODD[name][1])
    total = sum(pair.elements for pair in result.pairs)
    assert all(pair.count(Outcome.MISMATCH) == 0 for pair in result.pairs)
    assert sum(sum(pair.counts[Outcome.UNDECIDED :]) for pair in result.pairs) <= max(
        1, 1e-4 * total
    )
    assert result.forward <= 10 * size + 1000


@pytest.mark.parametrize("mode", Mode)
def test_symmetric_inputs_move_in_pairs(mode):
    b = normal(1, 3, 4, 4)

    def inverse(x):
        return torch.linalg.inv(torch.tril(x) + torch.tril(x, -1).mT)

    for factor, verdict in ((1.0, Verdict.PASS), (1 + 1e-4, Verdict.MISMATCH)):
        function = Differentiable(
            inverse,
            b @ b.mT + torch.eye(4, dtype=DOUBLE),
            damage=lambda grads, factor=factor: [factor * grads[0]],
        )
        assert compare(function, mode=mode, symmetric=[True]).pairs[0].verdict is verdict


@pytest.mark.parametrize("mode", Mode)
def test_an_output_that_is_no_number_does_not_pass(mode):
    nowhere = torch.tensor([0.0, 0.0, torch.nan, 0.0], dtype=DOUBLE)
    (pair,) = compare(Differentiable(lambda x: x.sin() + nowhere, normal(1, 4)), mode=mode).pairs
    assert pair.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("mode", Mode)
def test_steps_stay_inside_the_domain_however_near_it_ends(mode):
    seen = []

    def forward(x):
        seen.append((float(x.detach().min()), float(x.detach().max())))
        return torch.logit(x)

    (pair,) = compare(
        Differentiable(forward, torch.tensor([1e-4, 0.5, 1 - 1e-3, 0.9], dtype=DOUBLE)),
        mode=mode,
        domains=[(0.0, 1.0)],
    ).pairs
    assert pair.count(Outcome.MISMATCH) == 0
    assert min(low for low, _ in seen) >= 0 and max(high for _, high in seen) <= 1


@pytest.mark.population(most=14)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", ODD)
def test_its_last_input_off_by_one_per_cent_is_the_one_that_is_named(name, mode):
    result = compared(name, mode, lambda grads: [*grads[:-1], 1.01 * grads[-1]])
    last = len(ODD[name][1]) - 1
    assert {pair.input for pair in result.pairs if pair.verdict is Verdict.MISMATCH} == {last}
    assert all(
        w.outcome is not Outcome.MISMATCH or w.error > 5e-3 * abs(w.numeric)
        for pair in result.pairs
        for w in pair.worst
    )
