"""Every file of the gallery: one fault, its right twin, and a text that explains both."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.library import CustomOpDef

from gallery.twins import INPUTS, call, load, names


def test_every_file_has_inputs_on_which_its_fault_shows():
    assert sorted(INPUTS) == names()


@pytest.mark.parametrize("name", names())
def test_both_twins_are_functions_modules_or_operators_defined_in_the_file(name):
    module = load(name)
    for twin in (module.Faulty, module.Right):
        made_of = twin._init_fn if isinstance(twin, CustomOpDef) else twin
        assert made_of is not twin or issubclass(twin, (Function, nn.Module))
        assert made_of.__module__ == module.__name__


@pytest.mark.parametrize("name", names())
def test_the_text_says_what_is_wrong_and_how_to_repair_it(name):
    text = inspect.getdoc(load(name))
    title, explanation = text.split("\n\n", 1)
    assert title.endswith(".") and len(title) <= 150
    assert "Repair:" in explanation
    assert 2 <= explanation.count(".") <= 9


NO_DERIVATIVE = {"counts_both_branches": "a kink at its inputs", "draws_from_its_own_generator": "random"}    # for gradcheck, that is
SPARSE = "swaps_sparse_indices"      # gradcheck is told of its elements by their values
SMOOTH = [name for name in names() if name not in (*NO_DERIVATIVE, SPARSE)]
OTHER_FORWARD = ("forgets_the_offset", "averages_over_features", "draws_from_its_own_generator", "computes_in_float32", "forgets_its_gain")


@pytest.mark.parametrize("name", SMOOTH)
def test_the_right_twin_passes_gradcheck(name):
    assert gradcheck(call(load(name).Right), INPUTS[name](), atol=1e-7, rtol=1e-6)


def test_the_right_twin_of_a_sparse_input_passes_gradcheck():
    sparse, dense = (x.detach() for x in INPUTS[SPARSE]())
    values, b, right = sparse.values().clone().requires_grad_(), dense.clone().requires_grad_(), load(SPARSE).Right
    assert gradcheck(lambda v, b: right.apply(torch.sparse_coo_tensor(sparse.indices(), v, sparse.shape, is_coalesced=True), b), (values, b))


@pytest.mark.parametrize("name", SMOOTH)
def test_the_right_twin_is_right_to_second_order(name):
    assert gradgradcheck(call(load(name).Right), INPUTS[name](), atol=1e-6)


@pytest.mark.parametrize("name", [name for name in names() if name not in OTHER_FORWARD])
def test_the_twins_agree_in_their_values(name):
    """The fault is in backward, except in the files whose fault is in forward."""
    module, inputs = load(name), INPUTS[name]()
    torch.testing.assert_close(call(module.Faulty)(*inputs), call(module.Right)(*inputs), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("name", names())
def test_the_right_twin_leaves_arguments_and_grad_output_alone(name):
    inputs = INPUTS[name]()
    before = [value.clone() if isinstance(value, Tensor) else value for value in inputs]
    output = call(load(name).Right)(*inputs)
    outputs = output if isinstance(output, tuple) else (output,)
    grad_outputs = [torch.full_like(each, -1.5) for each in outputs]
    torch.autograd.backward(outputs, grad_outputs)
    assert all(torch.equal(grad_output, torch.full_like(grad_output, -1.5)) for grad_output in grad_outputs)
    assert all(torch.equal(a.to_dense(), b.to_dense()) if isinstance(a, Tensor) else a == b for a, b in zip(before, inputs, strict=True))
