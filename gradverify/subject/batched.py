"""Batched cotangents: one backward that gets several of them as one tensor, as `torch.autograd.functional.jacobian(vectorize=True)` asks it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients, Graph
from gradverify.subject.subject import Subject


def batched_gradients(subject: Subject, function: Differentiable, graph: Graph, classes: Sequence[type], v: Sequence[Tensor],
                      factors: Sequence[float]) -> Gradients:
    """The gradients [n, …] per input, None where there is none, for the cotangents v times each of the n factors at once. Counts as n backwards.

    What backward keeps on the `classes` of Functions is forgotten: a batch is no tensor for anybody else. What it keeps on ctx is not, so this is the
    last use of the graph. Raises UserCodeError (GV003).
    """
    cotangents = [torch.stack([factor * cotangent for factor in factors]) for cotangent in v]
    with warnings.catch_warnings(), _forgotten(classes):
        warnings.simplefilter("ignore")     # of operators that are batched by a loop
        return subject.pull(graph.called, function.of(graph), graph.leaves, cotangents, retain=True, batch=len(factors))


@contextmanager
def _forgotten(classes: Sequence[type]) -> Iterator[None]:
    """The attributes of the classes, and what lies in their lists, sets and dicts, are afterwards what they were."""
    before = {cls: {name: (value, _contents(value)) for name, value in vars(cls).items()} for cls in classes}
    try:
        yield
    finally:
        for cls, attributes in before.items():
            for name in [name for name in vars(cls) if name not in attributes]:
                delattr(cls, name)
            for name, (value, contents) in attributes.items():
                if vars(cls)[name] is not value:
                    setattr(cls, name, value)
                if contents is not None:
                    _refill(value, contents)


def _contents(value: Any) -> Any:
    return copy(value) if type(value) in (list, set, dict) else None


def _refill(value: Any, contents: Any) -> None:
    value.clear()
    value.extend(contents) if type(value) is list else value.update(contents)
