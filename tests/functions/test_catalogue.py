"""The catalogue tells without torch what the code is: every entry is compared with the code
itself."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
from torch import nn

from gradverify.functions.catalogue import BUILTINS, Builtin

SEED_SIGNATURES = {
    "linear": "input weight bias",
    "mul_add_sum": "x y z",
    "kill_head": "input n",
    "abs_mul": "u v",
    "add": "x y",
    "mul": "x y",
    "relu": "input",
    "sigmoid": "input",
    "mm": "x w",
    "affine": "x w b",
    "softmax": "input dim",
    "cross_entropy": "input target",
    "square_of_sum": "x y",
    "shop": "apple n1 tangerine n2 tax",
    "Linear": "input weight bias",
}


def load(builtin: Builtin) -> object:
    return getattr(importlib.import_module(builtin.module), builtin.attribute)


def signature(target: object) -> list[inspect.Parameter]:
    """The parameters that a call of the Function, callable or module takes."""
    forward = target.forward if isinstance(target, type) else target
    parameters = list(inspect.signature(forward).parameters.values())
    return [parameter for parameter in parameters if parameter.name not in ("ctx", "self")]


def test_the_catalogue_lists_every_seed_function_and_nothing_else():
    assert {
        name: " ".join(builtin.parameters) for name, builtin in BUILTINS.items()
    } == SEED_SIGNATURES


@pytest.mark.parametrize("builtin", BUILTINS.values(), ids=BUILTINS)
def test_the_parameters_are_those_of_the_code(builtin):
    target = load(builtin)
    parameters = signature(target)
    names = [parameter.name for parameter in parameters]
    if isinstance(target, type) and issubclass(target, nn.Module):
        names += [name for name, _ in target(in_features=3, out_features=2).named_parameters()]
    assert tuple(names) == builtin.parameters
    assert (
        sum(parameter.default is inspect.Parameter.empty for parameter in parameters)
        == builtin.required
    )


@pytest.mark.parametrize("builtin", BUILTINS.values(), ids=BUILTINS)
def test_every_summary_is_one_short_line(builtin):
    assert 0 < len(builtin.summary) <= 80 and "\n" not in builtin.summary


def test_the_catalogue_imports_no_torch():
    script = (
        "import sys, gradverify.functions.catalogue; print(sorted({'torch', 'numpy'} & "
        "set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"
