from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradverify.subject.failure import UserCodeError
from gradverify.subject.target import callable_target, target
from subject import targets

HERE = "subject.targets"


def found(name, init=None, dtype=torch.float64):
    return target(name if ":" in name or "." in name else f"{HERE}:{name}", init, dtype)


def names(seen):
    return None if seen.parameters is None else [parameter.name for parameter in seen.parameters]


@pytest.mark.parametrize(("name", "parameters"), [("Old", ["x", "factor"]), ("New", ["x", "factor"]), ("Inherits", ["x", "factor"]),
                                                  ("WithVjp", ["x"]), ("TakesAll", ["args"]), ("OwnApply", ["y"])])
def test_a_function_of_either_style_is_called_through_apply_without_ctx(name, parameters):
    seen = found(name)
    assert (seen.kind, names(seen)) == ("autograd.Function", parameters)
    x = torch.ones(2, requires_grad=True)
    assert seen.call(x, 2.0).grad_fn is not None if len(parameters) == 2 else seen.call(x).grad_fn is not None


def test_the_apply_of_a_function_under_another_name_is_that_function(monkeypatch):
    monkeypatch.setattr(targets, "old", targets.Old.apply, raising=False)
    alias, itself = found("old"), found("Old")
    assert (alias.kind, alias.file, alias.line, names(alias)) == (itself.kind, itself.file, itself.line, names(itself))


@pytest.mark.parametrize("name", ["Old", "New", "WithVjp", "Once"])
def test_the_shown_line_is_that_of_backward(name):
    seen = found(name)
    lines = Path(seen.file).read_text(encoding="utf-8").splitlines()
    assert Path(seen.file).name == "targets.py"
    assert lines[seen.line - 1].strip() == seen.source
    assert seen.source.startswith(("def backward", "def vjp"))
    assert seen.line > next(i for i, line in enumerate(lines, 1) if line.startswith(f"class {name}("))


@pytest.mark.parametrize(("name", "source"), [("decorated", "def decorated(x):"), ("brief", "brief = lambda x: x.sin()  # noqa: E731"),
                                              ("waiting", "async def waiting(x):"), ("Decorated", "class Decorated(torch.nn.Module):")])
def test_the_shown_line_is_that_of_the_definition_below_its_decorators(name, source):
    seen = found(name)
    assert seen.source == source
    assert Path(seen.file).read_text(encoding="utf-8").splitlines()[seen.line - 1] == source


def test_an_inherited_backward_is_shown_where_it_stands():
    assert found("Inherits").line == found("Old").line


@pytest.mark.parametrize(("name", "parameters"), [("plain", ["x", "y", "scale", "shift"]), ("instance", ["x", "y"]), ("many", ["tensors"])])
def test_a_callable_has_the_parameters_of_its_signature(name, parameters):
    seen = found(name)
    assert (seen.kind, names(seen)) == ("callable", parameters)


@pytest.mark.parametrize("name", ["torch.sin", "torch:add", "torch.nn.functional:conv1d", f"{HERE}:partial"])
def test_a_builtin_without_a_signature_is_callable_all_the_same(name):
    seen = found(name)
    assert (seen.kind, seen.parameters) == ("callable", None)


def test_a_module_class_is_built_from_init_in_double_precision():
    seen = found("Layer", {"width": 3})
    assert seen.kind == "module"
    assert names(seen) == ["x", "scale"]
    assert seen.subject.weight.dtype == torch.float64
    assert seen.subject.weight[0].item() == 1 / 3       # not the float32 number next to it
    assert torch.get_default_dtype() == torch.float32


def test_a_module_instance_is_left_as_it_is():
    seen = found("LAYER")
    seen.subject.to(torch.float64)
    assert targets.LAYER.weight.dtype == torch.float32
    assert seen.kind == "module"


@pytest.mark.parametrize(("name", "said"), [("Nothing", "the class Nothing"), ("NUMBER", "of type int"), ("torch.nn.functional", "a Python module")])
def test_what_cannot_be_checked_is_said_in_a_sentence(name, said):
    with pytest.raises(UserCodeError) as caught:
        found(name)
    assert caught.value.code == "GV001"
    assert f"is {said}, not an autograd Function, a callable or a module" in caught.value.message


def test_a_python_module_names_the_functions_in_it():
    with pytest.raises(UserCodeError) as caught:
        target(HERE, None, torch.float64)
    assert "Old" in (caught.value.hint or "")


@pytest.mark.parametrize(("name", "init", "said"), [
    ("Layer", {"widht": 3}, "widht"),
    ("Layer", None, "missing 1 required positional argument"),
    ("plain", {"width": 3}, "no torch.nn.Module class"),
    ("LAYER", {"width": 3}, "no torch.nn.Module class"),
])
def test_an_init_that_does_not_fit_is_refused(name, init, said):
    with pytest.raises(UserCodeError, match=said):
        found(name, init)
    assert torch.get_default_dtype() == torch.float32


def test_a_builtin_is_found_by_its_short_name():
    seen = target("linear", None, torch.float64)
    assert (seen.kind, names(seen)) == ("autograd.Function", ["input", "weight", "bias"])


def test_an_oracle_may_be_a_function_class_and_may_be_no_number():
    assert callable_target(f"{HERE}:Old", "reference")(torch.ones(1), 2.0).item() == 2
    with pytest.raises(UserCodeError, match="NUMBER is of type int"):
        callable_target(f"{HERE}:NUMBER", "reference")
