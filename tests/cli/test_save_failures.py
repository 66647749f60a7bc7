"""`--save-failures`: a file of torch holds what the function got, to the bit, and the worst element of each wrong pair.

Truth: called with what lies there, the function gives the wrong gradient that the JSON report says, and a central difference shows the right one.
"""

import importlib.util
import json
import re
import subprocess
import sys

import pytest
import torch
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

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
  - {name: contained, function: "ops:contained", inputs_from: "ops:draws"}
  - {name: transposed, function: "ops:Half", inputs: {x: {shape: [2, 3], layout: transposed}}}
  - {name: noisy, function: "ops:noisy", inputs: {x: {shape: [8]}}, seed: 5}
  - {name: scalar, function: "ops:Half", inputs: {x: {values: 0.5}}}
  - {name: two, function: "ops:linear_in_two", inputs: {x: {shape: [2]}, y: {shape: [2]}}}
  - {name: object, function: "ops:with_an_object", inputs_from: "ops:draws_an_object"}
  - {name: right, function: "ops:right", inputs: {x: {shape: [3]}}}
  - {name: expected, function: "ops:Half", inputs: {x: {shape: [3]}}, expect: fail}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(folder, the run as a process, its JSON report, the module of the functions)."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "ops.py").write_text(OPS)
    (folder / "s.yaml").write_text(SPEC)
    arguments = ["check", "s.yaml", "--save-failures", "out/deep", "--report", "json:r.json", "--format", "plain", "--width", "200"]
    run = subprocess.run([sys.executable, "-m", "gradverify", *arguments], cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    spec = importlib.util.spec_from_file_location("ops", folder / "ops.py")
    sys.modules["ops"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield folder, run, json.loads((folder / "r.json").read_text()), module
    del sys.modules["ops"]


def check_of(report, name):
    return next(check for check in report["checks"] if check["name"] == name)


def loaded(ran, name):
    [path] = check_of(ran[2], name)["saved"]
    return torch.load(ran[0] / path, weights_only=False)


def called(found, module):
    """The output leaves of the function, called with what was saved."""
    function = getattr(module, found["function"].rpartition(":")[2].rpartition(".")[2])
    torch.manual_seed(found["seed"])
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        y = functional_call(function(**found["init"]).double(), found["state"], tuple(found["args"]), found["kwargs"])
    else:
        y = getattr(function, "apply", function)(*found["args"], **found["kwargs"])
    return [leaf for each in tree_leaves(y) for leaf in (vars(each).values() if hasattr(each, "__dataclass_fields__") else [each])]


def tensor_of(found, path):
    """The input of that path."""
    x = {"x": found["args"] and found["args"][0], "y": found["args"][-1:] and found["args"][-1], **found["kwargs"], **found["state"]}
    if len(found["args"]) > 1 and hasattr(found["args"][1], "h"):
        x |= {"state.h": found["args"][1].h}
    return x[path]


@pytest.mark.parametrize(("name", "pairs", "factor"), [
    ('a/../b <|> ] [red] :x: "q" σ', 1, 1.5), ("single", 1, 1.5), ("complex", 1, -1.0), ("module", 2, 1.5), ("keywords", 2, 1.5),
    ("contained", 2, 1.5), ("transposed", 1, 1.5), ("noisy", 1, 1.5), ("scalar", 1, 1.5), ("two", 1, 1.5)])
def test_the_worst_element_of_each_wrong_pair_shows_again(ran, name, pairs, factor):
    found = loaded(ran, name)
    assert len(found["wrong"]) == pairs
    for each in found["wrong"]:
        x = tensor_of(found, each["input"])
        at = tuple(each["input_index"])
        gradient, = torch.autograd.grad(called(found, ran[3])[each["output"]], x, each["cotangent"])
        backward = gradient[at].imag if each["input_part"] == "im" else torch.real(gradient[at])
        assert float(backward) == pytest.approx(each["analytic"], rel=1e-6)
        step, y = 1e-2 if name == "single" else 1e-5, []
        for h in (step, -2 * step):
            with torch.no_grad():
                x[at] += h * (1j if each["input_part"] == "im" else 1)
                y.append(called(found, ran[3])[each["output"]])
        with torch.no_grad():
            x[at] += step * (1j if each["input_part"] == "im" else 1)
        numeric = float(((y[0] - y[1]) * each["cotangent"].conj()).real.sum()) / (2 * step)
        assert float(backward) / numeric == pytest.approx(factor, rel=1e-2 if name == "single" else 1e-4)


@pytest.mark.parametrize(("name", "values", "dtype"), [
    ('a/../b <|> ] [red] :x: "q" σ', [0.1, 0.30000000000000004, -7.0e-3], torch.float64), ("single", [0.1, 0.7], torch.float32)])
def test_the_inputs_are_kept_bit_by_bit(ran, name, values, dtype):
    found = loaded(ran, name)
    assert torch.equal(found["args"][0], torch.tensor(values, dtype=dtype)) and found["args"][0].dtype == dtype
    assert found["seed"] == 0 and torch.count_nonzero(found["wrong"][0]["cotangent"]) == 1


def test_the_layout_is_that_of_the_check(ran):
    assert loaded(ran, "transposed")["args"][0].stride() == (1, 2)


def test_file_names_are_safe(ran):
    folder, _, report, _ = ran
    files = sorted((folder / "out/deep").iterdir())
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.pt", file.name) for file in files)
    assert len(files) == len([check for check in report["checks"] if check["saved"]])


def test_the_panel_names_the_file_and_says_where_there_is_none(ran):
    _, run, report, _ = ran
    assert f"its inputs: {check_of(report, 'scalar')['saved'][0]}" in run.stdout
    assert "no file was written: " in run.stdout and "lambda" in run.stdout


def test_nothing_is_saved_of_what_is_right_or_expected(ran):
    for name in ("right", "expected"):
        assert check_of(ran[2], name)["saved"] == [] and check_of(ran[2], name)["unsaved"] is None
