"""`gradverify mutate` as a command: output, exit codes, and what the project's own specs let
through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SEEDS = Path(__file__).parents[2] / "specs" / "seeds"
LEAST = 95.0  # percent of the damage

OPS = """gradverify: 1
checks:
  - {name: product, function: mul, inputs: {x: {shape: [3, 6]}, y: {shape: [3, 6]}}}
  - {name: square, function: mul, inputs: {x: {values: [1.0, 2.0]}, y: {values: [1.0, 2.0]}}, rules: {ignore: [GV113]}}
  - {name: broken, function: "op.py:Op", inputs: {x: {shape: [2]}}}
  - {name: expected, function: "op.py:Op", inputs: {x: {shape: [2]}}, expect: fail}
"""
OP = """import torch


class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0]
"""


@pytest.fixture
def specs(folder):
    (folder / "s.yaml").write_text(OPS)
    (folder / "op.py").write_text(OP)
    return folder


def test_a_check_that_kills_all_damage_says_so(specs, gradverify):
    code, out, err = gradverify("mutate", "s.yaml::product")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("killed 19 of 19 (100.0 %) in ")
    assert "let through\n" not in out


def test_what_a_check_lets_through_is_named_with_what_would_kill_it(specs, gradverify):
    code, out, _ = gradverify("mutate", "s.yaml::square")
    assert code == 0
    [swap] = [line for line in out.splitlines() if line.startswith("mul") and "swap inputs" in line]
    assert swap.endswith(
        "the gradients of x and y are the same at these inputs; it shows at unequal ones"
    )
    assert "x has shape [2]: only a shape of more than 16 elements can show it" in out


def test_two_checks_of_one_function_kill_together_what_either_kills(specs, gradverify):
    _, out, _ = gradverify("mutate", "s.yaml", "-k", "product or square")
    assert out.splitlines()[-1].startswith("killed 19 of 19 (100.0 %) in ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["s.yaml::square", "--fail-under", "70"], 0),
        (["s.yaml::square", "--fail-under", "100"], 1),
        (["s.yaml::broken"], 3),
        (["s.yaml::expected"], 5),
        (["s.yaml", "-k", "none"], 5),
        (["missing.yaml"], 2),
        (["s.yaml", "--rtol", "x"], 2),
        (["s.yaml", "--fail-under", "101"], 2),
    ],
)
def test_exit_codes(specs, gradverify, arguments, code):
    assert gradverify("mutate", *arguments)[0] == code


def test_a_check_that_is_left_out_has_its_reason(specs, gradverify):
    _, out, _ = gradverify("mutate", "s.yaml", "-k", "broken or expected")
    assert "broken: it does not pass undamaged: fail (GV101 jacobian)" in out
    assert "expected: it is expected to fail" in out


def test_settings_of_the_command_line_are_those_of_the_damaged_check(specs, gradverify):
    _, out, _ = gradverify("mutate", "s.yaml::product", "--rtol", "0.05")
    assert "rtol 0.05 forgive; found with the default tolerances (in s.yaml::product)" in out


def test_json_alone_is_on_stdout_and_names_functions_as_the_spec_does(specs, gradverify):
    code, out, err = gradverify("mutate", "s.yaml", "-k", "square or expected", "--format", "json")
    data = json.loads(out)
    assert (code, err, data["exit_code"]) == (0, "", 0)
    assert [check["function"] for check in data["checks"]] == ["mul", "op.py:Op"]
    assert {
        (outcome["damage"], outcome["fate"])
        for outcome in data["damage"]
        if len(outcome["inputs"]) == 2
    } == {("swap inputs", "unseen")}


def test_quiet_leaves_out_the_lines_of_checks(specs, gradverify):
    _, loud, _ = gradverify("mutate", "s.yaml::square")
    _, quiet, _ = gradverify("mutate", "s.yaml::square", "-q")
    assert "square" in loud
    assert "square" not in quiet
    assert "let through" in quiet


def test_an_interrupt_keeps_what_was_seen(specs, gradverify, monkeypatch):
    import gradverify.running.inline as running

    real = running.mutated

    def interrupted(cases, began):
        yield next(real(cases, began))
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "mutated", interrupted)
    code, out, _ = gradverify("mutate", "s.yaml")
    assert code == 130
    assert out.splitlines()[-1].startswith("interrupted: killed 19 of 19")


def test_the_projects_own_specs_kill_nearly_all_damage(gradverify, monkeypatch):
    monkeypatch.chdir(SEEDS)
    code, out, _ = gradverify(
        "mutate",
        "softmax.yaml",
        "mul.yaml",
        "relu.yaml",
        "--fail-under",
        str(LEAST),
        "--format",
        "json",
    )
    data = json.loads(out)
    assert (code, data["counts"]["killed"] >= 30) == (0, True)
    assert not [check["id"] for check in data["checks"] if check["broken"]]
    lives = {
        (outcome["damage"], outcome["fate"])
        for outcome in data["damage"]
        if outcome["fate"] in ("survived", "unseen")
    }
    assert lives == {("drop the last tile", "unseen")}, "small shapes, of one tile"
    assert all(
        "only a shape of more than 16 elements can show it" in outcome["why"]
        for outcome in data["damage"]
        if outcome["fate"] == "unseen"
    )
