import pytest
from factories import comparison, entry, passing

from gradverify.model.result import Calls, RuleRun
from gradverify.report.look import Look
from gradverify.report.terminal.view import check_line


def shown(check, origins=None):
    return check_line(check, Look(120, boxes=False, wrap=False, verbosity=1), origins=origins)


def test_every_rule_says_what_became_of_it():
    text = shown(passing())
    for sentence in ("GV101 ran, 12 forward, 24 backward", "GV111 not applicable: the function has no parameters",
                     "GV224 ignored: by `ignore: [GV224]`"):
        assert sentence in text


def test_mode_has_its_reason_and_its_blind_spot():
    text = shown(passing())
    assert "mode: entries, 96 elements are within the budget" in text
    assert "could miss: errors below 3.1e-10 at single elements" in text


def test_comparisons_are_counted_one_by_one():
    check = passing(comparisons=(comparison(mismatched=3, kinks=2, undecided=1, groups=4, row_groups=2, max_abs_error=0.5, max_rel_error=0.25),))
    assert ("GV101 x → y0: 96 elements, 3 wrong, 2 at a kink, 1 undecided, largest error 0.5 absolute, 0.25 relative, "
            "4 column groups and 2 row groups") in " ".join(shown(check).split())


def test_what_would_have_been_seen_is_said_where_nothing_wrong_was():
    text = " ".join(shown(passing(comparisons=(comparison(groups=4),))).split())
    assert "relative, would catch any absolute error above 3.1e-10, 4 column groups" in text
    assert "would catch" not in shown(passing(comparisons=(comparison(mismatched=3, groups=4),))).split("GV101 x")[1]


def test_a_comparison_says_what_forwards_own_derivative_decided():
    assert ", 7 by forward's own derivative, 4 column groups" in " ".join(shown(passing(comparisons=(comparison(witnessed=7, groups=4),))).split())
    for apart, words in ((0.0, "the same as"), (2.1e-9, "off by 2.1e-09 of a row from")):
        assert f", {words} forward's own derivative" in " ".join(shown(passing(comparisons=(comparison(witness_apart=apart),))).split())


def test_a_pass_says_how_close_it_was():
    nearest = entry(analytic=1.0, numeric=1.0 + 2.5e-7, tolerance=1e-6, outcome="pass")
    assert "the nearest at 0.25 of its tolerance" in shown(passing(comparisons=(comparison(worst=(nearest,)),)))
    assert "nearest" not in shown(passing())


def test_rules_come_by_code_and_count_only_calls_they_made():
    rules = (RuleRun("GV202", "ran"), RuleRun("GV101", "ran", calls=Calls(1, 0)), RuleRun("GV007", "ran", "why"))
    lines = [line.strip() for line in shown(passing(rules=rules)).splitlines() if line.strip().startswith("GV") and "ran" in line]
    assert lines == ["GV007 ran: why", "GV101 ran, 1 forward, 0 backward", "GV202 ran"]


def test_calls_and_seconds_are_told_however_narrow():
    text = check_line(passing("n" * 40), Look(80, verbosity=1))
    assert "calls" not in text.splitlines()[0] and "in all: 13 forward, 24 backward, 0.02 s" in text


@pytest.mark.parametrize("counts, said, unsaid", [
    ({"kinks": 3}, "at a kink the slopes on both sides differ", "undecided elements"),
    ({"undecided": 14}, "undecided elements could not be judged", "at a kink"),
    ({"non_finite": 1}, "undecided elements could not be judged", "at a kink")])
def test_what_is_neither_right_nor_wrong_is_explained(counts, said, unsaid):
    text = shown(passing(comparisons=(comparison(**counts),)))
    assert said in text and unsaid not in text
    assert said not in shown(passing())


def test_a_resolution_of_0_is_no_claim():
    assert "sees" not in shown(passing(comparisons=(comparison(resolution=0.0),)))


def test_settings_come_with_the_place_that_named_them():
    text = shown(passing(), {"rtol": "command line"})
    assert "settings: rtol 1e-06 (command line)\n" in text


def test_without_places_all_settings_are_shown():
    check = passing(settings={"eps": "auto", "atol": None, "budget": {"calls": None, "seconds": 10.0}, "select": ["GV1", "GV2"]})
    assert "settings: eps auto, budget calls=None seconds=10.0, select GV1, GV2\n" in shown(check)


def test_rules_that_were_ignored_without_a_word_share_a_line():
    rules = (RuleRun("GV224", "ignored"), RuleRun("GV102", "ignored"), RuleRun("GV111", "ignored", "by a reason"), RuleRun("GV101", "ran"))
    lines = [line.strip() for line in shown(passing(rules=rules)).splitlines()]
    assert lines[-4:-1] == ["GV101 ran", "GV111 ignored: by a reason", "ignored: GV102, GV224"]


def test_many_rules_that_were_ignored_are_the_others():
    rules = (RuleRun("GV101", "ran"), *(RuleRun(f"GV2{n:02}", "ignored") for n in range(9)))
    lines = [line.strip() for line in shown(passing(rules=rules)).splitlines()]
    assert lines[-3:-1] == ["GV101 ran", "ignored: all other rules"]
