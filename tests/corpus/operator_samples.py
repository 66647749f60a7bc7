"""PyTorch's own operators at the samples of its op database: as a user's callable, with one wrong
entry, and as somebody's Function."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from gradverify.numerics.function.coordinates import SINGLE, flat_real, one_hot
from gradverify.numerics.tolerance import RTOL, RTOL_LOW
from gradverify.subject.subject import Argument

DTYPES = (torch.float64, torch.complex128)
# Real coordinates of the inputs; of the inputs times those of the outputs
MOST_INPUTS, MOST_ENTRIES = 60, 3000
# Samples of an operator; of those that are small enough the first and the last are taken
LOOKED_AT = 50
# A planted error over the default rtol: 1e-4 of the largest entry where everything is float64
TOLERANCES = 100
# Reads the storage that its input is a view of, so it has more inputs than are seen
SKIPPED = ("as_strided.partial_views",)
# Finite differences of casts to these say little: other checks are for them
SCREENED = (torch.float16, torch.bfloat16, torch.complex32)
Call = Callable[..., Any]


def real_size(tensor: Tensor) -> int:
    """How many real coordinates a tensor has."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def seeded(seed: int = 0) -> None:
    """Samples draw from torch, numpy and random; random operators draw from torch. All restart from
    here."""
    # torch.manual_seed formats a traceback for each device that is not there
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def is_number(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def is_usual(leaf: object) -> bool:
    return not isinstance(leaf, Tensor) or not (leaf.is_meta or leaf.is_nested)


@dataclass(eq=False)
class Sample:
    """One operator at one of its samples."""

    name: str
    operator: Call
    leaves: list[Any]
    spec: pytree.TreeSpec

    @property
    def inputs(self) -> list[Tensor]:
        return [
            leaf.detach().clone().requires_grad_()
            for leaf in self.leaves
            if is_number(leaf) and leaf.requires_grad
        ]

    def graph(self) -> tuple[list[Tensor], list[Tensor]]:
        """Inputs, and the outputs that depend on them; a random operator draws the same numbers
        each time."""
        inputs = self.inputs
        given = iter(inputs)
        leaves = [
            leaf if not is_number(leaf) else next(given) if leaf.requires_grad else leaf.clone()
            for leaf in self.leaves
        ]
        seeded()
        return inputs, [y for y in called(self, leaves) if is_number(y) and y.requires_grad]

    @property
    def wrong_entry(self) -> tuple[int, Tensor] | None:
        """A row of the Jacobian in real coordinates, and what makes its largest entry wrong by
        TOLERANCES tolerances if added [inputs]; None where all are zero."""
        inputs, outputs = self.graph()
        rows = [
            flat(
                [
                    torch.zeros_like(x) if g is None else g
                    for x, g in zip(
                        inputs,
                        torch.autograd.grad(
                            y,
                            inputs,
                            one_hot(y.shape, y.dtype, y.device, j),
                            allow_unused=True,
                            retain_graph=True,
                        ),
                        strict=True,
                    )
                ]
            )
            for y in outputs
            for j in range(real_size(y))
        ]
        sizes = torch.stack(rows).abs().nan_to_num(nan=0.0, posinf=0.0)
        if not sizes.any():
            return None
        row, column = divmod(int(sizes.argmax()), sizes.shape[1])
        error = torch.zeros(sizes.shape[1], dtype=torch.float64)
        error[column] = (
            TOLERANCES
            * (RTOL_LOW if any(t.dtype in SINGLE for t in (*outputs, *inputs)) else RTOL)
            * rows[row][column]
        )
        return row, error

    @property
    def fits(self) -> bool:
        """Small enough, dense, and with outputs of at least single precision."""
        columns = sum(map(real_size, self.inputs))
        if not 0 < columns <= MOST_INPUTS or any(
            isinstance(t, Tensor) and t.layout != torch.strided for t in self.leaves
        ):
            return False
        outputs = self.graph()[1]
        return 0 < columns * sum(map(real_size, outputs)) <= MOST_ENTRIES and not any(
            y.dtype in SCREENED for y in outputs
        )


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([flat_real(tensor) for tensor in tensors])


def called(sample: Sample, leaves: list[Any]) -> list[Any]:
    first, args, kwargs = pytree.tree_unflatten(leaves, sample.spec)
    return [
        leaf
        for leaf in pytree.tree_leaves(sample.operator(first, *args, **kwargs))
        if isinstance(leaf, Tensor)
    ]


# ---- the database
def corpus() -> list[tuple[Any, torch.dtype]]:
    """Every operator with every precision, in the database's order. It is imported late, as that
    takes seconds; it also forbids the process to set backend flags, which is taken back."""
    from torch.testing._internal.common_methods_invocations import op_db

    torch.backends.__allow_nonbracketed_mutation_flag = True
    return [(operator, dtype) for operator in op_db for dtype in DTYPES]


def samples_of(operator: Any, dtype: torch.dtype, seed: int = 0) -> list[Sample]:
    """The first and the last of an operator's samples that are small enough; `seed`: of what they
    draw."""
    if (
        not operator.supports_autograd
        or operator.full_name in SKIPPED
        or dtype not in operator.supported_backward_dtypes("cpu")
    ):
        return []
    seeded(seed)
    every = list(
        _named(
            operator,
            dtype,
            list(
                islice(
                    operator.sample_inputs(
                        "cpu", dtype, requires_grad=True, small_inputs_only=True
                    ),
                    LOOKED_AT,
                )
            ),
        )
    )
    first = next((sample for sample in every if sample.fits), None)
    last = next((sample for sample in reversed(every) if sample is first or sample.fits), None)
    return [sample for sample in dict.fromkeys((first, last)) if sample is not None]


def _named(operator: Any, dtype: torch.dtype, found: list[Any]) -> Iterator[Sample]:
    """As PyTorch's own gradient tests call it: the wrapper makes inputs symmetric, triangular …,
    the processing leaves out what has no gradient."""
    for n, sample in enumerate(found):

        def run(
            *args: object, process: Call = sample.output_process_fn_grad, **kwargs: object
        ) -> object:
            return process(operator.gradcheck_wrapper(operator.get_op(), *args, **kwargs))

        yield Sample(
            f"{operator.full_name} {str(dtype).removeprefix('torch.')} {n}",
            run,
            *pytree.tree_flatten((sample.input, sample.args, sample.kwargs)),
        )


# ---- as a user would have them
def plain(sample: Sample) -> tuple[Call, list[Argument]]:
    """The sample as a callable of all its tensors."""
    places = [n for n, leaf in enumerate(sample.leaves) if isinstance(leaf, Tensor)]

    def call(*tensors: Tensor) -> Any:
        leaves = list(sample.leaves)
        for place, tensor in zip(places, tensors, strict=True):
            leaves[place] = tensor
        outputs = called(sample, leaves)
        return tuple(outputs) if len(outputs) != 1 else outputs[0]

    leaves = [sample.leaves[n] for n in places]
    return call, [
        Argument(f"x{n}", leaf.detach().clone(), is_number(leaf) and leaf.requires_grad)
        for n, leaf in enumerate(leaves)
    ]


def wrapped(call: Call) -> type[Function]:
    """A Function that computes what the callable does and lets autograd differentiate it in
    backward, once."""

    class Wrapped(Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Any:
            ctx.save_for_backward(*tensors)
            with torch.enable_grad():
                output = call(
                    *(
                        x.detach().requires_grad_(needed)
                        for x, needed in zip(tensors, ctx.needs_input_grad, strict=True)
                    )
                )
            outputs = output if isinstance(output, tuple) else (output,)
            own = tuple(y.detach().clone() for y in outputs)
            ctx.mark_non_differentiable(
                *(mine for mine, y in zip(own, outputs, strict=True) if not y.requires_grad)
            )
            return own if isinstance(output, tuple) else own[0]

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: Tensor) -> Any:
            leaves = [
                x.detach().requires_grad_(needed)
                for x, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)
            ]
            with torch.enable_grad():
                output = call(*leaves)
            pairs = [
                (y, g)
                for y, g in zip(
                    output if isinstance(output, tuple) else (output,), grads, strict=True
                )
                if y.requires_grad
            ]
            found = iter(
                torch.autograd.grad(
                    [y for y, _ in pairs],
                    [x for x in leaves if x.requires_grad],
                    [g for _, g in pairs],
                    allow_unused=True,
                )
            )
            return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)

    return Wrapped


