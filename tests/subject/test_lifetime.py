from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from live import evidence, randn
from rules.functions import Right
from rules.test_saved import InputOnCtx, OutputOnCtx
from rules.tricky import Flat

from gradverify.subject.lifetime import Alive, still_alive


def alive(function, *values, inputs=True):
    """What lives on, and nothing of what was computed on the way."""
    seen = evidence(function, *values)
    return replace(still_alive(seen.subject, seen.function, seen.worked.cotangents, inputs), values=(), gradients=())


@pytest.mark.parametrize(("function", "values", "expected"), [
    (Right, (randn(3),), Alive((), (), ())),
    (Flat, (randn(2, 3),), Alive((), (), ())),      # its output is the input's memory
    (OutputOnCtx, (randn(3),), Alive((), ("y0",), ("OutputOnCtx",))),
    (InputOnCtx, (randn(3), randn(3, seed=1)), Alive(("x",), (), ())),
    (torch.sin, (randn(3),), Alive((), (), ())),
])
def test_what_lives_on_is_named(function, values, expected):
    assert alive(function, *values) == expected


def test_inputs_are_looked_at_on_demand():
    assert alive(InputOnCtx, randn(3), randn(3, seed=1), inputs=False) == Alive((), (), ())


def test_the_values_and_gradients_are_those_of_the_call():
    x = randn(3)
    seen = evidence(Right, x)
    found = still_alive(seen.subject, seen.function, seen.worked.cotangents, inputs=False)
    assert torch.equal(found.values[0], seen.function.of(seen.function.graph(seen.subject.leaves()))[0])
    assert torch.allclose(found.gradients[0], seen.worked.gradients[0])
