"""Shards: every check in exactly one, by its id alone; and what tells the reports of one run from those of another."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gradverify.model.case import Case, Settings, SpecPlace
from gradverify.model.report import Gate
from gradverify.running.shard import fingerprint, part, sharded


def made(name, **settings):
    return Case(f"specs/ops.yaml::{name}", name, name, SpecPlace("specs/ops.yaml", 1), "f", settings=Settings(**settings))


CASES = tuple(made(f"op[a={number}]") for number in range(40))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_every_check_is_in_exactly_one_shard_in_its_order(count):
    parts = [sharded(CASES, index, count)[0] for index in range(1, count + 1)]
    assert sorted((case for each in parts for case in each), key=CASES.index) == list(CASES)
    assert all(list(each) == sorted(each, key=CASES.index) for each in parts)


def test_a_check_that_is_added_or_removed_or_moved_moves_no_other():
    before = {case.id: index for index in (1, 2, 3) for case in sharded(CASES, index, 3)[0]}
    others = (made("new"), *reversed(CASES[1:]), made("newer"))
    after = {case.id: index for index in (1, 2, 3) for case in sharded(others, index, 3)[0]}
    assert {id: after[id] for id in before if id in after} == {case.id: before[case.id] for case in CASES[1:]}


def test_the_places_of_all_shards_are_those_of_the_whole():
    told = [sharded(CASES, index, 4)[1] for index in (1, 2, 3, 4)]
    assert sorted(place for shard in told for place in shard.places) == list(range(len(CASES)))
    assert {(shard.of, shard.total, shard.count) for shard in told} == {(told[0].of, len(CASES), 4)}
    cases, shard = sharded(CASES, 2, 4)
    assert [CASES[place] for place in shard.places] == list(cases)


def test_the_part_of_an_id_is_that_of_its_sha256():
    """Of `a` SHA-256 begins with ca978112ca1bbdca (FIPS 180-4); versions of gradverify have to agree on the parts."""
    assert [part("a", count) for count in (2, 3, 10)] == [0xca978112ca1bbdca % count + 1 for count in (2, 3, 10)]


@pytest.mark.parametrize(("checks", "count"), [(100, 4), (500, 8), (10_000, 16)])
def test_shards_are_as_even_as_lots(checks, count):
    """A binomial distribution: no part is further than four and a half standard deviations from its share."""
    sizes = [0] * count
    for number in range(checks):
        sizes[part(f"specs/ops.yaml::op[rows={number}]", count) - 1] += 1
    share = checks / count
    assert all(abs(size - share) < 4.5 * math.sqrt(share * (1 - 1 / count)) for size in sizes)


def test_the_fingerprint_is_of_what_is_selected_and_how_it_is_judged():
    whole = fingerprint(CASES, Gate())
    assert fingerprint(tuple(reversed(CASES)), Gate()) == whole and len(whole) == 64
    others = [fingerprint(CASES[1:], Gate()), fingerprint((*CASES[1:], made("op[a=0]", seed=1)), Gate()), fingerprint(CASES, Gate("fail")),
              fingerprint((*CASES[1:], replace(CASES[0], expect="fail")), Gate())]
    assert len({whole, *others}) == 5


def test_the_fingerprint_is_the_same_on_another_machine():
    """Where a repository lies, and files named by absolute paths, differ between the machines of one run."""
    elsewhere = tuple(replace(case, target="/home/b/ops.py:f", search=replace(case.search, folder="/home/b")) for case in CASES)
    assert fingerprint(elsewhere, Gate()) == fingerprint(CASES, Gate())
