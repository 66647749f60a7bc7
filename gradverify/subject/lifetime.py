"""Tensors and nodes that stay alive after their last use: memory that only the garbage collector
frees, or that is never freed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.multiprocessing import reductions

from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.forms import is_plain
from gradverify.subject.graph import function_nodes
from gradverify.subject.snapshot import copied
from gradverify.subject.subject import Subject
from gradverify.torch_private import function_class

# Reference to a storage that does not depend on the Python tensors that share it
_weak: Any = reductions.StorageWeakRef


class Alive(NamedTuple):
    """Inputs alive after a finished backward although the caller dropped them; outputs and nodes
    alive after everything was dropped. `values`, `gradients`: copies of the checked outputs and of
    the gradients."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    values: tuple[Tensor, ...] = ()
    gradients: Gradients = ()


def still_alive(
    subject: Subject, function: Differentiable, cotangents: Sequence[Tensor], inputs: bool
) -> Alive:
    """Run one forward and one finished backward without garbage collector; return what stays alive.
    `inputs`: whether inputs are examined. Raises UserCodeError."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        # The function gets results of an operation, which nothing of ours refers to
        leaves = subject.leaves()
        graph = function.graph(leaves, [leaf * 1 for leaf in leaves])
        values = copied(function.of(graph))
        gradients = copied(function.gradients(graph, cotangents))
        del leaves
        outputs = graph.outputs
        # Inputs that an output is a view of are not examined
        shown = [_address(output) for output in outputs if isinstance(output, Tensor)]
        given = {
            a.name: _weak(x.untyped_storage())
            for a, x in zip(subject.arguments, graph.arguments, strict=True)
            if inputs and a.differentiable and x.numel() and _address(x) not in shown
        }
        ours = [_address(argument.value) for argument in subject.tensors]
        made = {
            f"y{place}": _weak(y.untyped_storage())
            for place, y in enumerate(outputs)
            if isinstance(y, Tensor) and is_plain(y) and y.numel() and _address(y) not in ours
        }
        del graph
        held = tuple(name for name, storage in given.items() if not storage.expired())
        nodes = [
            (cls.__name__, weakref.ref(node))
            for node in function_nodes([y for y in outputs if isinstance(y, Tensor)])
            if (cls := function_class(node)) is not None
        ]
        del outputs
        return Alive(
            held,
            tuple(name for name, storage in made.items() if not storage.expired()),
            tuple(name for name, node in nodes if node() is not None),
            values,
            gradients,
        )
    finally:
        if was_on:
            gc.enable()


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if is_plain(tensor) else 0
