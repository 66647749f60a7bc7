from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from gradverify.subject.machine import next_draws, random_states, seed_all, seeded, undisturbed


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(1),
        lambda: np.random.rand(),
        random.random,
        lambda: torch.nn.functional.dropout(torch.ones(2)),
    ],
)
def test_whoever_draws_after_a_seed_changes_what_is_drawn_next(draw):
    def after(measured):
        seed_all(3)
        measured()
        return next_draws(cuda=False)

    with undisturbed():
        assert after(lambda: torch.ones(3).sin()) == after(lambda: None)
        assert after(draw) != after(lambda: None)


def test_what_is_drawn_under_a_seed_depends_on_it_alone_and_leaves_no_trace():
    def drawn(seed):
        with seeded(seed):
            return float(torch.rand(())), float(np.random.rand()), random.random()

    before = random_states(cuda=False)
    assert drawn(3) == drawn(3)
    assert all(a != b for a, b in zip(drawn(3), drawn(2**33 + 4), strict=True))
    assert random_states(cuda=False) == before
