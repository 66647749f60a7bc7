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
