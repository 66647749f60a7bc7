"""A parameter of a module inside a module is given by its dotted name; a list of numbers where a
tensor is wanted is named as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradverify

MODULE = """
import torch

class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.LayerNorm(3)])

    def forward(self, x):
        return self.layers[0](x)

def linear(x, up):
    return torch.nn.functional.linear(x, up)

def times(x, up):
    return x * up

def attribute(x, up):
    return x @ up.mT

def index(x, up, at):
    return x[at]
"""


def run(folder: Path, checks: str) -> gradverify.Report:
    (folder / "ops.py").write_text(MODULE, encoding="utf-8")
    (folder / "spec.yaml").write_text(f"gradverify: 1\nchecks:\n{checks}\n", encoding="utf-8")
    return gradverify.run([str(folder / "spec.yaml")])


def test_a_parameter_inside_is_drawn_by_its_dotted_name(tmp_path: Path) -> None:
    drawn = "layers.0.weight: {shape: [3], uniform: [5, 6]}"
    report = run(
        tmp_path,
        f"  - {{name: a, function: ops:Norm, inputs: {{x: {{shape: [2, 3]}}, {drawn}}}}}\n"
        f"  - {{name: b, function: 'torch:sin', inputs: {{input: {{shape: [3]}}, {drawn}}}}}\n"
        "  - {name: c, function: ops:Norm, inputs: {x: {shape: [2, 3]}, layers_0_weight: {shape: "
        "[3]}}}",
    )
    inside, none, underscores = report.checks
    assert inside.verdict == "pass" and "layers.0.weight" in {
        comparison.input for comparison in inside.comparisons
    }
    assert none.verdict == "error" and "layers.0.weight" in str(none.reason)
    assert underscores.verdict == "error" and "'layers.0.weight'" in str(
        underscores.findings[0].hint
    )


@pytest.mark.parametrize("name", ["linear", "times", "attribute"])
def test_a_list_where_a_tensor_is_wanted(tmp_path: Path, name: str) -> None:
    hint = (
        run(
            tmp_path,
            f"  - {{function: 'ops:{name}', inputs: {{x: {{shape: [2, 3]}}, up: [2, 3]}}}}",
        )
        .checks[0]
        .findings[0]
        .hint
    )
    assert hint is not None and "up: {shape: [2, 3]}" in hint and "integers" not in hint


def test_an_index_that_is_no_whole_number_beside_a_list(tmp_path: Path) -> None:
    hint = (
        run(
            tmp_path,
            "  - {function: 'ops:index', inputs: {x: {shape: [2, 3]}, up: [2, 3], at: {values: "
            "[0, 1]}}}",
        )
        .checks[0]
        .findings[0]
        .hint
    )
    assert hint is not None and "dtype: int64" in hint and "up:" not in hint
