from __future__ import annotations

import pytest
import torch
from live import case, codes, plain, tensor
from torch import Tensor

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


cube.register_autograd(lambda ctx, g: (3 * ctx.scale * g * ctx.saved_tensors[0] ** 2, None), setup_context=remember)
wrong_cube.register_autograd(lambda ctx, g: (2 * ctx.scale * g * ctx.saved_tensors[0] ** 2, None), setup_context=remember)


@pytest.mark.parametrize("name", ["torch.ops.gradverify_tests.cube", "torch.ops.gradverify_tests.cube.default"])
def test_an_operator_is_found_and_its_parameters_are_named_by_its_schema(name):
    subject = prepare(case(name, [tensor(3, name="x"), plain(2.0, "scale")]))
    assert (subject.target.kind, [argument.name for argument in subject.arguments]) == ("operator", ["x", "scale"])
    assert torch.equal(subject.forward(subject.inputs)[0], 2.0 * subject.inputs[0] ** 3)
    assert verify(subject).verdict == "pass"
    with pytest.raises(UserCodeError, match="there is no parameter 'y'"):
        prepare(case(name, [tensor(3, name="y"), plain(2.0, "scale")]))


def test_a_wrong_one_is_caught():
    assert codes(verify(prepare(case("torch.ops.gradverify_tests.wrong_cube", [tensor(3, name="x"), plain(2.0, "scale")])))) == {"GV101"}


@pytest.mark.parametrize(("name", "said", "hint"), [
    ("torch.ops.gradverify_tests.cubes", "no operator 'cubes'", "did you mean 'cube'"),
    ("torch.ops.gradverify_none.cube", "no operator 'cube'", "`import:`"), ("torch.ops.aten.mul.Tensors", "no overload 'Tensors'", "Tensor, Scalar")])
def test_a_misspelt_one_is_told_with_its_neighbours(name, said, hint):
    with pytest.raises(UserCodeError, match=said) as caught:
        find(name, "function")
    assert caught.value.code == "GV001" and hint in caught.value.hint
