"""Comparison with numbers in the spec: the gradient of sum(weights * output) over the checked
outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.model.case import Json
from gradverify.oracles.given import Given
from gradverify.oracles.oracle import Checked
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import numbers
from gradverify.subject.failure import CODE, blamed, nearest, refuse
from gradverify.subject.forms import where_held


def oracle(checked: Checked) -> Given | None:
    """Return the oracle for the numbers under `expected`; None where the spec has none."""
    if checked.subject.case.oracles.expected is None:
        return None
    return Expected(checked, "`expected` in the spec", "the numbers in the spec (`expected`)")


class Expected(Given):
    """Gradients from the spec, known at the check's point only, for the cotangents under
    `grad_output`. Raises UserCodeError (GV001) where these or the numbers do not fit."""

    @property
    def cotangents(self) -> tuple[Tensor, ...]:
        """A cotangent per checked output: ones by default; for several outputs the spec has a list
        with one entry each. A single number is the weight of every element."""
        given, outputs = self.checked.subject.case.oracles.grad_output, self.checked.outputs
        if given is None:
            return tuple(torch.ones_like(output) for output in outputs)
        entries = [given] if len(outputs) == 1 else given
        if not isinstance(entries, (list, tuple)) or len(entries) != len(outputs):
            refuse(
                f"grad_output: the check compares {len(outputs)} outputs, so it is a list of "
                f"{len(outputs)} entries"
            )
        return tuple(_weight(entry, output) for entry, output in zip(entries, outputs, strict=True))

    def gradients(
        self, cotangents: Sequence[Tensor], inputs: Sequence[Tensor] | None = None
    ) -> Gradients:
        subject = self.checked.subject
        expected = subject.case.oracles.expected or {}
        own = {argument.name: argument for argument in subject.differentiable}
        for name in expected:
            if name not in own:
                refuse(
                    f"expected.{name}: there is no differentiable input {name!r}",
                    nearest(name, own) or f"the differentiable inputs are {', '.join(own)}",
                )
        return tuple(
            where_held(x, _gradient(name, expected[name], x.value)) if name in expected else None
            for name, x in own.items()
        )


def _read(place: str, data: Json, like: Tensor) -> Tensor:
    with blamed(CODE, f"{place}: reading the numbers"):
        return torch.tensor(
            numbers(data), dtype=torch.complex128 if like.is_complex() else torch.float64
        )


def _gradient(name: str, data: Json, x: Tensor) -> Tensor:
    tensor = _read(f"expected.{name}", data, x)
    if tensor.shape != x.shape:
        refuse(
            f"expected.{name}: the numbers have shape {list(tensor.shape)}, the input "
            f"{list(x.shape)}"
        )
    if bool(tensor.isnan().any()):
        refuse(f"expected.{name}: NaN is no number to compare with")
    return tensor


def _weight(entry: Json, output: Tensor) -> Tensor:
    with blamed(CODE, "grad_output: reading the numbers"):
        tensor = torch.tensor(numbers(entry))
    if tensor.dim() and tensor.shape != output.shape:
        refuse(
            f"grad_output: the numbers have shape {list(tensor.shape)}, the output "
            f"{list(output.shape)}"
        )
    if tensor.is_complex() and not output.is_complex():
        refuse("grad_output: the numbers are complex, the output is real")
    wide = _read("grad_output", entry, output)
    return wide.expand(output.shape).clone().to(dtype=output.dtype, device=output.device)
