"""Shards joined are the undivided run, whatever the division; anything that is not exactly the shards of one run is refused in one sentence."""

from dataclasses import replace
from itertools import permutations

import pytest
from factories import everything, passing, report, result, skipped
from hypothesis import given, settings
from hypothesis import strategies as st

from gradverify.model.event import Environment, Selection, Shard
from gradverify.model.merge import differing, merged
from gradverify.model.problem import ProblemsError
from gradverify.model.report import Gate, Tool, as_data, judged
from gradverify.model.result import Finding


def named(checks):
    return tuple(replace(check, id=f"specs/ops.yaml::{place}") for place, check in enumerate(checks))


WHOLE = report(*named(everything()), selection=Selection(("specs",), None, "fast", 3))


def shards(whole, parts, of="a1"):
    """The whole, divided as `parts` says: the number of its part for each check."""
    count = max(parts, default=1)
    for index in range(1, count + 1):
        places = tuple(place for place, part in enumerate(parts) if part == index)
        checks = [whole.checks[place] for place in places]
        selection = replace(whole.selection, shard=Shard(index, count, of, len(parts), places))
        made = replace(report(*checks), checks=tuple(checks)) if checks else replace(report(), checks=())
        yield (f"r{index}.json", replace(made, selection=selection, duration_s=float(index), started_at=f"2026-01-0{index}T00:00:00+00:00",
                                        argv=("check", "specs", "--shard", f"{index}/{count}", "--eps", "1e-6")))


def same_but_for_times(one, other):
    left, right = as_data(one), as_data(other)
    for data in (left, right):
        for name in ("started_at", "duration_s", "argv"):
            del data[name]
    return left == right


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=len(WHOLE.checks), max_size=len(WHOLE.checks)), st.randoms())
def test_shards_in_any_order_are_the_whole(parts, random):
    divided = list(shards(WHOLE, [*parts[:-1], max(parts)]))
    random.shuffle(divided)
    assert same_but_for_times(merged(divided), WHOLE)


def test_times_and_the_command_are_those_of_the_whole():
    found = merged(list(shards(WHOLE, [1, 2, 3] * 3))[::-1])
    assert (found.started_at, found.duration_s) == ("2026-01-01T00:00:00+00:00", 3.0)
    assert found.argv == ("check", "specs", "--eps", "1e-6") and found.selection.shard is None


def test_a_shard_written_with_an_equals_sign_is_no_part_of_the_command_either():
    divided = [(name, replace(part, argv=("check", "--shard=1/2"))) for name, part in shards(WHOLE, [1, 2, 1, 2, 1, 2, 1, 2, 1])]
    assert merged(divided).argv == ("check",)


@pytest.mark.parametrize("checks, code", [
    ([passing(), passing()], 0), ([passing(), skipped()], 0), ([skipped(), skipped()], 5), ([passing(), result("w", "fail")], 1),
    ([result("e", "error"), result("w", "fail")], 1), ([passing(), result("e", "error")], 3), ([skipped(), result("n", "not_run")], 5)])
def test_the_exit_code_is_that_of_the_whole(checks, code):
    whole = report(*named(checks))
    for order in permutations(shards(whole, [1, 2])):
        assert merged(order).exit_code == whole.exit_code == code


def test_a_whole_of_nothing_is_nothing_checked():
    empty = replace(report(), checks=(), exit_code=5, selection=Selection(shard=Shard(1, 1, "a", 0)))
    assert merged([("a", empty)]).exit_code == 5


def test_each_check_stays_as_its_shard_judged_it():
    lenient, = named([result("u", "undecided")])
    whole = replace(report(lenient), checks=(judged(lenient, Gate(undecided="fail")),), exit_code=3)
    assert merged(list(shards(whole, [1]))).exit_code == 3


@pytest.mark.parametrize("changes, code", [({"interrupted": True, "exit_code": 143}, 143), ({"crashed": "boom", "exit_code": 4}, 4)])
def test_an_interrupt_and_a_crash_of_one_shard_are_the_wholes(changes, code):
    (one, first), (two, second) = shards(WHOLE, [1, 2] * 4 + [1])
    found = merged([(one, first), (two, replace(second, **changes))])
    assert (found.exit_code, found.interrupted, found.crashed) == (code, "interrupted" in changes, changes.get("crashed"))


def test_the_environment_is_of_a_shard_in_which_something_ran():
    (one, first), two = shards(WHOLE, [1, 2] * 4 + [1])
    idle = replace(first, environment=replace(first.environment, threads=None, devices=()))
    assert merged([(one, idle), two]).environment == WHOLE.environment


