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


def test_the_tangents_are_torchs_own():
    pushed = push(subject(lambda x, y: (x * y, x.sum()), X, Y), (0, 1), (U, V))
    truth = torch.func.jvp(lambda x, y: (x * y, x.sum()), (X, Y), (U, V))[1]
    assert all(torch.equal(mine, right) for mine, right in zip(pushed.tangents, truth, strict=True))


def test_an_input_without_a_tangent_stands_still_and_an_output_without_one_has_zeros():
    pushed = push(subject(lambda x, y: (x * y, y * 2), X, Y), (0, 1), (U, None))
    assert torch.equal(pushed.tangents[0], U * Y)
    assert torch.equal(pushed.tangents[1], torch.zeros_like(Y))


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


def test_what_the_call_raises_is_the_users_and_its_cause_is_kept():
    def refuses(x):
        raise NotImplementedError("not in forward mode")

    with pytest.raises(UserCodeError, match="in forward mode forward raised NotImplementedError: not in forward mode") as raised:
        push(subject(refuses, X), (0,), (U,))
    assert raised.value.code == "GV108"
    assert isinstance(raised.value.__cause__, NotImplementedError)
    assert [frame.function for frame in raised.value.frames] == ["refuses"]


def test_it_is_a_forward_call():
    made = subject(Right, X, Y)
    push(made, (0,), (U, V))
    assert (made.calls.forward, made.calls.backward) == (1, 0)
