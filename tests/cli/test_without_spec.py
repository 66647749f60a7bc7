"""`gradverify check FILE.py:Name`: a check without a spec, with inputs of the command line or found by
trial; the lines that it prints at its end are a spec of the same check."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from commands import checks

from gradverify.cli.arguments import arguments
from gradverify.cli.without_spec import is_target
from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.model.problem import ProblemsError

HARD = {
    "Gather": "--input x=4x3 --input index=5,:int64[0,4)",
    "Filled": "--input x=2x3 --input mask=2x3:bool",
    "Linear": "--input x=2x3 --input weight=4x3 --input bias=none",
    "Loss": "--input x=2x3 --input target=2x3 --input reduction=sum",
    "Split": "--input x=5, --input at=2",
    "Square": "--input z=2x3:complex128",
    "InPlace": "--input x=2x3",
    "Scaled": "--init dim=3 --input x=2x3",
    "Flagged": "--input x=2x3 --input dim=1 --input keepdim=true",
    "Attention": "--input q=2x3x4 --input k=2x3x4 --input v=2x3x4 --input causal=true",
}
REFERENCE = """
def half(x, target, reduction):
    return ((x - target) ** 2).sum() / 2


def same(x, target, reduction):
    return ((x - target) ** 2).sum()
"""


@pytest.fixture
def hard(folder):
    """The current folder with Functions of difficult kinds."""
    shutil.copy(Path(__file__).parent / "hard.py", folder / "hard.py")
    (folder / "ref.py").write_text(REFERENCE)
    return folder


@pytest.mark.parametrize(("name", "options"), HARD.items())
def test_right_and_wrong_functions_of_difficult_kinds(gradverify, hard, name, options):
    targets = [f"hard.py:{name}", f"hard.py:Wrong{name}"]
    report = ["--select", "GV101", "--report", "json:r.json"]
    code, out, err = gradverify("check", *targets, *options.split(), *report)
    found = {name: check["verdict"] for name, check in checks(hard / "r.json").items()}
    assert (code, found, err) == (1, {name: "pass", f"Wrong{name}": "fail"}, "")
    assert out.count("# to keep this check") == 2


def numbers(check):
    """What the same check finds again under another id."""
    found = [
        {key: value for key, value in each.items() if key in ("code", "message", "input", "output")}
        for each in check["findings"]
    ]
    return check["verdict"], check["settings"], check["inputs"], check["comparisons"], found


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("hard.py:WrongLoss", [], 1),
        ("hard:Square", ["--input", "z=3,:complex128", "--seed", "7", "--ignore", "GV2"], 0),
        ("hard.py:WrongFlagged", ["--rtol", "0.5", "--strict", "--dtype", "float32"], 0),
        ("hard.py:Loss", [*HARD["Loss"].split(), "--reference", "ref.py:half"], 1),
    ],
)
def test_the_lines_to_keep_are_a_spec_of_the_same_check(
    gradverify, hard, target, options, expected
):
    code, out, _ = gradverify("check", target, *options, "--report", "json:a.json")
    kept = out[out.index("# to keep this check") :]
    (hard / "kept.yaml").write_text(kept)
    again, *_ = gradverify("check", "kept.yaml", "-q", "--report", "json:b.json")
    assert again == code == expected
    first, second = checks(hard / "a.json"), checks(hard / "b.json")
    assert first.keys() == second.keys()
    for name, check in first.items():
        assert numbers(check) == numbers(second[name])


def test_the_command_of_a_failure_repeats_it(gradverify, hard):
    _, out, _ = gradverify("check", "hard.py:WrongLoss", *HARD["Loss"].split())
    command = "hard.py:WrongLoss::WrongLoss " + HARD["Loss"]
    assert f"this again: gradverify check {command}\n" in out
    assert gradverify("check", *command.split(), "-q")[0] == 1
    code, _, err = gradverify("check", *command.replace("::WrongLoss", "::Other").split())
    assert (code, "no check 'Other'" in err) == (2, True)


@pytest.mark.parametrize(("of", "code"), [("same", 0), ("half", 1)])
def test_a_reference_is_compared(gradverify, hard, of, code):
    options = [
        *HARD["Loss"].split(),
        "--select",
        "GV1",
        "--ignore",
        "GV109,GV113",
        "--reference",
        f"ref.py:{of}",
    ]
    assert gradverify("check", "hard.py:Loss", *options)[0] == code


def test_programs_get_the_report_alone(gradverify, hard):
    for options in (["--format", "json"], ["--format", "jsonl"], ["-q"]):
        _, out, _ = gradverify("check", "hard.py:Square", "--input", "z=3,", *options)
        assert "to keep" not in out


def test_what_finds_no_inputs_is_an_error_of_the_check(gradverify, hard):
    (hard / "no.py").write_text("def f(x, y):\n    raise ValueError('never')\n")
    code, out, err = gradverify("check", "no.py:f", "hard.py:Missing")
    assert code == 3 and "to keep" not in out and "2 could not be judged" in out
    assert "no.py:f: no inputs found: " in err and "never" in err and "--input x=2x3" in err
    assert "has no attribute 'Missing'" in out


def test_specs_and_functions_are_checked_together(gradverify, hard, spec):
    code, out, _ = gradverify("check", "s.yaml::other", "hard.py:Square", "--input", "z=3,")
    assert code == 0 and "2 passed" in out
    _, out, _ = gradverify("check", "s.yaml::other")
    assert "to keep" not in out


TENSORS = {
    "2x3": TensorRecipe((2, 3)),
    "3,": TensorRecipe((3,)),
    "scalar": TensorRecipe(()),
    "2x3:float32": TensorRecipe((2, 3), dtype="float32"),
    "2x3:int64[0,5)": TensorRecipe((2, 3), "integers", [0, 5]),
    "3,:int32[-1,5)": TensorRecipe((3,), "integers", [-1, 5], dtype="int32"),
    "2x3[0.5,1.5)": TensorRecipe((2, 3), "uniform", [0.5, 1.5]),
    "2x3:bool": TensorRecipe((2, 3), "kind", "mask"),
    "a b.npy": TensorRecipe(draw="file", arguments="a b.npy"),
    "x.npz#w": TensorRecipe(draw="file", arguments="x.npz#w"),
}
PLAIN = {
    "3": 3,
    "0.5": 0.5,
    "-1e-3": -1e-3,
    "true": True,
    "False": False,
    "none": None,
    "null": None,
    "mean": "mean",
    "[1, 2]": [1, 2],
    "[]": [],
}


@pytest.mark.parametrize(("text", "tensor"), TENSORS.items())
def test_a_tensor_is_read(text, tensor):
    assert arguments("--input", [f"x={text}"]) == [InputRecipe("x", tensor)]


@pytest.mark.parametrize(("text", "value"), PLAIN.items())
def test_a_plain_value_is_read(text, value):
    (found,) = arguments("--init", [f"x={text}"], tensors=False)
    assert (found.value, type(found.value)) == (value, type(value)) and not found.recipes


def test_a_list_of_tensors_is_read():
    wanted = (TensorRecipe((2, 3)), TensorRecipe((2,), "integers", [0, 5]))
    (found,) = arguments("--input", ["xs=[2x3, 2,:int64[0,5)]"])
    assert found.tensors == wanted


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["2x3"], "must be NAME=VALUE, such as x=2x3"),
        (["x=2x"], "'2x' is no value: allowed are a tensor ("),
        (["x=4:int64[0,5)"], "'4:int64[0,5)' is no value; did you mean '4,:int64[0,5)'?"),
        (["x=2x3:int64"], "integers need a range, high excluded: 2x3:int64[0,5)"),
        (["x=2x3:int6[0,5)"], "'int6' is no dtype; did you mean int64?"),
        (["x=2x3[0,a)"], "0 and a must be numbers"),
        (["x=[2x3, 1]"], "a list holds tensors or plain values, not both"),
        (["x=1", "x=2"], "x=…: given 2 times"),
        (["x="], "'' is no value"),
    ],
)
def test_anything_else_gets_one_sentence(texts, sentence):
    with pytest.raises(ProblemsError, match=r".*") as raised:
        arguments("--input", texts)
    assert sentence in str(raised.value) and str(raised.value).startswith("--input")
    assert len(raised.value.problems) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--input", "x=2x3"], "--input is for a function named without a spec"),
        (["hard.py:Scaled", "--init", "dim=2x3"], "--init dim=2x3: must be a number"),
        (["hard.py:Scaled", "--init", "dim=3"], "--init needs the inputs too"),
        (["hart.py:Scaled"], "no file 'hart.py'"),
        (["hard.py:Square", "--input", "z=a.npy"], "no file 'a.npy'"),
        (["hard.py:Square", "--input", "z=3,", "--reference", "f.py:a"], "no file 'f.py'"),
        (["hard.py"], "check a function in it, as `gradverify check hard.py:Name`"),
    ],
)
def test_what_cannot_be_a_check_is_refused(gradverify, hard, options, sentence):
    code, out, err = gradverify("check", *options)
    assert (code, out) == (2, "") and sentence in err


def test_what_names_a_function(folder):
    targets = ("ops/a.py:F", "pkg.mod:F", "pkg.mod:F.apply", "a.py:F::F", "torch.ops.aten.sin")
    assert all(map(is_target, targets))
    others = ("a.yaml::F", "a.yaml:F", "specs", "a.py", "sin", "torch.ops.aten", "a b:F", "a.py:")
    assert not any(map(is_target, others))
    (folder / "pkg.mod:F").write_text("gradverify: 1\nchecks: []\n")
    assert not is_target("pkg.mod:F")


def test_the_lines_to_keep_hold_what_was_given(gradverify, hard):
    options = ["--input", "z=3,", "--ignore", "GV2", "--seed", "3", "--reference", "torch:square"]
    _, out, _ = gradverify("check", "hard.py:Square", *options)
    assert yaml.safe_load(out[out.index("# to keep") :])["checks"] == [
        {
            "function": "hard.py:Square",
            "inputs": {"z": {"shape": [3]}},
            "reference": "torch:square",
            "seed": 3,
            "rules": {"ignore": ["GV2"]},
        }
    ]
