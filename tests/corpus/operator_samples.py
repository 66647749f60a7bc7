"""PyTorch's own operator samples as `Function`s: its op database, with its inputs, wrappers and post-processing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradverify.numerics.function.coordinates import SINGLE, flat_real, one_hot
from gradverify.numerics.tolerance import RTOL, RTOL_LOW
from gradverify.subject.failure import blamed

DTYPES = (torch.float64, torch.complex128)
MOST_INPUTS, MOST_ENTRIES = 60, 3000  # real coordinates of the inputs; of the inputs times those of the outputs
LOOKED_AT = 50  # samples of an operator; of those that are small enough the first and the last are taken
TOLERANCES = 100  # a planted error over the default rtol: 1e-4 of the largest entry where everything is float64
SEED = 0
SKIPPED = ("as_strided.partial_views",)  # reads the storage that its input is a view of, so it has more inputs than are seen
SCREENED = (torch.float16, torch.bfloat16, torch.complex32)  # finite differences of casts to these say little: other checks are for them


def real_size(tensor: Tensor) -> int:
    """How many real coordinates a tensor has."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def seeded(seed: int = SEED) -> None:
    """Samples draw from torch, numpy and random; random operators draw from torch. All restart from here."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed formats a traceback for each device that is not there
    np.random.seed(seed)
    random.seed(seed)


def is_number(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


@dataclass(eq=False)
class Sample:
    """One operator at one of its samples: a `Function` of the leaves that require a gradient, None among its gradients filled with zeros."""

    name: str
    operator: Callable[..., object]
    leaves: list[Any]
    spec: pytree.TreeSpec

    @cached_property
    def _graph(self) -> tuple[list[Tensor], list[Tensor]]:
        return self._graph_at(self.inputs)

    def _graph_at(self, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        leaves = self._fresh(inputs)
        return leaves, self._call(leaves)

    @cached_property
    def _places(self) -> list[int]:
        return [n for n, leaf in enumerate(self.leaves) if is_number(leaf) and leaf.requires_grad]

    @cached_property
    def inputs(self) -> list[Tensor]:
        return [self.leaves[n].detach().clone() for n in self._places]

    @cached_property
    def _differentiable(self) -> list[int]:
        return [n for n, output in enumerate(self._graph[1]) if output.requires_grad]

    def _fresh(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs]

    def _call(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Every floating output at `inputs`; a random operator draws the same numbers each time."""
        leaves = [leaf.detach().clone() if is_number(leaf) else leaf for leaf in self.leaves]
        for place, x in zip(self._places, inputs, strict=True):
            leaves[place] = x
        sample, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        seeded()
        with blamed("GV002", "forward"):
            return [output for output in pytree.tree_leaves(self.operator(sample, *args, **kwargs)) if is_number(output)]

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            outputs = self._call([x.detach().clone(memory_format=torch.preserve_format) for x in inputs])
        return [outputs[n] for n in self._differentiable]

    def vjp(self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        leaves, outputs = self._graph if inputs is None else self._graph_at(inputs)
        asked = [(outputs[n], c) for n, c in zip(self._differentiable, cotangents, strict=True) if c is not None]
        with blamed("GV003", "backward"):
            grads = torch.autograd.grad([o for o, _ in asked], leaves, [c for _, c in asked], allow_unused=True, retain_graph=True)
        return [torch.zeros_like(x) if g is None else g.clone() for g, x in zip(grads, leaves, strict=True)]

    @cached_property
    def jacobian(self) -> Tensor:
        """The analytic one [outputs, inputs], in real coordinates."""
        outputs, rows = self.values(self.inputs), []
        for n, output in enumerate(outputs):
            for j in range(real_size(output)):
                cotangent = one_hot(output.shape, output.dtype, output.device, j)
                rows.append(_flat(self.vjp([cotangent if k == n else None for k in range(len(outputs))])))
        return torch.stack(rows) if rows else torch.zeros(0, sum(map(real_size, self.inputs)))

    @cached_property
    def wrong_entry(self) -> tuple[int, Tensor] | None:
        """A row of the Jacobian, and what makes its largest entry wrong by TOLERANCES tolerances if added [inputs]; None where all are zero."""
        sizes = self.jacobian.abs().nan_to_num(nan=0.0, posinf=0.0)
        if not sizes.any():
            return None
        row, column = divmod(int(sizes.argmax()), sizes.shape[1])
        error = torch.zeros(sizes.shape[1], dtype=torch.float64)
        single = any(t.dtype in SINGLE for t in (*self.values(self.inputs), *self.inputs))
        error[column] = TOLERANCES * (RTOL_LOW if single else RTOL) * self.jacobian[row, column]
        return row, error

    @property
    def fits(self) -> bool:
        """Small enough, dense, and with outputs of at least single precision."""
        columns = sum(map(real_size, self.inputs))
        if not 0 < columns <= MOST_INPUTS or any(isinstance(t, Tensor) and t.layout != torch.strided for t in self.leaves):
            return False
        outputs = self.values(self.inputs)
        return 0 < columns * sum(map(real_size, outputs)) <= MOST_ENTRIES and not any(o.dtype in SCREENED for o in outputs)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([flat_real(t) for t in tensors])


def samples_of(operator: Any, dtype: torch.dtype, seed: int = SEED) -> list[Sample]:
    """The first and the last of an operator's samples that are small enough; `seed`: of what they draw."""
    if not operator.supports_autograd or operator.full_name in SKIPPED or dtype not in operator.supported_backward_dtypes("cpu"):
        return []
    seeded(seed)
    found = operator.sample_inputs("cpu", dtype, requires_grad=True, small_inputs_only=True)
    named = list(_named(operator, dtype, islice(found, LOOKED_AT)))
    first = next((sample for sample in named if sample.fits), None)
    last = next((sample for sample in reversed(named) if sample is first or sample.fits), None)
    return [sample for sample in dict.fromkeys((first, last)) if sample is not None]


def _named(operator: Any, dtype: torch.dtype, found: Iterator[Any]) -> Iterator[Sample]:
    for n, sample in enumerate(list(found)):
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        run = partial(_run, operator, sample.output_process_fn_grad)
        yield Sample(f"{operator.full_name} {str(dtype).removeprefix('torch.')} {n}", run, leaves, spec)


def _run(operator: Any, process: Callable[[object], object], *args: object, **kwargs: object) -> object:
    """As PyTorch's own gradient tests call it: the wrapper makes inputs symmetric, triangular …, the processing leaves out what has no gradient."""
    return process(operator.gradcheck_wrapper(operator.get_op(), *args, **kwargs))


def corpus() -> list[tuple[Any, torch.dtype]]:
    """Every operator with every precision, in the database's order."""
    return [(operator, dtype) for operator in _operators() for dtype in DTYPES]


def _operators() -> list[Any]:
    """PyTorch's op database. Imported late, as that takes seconds; it also forbids the process to set backend flags, which is taken back."""
    from torch.testing._internal.common_methods_invocations import op_db

    torch.backends.__allow_nonbracketed_mutation_flag = True
    return list(op_db)
