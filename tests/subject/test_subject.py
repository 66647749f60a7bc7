from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from live import check, fixed, randn, subject

from gradverify.evidence import Evidence
from gradverify.subject.machine import seed_all


def test_gradients_are_on_although_the_caller_switched_them_off():
    live = subject(torch.sin, randn(2))
    with torch.no_grad():
        assert live.called(live.leaves()).outputs[0].requires_grad


def test_a_forward_that_switches_gradients_off_does_so_for_itself_alone():
    def forward(x):
        y = x.sin()
        torch.set_grad_enabled(False)
        return y

    live = subject(forward, randn(2))
    assert [live.called(live.leaves()).outputs[0].requires_grad for _ in range(2)] == [True, True]
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert live.called(live.leaves()).outputs[0].requires_grad
        assert not torch.is_grad_enabled()


def test_a_written_index_or_statistic_is_put_back_and_then_cloned():
    def counts(x, seen):
        seen += 1
        return x * seen

    live = subject(counts, randn(2), fixed(torch.zeros((), dtype=torch.int64)))
    evidence = Evidence(live)
    assert [each.held.name for each in evidence.forward.written] == ["seen"]
    assert live.writes
    torch.testing.assert_close(evidence.outputs[0].detach(), live.inputs[0])
    assert live.arguments[1].value.item() == 0
    assert check(counts, randn(2), fixed(torch.zeros((), dtype=torch.int64))).verdict == "pass"


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), np.random.rand, random.random])
def test_a_function_that_draws_now_and_then_draws_the_same_in_every_call_of_what_counts(draw):
    drawn = []

    def sometimes(x):
        drawn.append(draw() if float(x.sum()) > 1 else None)
        return x * 2

    live = subject(sometimes, torch.zeros(2, dtype=torch.float64))
    points = [torch.full((2,), k, dtype=torch.float64) for k in (0.0, 3.0, 4.0, 5.0)]
    found = live.seldom_seeded(lambda: [live.called([x]).outputs and drawn[-1] for x in points])
    assert found[0] is None
    assert found[1] == found[2] == found[3]


def test_a_function_that_never_draws_is_seeded_once(monkeypatch):
    seeds = []
    monkeypatch.setattr(
        "gradverify.subject.subject.seed_all",
        lambda seed, cuda: seeds.append(seed) or seed_all(seed, cuda),
    )
    live = subject(torch.sin, randn(2))
    assert (
        live.seldom_seeded(
            lambda: [live.called(live.inputs).outputs for _ in range(5)] and live.calls.forward
        )
        == 5
    )
    # The first one is for what would be drawn, which is heard by drawing it
    assert len(seeds) == 2
    live.called(live.inputs)
    assert len(seeds) == 3
