"""What several checks make of one damage, the share that is killed, and the exit code."""

from __future__ import annotations

import pytest

from gradverify.model.mutation import Counts, Fate, Mutant, MutatedCheck, outcomes, report


def check(number: int, *mutants: Mutant, function: str = "op", **changes) -> MutatedCheck:
    return MutatedCheck(f"s.yaml::{number}", str(number), function, mutants, **changes)


def mutant(fate: Fate, damage: str = "sign", *inputs: str) -> Mutant:
    return Mutant(damage, inputs or ("x",), fate, why=fate)


def said(*checks: MutatedCheck, **changes):
    return report(checks, version="1", argv=(), duration=1.0, **changes)


@pytest.mark.parametrize(
    ("fates", "together"),
    [
        (("unseen", "killed"), "killed"),
        (("survived", "killed", "unseen"), "killed"),
        (("unseen", "survived"), "survived"),
        (("equivalent", "unseen"), "unseen"),
        (("equivalent", "equivalent"), "equivalent"),
    ],
)
def test_one_check_that_kills_a_damage_is_enough(fates, together):
    [outcome] = outcomes(check(n, mutant(fate)) for n, fate in enumerate(fates))
    assert (outcome.fate, outcome.check) == (together, f"s.yaml::{fates.index(together)}")


def test_functions_damages_and_inputs_are_told_apart():
    found = outcomes(
        [
            check(1, mutant("killed"), mutant("unseen", "sign", "y"), mutant("survived", "shift")),
            check(2, mutant("unseen"), function="f"),
        ]
    )
    assert [(o.function, o.damage, o.inputs, o.fate) for o in found] == [
        ("op", "sign", ("x",), "killed"),
        ("op", "sign", ("y",), "unseen"),
        ("op", "shift", ("x",), "survived"),
        ("f", "sign", ("x",), "unseen"),
    ]


def test_the_share_counts_what_is_let_through_and_not_what_is_equivalent():
    seen = said(
        check(
            1,
            mutant("killed"),
            mutant("killed", "a"),
            mutant("survived", "b"),
            mutant("unseen", "c"),
            mutant("equivalent", "d"),
        )
    )
    assert (seen.counts, seen.share) == (Counts(2, 1, 1, 1), 50.0)
    assert (seen.counts.counted, seen.counts.let_through) == (4, 2)


@pytest.mark.parametrize(
    ("checks", "changes", "code"),
    [
        ([check(1, mutant("killed"))], {}, 0),
        ([check(1, mutant("survived"))], {}, 0),
        ([check(1, mutant("killed"), mutant("survived", "a"))], {"fail_under": 50.0}, 0),
        ([check(1, mutant("killed"), mutant("survived", "a"))], {"fail_under": 50.1}, 1),
        ([check(1, mutant("killed")), check(2, left_out="it fails", broken=True)], {}, 3),
        (
            [check(1, mutant("survived")), check(2, left_out="it fails", broken=True)],
            {"fail_under": 10.0},
            1,
        ),
        ([check(1, mutant("killed")), check(2, left_out="skipped")], {}, 0),
        ([check(1, left_out="skipped")], {"fail_under": 50.0}, 5),
        ([check(1, mutant("equivalent"))], {}, 5),
        ([], {}, 5),
        ([check(1, mutant("killed"))], {"interrupted": True}, 130),
    ],
)
def test_exit_codes(checks, changes, code):
    assert said(*checks, **changes).exit_code == code
