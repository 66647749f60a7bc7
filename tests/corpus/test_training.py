"""Modules as they are trained: a right one passes, and a wrong gradient in one is found as such, at
the parameter that gets it.

The class: what replaced a module's parameters in forward is gone when backward calls the module
again; and backwards that `torch.autograd.grad` is refused by, or that put gradients into `.grad`
themselves.
"""

from __future__ import annotations

import pytest
import torch
from live import check

from corpus.training import TRAINED

WRONG = ("GV101", "GV102", "GV111")  # a wrong or a missing gradient, of an input or a parameter
# One mistake each, in turn
DAMAGED = [
    (name, each.mistakes[n % len(each.mistakes)]) for n, (name, each) in enumerate(TRAINED.items())
]


@pytest.mark.parametrize("name", TRAINED)
def test_a_right_one_passes(name: str):
    each, module = TRAINED[name], TRAINED[name].make("")
    before = [tensor.clone() for tensor in (*module.parameters(), *module.buffers())]
    result = check(module, *each.inputs)
    assert (
        result.verdict,
        [(found.code, found.message) for found in result.findings if found.severity == "error"],
    ) == ("pass", [])
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, (*module.parameters(), *module.buffers()), strict=True)
    ), "something is left in the module"
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.population(most=5)
@pytest.mark.parametrize(("name", "mistake"), DAMAGED)
def test_a_wrong_gradient_is_found_as_one(name: str, mistake: str):
    each = TRAINED[name]
    assert check(each.make(mistake), *each.inputs, select=WRONG).verdict == "fail"
