from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradverify.subject.failure import UserCodeError
from gradverify.subject.target import target

HERE = "subject.targets"


def found(name, init=None, dtype=torch.float64):
    return target(name if ":" in name or "." in name else f"{HERE}:{name}", init, dtype)


def names(seen):
    return None if seen.parameters is None else [parameter.name for parameter in seen.parameters]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Old", ["x", "factor"]),
        ("New", ["x", "factor"]),
        ("Inherits", ["x", "factor"]),
        ("WithVjp", ["x"]),
        ("TakesAll", ["args"]),
        ("OwnApply", ["y"]),
    ],
)
def test_a_function_of_either_style_is_called_through_apply_without_ctx(name, parameters):
    seen = found(name)
    assert (seen.kind, names(seen)) == ("autograd.Function", parameters)
    x = torch.ones(2, requires_grad=True)
    assert (
        seen.call(x, 2.0).grad_fn is not None
        if len(parameters) == 2
        else seen.call(x).grad_fn is not None
    )


@pytest.mark.parametrize("name", ["Old", "New", "WithVjp", "Once"])
def test_the_shown_line_is_that_of_backward(name):
    seen = found(name)
    lines = Path(seen.place.file).read_text(encoding="utf-8").splitlines()
    assert Path(seen.place.file).name == "targets.py"
    assert lines[seen.place.line - 1].strip() == seen.place.source
    assert seen.place.source.startswith(("def backward", "def vjp"))
    assert seen.place.line > next(
        i for i, line in enumerate(lines, 1) if line.startswith(f"class {name}(")
    )


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("decorated", "def decorated(x):"),
        ("brief", "brief = lambda x: x.sin()  # noqa: E731"),
        ("waiting", "async def waiting(x):"),
        ("Decorated", "class Decorated(torch.nn.Module):"),
    ],
)
def test_the_shown_line_is_that_of_the_definition_below_its_decorators(name, source):
    seen = found(name)
    assert seen.place.source == source
    assert (
        Path(seen.place.file).read_text(encoding="utf-8").splitlines()[seen.place.line - 1]
        == source
    )


def test_a_module_class_is_built_from_init_in_double_precision():
    seen = found("Layer", {"width": 3})
    assert seen.kind == "module"
    assert names(seen) == ["x", "scale"]
    assert seen.subject.weight.dtype == torch.float64
    assert seen.subject.weight[0].item() == 1 / 3  # not the float32 number next to it
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Nothing", "the class Nothing"),
        ("NUMBER", "of type int"),
        ("torch.nn.functional", "a Python module"),
    ],
)
def test_what_cannot_be_checked_is_said_in_a_sentence(name, said):
    with pytest.raises(UserCodeError) as caught:
        found(name)
    assert caught.value.code == "GV001"
    assert f"is {said}, not an autograd Function, a callable or a module" in caught.value.message


@pytest.mark.parametrize(
    ("name", "init", "said"),
    [
        ("Layer", {"widht": 3}, "widht"),
        ("Layer", None, "missing 1 required positional argument"),
        ("plain", {"width": 3}, "no torch.nn.Module class"),
        ("LAYER", {"width": 3}, "no torch.nn.Module class"),
    ],
)
def test_an_init_that_does_not_fit_is_refused(name, init, said):
    with pytest.raises(UserCodeError, match=said):
        found(name, init)
    assert torch.get_default_dtype() == torch.float32
