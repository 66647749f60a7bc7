import pytest

from gradverify.cli.gather import nothing_selected
from gradverify.model.case import Case, SpecPlace

CASES = tuple(Case(f"specs/act.yaml::{name}", name, name, SpecPlace("specs/act.yaml", 1), "m:F", tags=tags)
              for name, tags in [("Swish", ("fast", "gpu")), ("relu at 0", ("slow",))])


@pytest.mark.parametrize("keyword, tags, said", [
    ("swich", None, "-k 'swich' fits none of 2 checks; did you mean 'Swish'?"),
    ("specs and swich", None, "-k 'specs and swich' fits none of 2 checks; did you mean 'Swish'?"),
    ("relo", None, "-k 'relo' fits none of 2 checks; did you mean 'relu'?"),
    ("(sepcs)", None, "-k '(sepcs)' fits none of 2 checks; did you mean 'specs'?"),
    ("swish and relu", None, "-k 'swish and relu' fits none of 2 checks"),
    ("zzzzzzz", None, "-k 'zzzzzzz' fits none of 2 checks"),
    (None, "fsat", "-m 'fsat' fits none of 2 checks; did you mean 'fast'?"),
    ("swish", "slow", "-k 'swish' and -m 'slow' together fit none of 2 checks")])
def test_the_word_that_fits_nothing_gets_its_neighbour(keyword, tags, said):
    assert nothing_selected(CASES, keyword, tags) == said


@pytest.mark.parametrize("cases, keyword", [((), "swish"), (CASES, None)])
def test_where_nothing_was_asked_or_nothing_is_there_nothing_is_said(cases, keyword):
    assert nothing_selected(cases, keyword, None) is None
