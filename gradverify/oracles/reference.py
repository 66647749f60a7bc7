"""Another implementation, called with the same arguments in the same order: its values, and autograd through it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradverify.model.case import Settings
from gradverify.numerics.columns.dense import LIMIT, Layout, rows
from gradverify.numerics.derivative import Function
from gradverify.numerics.flat import flat_real, real_size
from gradverify.numerics.steps import UNIT
from gradverify.numerics.tally import MAP_COLUMNS, MAP_ROWS, Tally
from gradverify.oracles.exact import compare_rows, compare_values
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.subject import Subject
from gradverify.subject.target import callable_target


class Reference:
    """The reference at the point of the check, as a function of the same differentiable inputs."""

    def __init__(self, subject: Subject, checked: Sequence[int]) -> None:
        self.name = f"reference {subject.case.oracles.reference}"
        self._subject, self._checked = subject, tuple(checked)
        self._call = callable_target(str(subject.case.oracles.reference), "reference")
        self._leaves = subject.leaves()
        self._outputs = self.values(self._leaves)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._subject.inputs

    @property
    def outputs(self) -> list[Tensor]:
        return self._outputs

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The reference's outputs at the places of the checked ones. Raises UserCodeError (GV002) that names the reference."""
        moved = iter(inputs)
        values = [next(moved).clone() if a.differentiable else a.value.clone() if a.is_tensor else a.value for a in self._subject.arguments]
        self._subject.reseed()
        with blamed("GV002", self.name), torch.enable_grad():
            outputs = list(pytree.tree_leaves(self._call(*values, **self._subject.kwargs)))
        if len(outputs) <= max(self._checked) or not all(isinstance(outputs[place], Tensor) for place in self._checked):
            raise UserCodeError("GV002", f"{self.name} returned {len(outputs)} outputs, but output {max(self._checked)} is to be compared")
        return [outputs[place] for place in self._checked]

    def vjp(self, cotangents: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Autograd through the reference. Raises UserCodeError (GV003) that names it."""
        wanted = [(output, cotangent) for output, cotangent in zip(self._outputs, cotangents, strict=True)
                  if cotangent is not None and output.requires_grad]
        if not wanted:
            return (None,) * len(self._leaves)
        with blamed("GV003", f"the backward of {self.name}"):
            return torch.autograd.grad([output for output, _ in wanted], self._leaves, [cotangent for _, cotangent in wanted],
                                       retain_graph=True, allow_unused=True)


def reference_values(ours: Sequence[Tensor], reference: Reference, settings: Settings) -> dict[int, Tally | str]:
    """Forward values per output: a Tally, or the sentence that says how the shapes differ."""
    result: dict[int, Tally | str] = {}
    for place, (mine, theirs) in enumerate(zip(ours, reference.outputs, strict=True)):
        if mine.shape != theirs.shape:
            result[place] = f"the function returns shape {list(mine.shape)}, the reference {list(theirs.shape)}"
        elif mine.is_complex() != theirs.is_complex():
            result[place] = f"the function returns {mine.dtype}, the reference {theirs.dtype}"
        else:
            result[place] = compare_values(flat_real(mine), flat_real(theirs), settings, UNIT.get(mine.dtype, 2.0**-24))
    return result


def reference_gradients(function: Function, outputs: Sequence[Tensor], reference: Reference, settings: Settings) -> dict[tuple[int, int], Tally]:
    """Every row of the Jacobian by one-hot cotangents through both, in tiles: {(input, output): Tally}."""
    layout = Layout(tuple(map(real_size, function.inputs)), tuple(map(real_size, outputs)))
    unit = max((UNIT[x.dtype] for x in function.inputs), default=2.0**-53)
    result: dict[tuple[int, int], Tally] = {}
    for tile in layout.tiles(LIMIT // 2):
        ours, _ = rows(function, outputs, layout, tile)
        theirs, _ = rows(reference, outputs, layout, tile)
        for mine, other, (index, first, last) in zip(ours, theirs, tile, strict=True):
            for output, part in layout.parts():
                small = layout.output_sizes[output] <= MAP_ROWS and layout.input_sizes[index] <= MAP_COLUMNS
                seen = compare_rows(mine[part], other[part], function.inputs[index], slice(first, last), settings, unit, small)
                result[index, output] = result[index, output] + seen if (index, output) in result else seen
    return result
