"""`domain` and `symmetric`: what makes no sense is a problem, the rest reaches the case."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec.marked import check, loaded, unmarked


def tensor(text: str) -> str:
    return check(f"inputs: {{x: {text}, y: 1}}")


@pytest.mark.parametrize(("text", "said"), [
    (tensor("{shape: [2], domain: «[1, 0]}"), "low < high"), (tensor("{shape: [2], domain: «[1, 1]}"), "low < high"),
    (tensor("{shape: [2], domain: «[.nan, 1]}"), "low < high"), (tensor("{shape: [2], domain: [0, 1], dtype: complex128}"), "real numbers"),
    (tensor("{shape: [2], domain: «[0]}"), ""), (tensor("{shape: [2, 3], symmetric: «true}"), "square"),
    (tensor("{values: [1, 2], symmetric: «true}"), "square")])
def test_faults(text: str, said: str, tmp_path: Path) -> None:
    problems = loaded(unmarked(text)[0], tmp_path).problems
    assert len(problems) == 1
    assert said in problems[0].message


def test_they_reach_the_case(tmp_path: Path) -> None:
    case = loaded(tensor("{shape: [2, 2], domain: [0, .inf], symmetric: true}"), tmp_path).cases[0]
    recipe = case.inputs[0].tensor
    assert recipe is not None
    assert (recipe.domain, recipe.symmetric) == ((0, float("inf")), True)
