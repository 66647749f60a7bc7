"""`--save-failures`: the scripts show the wrong element of each wrong pair with torch alone, at exactly the inputs of the check.

The class of faults: a script that does not run where its check did (another target, other arguments, other bits), or that shows another element.
Truth: the factor by which each backward is wrong is known, and the element is in the JSON report.
"""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from gallery.twins import GALLERY

OPS = '''
import dataclasses
from collections import namedtuple

import torch


class Half(torch.autograd.Function):
    """2 x, whose backward says 3."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * grad_output


class Unconjugated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


class Scaled(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(n))
        self.register_buffer("offset", torch.rand(n))

    def forward(self, x, *, gain=1.0):
        return Half.apply((x + self.offset) * self.weight * gain)


State = namedtuple("State", "h c")


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor


def right(x):
    return x.sin()


def keywords(x, *, mask, state, k=1, limits=(0, float("inf"))):
    return (Half.apply(x * mask * k) + state[0] * state[1]).clamp(max=limits[1])


def draws(seed, dtype, device):
    a, b, c = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return {"x": a, "state": State(b, {"inner": c})}


def contained(x, state):
    return {"out": Pair(x.exp(), Half.apply(x + state.h) * state.c["inner"])}


def noisy(x):
    return Half.apply(torch.nn.functional.dropout(x, 0.5))


def draws_an_object(seed, dtype, device):
    return [torch.randn(3, dtype=dtype), lambda: 0]


def with_an_object(x, thing):
    return Half.apply(x)


def linear_in_two(x, y):
    return Half.apply(x) + 3 * y
'''

