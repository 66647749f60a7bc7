import json

import pytest

from gradverify.cli.explain import halves, names_a_check
from gradverify.model.codec import from_json
from gradverify.model.element import Element

SPEC = """gradverify: 1
checks:
  - {name: cube, function: ops.py:cube, inputs: {x: {values: [[1.0, 2.0], [3.0, -1.0]]}}}
  - {name: kink, function: "torch.nn.functional:relu", inputs: {input: {values: [-1.0, 0.0, 2.0]}}}
  - {name: many, function: ops.py:cube, matrix: {n: [1, 2]}, inputs: {x: {shape: ["$n"]}}}
  - {name: symmetric, function: "torch.linalg:eigvalsh", inputs: {A: {shape: [3, 3], symmetric: true}}}
  - {name: raises, function: ops.py:raises, inputs: {x: {shape: [2]}}}
  - {name: backward raises, function: ops.py:Refuses, inputs: {x: {shape: [2]}}}
  - {name: later, function: ops.py:cube, skip: not yet, inputs: {x: {shape: [2]}}}
  - {name: steps, function: ops.py:cube, eps: 0.1, inputs: {x: {values: [1.0]}}}
  - {name: prints, function: ops.py:prints, inputs: {x: {values: [1.0]}}}
"""
OPS = """
import torch

def cube(x):
    return x ** 3

def raises(x):
    raise ValueError("no such thing")

def prints(x):
    print("from forward")
    return x * 2

class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("not today")
"""


@pytest.fixture
def specs(folder):
    (folder / "s.yaml").write_text(SPEC)
    (folder / "ops.py").write_text(OPS)
    return folder


def test_an_element_is_shown_with_its_numbers(gradverify, specs):
    code, out, err = gradverify("explain", "s.yaml::cube", "--element", "x[0,1]:y[0,1]")
    assert (code, err) == (0, "")
    assert out.startswith(
        "PASS  cube  x[0,1] : y0[0,1]\nops.py:cube on cpu, float64, from s.yaml:3\nright: within "
        "1.2e-05 of"
    )
    for line in ("x: x[0,1]   2", "f: y0[0,1]  8"):
        assert line in out.splitlines()
    # (x+h)³ − (x−h)³ = 2h (3x² + h²)
    assert "analytic    12, by backward" in out and "truncation  about 1 * step^2.00" in out


def test_an_element_may_be_named_as_a_report_names_it(gradverify, specs):
    out = gradverify("explain", "s.yaml::cube", "--element", "y0[0,1] / x[0,1]")[1]
    assert out == gradverify("explain", "s.yaml::cube", "--element", "x[0,1]:y[0,1]")[1]


def test_json_is_the_same_evidence(gradverify, specs):
    code, out, err = gradverify(
        "explain", "s.yaml::cube", "--element", "x[0,1]:y[0,1]", "--format", "json"
    )
    found = from_json(Element, json.loads(out))
    assert (code, err, found.id) == (0, "", "s.yaml::cube") and abs(
        found.measured.numeric - 12.0
    ) <= found.measured.bar
    assert found.function.target == "ops.py:cube"


def test_without_an_element_the_worst_is_shown(gradverify, specs):
    code, out, _ = gradverify("explain", "s.yaml::kink")
    assert code == 0 and out.startswith("KINK  kink  input[1] : y0[1]\n")
    assert (
        "slope 0 on the left and 1 on the right: 0 lies between them" in out
        and "this is the worst of the check" in out
    )


def test_a_spec_with_one_check_needs_no_name(gradverify, specs):
    (specs / "t.yaml").write_text(
        "gradverify: 1\nchecks: [{function: ops.py:cube, inputs: {x: {values: [1.0]}}}]\n"
    )
    assert gradverify("explain", "t.yaml")[1].startswith("PASS  cube")


def test_the_width_is_kept_and_colour_only_comes_when_asked(gradverify, specs):
    narrow = gradverify("explain", "s.yaml::kink", "--width", "80")[1]
    assert max(map(len, narrow.splitlines())) <= 80 and "\x1b" not in narrow
    assert "\x1b[" in gradverify("explain", "s.yaml::kink", "--color", "always")[1]


