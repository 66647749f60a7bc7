"""The structure that was found is printed with `-v`, as groups."""

import re

import pytest

OPS = """import torch
import torch.nn.functional as F
def reshape(x): return x.reshape(12, 10).sin()
def transpose(x): return x.T.exp()
def gather(x): return F.embedding(torch.arange(20) % 15, x)
def tail(x): return torch.cat([b.softmax(0) for b in x.split(16)])
def batched(x, y): return torch.matmul(x, y)
def banded(x, w): return F.conv1d(x, w)
"""
CHECKS = {  # function, shapes of the inputs, what is printed for each
    "pointwise": ("sigmoid", {"input": [20, 6]}, ["1 column group and 1 row group"]),
    "broadcast": ("mul", {"x": [20, 6], "y": [12, 20, 6]}, ["1 column group and 12 row groups", "1 column group and 1 row group"]),
    "rows of softmax": ("softmax", {"input": [20, 6], "dim": -1}, ["6 column groups and 6 row groups"]),
    "product": ("mm", {"x": [6, 8], "w": [8, 5]}, ["8 column groups and 5 row groups", "8 column groups and 6 row groups"]),
    "reshape": ("ops.py:reshape", {"x": [20, 6]}, ["1 column group and 1 row group"]),
    "transpose": ("ops.py:transpose", {"x": [20, 6]}, ["1 column group and 1 row group"]),
    "gather": ("ops.py:gather", {"x": [15, 6]}, ["1 column group and 2 row groups"]),
    "block tail": ("ops.py:tail", {"x": [40]}, ["16 column groups and 16 row groups"]),
    "batched matmul": ("ops.py:batched", {"x": [4, 6, 5], "y": [4, 5, 7]}, ["5 column groups and 7 row groups", "5 column groups and 6 row groups"]),
    "banded": ("ops.py:banded", {"x": [2, 3, 40], "w": [4, 3, 3]}, ["9 column groups and 12 row groups", "9 column groups and 76 row groups"]),
}


def lines(gradverify, folder, name, settings=""):
    function, inputs, _ = CHECKS[name]
    (folder / "ops.py").write_text(OPS)
    given = ", ".join(f"{key}: {{shape: {value}}}" if isinstance(value, list) else f"{key}: {value}" for key, value in inputs.items())
    (folder / "s.yaml").write_text(f"gradverify: 1\nchecks:\n  - {{name: op, function: '{function}', inputs: {{{given}}}{settings}}}\n")
    code, out, err = gradverify("check", "s.yaml", "-v", "--width", "220")
    assert code == 0, out + err
    return re.findall(r"^ *GV101 \w+ .*", out, re.M)


@pytest.mark.parametrize("name", CHECKS)
def test_groups_are_printed_for_each_pair(gradverify, folder, name):
    printed = lines(gradverify, folder, name)
    assert len(printed) == len(CHECKS[name][2])
    assert all(line.endswith(f", {groups}") for line, groups in zip(printed, CHECKS[name][2], strict=True))


@pytest.mark.parametrize(("mode", "said"), [("rows", "120 rows, 6 row groups"), ("blocks", "20 blocks")])
def test_other_comparisons_print_the_groups_that_they_walk(gradverify, folder, mode, said):
    line, = lines(gradverify, folder, "rows of softmax", f", mode: {mode}")
    assert [part for part in line.partition(": ")[2].split(", ") if not part.startswith("would catch")] == said.split(", ")
