"""One axis of an input tensor under sparsity detection: slices of it are perturbed, and the outputs that moved are seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from gradverify.numerics.rungs import Mask
from gradverify.numerics.sparsity.codes import Code


class Probe(Protocol):
    """An input tensor of a function. A number has one axis of one slice."""

    def moved(self, axis: int, slices: Mask) -> Mask:
        """Which outputs [M] of all output tensors changed when all elements of these slices [n] of one axis were perturbed. A call each.

        Where n is more than the axis has, it is one with the axes before it: of the last axis, the elements of the tensor.
        """
        ...


@dataclass(frozen=True)
class Axis:
    """One axis of the input: its length and stride (elements of the flat input); the shapes and parts of the output tensors.

    `repeats`: the calls that each question takes, what moved in any of them moved.
    """

    probe: Probe
    axis: int
    length: int
    stride: int
    shapes: tuple[tuple[int, ...], ...]
    parts: tuple[slice, ...]
    repeats: int = 1

    @property
    def outputs(self) -> int:
        return self.parts[-1].stop if self.parts else 0

    def moved(self, slices: Mask) -> Mask:
        moved = self.probe.moved(self.axis, slices)
        for _ in range(1, self.repeats):
            moved = moved | self.probe.moved(self.axis, slices)
        return moved

    def listen(self, code: Code, calls: Iterable[int]) -> list[Mask]:
        """What moved [M] in each of the calls."""
        return [self.moved(code.slices(call)) for call in calls]
