"""Every random number has a purpose: generators are made in two places only, and nothing draws from
the global ones."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gradverify.numerics.seeds import Seed
from gradverify.subject.draw import generator

PACKAGE = Path(__file__).parents[2] / "gradverify"
MAKERS = {"default_rng", "PCG64", "RandomState", "Random", "Generator", "manual_seed"}
PLACES = {"numerics/seeds.py", "subject/draw.py"}
# What the user's code draws from the global generators
SEEDS_THE_CHECK = {"subject/draw.py", "subject/machine.py"}
OF_TORCH = {
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "randint_like",
    "normal",
    "bernoulli",
    "multinomial",
}


@cache
def calls():
    return [
        (str(file.relative_to(PACKAGE)), node, ast.unparse(node.func))
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]


def test_generators_are_made_where_their_purpose_is_named():
    made = {(file, name) for file, _, name in calls() if name.rpartition(".")[2] in MAKERS}
    assert {file for file, name in made if not name.endswith("manual_seed")} == PLACES
    assert {file for file, name in made if name.endswith("manual_seed")} <= SEEDS_THE_CHECK


def test_nothing_is_drawn_from_a_global_generator():
    bare = [
        (file, node.lineno)
        for file, node, name in calls()
        if name.startswith("torch.")
        and name.removeprefix("torch.") in OF_TORCH
        and not any(keyword.arg == "generator" for keyword in node.keywords)
    ]
    bare += [
        (file, node.lineno)
        for file, node, name in calls()
        if name.startswith(("np.random.", "random."))
        and file not in {"numerics/seeds.py", "subject/machine.py"}
    ]
    assert bare == []


def test_no_two_purposes_share_their_numbers():
    one = Seed(1, "a")
    draws = [
        seed.generator("x", *which).random()
        for seed in (one, Seed(2, "a"), Seed(1, "b"), one.within("y"), one.within("y", 1))
        for which in ((), (1,), (1, 2), (12,))
    ]
    assert len(set(draws)) == len(draws) and one.generator("x").random() == draws[0]
    assert isinstance(one.generator("x"), np.random.Generator)


@pytest.mark.parametrize("purpose", ["x", "y"])
def test_torch_has_the_same_names(purpose):
    assert (
        generator(1, "a", purpose).initial_seed()
        == generator(1, "a", purpose).initial_seed()
        != generator(1, "a", purpose + " ").initial_seed()
    )
