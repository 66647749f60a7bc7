from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from live import check, codes, fixed, randn, subject

from gradverify.evidence import Evidence
from gradverify.subject.failure import UserCodeError
from gradverify.subject.machine import seed_all
from gradverify.subject.variants import sliced


def test_nested_outputs_are_flattened_in_order():
    live = subject(lambda x: {"a": x * 2, "b": (x.argmax(), None, [x + 1])}, randn(2))
    outputs = live.forward(live.inputs)
    assert [type(output) for output in outputs] == [torch.Tensor, torch.Tensor, type(None), torch.Tensor]
    evidence = Evidence(live)
    assert evidence.forward.checked == (0, 3)


def test_calls_are_counted():
    live = subject(torch.sin, randn(2))
    live.forward(live.inputs)
    live.forward(live.inputs)
    live.counted_backward()
    assert (live.calls.forward, live.calls.backward) == (2, 1)


def test_gradients_are_on_although_the_caller_switched_them_off():
    live = subject(torch.sin, randn(2))
    with torch.no_grad():
        assert live.forward(live.leaves())[0].requires_grad


def test_a_forward_that_switches_gradients_off_does_so_for_itself_alone():
    def forward(x):
        y = x.sin()
        torch.set_grad_enabled(False)
        return y

    live = subject(forward, randn(2))
    assert [live.forward(live.leaves())[0].requires_grad for _ in range(2)] == [True, True]
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert live.forward(live.leaves())[0].requires_grad
        assert not torch.is_grad_enabled()


def test_an_exception_of_the_forward_is_blamed_with_the_users_frames_only():
    def broken(x):
        return F.linear(x, torch.ones(7, 7, dtype=x.dtype))

    live = subject(broken, randn(2, 3))
    with pytest.raises(UserCodeError, match="forward raised RuntimeError") as caught:
        live.forward(live.inputs)
    assert caught.value.code == "GV002"
    assert [frame.function for frame in caught.value.frames] == ["broken"]
    assert "F.linear" in caught.value.frames[0].text


def test_a_list_of_the_spec_is_handed_out_anew_for_each_call():
    def pops(x, sizes):
        return x.reshape(sizes.pop(), sizes.pop())

    result = check(pops, randn(6), [2, 3])
    assert (result.verdict, codes(result)) == ("pass", set())


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


def test_random_functions_draw_the_same_numbers_in_every_forward_and_leave_no_trace():
    result = check(lambda x: F.dropout(x * 2, 0.5), randn(4, 5))
    assert (result.verdict, codes(result)) == ("pass", set())


def test_the_calls_of_a_twin_are_counted_in_the_original_too():
    live = subject(torch.sin, randn(2))
    twin = live.twin(live.arguments)
    twin.twin(twin.arguments).forward(live.inputs)
    twin.counted_backward()
    assert (live.calls.forward, live.calls.backward) == (twin.calls.forward, twin.calls.backward) == (1, 1)


def test_every_forward_runs_in_the_context_around_it():
    seen = []
    live = subject(lambda x: seen.append(torch.is_autocast_enabled("cpu")) or x.sin(), randn(2))
    live.around = lambda: torch.autocast("cpu")
    live.forward(live.inputs)
    live.forward(live.inputs)
    assert seen == [True, True]
    assert not torch.is_autocast_enabled("cpu")


def test_a_function_that_draws_random_numbers_is_told():
    assert Evidence(subject(F.dropout, randn(2))).forward.random
    assert Evidence(subject(lambda x: x * torch.rand_like(x), randn(2), reseed=False)).forward.random
    assert not Evidence(subject(torch.sin, randn(2))).forward.random


def test_leaves_keep_the_layout_of_the_arguments():
    live = subject(torch.sin, randn(2, 3))
    twin = live.twin([replace(live.arguments[0], value=sliced(live.arguments[0].value), layout=None)])
    leaf, = twin.leaves()
    assert (leaf.stride(), leaf.storage_offset(), leaf.is_leaf, leaf.requires_grad) == ((7, 2), 1, True, True)


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), np.random.rand, random.random])
def test_a_function_that_draws_now_and_then_draws_the_same_in_every_call_of_what_counts(draw):
    drawn = []

    def sometimes(x):
        drawn.append(draw() if float(x.sum()) > 1 else None)
        return x * 2

    live, points = subject(sometimes, torch.zeros(2, dtype=torch.float64)), [torch.full((2,), k, dtype=torch.float64) for k in (0.0, 3.0, 4.0, 5.0)]
    found = live.seldom_seeded(lambda: [live.forward([x]) and drawn[-1] for x in points])
    assert found[0] is None
    assert found[1] == found[2] == found[3]


def test_a_function_that_never_draws_is_seeded_once(monkeypatch):
    seeds = []
    monkeypatch.setattr("gradverify.subject.seeded.seed_all", lambda seed, cuda: seeds.append(seed) or seed_all(seed, cuda))
    live = subject(torch.sin, randn(2))
    assert live.seldom_seeded(lambda: [live.forward(live.inputs) for _ in range(5)] and live.calls.forward) == 5
    assert len(seeds) == 2      # the first one is for what would be drawn, which is heard by drawing it
    live.forward(live.inputs)
    assert len(seeds) == 3
