"""A check under damage: what is killed is wrong to the whole check, what lives has a true
reason."""

from __future__ import annotations

from functools import cache

import pytest
from live import case, given

import gradverify.mutation.mutate as module
from gradverify.model.mutation import Mutant
from gradverify.mutation.mutate import Measured, mutate
from mutation.gallery import CHECKS


def found(name: str) -> dict[tuple[str, ...], Mutant]:
    """By damage and the inputs it strikes."""
    return {(mutant.damage, *mutant.inputs): mutant for mutant in mutate(CHECKS[name]).mutants}


fates = cache(found)


LIVES = {  # check → damage that it lets through, fate, and a part of the reason
    "equal inputs": [
        (
            "swap inputs",
            "unseen",
            "the gradients of x and y are the same at these inputs; it shows at unequal ones",
        )
    ],
    "one tile": [
        (
            "drop the last tile",
            "unseen",
            "x has shape [3, 4]: only a shape of more than 16 elements can show it",
        )
    ],
    "one column": [
        ("transpose", "unseen", "whose last two sizes are both above 1"),
        ("shift by one", "unseen", "only a last dimension above 1"),
        ("drop the mean term", "unseen", "only a last dimension above 1"),
    ],
    "beyond the clamp": [
        (damage, "unseen", "the gradient of x is 0 at these inputs; it shows at others")
        for damage in ("×1.01", "×(1 + 1e-4)", "sign", "zero a row", "shift by one")
    ],
    "loose": [("×1.01", "survived", "rtol 0.05 forgive; found with the default tolerances")],
    "float32": [("×(1 + 1e-4)", "survived", "rtol 0.001 forgive; found with `dtype: float64`")],
    "fixed step": [("×(1 + 1e-4)", "survived", "found with `eps: auto`")],
    "values only": [
        (
            "sign",
            "survived",
            "no rule that was selected compares it with anything; found with all rules",
        )
    ],
    "kink": [
        (
            "zero a row",
            "survived",
            "within the slopes on both sides of the kinks, and the tolerance elsewhere; found at "
            "other inputs",
        ),
        ("stale state", "survived", "found at other inputs of the same shapes"),
    ],
    "sum": [
        ("swap inputs", "equivalent", "the same gradient here and at 5 other points"),
        ("stale state", "equivalent", "no state to be stale"),
    ],
}


@pytest.mark.parametrize("name", LIVES)
def test_a_known_survivor_has_its_true_reason(name):
    seen = {mutant.damage: mutant for mutant in fates(name).values()}
    for damage, fate, why in LIVES[name]:
        assert (seen[damage].fate, seen[damage].why) == (fate, seen[damage].why)
        assert why in (seen[damage].why or "")


KILLED = {
    "unequal inputs": ["swap inputs"],
    "equal inputs, and a second point": ["swap inputs"],
    "two tiles": [
        "drop the last tile",
        "transpose",
        "shift by one",
        "drop the mean term",
        "stale state",
    ],
    "inside the clamp": ["×1.01", "×(1 + 1e-4)", "sign", "zero a row", "shift by one"],
    "loose": ["sign"],
    "float32": ["×1.01"],
    "fixed step": ["×1.01"],
    "values only": ["ignore grad_output"],
    "kink": ["×1.01", "ignore grad_output"],
}


@pytest.mark.parametrize("name", KILLED)
def test_what_the_reason_asks_for_kills_it(name):
    seen = {mutant.damage: mutant for mutant in fates(name).values()}
    assert {damage: seen[damage].fate for damage in KILLED[name]} == dict.fromkeys(
        KILLED[name], "killed"
    )


def test_ignored_grad_output_and_stale_state_are_found_by_their_own_rules():
    seen = fates("two tiles")
    assert fates("equal inputs, and a second point")["swap inputs", "x", "y"].by == "GV113"
    assert (seen["ignore grad_output",].by, seen["stale state",].by, seen["sign", "x"].by) == (
        "GV201",
        "GV207",
        "GV101",
    )


@pytest.mark.parametrize("name", ["unequal inputs"])
def test_what_the_finite_differences_of_before_kill_the_whole_check_kills_too(name, monkeypatch):
    at_once = {key: mutant.fate for key, mutant in fates(name).items()}
    monkeypatch.setattr(Measured, "finds", lambda self, damage: None)
    assert {key: mutant.fate for key, mutant in found(name).items()} == at_once


def test_finite_differences_are_taken_once(monkeypatch):
    runs = []
    run = module.verify
    monkeypatch.setattr(
        module, "verify", lambda *args, **named: runs.append(1) or run(*args, **named)
    )
    mutants = mutate(CHECKS["two tiles"]).mutants
    assert len(mutants) == 10
    assert len(runs) == 3, (
        "the check itself, and two kinds of damage that no gradient tells: a deaf and a stale "
        "backward"
    )


@pytest.mark.parametrize(
    ("left_out", "why", "broken"),
    [
        (
            case("mutation.functions:Twice", [given([1.0, 2.0])]),
            "it does not pass undamaged: fail (GV101 jacobian)",
            True,
        ),
        (
            case("mutation.functions:Twice", [given([1.0, 2.0])], expect="fail"),
            "it is expected to fail",
            False,
        ),
        (
            case("torch:sin", [given([1.0])], select=("GV202",)),
            "`select` and `ignore` leave no rule that compares a gradient",
            False,
        ),
    ],
)
def test_a_check_that_says_nothing_of_damage_is_left_out_with_its_reason(left_out, why, broken):
    seen = mutate(left_out)
    assert (seen.left_out, seen.broken, seen.mutants) == (why, broken, ())
