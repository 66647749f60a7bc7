"""Each kind of damage does what its name says, and nothing where it cannot."""

from __future__ import annotations

import pytest
import torch
from live import randn, subject

from gradverify.subject.damage import Damaged, damages, done
from gradverify.subject.differentiable import Differentiable

G = torch.arange(1.0, 25.0, dtype=torch.float64).reshape(4, 6)


def of(name, *inputs):
    return next(damage for damage in damages(inputs) if damage.name == name)


def damaged(name, gradient, *cotangents):
    return done(of(name, gradient), [gradient], cotangents)[0]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("×1.01", G * 1.01),
        ("×(1 + 1e-4)", G * 1.0001),
        ("sign", -G),
        ("zero a row", torch.cat([G[:2], 0 * G[:1], G[3:]])),
        ("drop the last tile", torch.where(torch.arange(24).reshape(4, 6) < 16, G, 0.0)),
        ("transpose", torch.stack([G[i % 4, i // 4] for i in range(24)]).reshape(4, 6)),
        ("shift by one", torch.cat([G[:, 5:], G[:, :5]], 1)),
        ("drop the mean term", G - G.mean(1, keepdim=True)),
    ],
)
def test_damage_does_what_its_name_says(name, wanted):
    assert torch.equal(damaged(name, G), wanted)


def test_every_input_is_damaged_alone_and_swapped_with_its_equals():
    names = [
        (damage.name, damage.inputs)
        for damage in damages([randn(4, 6), randn(6), randn(4, 6), randn(0), randn()])
    ]
    assert [inputs for name, inputs in names if name == "sign"] == [(0,), (1,), (2,), (4,)]
    assert [inputs for name, inputs in names if name == "swap inputs"] == [(0, 2)]
    assert [inputs for name, inputs in names if name == "transpose"] == [(0,), (2,)]
    assert [inputs for name, inputs in names if name in ("ignore grad_output", "stale state")] == [
        (0, 1, 2, 4)
    ] * 2


def functions(name, op, *inputs):
    live = subject(op, *inputs)
    return Differentiable(live, (0,)), Damaged(live, (0,), of(name, *inputs))


def test_a_stale_backward_answers_for_the_last_forward():
    x, y, v = randn(3), randn(3, seed=1), randn(3, seed=2)
    _, wrong = functions("stale state", torch.sin, x)
    assert torch.equal(wrong.vjp([v])[0], v * x.cos())
    first = wrong.graph([x.clone().requires_grad_()])
    wrong.values([y])
    assert torch.equal(wrong.vjp([v])[0], v * y.cos())
    assert torch.equal(wrong.gradients(first, [v])[0], v * y.cos())
