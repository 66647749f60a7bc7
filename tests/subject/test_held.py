"""Modules whose buffers change in forward: every forward that is compared starts from the same
ones, whoever holds the module.

The class of faults: state that moves between two calls of ours is taken for a forward that is not
deterministic.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from live import check, randn
from torch import Tensor, nn
from torch.autograd import Function

from gradverify.subject.modules import reached

X = randn(4, 3)


class Counts(nn.Module):
    """x times one more than the calls so far; a running mean that is read before it is moved."""

    calls: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.ones(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = x * x * self.mean * (1 + self.calls)
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return y


def held_by(module: nn.Module, x: Tensor) -> Tensor:
    return module(x)


def errors(result: Any) -> set[str]:
    return {finding.code for finding in result.findings if finding.severity == "error"}


COUNTS = Counts()


def by_global_name(x: Tensor) -> Tensor:
    return COUNTS(x)


def by_a_helper(x: Tensor) -> Tensor:
    return by_global_name(x) + 1


def in_a_closure(module: nn.Module) -> Any:
    return lambda x: module(x)


class Hands(Function):
    """Its backward is that of Counts, at the first call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return COUNTS(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 4 * ctx.saved_tensors[0]


hands = Hands.apply


def by_a_function(x: Tensor) -> Tensor:
    return hands(x)


HELD = {
    "itself": Counts,
    "closure": lambda: in_a_closure(Counts()),
    "method": lambda: Counts().forward,
    "partial": lambda: functools.partial(held_by, Counts()),
    "global": lambda: by_global_name,
    "helper": lambda: by_a_helper,
    "the apply of a Function": lambda: by_a_function,
}


@pytest.mark.parametrize("make", HELD.values(), ids=HELD)
def test_a_module_that_moves_its_buffers_passes_however_it_is_held(make):
    function = make()
    before = [
        buffer.clone() for module in reached(function) for buffer in module.buffers(recurse=False)
    ]
    result = check(function, X)
    assert (result.verdict, errors(result)) == ("pass", set())
    after = [buffer for module in reached(function) for buffer in module.buffers(recurse=False)]
    assert before and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_module_among_the_arguments_is_lent_its_buffers_too():
    assert errors(check(lambda x, module: module(x), X, Counts())) == set()


def test_state_that_is_no_buffer_is_found_as_before():
    calls: list[int] = []

    def counts(x: Tensor) -> Tensor:
        calls.append(1)
        return x * len(calls)

    assert "GV205" in errors(check(counts, X))


def test_statistics_that_are_used_as_constants_after_they_took_the_input_in_are_no_constants():
    """A stop gradient: `surrogate` says that it is meant."""

    class Takes(nn.Module):
        scale: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones((), dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            self.scale = 0.5 * self.scale + 0.5 * x.detach().abs().mean()
            return x / self.scale

    assert errors(check(Takes(), X)) == {"GV101"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.BatchNorm1d(3).double(),
        lambda: nn.BatchNorm1d(3, momentum=None).double(),
        lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.BatchNorm1d(2)).double(),
        lambda: nn.InstanceNorm1d(3, track_running_stats=True).double(),
    ],
    ids=["batch", "average", "two", "instance"],
)
def test_running_statistics_pass(make):
    module, x = make(), X if not isinstance(make(), nn.InstanceNorm1d) else randn(2, 3, 4)
    assert errors(check(module, x)) == set()
    assert errors(check(lambda x: module(x), x)) == set()
