from __future__ import annotations

import torch
from live import fixed, randn, subject
from rules.functions import RightProduct

from gradverify.subject.custody import Custody, Held, held, saved_tensors, written
from gradverify.subject.graph import function_nodes


def test_arguments_outputs_and_saved_tensors_of_a_call_are_held_by_name():
    live = subject(lambda x, y: (RightProduct.apply(x * 2, y), 3), randn(2), randn(2, seed=1))
    called = live.called(live.leaves())
    everything = held(live, called, saved_tensors(function_nodes([called.outputs[0]])))
    assert [(each.kind, each.name, each.place) for each in everything] == [
        ("argument", "x", None), ("argument", "y", None), ("output", "y0", 0), ("saved", "saved tensor 0 of Product", None),
        ("saved", "saved tensor 1 of Product", None)]


def test_a_write_is_told_once_under_the_first_name_and_put_back():
    x = torch.tensor([1.0, 2.0, 3.0])
    custody = Custody([Held("argument", "x", x), Held("saved", "its tail", x[1:]), Held("output", "y0", torch.ones(1), 0)])
    assert custody.broken() == ()
    x[2] = 9
    found, = custody.broken()
    assert (found.held.name, found.change) == ("x", (2, 3.0, 9.0))
    custody.restore()
    assert x.tolist() == [1, 2, 3]
    assert custody.broken() == ()


def test_what_was_changed_and_not_returned_was_written():
    def function(x, y, z):
        y.mul_(2)
        z.add_(1)
        return x * 3, z

    live = subject(function, randn(2), fixed(torch.ones(2)), fixed(torch.zeros(2)))
    live.writes = True
    assert [(each.held.name, each.change) for each in written(live, live.called(live.leaves()))] == [("y", (0, 1.0, 2.0))]
    assert [argument.value.tolist() for argument in live.arguments[1:]] == [[1, 1], [0, 0]]


def test_freed_saved_tensors_are_none():
    y = RightProduct.apply(randn(2).requires_grad_(), randn(2))
    nodes = function_nodes([y])
    assert [len(tensors) for tensors in saved_tensors(nodes).values()] == [2]
    y.sum().backward()
    assert list(saved_tensors(nodes).values()) == [()]
