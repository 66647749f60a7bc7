"""One forward of the checked function that torch differentiates itself: with gradients on, and every Function in it replaced by its forward."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from gradverify.subject.differentiable import Gradients
from gradverify.subject.failure import UserCodeError
from gradverify.subject.standin import Graphs, forwards_only
from gradverify.subject.subject import Called, Subject, Way
from gradverify.subject.tape import Tape


@dataclass
class OwnForward:
    """The forward, the leaves it was computed from, the tape of it, and the graphs of what Functions returned."""

    subject: Subject
    leaves: tuple[Tensor, ...]
    called: Called
    tape: Tape
    graphs: Graphs

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The flattened ones."""
        return self.called.outputs

    def gradients(self, places: Sequence[int], cotangents: Sequence[Tensor]) -> Gradients:
        """By torch, for cotangents of the outputs at these places; None for a leaf that they do not depend on. Raises UserCodeError (GV003)."""
        asked = [(self.outputs[place], v) for place, v in zip(places, cotangents, strict=True) if self.outputs[place].requires_grad]
        if not asked:
            return (None,) * len(self.leaves)
        with _quietly(), forwards_only(self.tape.cut_by, self.graphs):
            found = self.subject.pull(self.called, [y for y, _ in asked], self.leaves, [v for _, v in asked], retain=True, way=Way.REUSED,
                                      under_modes=True, what="torch's own backward of forward")
        if self.tape.cut is not None:       # while forward was recomputed
            raise UserCodeError("GV003", self.tape.cut)
        return found

    def forget(self) -> None:
        """Lets go of all its tensors."""
        self.called, self.tape, self.graphs = Called((), {}, ()), Tape(), Graphs()


def own_forward(subject: Subject, leaves: Sequence[Tensor], tape: Tape) -> OwnForward:
    """One call, counted as every other one, of the function at leaves that require grad, on a new tape. Raises UserCodeError (GV002).

    The function gets copies of the leaves, so that it may write into them.
    """
    twin = subject.twin(subject.arguments)
    twin.writes = True
    graphs = Graphs()
    subject.count(forward=1)
    with torch.enable_grad(), _quietly():
        values = twin._arguments(leaves)
        lent = twin.parameters(values) | twin._buffers()
        tape.give(values)

        @contextmanager
        def watched() -> Iterator[None]:
            with tape, forwards_only(tape.cut_by, graphs):
                yield

        twin.around = watched
        outputs = graphs.put_back(twin._outputs(values, lent))
        tape.end(outputs)
    return OwnForward(subject, tuple(leaves), Called(tuple(values), lent, tuple(outputs)), tape, graphs)


class Leavings:
    """The tensors of graphs that are no longer needed: what the function kept of them itself (on its class, in a list) becomes plain again."""

    def __init__(self) -> None:
        self._refs = list[ref[Tensor]]()

    def note(self, forward: OwnForward) -> None:
        self._refs += [ref(tensor) for tensor in forward.tape.tensors()]

    def clear(self) -> bool:
        """Takes those that are still there out of their graphs; False where one of them is a view, which stays in its own."""
        plain = True
        for each in self._refs:
            tensor = each()
            if tensor is not None and tensor.requires_grad and not tensor.is_leaf:
                try:
                    tensor.detach_()
                except RuntimeError:
                    plain = False
        self._refs.clear()
        return plain


@contextmanager
def _quietly() -> Iterator[None]:
    """Torch warns of numbers read out of tensors of a graph, which forward does not do in training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
