from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from gradverify.subject.machine import cuda_devices, next_draws, random_states, seed_all, seeded, threads, undisturbed


def disturb(folder):
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    os.chdir(folder)


def state():
    return (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads(),
            torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(), str(Path.cwd()))


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_global_state_is_afterwards_what_it_was(tmp_path, error):
    before = state()
    try:
        with undisturbed():
            disturb(tmp_path)
            assert state() != before
            if error:
                raise error
    except BaseException as raised:
        assert type(raised) is error
    assert state() == before


def test_the_machine_is_described():
    assert threads() == torch.get_num_threads()
    assert len(cuda_devices()) == (torch.cuda.device_count() if torch.cuda.is_available() else 0)


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), lambda: np.random.rand(), random.random, lambda: torch.nn.functional.dropout(torch.ones(2))])
def test_whoever_draws_from_a_global_generator_changes_its_state(draw):
    with undisturbed():
        before = random_states(cuda=False)
        torch.ones(3).sin()
        assert random_states(cuda=False) == before
        draw()
        assert random_states(cuda=False) != before


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), lambda: np.random.rand(), random.random, lambda: torch.nn.functional.dropout(torch.ones(2))])
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
