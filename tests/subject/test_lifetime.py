from __future__ import annotations

import pytest
import torch
from live import evidence, randn
from rules.functions import Right
from rules.test_gv214_kept_alive import InputOnCtx, OutputOnCtx
from rules.tricky import Flat

from gradverify.subject.lifetime import Alive, still_alive


def alive(function, *values, inputs=True):
    seen = evidence(function, *values)
    return still_alive(seen.subject, seen.function, seen.worked.cotangents, inputs)


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