SPEC = """gradverify: 1
checks:
  - {name: "a/../b <|> ] [red] :x: \\"q\\" σ", function: "ops.py:Half", inputs: {x: {values: [0.1, 0.30000000000000004, -7.0e-3]}}}
  - {name: single, function: "ops:Half", dtype: float32, inputs: {x: {values: [0.1, 0.7]}}}
  - {name: complex, function: "ops:Unconjugated", dtype: complex128, inputs: {x: {shape: [2]}}}
  - {name: module, function: "ops:Scaled", init: {n: 3}, kwargs: {gain: 2.0}, inputs: {x: {shape: [2, 3]}}}
  - {name: keywords, function: "ops.keywords", inputs: {x: {shape: [3]}},
     kwargs: {mask: {shape: [3]}, state: [{shape: [3]}, {shape: [3]}], limits: [0, .inf]}}
  - {name: contained, function: "ops.py:contained", inputs_from: "ops.py:draws"}
  - {name: transposed, function: "ops:Half", inputs: {x: {shape: [2, 3], layout: transposed}}}
  - {name: noisy, function: "ops:noisy", inputs: {x: {shape: [8]}}, seed: 5}
  - {name: scalar, function: "ops:Half", inputs: {x: {values: 0.5}}}
  - {name: namesake, function: "own/random.py:Half", inputs: {x: {shape: [2]}}}
  - {name: two, function: "ops:linear_in_two", inputs: {x: {shape: [2]}, y: {shape: [2]}}}
  - {name: object, function: "ops:with_an_object", inputs_from: "ops:draws_an_object"}
  - {name: fickle, function: "decays_every_twentieth_call.py:Faulty", inputs: {x: {shape: [2, 3]}}}
  - {name: right, function: "ops:right", inputs: {x: {shape: [3]}}}
  - {name: expected, function: "ops:Half", inputs: {x: {shape: [3]}}, expect: fail}
"""
LINE = re.compile(r"(?P<element>d .* / d .*): backward (?P<backward>\S+), finite difference (?P<numeric>\S+)")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(folder, the run as a process, its JSON report, what each script prints in another process and folder)."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "ops.py").write_text(OPS)
    (folder / "own").mkdir()
    (folder / "own" / "random.py").write_text(OPS)
    shutil.copy(GALLERY / "decays_every_twentieth_call.py", folder)
    (folder / "s.yaml").write_text(SPEC)
    arguments = ["check", "s.yaml", "--save-failures", "out/deep", "--report", "json:r.json", "--format", "plain",
                 "--width", "200"]
    run = subprocess.run([sys.executable, "-m", "gradverify", *arguments], cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    scripts = sorted((folder / "out/deep").glob("*.py"))
    play = "import runpy, sys\nfor path in sys.argv[1:]:\n    print(path)\n    runpy.run_path(path, run_name='__main__')"
    shown = subprocess.run([sys.executable, "-c", play, *map(str, scripts)], cwd="/", capture_output=True, text=True, timeout=200, check=False)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    return folder, run, json.loads((folder / "r.json").read_text()), dict(zip(lines[::2], lines[1::2], strict=True))


def check_of(report, name):
    return next(check for check in report["checks"] if check["name"] == name)


def printed(ran, name):
    """What the scripts of one check print, parsed."""
    folder, _, report, lines = ran
    return [LINE.fullmatch(lines[str(folder / script)]) for script in check_of(report, name)["saved"]]


@pytest.mark.parametrize(("name", "pairs", "factor"), [
    ('a/../b <|> ] [red] :x: "q" σ', 1, 1.5), ("single", 1, 1.5), ("complex", 1, -1.0), ("module", 2, 1.5), ("keywords", 2, 1.5),
    ("contained", 2, 1.5), ("transposed", 1, 1.5), ("noisy", 1, 1.5), ("scalar", 1, 1.5), ("namesake", 1, 1.5), ("two", 1, 1.5)])
def test_each_wrong_pair_has_a_script_that_shows_its_worst_element(ran, name, pairs, factor):
    shown = printed(ran, name)
    wrong = [each for each in check_of(ran[2], name)["comparisons"] if each["rule"] in ("GV101", "GV111") and each["mismatched"]]
    assert len(shown) == len(wrong) == pairs
    for line, comparison in zip(shown, wrong, strict=True):
        worst, tolerance = comparison["worst"][0], 1e-2 if name == "single" else 1e-4
        backward, numeric = float(line["backward"]), float(line["numeric"])
        assert backward == pytest.approx(worst["analytic"], rel=1e-6) and numeric == pytest.approx(worst["numeric"], rel=tolerance)
        assert backward / numeric == pytest.approx(factor, rel=tolerance)
        assert line["element"].startswith(f"d {comparison['output_name']}") and f" / d {comparison['input']}" in line["element"]


@pytest.mark.parametrize(("name", "values", "dtype"), [
    ('a/../b <|> ] [red] :x: "q" σ', [0.1, 0.30000000000000004, -7.0e-3], np.float64), ("single", [0.1, 0.7], np.float32)])
def test_the_inputs_are_kept_bit_by_bit(ran, name, values, dtype):
    folder, _, report, _ = ran
    [script] = check_of(report, name)["saved"]
    kept = np.load(folder / f"{script.rpartition('--')[0]}.npz")
    assert kept["x"].dtype == dtype and kept["x"].tobytes() == np.array(values, dtype).tobytes()
    assert kept["seed"] == 0 and np.count_nonzero(kept["cotangent0"]) == 1


def test_file_names_are_safe_and_a_script_needs_nothing_of_gradverify(ran):
    folder, _, report, _ = ran
    files = sorted((folder / "out/deep").iterdir())
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(py|npz)", file.name) for file in files)
    assert all("gradverify" not in line for file in files if file.suffix == ".py" for line in file.read_text().splitlines()[1:])
    assert len([file for file in files if file.suffix == ".npz"]) == len([check for check in report["checks"] if check["saved"]])


def test_the_panel_names_the_scripts_and_says_where_there_is_none(ran):
    _, run, report, _ = ran
    assert f"without gradverify: python {check_of(report, 'scalar')['saved'][0]}" in run.stdout
    assert "no script was written: " in run.stdout and "lambda" in run.stdout


def test_a_backward_that_is_wrong_now_and_then_has_no_script_that_would_show_it_right(ran):
    check = check_of(ran[2], "fickle")
    assert check["saved"] == [] and check["unsaved"] == "the function gives other values when it is called again, as a script would"


def test_nothing_is_saved_of_what_is_right_or_expected(ran):
    for name in ("right", "expected"):
        assert check_of(ran[2], name)["saved"] == [] and check_of(ran[2], name)["unsaved"] is None
