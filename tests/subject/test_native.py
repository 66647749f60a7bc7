from __future__ import annotations

import pytest
import torch

from gradverify.subject.graph import called_again, is_native, native_name, wrong_number

LINEAR = "torch::autograd::CppNode<(anonymous namespace)::Linear<(anonymous namespace)::Right> >"


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (LINEAR, "Linear<Right>"),
        ("torch::autograd::CppNode<Swish>", "Swish"),
        ("torch::autograd::CppNode<my::ops::RoiAlign>", "my::ops::RoiAlign"),
    ],
)
def test_a_node_is_called_by_its_class(node, name):
    assert native_name(node) == name


def test_a_wrong_number_is_read_from_torchs_sentence():
    said = (
        "backward raised RuntimeError: function {} returned an incorrect number of gradients "
        "(expected 3, got 2)"
    )
    assert wrong_number(said.format(LINEAR)) == ("Linear<Right>", 3, 2)
    # A Function in Python, whose return was seen
    assert wrong_number(said.format("MulBackward")) is None
    assert wrong_number("backward raised ValueError: no") is None


def test_nodes_of_torchs_own_are_left_alone():
    x = torch.ones(2, requires_grad=True)
    y = x.sin()
    sink = []
    with called_again([y.grad_fn], sink, list, lambda: pytest.fail("called")):
        y.sum().backward()
    assert not is_native(y.grad_fn) and sink == []
