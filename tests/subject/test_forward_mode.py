from __future__ import annotations

import pytest
import torch
from gallery.twins import load
from live import evidence, randn, subject

from gradverify.subject.failure import UserCodeError
from gradverify.subject.forward_mode import push

Right = load("jvp_forgets_a_tangent").Right
X, Y = randn(2, 3), randn(2, 3, seed=1)
U, V = randn(2, 3, seed=2), randn(2, 3, seed=3)


def test_it_works_on_parameters_and_on_functions_that_write_into_their_inputs():
    linear = torch.nn.Linear(3, 1).double()
    seen = evidence(linear, X)
    tangents = tuple(torch.ones_like(x) for x in seen.subject.inputs)
    assert torch.allclose(push(seen.subject, (0,), tangents).tangents[0], (X.sum(-1) + linear.weight.sum() + 1)[:, None].detach())
    written = evidence(lambda x: x.mul_(3), X)
    assert written.forward.checked == (0,)
    kept = U.clone()
    assert torch.equal(push(written.subject, (0,), (U,)).tangents[0], 3 * U)
    assert torch.equal(U, kept)


def test_a_tangent_that_is_written_to_is_told_by_its_input():
    class Writes(Right):
        @staticmethod
        def jvp(ctx, x_t, y_t):
            x, y = ctx.saved_tensors
            return x_t * y + x * y_t.mul_(1.5)

    assert push(subject(Writes, X, Y), (0,), (U.clone(), V.clone())).damaged == (1,)
    assert push(subject(Right, X, Y), (0,), (U, V)).damaged == ()
