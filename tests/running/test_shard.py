"""Shards: every check in exactly one, by its id alone; and what tells the reports of one run from those of another."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gradverify.model.case import Case, InputRecipe, Oracles, Search, Settings, SpecPlace, TensorRecipe
from gradverify.model.report import Gate
from gradverify.running.select import fingerprint, part, sharded


def made(name, **settings):
    return Case(f"specs/ops.yaml::{name}", name, name, SpecPlace("specs/ops.yaml", 1), "f", settings=Settings(**settings))


CASES = tuple(made(f"op[a={number}]") for number in range(40))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_every_check_is_in_exactly_one_shard_in_its_order(count):
    parts = [sharded(CASES, index, count, Gate())[0] for index in range(1, count + 1)]
    assert sorted((case for each in parts for case in each), key=CASES.index) == list(CASES)
    assert all(list(each) == sorted(each, key=CASES.index) for each in parts)


def test_a_check_that_is_added_or_removed_or_moved_moves_no_other():
    before = {case.id: index for index in (1, 2, 3) for case in sharded(CASES, index, 3, Gate())[0]}
    others = (made("new"), *reversed(CASES[1:]), made("newer"))
    after = {case.id: index for index in (1, 2, 3) for case in sharded(others, index, 3, Gate())[0]}
    assert {id: after[id] for id in before if id in after} == {case.id: before[case.id] for case in CASES[1:]}


def test_the_part_of_an_id_is_that_of_its_sha256():
    """Of `a` SHA-256 begins with ca978112ca1bbdca (FIPS 180-4); versions of gradverify have to agree on the parts."""
    assert [part("a", count) for count in (2, 3, 10)] == [0xca978112ca1bbdca % count + 1 for count in (2, 3, 10)]


def test_the_fingerprint_is_of_what_is_selected_and_how_it_is_judged():
    whole = fingerprint(CASES, Gate())
    assert fingerprint(tuple(reversed(CASES)), Gate()) == whole and len(whole) == 64
    others = [fingerprint(CASES[1:], Gate()), fingerprint((*CASES[1:], made("op[a=0]", seed=1)), Gate()), fingerprint(CASES, Gate("fail")),
              fingerprint((*CASES[1:], replace(CASES[0], expect="fail")), Gate())]
    assert len({whole, *others}) == 5


def on_a_machine(folder, **changes):
    """The fingerprint of one check of a repository that lies in `folder`; `changes` of the case."""
    recipe = TensorRecipe(draw="file", arguments=str(folder / "x.txt"))
    case = replace(made("op"), target=f"{folder}/ops.py:f", search=Search(str(folder), (str(folder),)), sources=("*.cu",),
                   inputs=(InputRecipe("x", recipe),), save=str(folder / "failures"))
    return fingerprint([replace(case, **changes)], Gate())


def test_the_fingerprint_is_the_same_on_another_machine(tmp_path):
    """Where a repository lies, and files named by absolute paths, differ between the machines of one run."""
    assert on_a_machine(tmp_path / "a") == on_a_machine(tmp_path / "b")


@pytest.mark.parametrize("changes", [
    {"target": "ops:g"}, {"inputs": ()}, {"oracles": Oracles(reference="ops:g")}, {"kwargs": {"p": math.inf}},
    {"layout": "strided"}, {"spec": SpecPlace("specs/ops.yaml", 2)}], ids=str)
def test_it_is_of_what_is_checked(tmp_path, changes):
    assert on_a_machine(tmp_path / "a") != on_a_machine(tmp_path / "b", **changes)