def test_different_versions_are_told_and_no_reason_to_refuse():
    (one, first), two = shards(WHOLE, [1, 2] * 4 + [1])
    other = replace(first, environment=Environment("3.11.7", "2.4.0", "2.4.6", "elsewhere"))
    assert differing([other, two[1]]) == ("the shards ran with different versions of torch: 2.4.0, 2.13.0",)
    assert differing([first, two[1]]) == () and merged([(one, other), two])


FOUR = list(shards(WHOLE, [1, 2, 3, 4, 4, 3, 2, 1, 1]))
FIFTH = ("fifth.json", replace(FOUR[0][1], selection=replace(FOUR[0][1].selection, shard=Shard(5, 5, "a1", 9, (0, 7, 8)))))


def other(name="x.json", **changes):
    return name, replace(FOUR[1][1], selection=replace(FOUR[1][1].selection, shard=replace(FOUR[1][1].selection.shard, **changes)))


def fewer(part):
    return part[0], replace(part[1], checks=part[1].checks[1:])


def changed(part, place, **changes):
    checks = tuple(replace(check, **changes) if number == place else check for number, check in enumerate(part[1].checks))
    return part[0], replace(part[1], checks=checks)


CONTRADICTIONS = [
    ({"verdict": "fail", "ok": True}, "`fail`, and that is as expected"), ({"verdict": "error", "ok": True}, "`error`, and that is as expected"),
    ({"verdict": "not_run", "ok": True}, "`not_run`, and that is as expected"),
    ({"verdict": "pass", "ok": False}, "`pass`, and that is not as expected"),
    ({"verdict": "pass", "ok": True, "expect": "fail"}, "`pass`, and that is as expected"),
    ({"verdict": "fail", "ok": True, "baselined": True}, "`fail`, and that is as expected"),
    ({"verdict": "pass", "ok": True, "findings": (Finding("GV101", "wrong"),)}, "`pass`, and has errors")]


def shards_with(changes):
    return [changed(part, 0, **changes) for part in shards(report(*named([passing()])), [1])]


@pytest.mark.parametrize("reports, said", [
    (FOUR[:3], "shard 4 of 4 is missing"),
    (FOUR[1:2], "shards 1, 3 and 4 of 4 are missing"),
    ([*FOUR, FOUR[2]], "r3.json and r3.json are both shard 3 of 4"),
    ([*FOUR, ("copy.json", FOUR[2][1])], "r3.json and copy.json are both shard 3 of 4"),
    ([*FOUR, FIFTH], "fifth.json belongs to another run than r1.json: it is one of 5 shards, not of 4"),
    ([FIFTH, *FOUR], "fifth.json belongs to another run than r1.json: it is one of 5 shards, not of 4"),
    ([FOUR[0], other(of="b2"), *FOUR[2:]], "x.json belongs to another run than r1.json: other checks or sources, or under other settings"),
    ([FOUR[0], other(total=12), *FOUR[2:]], "x.json belongs to another run than r1.json: 12 checks were divided, not 9"),
    ([*FOUR, ("whole.json", WHOLE)], "whole.json is the report of a whole run, no shard: `merge` joins the reports of `check --shard I/N`"),
    ([*FOUR[:3], fewer(FOUR[3])], "r4.json does not hold the checks of its shard: 1 of 2"),
    ([FOUR[0], other(places=(1, 7)), *FOUR[2:]], "the shards together hold 9 checks at other places than the 9 that were divided"),
    ([*FOUR[:3], changed(FOUR[3], 0, id=FOUR[1][1].checks[0].id)], f"{FOUR[1][1].checks[0].id} is in r2.json and again in r4.json"),
    *((shards_with(changes), f"r1.json contradicts itself: specs/ops.yaml::0 is {said}") for changes, said in CONTRADICTIONS),
    ([("a.json", replace(FOUR[0][1], tool=Tool(version="0.0.9"))), *FOUR[1:]], "r2.json was written by gradverify 0.1.0, a.json by 0.0.9"),
])
def test_what_is_not_exactly_the_shards_of_one_run_is_refused_in_one_sentence(reports, said):
    with pytest.raises(ProblemsError) as refused:
        merged(reports)
    assert str(refused.value) == said


def test_what_exit_zero_spared_the_shards_counts_for_the_whole():
    """Jobs of shards end green with --exit-zero, so that the joined report alone decides."""
    divided = [(name, replace(part, exit_code=0, forgiven=part.exit_code or None)) for name, part in shards(WHOLE, [1, 2, 1, 2, 1, 2, 1, 2, 1])]
    found = merged(divided)
    assert (found.exit_code, found.forgiven) == (WHOLE.exit_code, None) and not found.ok
