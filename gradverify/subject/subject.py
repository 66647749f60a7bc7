"""The live function of a check: called through here only, so that every call is counted and blamed on the right code."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradverify.model.case import Case
from gradverify.model.result import Calls
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.layout import copied, relaid
from gradverify.subject.target import Target

NUMPY_SEEDS = 2**32         # NumPy's global stream takes no larger seed
LEAF_WRITTEN = "a leaf Variable that requires grad"     # torch's refusal of an in-place write into an input


@dataclass(frozen=True, slots=True)
class Argument:
    """One positional argument at the point of the check. Tensors are detached; `parameter`: it is a module's parameter.

    `domain`: where the function is defined in it; `symmetric`: it is read as a symmetric (Hermitian) matrix.
    """

    name: str
    value: Any
    differentiable: bool = False
    parameter: bool = False
    domain: tuple[float, float] | None = None
    symmetric: bool = False

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, Tensor)


class Subject:
    """`writes` is set once the function was seen to write into an input: from then on every call gets fresh, non-leaf clones.

    `around` makes the context that every forward runs in.
    """

    def __init__(self, case: Case, target: Target, arguments: Sequence[Argument], kwargs: Mapping[str, Any]) -> None:
        self.case, self.target = case, target
        self.arguments, self.kwargs = tuple(arguments), dict(kwargs)
        self.calls = Calls()
        self.writes = False
        self.around: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._original: Subject | None = None
        self._on_cuda = any(argument.is_tensor and argument.value.is_cuda for argument in self.arguments)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The differentiable inputs, in order; never written to."""
        return tuple(argument.value for argument in self.arguments if argument.differentiable)

    @property
    def size(self) -> int:
        """Elements of all tensor arguments together."""
        return sum(argument.value.numel() for argument in self.arguments if argument.is_tensor)

    @property
    def differentiable(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.differentiable)

    def leaves(self) -> list[Tensor]:
        """Fresh copies of the differentiable inputs, laid out as these are, that require grad."""
        return [copied(x).requires_grad_() for x in self.inputs]

    def twin(self, arguments: Sequence[Argument]) -> Subject:
        """The same function at other arguments. Its calls are counted here too."""
        other = Subject(self.case, self.target, arguments, self.kwargs)
        other.writes, other._original = self.writes, self
        return other

    def _count(self, calls: Calls) -> None:
        self.calls = self.calls + calls
        if self._original is not None:
            self._original._count(calls)

    def forward(self, inputs: Sequence[Tensor]) -> list[Any]:
        """The flattened outputs (pytree leaves) with gradients on. Raises UserCodeError (GV002)."""
        self._count(Calls(forward=1))
        values = self._arguments(inputs)
        self.reseed()
        with blamed("GV002", "forward"), torch.enable_grad(), self.around():
            return list(pytree.tree_leaves(self._call(values), is_leaf=lambda leaf: leaf is None))

    def probe(self, inputs: Sequence[Tensor]) -> list[Any]:
        """`forward`, and notices a function that refuses leaves because it writes into its inputs."""
        before = [x.detach().clone() for x in inputs]
        try:
            return self.forward(inputs)
        except UserCodeError as error:
            if self.writes or LEAF_WRITTEN not in error.message:
                raise
        self.writes = True
        with torch.no_grad():
            for x, value in zip(inputs, before, strict=True):
                x.copy_(value)      # it had written before it was refused
        return self.forward(inputs)

    def counted_backward(self) -> None:
        """Called before every backward."""
        self._count(Calls(backward=1))
        self.reseed(1)

    def reseed(self, offset: int = 0) -> None:
        """Every forward draws the same random numbers (dropout, samplers), from torch, NumPy and Python; every backward others."""
        if self.case.settings.reseed:
            seed = self.case.settings.seed + offset
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed % NUMPY_SEEDS)
            random.seed(seed)
            if self._on_cuda:
                torch.cuda.manual_seed_all(seed)

    def _arguments(self, inputs: Sequence[Tensor]) -> list[Any]:
        moved = iter(inputs)
        values = [next(moved) if argument.differentiable else _own(argument.value) for argument in self.arguments]
        if not self.writes:
            return values
        return [relaid(value) if isinstance(value, Tensor) else value for value in values]

    def _call(self, values: Sequence[Any]) -> Any:
        if self.target.kind != "module":
            return self.target.call(*values, **_own(self.kwargs))
        module = self.target.subject
        own = {argument.name: value for argument, value in zip(self.arguments, values, strict=True) if argument.parameter}
        given = [value for argument, value in zip(self.arguments, values, strict=True) if not argument.parameter]
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        return torch.func.functional_call(module, {**own, **buffers}, tuple(given), _own(self.kwargs))


def _own(value: Any) -> Any:
    """Lists and mappings of a spec anew for each call, so that none sees what another one did to them."""
    if type(value) is list:
        return [_own(item) for item in value]
    return {key: _own(item) for key, item in value.items()} if type(value) is dict else value
