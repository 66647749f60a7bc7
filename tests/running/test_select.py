from __future__ import annotations

import pytest

from gradverify.model.case import Case, SpecPlace
from gradverify.model.problem import ProblemsError
from gradverify.running.select import select


def made(name, tags=()):
    return Case(
        f"specs/ops.yaml::{name}",
        name,
        name.partition("[")[0],
        SpecPlace("specs/ops.yaml", 1),
        "f",
        tags=tags,
    )


CASES = (
    made("softmax[rows=1,device=cpu]", ("fast", "ci")),
    made("softmax[rows=7,device=cuda]", ("slow",)),
    made("conv-2d"),
    made("linear no bias", ("fast",)),
    made("and_relu"),
)


def chosen(**asked):
    return [case.name for case in select(CASES, **asked)]


@pytest.mark.parametrize("expression", [None, "", "  "])
def test_without_an_expression_all_are_chosen_in_their_order(expression):
    assert select(CASES, keyword=expression, tags=expression) == CASES


@pytest.mark.parametrize(
    ("expression", "places"),
    [
        ("softmax", [0, 1]),
        ("SoftMax", [0, 1]),
        ("softmax and not cuda", [0]),
        ("conv-2d or linear", [2, 3]),
        ("softmax[rows=7,device=cuda]", [1]),
        ("(softmax or conv-2d) and not rows=7", [0, 2]),
        ("not (softmax or conv-2d)", [3, 4]),
        ("and_relu", [4]),
        ("ops.yaml", [0, 1, 2, 3, 4]),
        ("nowhere", []),
        ("None or conv", [2]),
        ("__import__", []),
    ],
)
def test_keywords_are_parts_of_ids_joined_by_and_or_and_not(expression, places):
    assert chosen(keyword=expression) == [CASES[place].name for place in places]


@pytest.mark.parametrize(
    ("expression", "places"),
    [
        ("fast", [0, 3]),
        ("fa", []),
        ("fast and not ci", [3]),
        ("slow or ci", [0, 1]),
        ("not fast", [1, 2, 4]),
        ("Fast", []),
    ],
)
def test_tags_are_whole_words(expression, places):
    assert chosen(tags=expression) == [CASES[place].name for place in places]


@pytest.mark.parametrize(
    "expression", ["and", "(softmax", "softmax)", "a b", "softmax or or conv", "(lambda: 1)()"]
)
@pytest.mark.parametrize("option", ["keyword", "tags"])
def test_what_is_no_expression_is_refused_with_what_was_written(expression, option):
    with pytest.raises(ProblemsError) as caught:
        chosen(**{option: expression})
    text = str(caught.value.problems[0])
    assert repr(expression) in text
    assert text.startswith("-k" if option == "keyword" else "-m")
