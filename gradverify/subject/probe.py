"""Which constants of a graph move its outputs: log(exp(x − m)) + m is the same for every m, though m is the detached maximum of x.

The same call as a tape's, in which every constant is a leaf of its own. Where the derivatives of the outputs by all uses of one tensor add up to
nothing, the graph is the whole function as far as this constant goes, whatever it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.guard import is_plain
from gradverify.subject.steps import READS, Place
from gradverify.subject.tape import Tape
from gradverify.torch_private import gradients, pytree, version

ROUNDINGS = 64.0        # of the sum of the absolute derivatives: what is left of those that cancel


class Probe(Tape):
    """A tape that lets torch differentiate by the constants too."""

    def __init__(self) -> None:
        super().__init__()
        self._uses: list[tuple[Place, tuple[int, int], Tensor]] = []      # where it entered, which tensor at which version, and its leaf

    def _called(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], target: Tensor | None) -> Any:
        if self.cut is not None or name in READS or not torch.is_grad_enabled() or not _in_graph(args, kwargs):
            return super()._called(func, name, args, kwargs, target)
        own = dict[int, Tensor]()
        for place, x in enumerate(self.entering):
            if isinstance(x, Tensor) and is_plain(x) and not x.requires_grad and x is not target and (x.is_floating_point() or x.is_complex()):
                leaf = own.setdefault(id(x), x.detach().requires_grad_())
                self._uses.append(((len(self.steps), place), (id(x), version(x)), leaf))
        args, kwargs = pytree.tree_map(lambda x: own.get(id(x), x) if isinstance(x, Tensor) else x, (tuple(args), dict(kwargs)))
        return super()._called(func, name, args, kwargs, target)

    def idle(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> frozenset[Place]:
        """The places of constants by which the derivative of the outputs is nothing but rounding."""
        if not self._uses:
            return frozenset()
        leaves = [leaf for *_, leaf in self._uses]
        found = gradients(outputs, leaves, cotangents)
        sums = dict[tuple[int, int], tuple[Tensor, Tensor]]()
        seen = set[int]()
        for (_, tensor, leaf), gradient in zip(self._uses, found, strict=True):
            if id(leaf) not in seen:        # a tensor that enters one operation twice has one leaf
                more = torch.zeros_like(leaf) if gradient is None else gradient
                total, size = sums.get(tensor, (torch.zeros_like(more), torch.zeros_like(more.abs())))
                sums[tensor] = total + more, size + more.abs()
                seen.add(id(leaf))
        rests = {tensor for tensor, (total, size) in sums.items()
                 if bool((total.abs() <= ROUNDINGS * torch.finfo(total.dtype).eps * size).all())}
        return frozenset(place for place, tensor, _ in self._uses if tensor in rests)


def _in_graph(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(isinstance(x, Tensor) and x.requires_grad for x in pytree.tree_leaves((tuple(args), dict(kwargs))))