def test_a_pipe_that_takes_ascii_alone_gets_ascii_without_what_the_users_code_prints(
    process, specs
):
    done = process("explain", "s.yaml::prints", env={"PYTHONIOENCODING": "ascii"})
    assert (
        done.returncode == 0
        and done.stdout.isascii()
        and "?" not in done.stdout
        and "from forward" not in done.stdout
    )


def test_options_go_over_those_of_the_spec(gradverify, specs):
    found = json.loads(gradverify("explain", "s.yaml::steps", "--format", "json")[1])["measured"]
    assert found["fixed"]["outcome"] == "mismatch" and found["fixed"]["quotient"] == pytest.approx(
        3.01
    )
    found = json.loads(
        gradverify(
            "explain", "s.yaml::steps", "--format", "json", "--eps", "auto", "--rtol", "0.5"
        )[1]
    )["measured"]
    assert found["fixed"] is None and found["tolerance"]["rtol"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("s.yaml::many",),
            "s.yaml::many names 2 checks; name one: s.yaml::many[n=1], s.yaml::many[n=2]\n",
        ),
        (
            ("s.yaml::cube", "--element", "X[0,0]:y[0,0]"),
            "--element: no input 'X'; did you mean 'x'?\n",
        ),
        (("s.yaml::cube", "--element", "x[0,0]:z[0,0]"), "--element: no output 'z'; outputs: y0\n"),
        (
            ("s.yaml::cube", "--element", "x[2,0]:y[0,0]"),
            "--element: x[2,0] is no element: x has shape [2, 2], from x[0,0] to x[1,1]\n",
        ),
        (
            ("s.yaml::symmetric", "--element", "A[2,1]:y[0]"),
            "--element: A is `symmetric`: A[2,1] moves together with A[1,2]; ask for that one\n",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_refused_in_one_sentence(gradverify, specs, arguments, said):
    assert gradverify("explain", *arguments) == (2, "", said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "s.yaml::raises could not be run: forward raised ValueError: no such thing"),
        (
            "backward raises",
            "s.yaml::backward raises could not be run: backward raised ValueError: not today",
        ),
        ("later", "s.yaml::later could not be run: not yet"),
    ],
)
def test_what_cannot_be_run_exits_with_3_and_shows_the_users_lines(gradverify, specs, name, said):
    code, out, err = gradverify("explain", f"s.yaml::{name}")
    assert (code, out) == (3, "") and err.startswith(said)
    assert ("ops.py:" in err) == ("raises" in name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:y", ("x", "y")),
        ("w[3,1]:y[0]", ("w[3,1]", "y[0]")),
        ("z[2].imag : y1[0].real", ("z[2].imag", "y1[0].real")),
        ("y0[0,2] / w[3,1]", ("w[3,1]", "y0[0,2]")),
    ],
)
def test_the_two_halves_of_an_element(text, expected):
    assert halves(text) == expected


@pytest.mark.parametrize(
    ("text", "is_check"),
    [
        ("GV101", False),
        ("gv201", False),
        ("relu", False),
        ("s.yaml::a", True),
        ("s.yaml", True),
        ("a/b", True),
        ("::a", True),
        ("vmap", False),
        ("./vmap", True),
        ("swish", True),
    ],
)
def test_a_code_or_a_name_is_told_from_a_check(folder, text, is_check):
    (folder / "vmap").mkdir()
    (folder / "swish").touch()
    assert names_a_check(text) is is_check


@pytest.mark.parametrize(
    "text",
    [
        "backward-linear",
        "Backward-Linear",
        "backward_linear",
        "GV201-backward-linear",
        "gv201_backward_linear",
        "gv201",
    ],
)
def test_a_rule_has_its_page_by_name_too(gradverify, folder, text):
    assert gradverify("explain", text) == gradverify("explain", "GV201")


def test_without_a_rule_all_are_listed(gradverify, folder):
    from gradverify.rules.catalogue import rules

    code, out, _ = gradverify("explain")
    assert code == 0 and [line.split("\t") for line in out.splitlines()] == [
        [rule.code, rule.name, rule.severity, rule.message] for rule in rules()
    ]
    boxed = gradverify("explain", "--color", "always", "--width", "80")[1]
    assert all(rule.code in boxed and rule.name in boxed for rule in rules())
    assert gradverify("explain", "--eps", "1e-6") == (
        2,
        "",
        "--eps is for a check (PATH::NAME); name one\n",
    )
