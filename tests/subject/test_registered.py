from __future__ import annotations

import pytest
import torch
from live import case, codes, plain, tensor
from torch import Tensor

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.subject.failure import UserCodeError
from gradverify.subject.find import find
from gradverify.subject.prepare import prepare
from gradverify.verify import verify


@torch.library.custom_op("gradverify_tests::cube", mutates_args=())
def cube(x: Tensor, scale: float) -> Tensor:
    return scale * x**3


@torch.library.custom_op("gradverify_tests::wrong_cube", mutates_args=())
def wrong_cube(x: Tensor, scale: float) -> Tensor:
    return scale * x**3


def remember(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


cube.register_autograd(
    lambda ctx, g: (3 * ctx.scale * g * ctx.saved_tensors[0] ** 2, None), setup_context=remember
)
wrong_cube.register_autograd(
    lambda ctx, g: (2 * ctx.scale * g * ctx.saved_tensors[0] ** 2, None), setup_context=remember
)


@pytest.mark.parametrize(
    "name", ["torch.ops.gradverify_tests.cube", "torch.ops.gradverify_tests.cube.default"]
)
def test_an_operator_is_found_and_its_parameters_are_named_by_its_schema(name):
    subject = prepare(case(name, [tensor(3, name="x"), plain(2.0, "scale")]))
    assert (subject.target.kind, [argument.name for argument in subject.arguments]) == (
        "operator",
        ["x", "scale"],
    )
    assert torch.equal(subject.called(subject.inputs).outputs[0], 2.0 * subject.inputs[0] ** 3)
    assert verify(subject).verdict == "pass"
    with pytest.raises(UserCodeError, match="there is no parameter 'y'"):
        prepare(case(name, [tensor(3, name="y"), plain(2.0, "scale")]))


def test_a_wrong_one_is_caught():
    assert codes(
        verify(
            prepare(
                case(
                    "torch.ops.gradverify_tests.wrong_cube",
                    [tensor(3, name="x"), plain(2.0, "scale")],
                )
            )
        )
    ) == {"GV101"}


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("torch.ops.gradverify_tests.cubes", "no operator 'cubes'", "did you mean 'cube'"),
        ("torch.ops.gradverify_none.cube", "no operator 'cube'", "`import:`"),
        ("torch.ops.gradverify_test.cube", "no operator 'cube'", "gradverify_tests"),
        ("torch.ops.aten.mul.Tensors", "no overload 'Tensors'", "Tensor, Scalar"),
    ],
)
def test_a_misspelt_one_is_told_with_its_neighbours(name, said, hint):
    with pytest.raises(UserCodeError, match=said) as caught:
        find(name, "function")
    assert caught.value.code == "GV001" and hint in caught.value.hint


@pytest.mark.parametrize("name", ["torch.ops.aten.mul.out", "torch.ops.aten.sort.values"])
def test_an_overload_that_writes_into_an_argument_has_no_gradient(name):
    with pytest.raises(UserCodeError, match="writes its result into an argument") as caught:
        find(name, "function")
    assert (
        caught.value.code == "GV001"
        and ("Tensor, Scalar" if "mul" in name else "default") in caught.value.hint
    )


@pytest.fixture(scope="module")
def library():
    defined = torch.library.Library("gradverify_forms", "DEF")
    defined.define(
        "power(Tensor x, int n=2, float scale=1.5, bool flip=False, str mode='up', *, int by=1) -> "
        "Tensor"
    )
    defined.impl(
        "power",
        lambda x, n=2, scale=1.5, flip=False, mode="up", by=1: (
            scale * by * x**n * (-1 if flip else 1) * (1 if mode == "up" else 3)
        ),
        "CompositeImplicitAutograd",
    )
    defined.define("gate(Tensor x, Tensor? weight=None, Tensor? bias=None) -> Tensor")
    defined.impl(
        "gate",
        lambda x, weight=None, bias=None: (
            x.sin() * (1 if weight is None else weight) + (0 if bias is None else bias)
        ),
        "CompositeImplicitAutograd",
    )
    defined.define("join(Tensor[] xs, int dim=0) -> (Tensor, Tensor)")
    defined.impl(
        "join",
        lambda xs, dim=0: (torch.cat(xs, dim).sin(), xs[0].cos()),
        "CompositeImplicitAutograd",
    )
    defined.define("scale(Tensor x, float by) -> Tensor")
    defined.define("scale.out(Tensor x, float by, *, Tensor(a!) out) -> Tensor(a!)")
    yield torch.ops.gradverify_forms
    defined._destroy()


X = tensor(3, name="x")


@pytest.mark.parametrize(
    ("name", "inputs", "kwargs", "elements"),
    [
        ("power", [X, plain("down", "mode")], {}, 9),
        ("power.default", [X, plain(3, "n"), plain(True, "flip")], {"by": 2}, 9),
        ("gate", [X, tensor(3, name="bias")], {}, 18),
        ("gate", [X, plain(None, "weight"), tensor(3, name="bias")], {}, 18),
        ("join", [InputRecipe("xs", tensors=(TensorRecipe((2,)), TensorRecipe((3,))))], {}, 35),
    ],
)
def test_every_form_of_argument_is_passed_as_the_schema_says(
    library, name, inputs, kwargs, elements
):
    result = verify(prepare(case(f"torch.ops.gradverify_forms.{name}", inputs, kwargs=kwargs)))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert sum(pair.elements for pair in result.comparisons if pair.rule == "GV101") == elements


def test_an_argument_by_keyword_only_is_told_where_it_belongs(library):
    with pytest.raises(UserCodeError, match="takes 'by' by keyword only") as caught:
        prepare(case("torch.ops.gradverify_forms.power", [X, plain(2, "by")]))
    assert caught.value.hint == "write it under `kwargs`"
    with pytest.raises(UserCodeError, match="by keyword only") as caught:
        prepare(case("torch.ops.gradverify_forms.power", [X, tensor(name="by")]))
    assert caught.value.hint == "write it under `kwargs`"


def test_one_without_autograd_says_so():
    found = verify(prepare(case("torch.ops.prims.sin", [tensor(3)])))
    assert (
        codes(found) == {"GV003"}
        and "no autograd formula was registered" in found.findings[0].message
    )
