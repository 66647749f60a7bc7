"""What all rules GV2xx cost together where nothing is wrong: at most 40 forward and 60 backward
calls for up to four inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import check, codes, fixed, randn
from torch import Tensor, nn
from torch.autograd import Function

FORWARD, BACKWARD = 40, 60
SIZES = [(inputs, outputs) for inputs in (1, 2, 3, 4) for outputs in (1, 2, 3)]


def squares(outputs: int, once: bool = False, wrong: Any = None) -> type[Function]:
    """Output i: the sum over all inputs k of (i + k + 1) x², of which an index picks rows.
    `wrong(calls)`: a factor of the gradients."""

    class Squares(Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, *xs: Tensor) -> Any:
            ctx.save_for_backward(*xs)
            ctx.used = False
            x, index = _split(xs)
            ys = tuple(
                sum((i + k + 1) * each * each for k, each in enumerate(x))[index]
                for i in range(outputs)
            )
            return ys if outputs > 1 else ys[0]

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            if ctx.used and once:
                raise RuntimeError("used")
            ctx.used = True
            Squares.calls += 1
            x, index = _split(ctx.saved_tensors)
            rows = [torch.zeros_like(x[0]).index_add(0, index, g) for g in grads]
            factor = 2 if wrong is None else 2 * wrong(Squares.calls)
            found = tuple(
                sum(factor * (i + k + 1) * each.conj() * g for i, g in enumerate(rows))
                for k, each in enumerate(x)
            )
            return found if len(ctx.saved_tensors) == len(x) else (*found, None)

    return Squares


def _split(xs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
    """The inputs, and the index, the last argument or all rows."""
    floating = tuple(x for x in xs if x.is_floating_point() or x.is_complex())
    return floating, xs[-1] if len(xs) > len(floating) else torch.arange(len(floating[0]))


class OfParameters(nn.Module):
    """All inputs but the first are parameters."""

    def __init__(self, function: type[Function], inputs: int) -> None:
        super().__init__()
        self.function = function
        self.own = nn.ParameterList(
            nn.Parameter(randn(3, 2, seed=seed)) for seed in range(1, inputs)
        )

    def forward(self, x: Tensor) -> Any:
        return self.function.apply(x, *self.own)


def subject(kind: str, inputs: int, outputs: int) -> tuple[Any, ...]:
    function = squares(outputs, once=kind == "used once")
    xs = [
        randn(3, 2, seed=seed, dtype=torch.complex128 if kind == "complex" else torch.float64)
        for seed in range(inputs)
    ]
    if kind == "module":
        return OfParameters(function, inputs), xs[0]
    if kind == "callable":
        return lambda *x: function.apply(*x), *xs
    return (
        (function, *xs, fixed(torch.tensor([2, 0, 1])))
        if kind == "with indices"
        else (function, *xs)
    )


def spent(kind: str, inputs: int, outputs: int) -> tuple[int, int]:
    """GV222 reads the comparison of GV101, which pays for it."""
    result = check(*subject(kind, inputs, outputs), ignore=("GV108", "GV109", "GV113"))
    assert (result.verdict, codes(result)) == ("pass", {"GV227"} if kind == "used once" else set())
    calls = [run.calls for run in result.rules if run.code.startswith("GV2")]
    return sum(each.forward for each in calls), sum(each.backward for each in calls)


@pytest.mark.population(most=20)
@pytest.mark.parametrize("kind", ["Function", "callable", "module", "complex", "with indices"])
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_forty_forward_and_sixty_backward_calls_are_enough(kind, inputs, outputs):
    forward, backward = spent(kind, inputs, outputs)
    assert forward <= FORWARD
    assert backward <= BACKWARD


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_where_a_graph_serves_once_each_backward_takes_a_forward(inputs, outputs):
    forward, backward = spent("used once", inputs, outputs)
    assert forward <= backward + 4
    # GV207: updated; GV209: for all outputs but each
    assert forward + backward <= FORWARD + BACKWARD + 2 + 2 * (outputs if outputs > 2 else 0)
