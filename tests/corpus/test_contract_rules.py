"""The rules that vary the call, on PyTorch's own operators: as they are, and each as somebody's Function that calls the operator's own backward.

About fifty samples each way; with GRADVERIFY_WHOLE_CORPUS=1 all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from live import check
from torch import Tensor
from torch.autograd import Function
from torch.utils import _pytree as pytree

from corpus.operator_samples import Sample, corpus, is_number, samples_of
from corpus.test_operator_samples import STRIDE, WHOLE
from gradverify.subject.subject import Argument

RULES = ("GV206", "GV209", "GV210", "GV211", "GV223", "GV225", "GV226", "GV113")
VALUES = ("GV101", "GV102", "GV103", "GV104")     # where these stand, the rules that rest on right values do not run
LAYOUT = "backward views its indices, which raises where they are sliced"
FAULTY = {name: {"GV211": LAYOUT} for name in ("nn.functional.max_unpool3d", "nn.functional.max_unpool3d.grad")}
ASKED = "the operator is asked for float64, whatever its input"
ASKING = ("double", "cdouble", "float_power", "softmax.with_dtype", "log_softmax.with_dtype", "nn.functional.softmin.with_dtype")
WIDE = {name: {"GV226": ASKED} for name in ASKING}

pytestmark = [pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]  # operators warn of what they deprecate


def chosen() -> Iterator[Sample]:
    for n, (operator, dtype) in enumerate(corpus()):
        if WHOLE or n % STRIDE == 0 or operator.full_name in FAULTY:
            yield from (sample for sample in samples_of(operator, dtype)[:1] if all(map(is_usual, sample.leaves)))


def is_usual(leaf: object) -> bool:
    return not isinstance(leaf, Tensor) or not (leaf.is_meta or leaf.is_nested)


def plain(sample: Sample) -> tuple[Callable[..., Any], list[Argument]]:
    """The sample as a callable of all its tensors."""
    places = [n for n, leaf in enumerate(sample.leaves) if isinstance(leaf, Tensor)]

    def call(*tensors: Tensor) -> Any:
        leaves = list(sample.leaves)
        for place, tensor in zip(places, tensors, strict=True):
            leaves[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, sample.spec)
        outputs = [leaf for leaf in pytree.tree_leaves(sample.operator(first, *args, **kwargs)) if isinstance(leaf, Tensor)]
        return tuple(outputs) if len(outputs) != 1 else outputs[0]

    leaves = [sample.leaves[n] for n in places]
    return call, [Argument(f"x{n}", leaf.detach().clone(), is_number(leaf) and leaf.requires_grad) for n, leaf in enumerate(leaves)]


def wrapped(call: Callable[..., Any]) -> type[Function]:
    """A Function that computes what the callable does and lets autograd differentiate it in backward."""

    class Wrapped(Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Any:
            ctx.save_for_backward(*tensors)
            output = call(*tensors)
            return tuple(y.clone() for y in output) if isinstance(output, tuple) else output.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            leaves = [x.detach().requires_grad_(needed) for x, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)]
            with torch.enable_grad():
                output = call(*leaves)
            pairs = [(y, g) for y, g in zip(output if isinstance(output, tuple) else (output,), grads, strict=True) if y.requires_grad]
            found = iter(torch.autograd.grad([y for y, _ in pairs], [x for x in leaves if x.requires_grad], [g for _, g in pairs], allow_unused=True))
            return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)

    return Wrapped


def found(function: Any, arguments: list[Argument]) -> set[str]:
    return {finding.code for finding in check(function, *arguments, select=(*RULES, *VALUES)).findings if finding.code in RULES}


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    with torch.random.fork_rng(devices=[]):
        return list(chosen())


def operator_name(sample: Sample) -> str:
    return sample.name.split()[0]


def test_torchs_operators_are_left_alone_but_for_those_that_are_faulty(samples):
    assert len(samples) >= 40
    wrong = {sample.name: codes for sample in samples if (codes := found(*plain(sample)))}
    assert wrong == {sample.name: set(FAULTY[operator_name(sample)]) for sample in samples if operator_name(sample) in FAULTY}


def test_a_function_that_calls_an_operators_own_backward_is_left_alone_too(samples):
    known = {**FAULTY, **WIDE}
    for sample in samples:
        call, arguments = plain(sample)
        assert found(wrapped(call), arguments) == set(known.get(operator_name(sample), {})), sample.name
