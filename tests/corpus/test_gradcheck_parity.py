"""Under a fixed `eps`, every element gets the verdict that torch.autograd.gradcheck's own numbers
give it, and so does the check."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from live import check
from torch import Tensor
from torch.autograd import Function, gradcheck

from corpus.functions import SAMPLES, Sample
from gradverify.model.result import CaseResult

# torch.autograd.gradcheck the attribute is the function
helpers = importlib.import_module("torch.autograd.gradcheck")
EPS, ATOL, RTOL = 1e-6, 1e-5, 1e-3
Places = set[tuple[int, tuple[int, ...], str | None, str, tuple[int, ...]]]


def _without_first(gradient: Tensor) -> Tensor:
    mask = torch.ones(gradient.numel(), dtype=gradient.dtype)
    mask[0] = 0
    return gradient * mask.reshape(gradient.shape)


DAMAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda gradient: gradient.clone(),
    "times 1.01": lambda gradient: gradient * 1.01,
    "times 1.0005": lambda gradient: gradient * 1.0005,
    "sign flipped": lambda gradient: -gradient,
    "first element zero": _without_first,
    "plus 1e-6": lambda gradient: gradient + 1e-6,
    "conjugated": lambda gradient: gradient.conj().resolve_conj(),
}
NOT_LINEAR = {"plus 1e-6"}
CASES = [
    pytest.param(sample, damage, id=f"{sample.name} {damage}")
    for sample in SAMPLES
    for damage in DAMAGES
    # A real gradient is its own conjugate
    if damage != "conjugated" or sample.make()[0].is_complex()
]


def damaged(call: Callable[..., Any], damage: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """The same function with the gradient of its first input damaged."""

    class Damaged(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return damage(grad_output)

    return lambda first, *others: call(Damaged.apply(first), *others)


def by_gradcheck(call: Callable[..., Any], tensors: tuple[Tensor, ...], rtol: float) -> Places:
    """The mismatching elements, from the Jacobians that gradcheck computes and by the comparison
    that it makes."""
    inputs = tuple(tensor.clone().requires_grad_() for tensor in tensors)
    outputs = helpers._as_tuple(call(*inputs))
    wrong: Places = set()
    if any(output.is_complex() for output in outputs):
        for part, function in zip(("re", "im"), helpers._real_and_imag_output(call), strict=True):
            wrong |= _compared(function, inputs, rtol, part, outputs)
        return wrong
    return _compared(call, inputs, rtol, None, outputs)


def _compared(
    function: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    rtol: float,
    part: str | None,
    whole: tuple[Tensor, ...],
) -> Places:
    outputs = helpers._as_tuple(function(*inputs))
    numerical = helpers._get_numerical_jacobian(function, inputs, outputs, eps=EPS)
    wrong: Places = set()
    for j, output in enumerate(outputs):
        analytical = helpers._check_analytical_jacobian_attributes(
            inputs, output, float("inf"), False
        )
        for i, x in enumerate(inputs):
            far = ~torch.isclose(analytical[i], numerical[i][j], rtol=rtol, atol=ATOL)
            for column, row in far.nonzero().tolist():
                named = part if whole[j].is_complex() else None
                wrong.add((j, _index(row, output), named, str(i), _index(column, x)))
    return wrong


def _index(flat: int, tensor: Tensor) -> tuple[int, ...]:
    return (
        tuple(int(place) for place in torch.unravel_index(torch.tensor(flat), tensor.shape))
        if tensor.dim()
        else ()
    )


def ours(result: CaseResult) -> tuple[Places, Places]:
    """The mismatching elements of a result: those with the real, and those with the imaginary part
    of a complex input moved."""
    assert all(len(each.worst) >= each.mismatched for each in result.comparisons), (
        "the table must hold every mismatch of so small a Jacobian"
    )
    parts: dict[str, Places] = {"re": set(), "im": set()}
    for each in result.comparisons:
        for entry in each.worst:
            if entry.outcome == "mismatch":
                for part in ("re", "im") if entry.input_part is None else (entry.input_part,):
                    place = each.input.removeprefix("first") or "0"
                    parts[part].add(
                        (
                            each.output or 0,
                            entry.output_index,
                            entry.output_part,
                            place,
                            entry.input_index,
                        )
                    )
    return parts["re"], parts["im"]


def _elements(result: CaseResult) -> int:
    return sum(each.elements for each in result.comparisons)


@pytest.mark.population(most=24)
@pytest.mark.parametrize(("sample", "damage"), CASES)
def test_every_element_and_the_whole_check_come_out_as_in_gradcheck(sample: Sample, damage: str):
    tensors = sample.make()
    call = damaged(sample.call, DAMAGES[damage])

    elements = check(call, *tensors, eps=EPS, atol=ATOL, rtol=RTOL, ignore=("GV201",))
    expected = by_gradcheck(call, tensors, RTOL)
    assert _elements(elements) > 0
    assert sum(each.undecided + each.non_finite for each in elements.comparisons) == 0
    real, imaginary = ours(elements)
    assert real == expected
    assert imaginary == expected  # gradcheck compares a complex element as one number

    passes = gradcheck(
        call,
        tuple(tensor.clone().requires_grad_() for tensor in tensors),
        eps=EPS,
        atol=ATOL,
        rtol=RTOL,
        raise_exception=False,
    )
    judged = (
        check(call, *tensors, eps=EPS, atol=ATOL, rtol=RTOL) if damage in NOT_LINEAR else elements
    )
    assert judged.verdict == ("pass" if passes else "fail")


def test_the_corpus_holds_both_sides():
    """Guards the tests above: enough functions, and damages that gradcheck sees and that it does
    not."""
    assert len(SAMPLES) >= 40
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES)
    sine = next(sample for sample in SAMPLES if sample.name == "sin")
    assert not by_gradcheck(damaged(sine.call, DAMAGES["times 1.0005"]), sine.make(), RTOL)
    assert len(by_gradcheck(damaged(sine.call, DAMAGES["times 1.01"]), sine.make(), RTOL)) == 6


def test_an_element_that_the_step_does_not_move_is_left_open_not_wrong():
    x = torch.tensor([1.0, 1e12], dtype=torch.float64)
    result = check(torch.sin, x, eps=EPS)
    (comparison,) = result.comparisons
    assert (comparison.elements, comparison.mismatched, comparison.undecided) == (4, 0, 2)
    assert {entry.input_index for entry in comparison.worst if entry.outcome == "undecided"} == {
        (1,)
    }