class Leak(Function):
    """The identity of outputs, whose backward adds a multiple of `error` [real coordinates of the
    inputs] to the gradients of the inputs: the cotangent's coordinate `row`."""

    @staticmethod
    def forward(
        ctx: Any, row: int, error: Tensor, count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.row, ctx.error, ctx.inputs = row, error, [(x.shape, x.dtype) for x in tensors[count:]]
        return tuple(y.view_as(y) for y in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        extra = ctx.error * flat(grads)[ctx.row]
        sizes = [shape.numel() * (2 if dtype.is_complex else 1) for shape, dtype in ctx.inputs]
        parts = zip(torch.split(extra, sizes), ctx.inputs, strict=True)
        return (
            None,
            None,
            None,
            *grads,
            *(
                (
                    torch.view_as_complex(part.reshape(*shape, 2))
                    if dtype.is_complex
                    else part.reshape(shape)
                ).to(dtype)
                for part, (shape, dtype) in parts
            ),
        )


def damaged(sample: Sample) -> tuple[Call, list[Argument]] | None:
    """`plain` with one wrong entry in its Jacobian; None where that is zero."""
    entry = sample.wrong_entry
    if entry is None:
        return None
    call, arguments = plain(sample)
    places = [n for n, argument in enumerate(arguments) if argument.differentiable]

    def leaking(*tensors: Tensor) -> Any:
        output = call(*tensors)
        outputs = list(output) if isinstance(output, tuple) else [output]
        meant = [n for n, y in enumerate(outputs) if is_number(y) and y.requires_grad]
        if meant:
            leaked = Leak.apply(
                *entry, len(meant), *(outputs[n] for n in meant), *(tensors[n] for n in places)
            )
            for n, y in zip(meant, leaked, strict=True):
                outputs[n] = y
        return tuple(outputs) if isinstance(output, tuple) else outputs[0]

    return leaking, arguments
