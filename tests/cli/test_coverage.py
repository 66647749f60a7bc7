"""`gradverify coverage`: what counts as a check of a Function, what does not, and the share;
without importing anything."""

import json

import pytest

OPS = """
import torch
from torch.autograd import Function

raise RuntimeError("imported")

class Swish(Function):
    @staticmethod
    def forward(ctx, x, beta):
        return x
    @staticmethod
    def backward(ctx, g):
        return g, g

class Shift(Function):
    @staticmethod
    def forward(ctx, x, index, by: float):
        return x
    @staticmethod
    def backward(ctx, g):
        return g, None, None

swish = Swish.apply

def activation(x):
    return swish(x, 1.0)

def unrelated(x):
    return Swish

class Layer(torch.nn.Module):
    def forward(self, x):
        return self.inner(x)
    def inner(self, x):
        return activation(x)

class Namesake(torch.nn.Module):
    def forward(self, x):
        return self.activation(x)
    def activation(self, x):
        return activation(x)

def make():
    class Hidden(Function):
        @staticmethod
        def forward(ctx, x):
            return x
    return Hidden.apply
"""
HEAD = "gradverify: 1\nchecks:\n"


@pytest.fixture
def told(folder, gradverify):
    """`told(check, …)`: name of the Function → what is said of it, where these are the checks."""
    (folder / "ops.py").write_text(OPS)
    (folder / "specs").mkdir()

    def call(*checks):
        (folder / "specs" / "s.yaml").write_text(
            HEAD.rstrip()
            + ("\n" + "".join(f"  - {check}\n" for check in checks) if checks else " []\n")
        )
        code, out, _ = gradverify("coverage", "ops.py", "--format", "json")
        assert code == 0
        return {
            function["name"].removeprefix("ops."): function
            for function in json.loads(out)["functions"]
        }

    return call


X = "inputs: {x: {shape: [2]}, beta: {shape: []}}"


@pytest.mark.parametrize(
    ("check", "direct"),
    [
        (f"{{function: 'ops:Swish', {X}}}", True),
        (f"{{function: ops.Swish, {X}}}", True),
        (f"{{function: '../ops.py:Swish', {X}}}", True),
        (f"{{function: 'ops:swish', {X}}}", True),
        (f"{{function: 'ops:Swish.apply', {X}}}", True),
        ("{function: 'ops:activation', inputs: {x: {shape: [2]}}}", False),
        ("{function: 'ops:Layer', inputs: {x: {shape: [2]}}}", False),
        ("{function: 'ops:Namesake', inputs: {x: {shape: [2]}}}", False),
    ],
)
def test_what_counts_as_a_check(told, check, direct):
    swish = told(f"{check[:-1]}, name: c}}")["Swish"]
    assert (swish["checks"], swish["through"]) == (
        (["specs/s.yaml::c"], []) if direct else ([], ["specs/s.yaml::c"])
    )


@pytest.mark.parametrize(
    "check",
    [
        "{function: 'ops:Shift', inputs: {x: {shape: [2]}, index: {shape: [2]}, by: 1.0}}",
        "{function: 'ops:unrelated', inputs: {x: {shape: [2]}}}",
        "{function: 'other:Swish', inputs: {x: {shape: [2]}}}",
        f"{{function: 'ops:Swish', skip: not yet, {X}}}",
    ],
)
def test_what_counts_as_none(told, check):
    swish = told(check)["Swish"]
    assert swish["checks"] == swish["through"] == []


def test_a_function_that_no_spec_can_name_is_counted_and_said(told):
    hidden = told()["make.<locals>.Hidden"]
    assert hidden["checks"] == [] and "defined inside make" in hidden["note"]
    assert told("{function: 'ops:make', inputs: []}")["make.<locals>.Hidden"]["through"] == [
        "specs/s.yaml::make"
    ]


def test_the_table_the_share_and_the_gate(told, gradverify):
    told(f"{{function: 'ops:Swish', {X}}}")
    code, out, _ = gradverify("coverage", "ops.py")
    assert code == 0 and out.splitlines()[-1] == "1 of 3 autograd Functions has a check (33.3 %)"
    assert "ops.Shift\tops.py:20\tnothing" in out
    assert gradverify("coverage", "ops.py", "--fail-under", "33")[0] == 0
    code, out, _ = gradverify("coverage", "ops.py", "--fail-under", "34")
    assert code == 1 and out.endswith("less than 34 %\n")


def test_without_functions_it_is_5_and_without_specs_nothing_is_checked(folder, gradverify):
    (folder / "plain.py").write_text("x = 1\n")
    code, out, _ = gradverify("coverage", "plain.py")
    assert (code, out) == (5, "no autograd Function was found\n")
    (folder / "ops.py").write_text(OPS)
    code, out, err = gradverify("coverage", "ops.py", "--fail-under", "1")
    assert code == 1 and "0 of 3" in out and "no specs" in err


def test_an_importable_package_is_found_without_importing_it(folder, gradverify):
    (folder / "pkg" / "sub").mkdir(parents=True)
    for part in ("pkg", "pkg/sub"):
        (folder / part / "__init__.py").write_text("raise RuntimeError\n")
    (folder / "pkg" / "sub" / "ops.py").write_text(OPS)
    for name in ("pkg", "pkg.sub", "pkg.sub.ops", "pkg/sub"):
        assert (
            json.loads(gradverify("coverage", name, "--format", "json")[1])["functions"][0]["name"]
            == "pkg.sub.ops.Swish"
        )


def test_a_check_leads_through_a_callable_of_another_folder_to_an_installed_function(
    folder, gradverify, monkeypatch
):
    """The spec and its callable lie beside each other, the Functions in site-packages."""
    installed = folder / "env" / "site-packages"
    (installed / "pkg").mkdir(parents=True)
    (installed / "pkg" / "__init__.py").write_text("")
    (installed / "pkg" / "ops.py").write_text(OPS)
    (folder / "specs").mkdir()
    (folder / "specs" / "composed.py").write_text(
        "from pkg.ops import Swish\n\ndef twice(x):\n    return Swish.apply(x, 2.0)\n"
    )
    (folder / "specs" / "ops.yaml").write_text(
        HEAD + "  - {function: composed:twice, inputs: {x: {shape: [2]}}}\n"
    )
    monkeypatch.syspath_prepend(str(installed))
    told = json.loads(
        gradverify("coverage", "pkg", "--specs", "specs/ops.yaml", "--format", "json")[1]
    )["functions"]
    assert {each["name"]: bool(each["through"]) for each in told if "make" not in each["name"]} == {
        "pkg.ops.Swish": True,
        "pkg.ops.Shift": False,
    }
