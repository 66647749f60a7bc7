"""The probes and modes of one function against closed forms: y = 3 x², w = the gradients' weights, v = the cotangents, t = the tangents."""

from __future__ import annotations

import torch
from live import evidence, randn

from gradverify.modes import Modes

X = randn(2, 3)


def modes(seed: int = 0) -> Modes:
    return evidence(lambda x: 3 * x**2, X, seed=seed).modes


def test_forward_mode_gives_6xt():
    seen = modes()
    t, = seen.tangents(seen.direction("forward mode"))
    tangent, = seen.forward_mode.tangents
    torch.testing.assert_close(tangent, 6 * X * t)
    assert (t / X).abs().min() > 0.1 and (t < 0).any() and (t > 0).any()


def test_double_backward_gives_6vw_and_6xw():
    seen = modes()
    v, = seen.second_weights
    w = torch.from_numpy(seen.gradient_weights).reshape(2, 3)
    torch.testing.assert_close(seen.double_backward.inputs[0], 6 * v * w)
    torch.testing.assert_close(seen.double_backward.cotangents[0], 6 * X * w)


def test_weights_are_in_the_outputs_own_units():
    v, = modes().weights("any")
    size = (3 * X**2).square().mean().sqrt()
    assert ((v * size).abs() > 0.69).all() and ((v * size).abs() < 1.41).all()


def test_the_gradients_that_second_derivatives_start_from_are_those_of_the_base_call_in_a_power_of_two():
    seen = evidence(lambda x: 3 * x**2, X)
    v, = seen.modes.second_weights
    power = torch.log2(seen.cotangents("base")[0] / v)
    assert (power == power.round()).all() and power.unique().numel() == 1
    before = seen.worked and seen.subject.calls
    known, = seen.modes.backwards.here()
    assert torch.equal(known, seen.function.vjp((v,))[0])
    assert seen.subject.calls.backward == before.backward + 1     # that of the comparison here


def test_probes_follow_the_seed_and_the_purpose():
    first, again, other = modes(), modes(), modes(seed=1)
    assert (first.direction("a") == again.direction("a")).all()
    assert (first.direction("a") != first.direction("b")).any()
    assert (first.direction("a") != other.direction("a")).any()
