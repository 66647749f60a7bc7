"""Numbers in the spec: the gradient of sum(weights * output) over the checked outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor

from gradverify.model.case import Json
from gradverify.oracles.given import Given
from gradverify.oracles.oracle import Checked
from gradverify.subject.arguments import where_held
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import numbers
from gradverify.subject.failure import CODE, UserCodeError, blamed
from gradverify.subject.subject import Subject


def oracle(checked: Checked) -> Given | None:
    """The numbers under `expected`."""
    given = checked.subject.case.oracles.expected is not None
    return (
        Expected(checked, "`expected` in the spec", "the numbers in the spec (`expected`)")
        if given
        else None
    )


class Expected(Given):
    """Known at the point alone, for the cotangents under `grad_output`."""

    @property
    def cotangents(self) -> tuple[Tensor, ...]:
        return weights(self.checked.subject.case.oracles.grad_output, self.checked.outputs)

    def gradients(
        self, cotangents: Sequence[Tensor], inputs: Sequence[Tensor] | None = None
    ) -> Gradients:
        return expected_gradients(
            self.checked.subject, self.checked.subject.case.oracles.expected or {}
        )


def expected_gradients(subject: Subject, expected: Mapping[str, Json]) -> tuple[Tensor | None, ...]:
    """One tensor per differentiable input, None where the spec gives no numbers. Raises
    UserCodeError (GV001) where they do not fit."""
    inputs = {argument.name: argument for argument in subject.differentiable}
    for name in expected:
        if name not in inputs:
            near = get_close_matches(name, list(inputs), n=1)
            raise UserCodeError(
                CODE,
                f"expected.{name}: there is no differentiable input {name!r}",
                hint=f"did you mean {near[0]!r}?"
                if near
                else f"the differentiable inputs are {', '.join(inputs)}",
            )
    return tuple(
        where_held(x, _tensor(name, expected[name], x.value)) if name in expected else None
        for name, x in inputs.items()
    )


def _tensor(name: str, data: Json, x: Tensor) -> Tensor:
    with blamed(CODE, f"expected.{name}: reading the numbers"):
        tensor = torch.tensor(
            numbers(data), dtype=torch.complex128 if x.is_complex() else torch.float64
        )
    if tensor.shape != x.shape:
        raise UserCodeError(
            CODE,
            f"expected.{name}: the numbers have shape {list(tensor.shape)}, the input "
            f"{list(x.shape)}",
        )
    if bool(tensor.isnan().any()):
        raise UserCodeError(CODE, f"expected.{name}: NaN is no number to compare with")
    return tensor


def weights(grad_output: Json, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A cotangent per checked output: ones where the spec gives none; of several outputs a list of
    one entry each. A single number weighs every element. Raises UserCodeError (GV001) where they do
    not fit."""
    if grad_output is None:
        return tuple(torch.ones_like(output) for output in outputs)
    entries = [grad_output] if len(outputs) == 1 else grad_output
    if not isinstance(entries, (list, tuple)) or len(entries) != len(outputs):
        raise UserCodeError(
            CODE,
            f"grad_output: the check compares {len(outputs)} outputs, so it is a list of "
            f"{len(outputs)} entries",
        )
    return tuple(_weight(entry, output) for entry, output in zip(entries, outputs, strict=True))


def _weight(entry: Json, output: Tensor) -> Tensor:
    with blamed(CODE, "grad_output: reading the numbers"):
        tensor = torch.tensor(numbers(entry))
    if tensor.dim() and tensor.shape != output.shape:
        raise UserCodeError(
            CODE,
            f"grad_output: the numbers have shape {list(tensor.shape)}, the output "
            f"{list(output.shape)}",
        )
    if tensor.is_complex() and not output.is_complex():
        raise UserCodeError(CODE, "grad_output: the numbers are complex, the output is real")
    with blamed(CODE, "grad_output: reading the numbers"):
        wide = torch.tensor(
            numbers(entry), dtype=torch.complex128 if output.is_complex() else torch.float64
        )
    return wide.expand(output.shape).clone().to(dtype=output.dtype, device=output.device)
