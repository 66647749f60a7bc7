from factories import comparison, entry, passing

from gradverify.report.look import Look
from gradverify.report.terminal.view import check_line


def shown(check, origins=None):
    return check_line(check, Look(120, boxes=False, verbosity=1), origins=origins)


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
    check = passing(comparisons=(comparison(mismatched=3, kinks=2, undecided=1, groups=4, max_abs_error=0.5, max_rel_error=0.25),))
    assert ("GV101 x → y0: 96 elements, 3 wrong, 2 at a kink, 1 undecided, largest error 0.5 absolute, 0.25 relative, resolves 3.1e-10, 4 groups"
            in shown(check))


def test_a_pass_says_how_close_it_was():
    nearest = entry(analytic=1.0, numeric=1.0 + 2.5e-7, tolerance=1e-6, outcome="pass")
    assert "the nearest at 0.25 of its tolerance" in shown(passing(comparisons=(comparison(worst=(nearest,)),)))
    assert "nearest" not in shown(passing())


def test_settings_come_with_the_place_that_named_them():
    text = shown(passing(), {"rtol": "command line"})
    assert "settings: rtol 1e-06 (command line)\n" in text


def test_without_places_all_settings_are_shown():
    check = passing(settings={"eps": "auto", "atol": None, "budget": {"calls": None, "seconds": 10.0}, "select": ["GV1", "GV2"]})
    assert "settings: eps auto, budget calls=None seconds=10.0, select GV1, GV2\n" in shown(check)
