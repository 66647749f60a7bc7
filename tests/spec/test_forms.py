"""`sparse` and `nested`: what makes no sense is a problem at its place, the rest reaches the case."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.model.case import Sparse, TensorRecipe
from spec.marked import check, loaded, unmarked


def tensor(text: str) -> str:
    return check(f"inputs: {{x: {text}, y: 1}}")


@pytest.mark.parametrize(("text", "said"), [
    ("{shape: [2, 3], sparse: {layout: «dok}}", "coo"),
    ("{shape: [2, 3], sparse: {density: «0}}", ""), ("{shape: [2, 3], sparse: {density: «1.5}}", ""),
    ("{shape: [2, 3], sparse: {layout: bsr}}", "blocksize"), ("{shape: [2, 3], sparse: {blocksize: [1, 1]}}", "holds no blocks"),
    ("{shape: [2, 3], sparse: {layout: bsc, blocksize: [2, 2]}}", "do not divide"), ("{shape: [2], sparse: {layout: csr}}", "two dimensions"),
    ("{shape: [], sparse: {}}", "at least one dimension"), ("{shape: [20000, 20000], sparse: {}}", "kept as a dense tensor"),
    ("{values: [1, 0], sparse: {density: 0.5}}", "remove `density`"), ("{shape: [2, 2], symmetric: true, sparse: {}}", "symmetric"),
    ("{shape: [2, 2], kind: spd, sparse: {}}", "`spd`"), ("{shape: [2, 2], make: 'a:b', sparse: {}}", "`make`"),
    ("{shape: [2, 2], layout: transposed, sparse: {}}", "layout"), ("{shape: [2, 2], sparse: {}, nested: {lengths: [2]}}", "nested"),
    ("{shape: [2, 2], uniform: [1, 2], domain: [1, 2], sparse: {masked: false}}", "zeros"),
    ("{shape: [3, 2], nested: {lengths: [1, 1]}}", "add up to 2"), ("{shape: [3], nested: {lengths: [3]}}", "two dimensions"),
    ("{shape: [3, 2], nested: {}}", "lengths")])
def test_faults(text: str, said: str, tmp_path: Path) -> None:
    problems = loaded(unmarked(tensor(text))[0], tmp_path).problems
    assert len(problems) == 1, problems
    assert said in problems[0].message and str(problems[0].path).startswith("checks[0].inputs.x")


def recipe(text: str, folder: Path) -> TensorRecipe:
    found = loaded(tensor(text), folder)
    assert found.problems == ()
    made = found.cases[0].inputs[0].tensor
    assert made is not None
    return made


def test_they_reach_the_case(tmp_path: Path) -> None:
    assert recipe("{shape: [4, 6], sparse: {layout: bsr, density: 0.3, blocksize: [2, 3], masked: false}}", tmp_path).sparse == Sparse(
        "bsr", 0.3, (2, 3), False)
    assert recipe("{shape: [2], sparse: {}}", tmp_path).sparse == Sparse()
    assert recipe("{shape: [3, 2], nested: {lengths: [1, 0, 2]}}", tmp_path).nested == (1, 0, 2)
