"""Hand-written operators of 2026: a right backward is accused of nothing, each mistake is found; the truth is autograd through the plain forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import check, codes
from torch import Tensor

from corpus.twins import TWINS, Twins

SEEDS = (0, 10)
MISTAKES = [(name, mistake) for name, twins in TWINS.items() for mistake in twins.mistakes]


def gradients(function: Any, inputs: tuple[Any, ...]) -> list[Tensor]:
    """For random cotangents of all outputs."""
    given = [x.clone().requires_grad_() if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex()) else x for x in inputs]
    outputs = function(*given)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    source = torch.Generator().manual_seed(0)
    cotangents = [torch.randn(y.shape, generator=source, dtype=y.dtype) for y in outputs]
    return list(torch.autograd.grad(outputs, [x for x in given if isinstance(x, Tensor) and x.requires_grad], cotangents))


def apart(twins: Twins, mistake: str, seed: int) -> float:
    """How far backward is from autograd, of the size of the largest gradient."""
    found, expected = (gradients(each, twins.inputs(seed)) for each in (twins.make(mistake).apply, twins.plain))
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) / max(float(b.abs().max()) for b in expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TWINS)
def test_a_right_operator_is_accused_of_nothing(name: str, seed: int):
    twins = TWINS[name]
    assert apart(twins, "", seed) < 1e-12
    result = check(twins.make(""), *twins.inputs(seed), seed=seed, second_order=False)
    assert (result.verdict, codes(result)) == ("pass", set())


@pytest.mark.population(most=12)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "mistake"), MISTAKES)
def test_a_mistake_is_found(name: str, mistake: str, seed: int):
    twins = TWINS[name]
    assert apart(twins, mistake, seed) > 1e-5
    result = check(twins.make(mistake), *twins.inputs(seed), seed=seed, second_order=False)
    assert result.verdict == "fail"
    assert "GV101" in codes(result)
