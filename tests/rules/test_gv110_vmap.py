from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from corpus.functions import SAMPLES
from gallery.twins import load
from live import check, codes, evidence, fixed, message, randn
from torch import Tensor, nn
from torch.autograd import Function

X, W = randn(4, 3), randn(2, 3, seed=1)
FLIPPED = torch.tensor([0, 2, 1])


class Linear(Function):
    """x @ w.T; what subclasses change is the vmap rule."""

    @staticmethod
    def forward(x, w):
        return x @ w.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return (grad_output @ w.conj()).sum_to_size(x.shape), (grad_output.mT @ x.conj()).sum_to_size(w.shape)


def first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def ruled(rule: Callable[..., Any]) -> type[Function]:
    """Linear with `rule(apply, info, in_dims, x, w)`."""

    class Ruled(Linear):
        @staticmethod
        def vmap(info, in_dims, x, w):
            return rule(Ruled.apply, info, in_dims, x, w)

    return Ruled


def right(apply, info, in_dims, x, w):
    return apply(first(x, in_dims[0], info.batch_size), first(w, in_dims[1], info.batch_size)), 0


WRONG = {
    "every argument along 0": lambda apply, info, in_dims, x, w: (apply(x, w), 0),
    "examples in another order": lambda apply, info, in_dims, x, w: (right(apply, info, in_dims, x, w)[0][FLIPPED], 0),
    "only the first example": lambda apply, info, in_dims, x, w: (right(apply, info, in_dims, x, w)[0][:1].expand(info.batch_size, 4, 2), 0),
    "out_dims": lambda apply, info, in_dims, x, w: (right(apply, info, in_dims, x, w)[0], 1),
    "a factor": lambda apply, info, in_dims, x, w: (2 * right(apply, info, in_dims, x, w)[0], 0),
    "no graph": lambda apply, info, in_dims, x, w: (right(apply, info, in_dims, x, w)[0].detach(), 0),
    "no graph to the weight": lambda apply, info, in_dims, x, w: (right(apply, info, in_dims, x, w.detach())[0], 0),
}
RAISES = ruled(lambda apply, info, in_dims, x, w: (apply(x, w).item(), 0))


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_a_wrong_vmap_rule_is_found(rule):
    result = check(ruled(rule), X, W)
    assert (result.verdict, codes(result)) == ("fail", {"GV110"})
    assert message(result, "GV110").startswith("with in_dims (")


@pytest.mark.parametrize("name", ["every argument along 0", "only the first example", "no graph to the weight"])
def test_it_is_found_in_float32_and_for_complex_numbers_too(name):
    assert codes(check(ruled(WRONG[name]), X.float(), W.float(), dtype="float32")) == {"GV110"}
    wide = randn(4, 3, dtype=torch.complex128), randn(2, 3, seed=1, dtype=torch.complex128)
    assert codes(check(ruled(WRONG[name]), *wide, dtype="complex128")) == {"GV110"}


def test_the_element_is_named_with_the_number_that_torch_has_for_it():
    said = message(check(ruled(WRONG["a factor"]), X, W), "GV110")
    row, column, example, mine, looped = re.fullmatch(
        r"with in_dims \(0, 0\) y0\[(\d),(\d)\] of example (\d) is (\S+), but (\S+) from a loop", said).groups()
    seen = evidence(ruled(WRONG["a factor"]), X, W)
    points = seen.modes.batches.points((0, 0))
    truth = torch.func.vmap(F.linear)(*(torch.stack(each) for each in zip(*points, strict=True)))[int(example), int(row), int(column)]
    assert float(looped) == pytest.approx(float(truth), rel=1e-5)
    assert float(mine) == pytest.approx(2 * float(truth), rel=1e-5)


def test_a_gradient_is_compared_too():
    said = message(check(ruled(WRONG["no graph to the weight"]), X, W), "GV110")
    assert re.search(r"grad_w\[\d,\d\] of example \d is 0, but ", said)


class Masks(Function):
    """relu² by a boolean index, whose generated rule raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        y, kept = torch.zeros_like(x), x > 0
        y[kept] = x[kept] ** 2
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0].clamp_min(0) * grad_output


class Branches(Linear):
    """A branch on a value: control flow that vmap cannot follow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x @ w.mT if x.sum() > -1e9 else x.new_zeros(4, 2)


LOUD = {"by hand": (RAISES, (X, W)), "a boolean mask": (Masks, (X,)), "a branch": (Branches, (X, W)),
        "a number": (load("vmap_rule_reads_a_number").Faulty, (X, fixed(W)))}


@pytest.mark.parametrize("function, inputs", LOUD.values(), ids=LOUD)
def test_a_rule_that_raises_is_a_warning_as_the_caller_is_told(function, inputs):
    result = check(function, *inputs)
    assert (result.verdict, [(found.code, found.severity) for found in result.findings]) == ("pass", [("GV110", "warning")])
    assert "the vmapped call raised" in message(result, "GV110")
    must = check(function, *inputs, vmap=True)
    assert (must.verdict, codes(must)) == ("fail", {"GV110"})


def test_wrong_numbers_are_an_error_though_another_choice_of_in_dims_raises():
    def rule(apply, info, in_dims, x, w):
        if in_dims[1] is not None:
            raise NotImplementedError("a batched weight")
        return 2 * right(apply, info, in_dims, x, w)[0], 0

    found, = check(ruled(rule), X, W).findings
    assert (found.severity, found.message.startswith("with in_dims (-1, None) y0[")) == ("error", True)


def test_a_rule_that_raises_shows_the_users_own_frames():
    found, = check(RAISES, X, W).findings
    assert "the vmapped call raised RuntimeError" in found.message
    assert [frame.function for frame in found.frames] == ["vmap", "<lambda>"]


def test_a_function_that_declares_a_rule_and_has_no_setup_context_is_found():
    class Old(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * ctx.saved_tensors[0] * grad_output

    assert "setup_context" in message(check(Old, X), "GV110")


class Generated(Linear):
    generate_vmap_rule = True


class Gather(Function):
    """Rows by an integer index, in all combinations of what is batched."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table, index):
        return table.index_select(0, index)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])
        ctx.rows = inputs[0].shape

    @staticmethod
    def backward(ctx, grad_output):
        index, = ctx.saved_tensors
        return grad_output.new_zeros(ctx.rows).index_add(0, index, grad_output), None


class Normalised(Function):
    """Its gradient is rounding throughout where it is summed, and its value too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return (x - x.mean(-1, keepdim=True)).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, grad_output):
        whole = grad_output[..., None].expand(ctx.shape)
        return whole - whole.mean(-1, keepdim=True)


class Logarithm(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        if not torch.compiler.is_compiling() and not torch._C._functorch.is_batchedtensor(x) and bool((x > 2).any()):
            raise ValueError("x must be at most 2")
        return x.log()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / ctx.saved_tensors[0]


class Both(Function):
    """Two outputs, one of them not differentiable."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x, x.argmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output, _):
        return 2 * ctx.saved_tensors[0] * grad_output


RIGHT = {
    "a rule": (ruled(right), (X, W)),
    "a rule in float32": (ruled(right), (X.float(), W.float())),
    "a generated rule": (Generated, (X, W)),
    "complex": (Generated, (randn(4, 3, dtype=torch.complex128), randn(2, 3, seed=1, dtype=torch.complex128))),
    "one input fixed": (Generated, (X, fixed(W))),
    "integers": (Gather, (X, torch.tensor([3, 0, 3]))),
    "rounding throughout": (Normalised, (X,)),
    "another output": (Both, (X,)),
    "0-dim": (Both, (torch.tensor(1.5, dtype=torch.float64),)),
    "defined near x only": (Logarithm, (torch.tensor([1.9, 1.5], dtype=torch.float64),)),
}


@pytest.mark.parametrize("function, inputs", RIGHT.values(), ids=RIGHT)
def test_a_right_rule_is_spared(function, inputs):
    result = check(function, *inputs, dtype=str(inputs[0].dtype).removeprefix("torch."), select=("GV110",), ignore=("GV0",))
    assert (codes(result), ran(result).status) == (set(), "ran")
    assert ran(result).calls.batched > 0


@pytest.mark.parametrize("twin, expected", [("Faulty", {"GV110"}), ("Right", set())])
def test_functions_inside_callables_and_modules_are_seen(twin, expected):
    function = getattr(load("vmap_ignores_in_dims"), twin)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(randn(3, 3))

        def forward(self, x):
            return function.apply(x.tanh(), self.weight).sum(-1)

    square = randn(3, 3, seed=2)
    assert codes(check(lambda x, w: function.apply(x.tanh(), w).sum(-1), square, randn(3, 3))) == expected
    assert codes(check(Layer(), square)) == expected


def ran(result: Any) -> Any:
    run, = (run for run in result.rules if run.code == "GV110")
    return run


def test_without_a_rule_it_says_so_and_vmap_true_makes_that_a_finding():
    assert ran(check(Linear, X, W)).reason == "Linear declares no vmap rule"
    assert message(check(Linear, X, W, vmap=True), "GV110") == "the spec says `vmap: true`, but Linear declares no vmap rule"
    assert ran(check(ruled(WRONG["a factor"]), X, W, vmap=False)).reason == "the spec says `vmap: false`"


def test_torchs_own_operators_are_left_to_torch_unless_the_spec_says_otherwise():
    assert ran(check(torch.sin, X)).reason.startswith("no custom Function is in the graph")
    assert ran(check(torch.sin, X, vmap=True)).status == "ran"
    assert "the vmapped call raised" in message(check(lambda x: x * float(x.detach().sum()) / float(x.detach().sum()), X, vmap=True,
                                                      select=("GV110",), ignore=("GV0",)), "GV110")


class Drops(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        mask = torch.rand_like(x) > 0.5
        return x * mask, mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        return grad_output * ctx.saved_tensors[0]


class InPlace(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.mul_(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(output)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


@pytest.mark.parametrize("function, reason", [(Drops, "the function draws random numbers"), (InPlace, "the function writes into its inputs")])
def test_what_vmap_cannot_be_compared_on_is_said(function, reason):
    result = check(function, X)
    assert (codes(result), ran(result).reason) == (set(), reason)


@pytest.mark.population(most=26)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_right_functions_raise_no_false_alarm(sample):
    result = check(sample.call, *sample.make(), vmap=True, select=("GV110",), ignore=("GV0",))
    assert codes(result) == set()


def test_a_batched_call_counts_its_examples():
    calls = ran(check(Generated, X, W)).calls
    variants, examples = 4, 3                   # in_dims (0, 0), (−1, −1), (−1, None), (None, −1)
    assert calls.batched == 2 * variants * examples
    assert (calls.forward, calls.backward) == (2 * variants * examples, 2 * variants * examples)


def test_torchs_own_faults_under_vmap_are_found():
    x = randn(3, 4)
    assert codes(check(lambda x, v: x.index_fill(0, torch.tensor([0]), v), x, randn(), vmap=True)) == {"GV110"}
    assert codes(check(lambda x: x.sum().roll(1), x, vmap=True)) == {"GV110"}
    assert codes(check(lambda x, s: torch.select_scatter(x, s, 0, 2), randn(4), randn(), vmap=True)) == {"GV110"}


@pytest.mark.parametrize("apart", [False, True])
def test_a_generated_rule_counts_an_output_that_examples_share_for_each_of_them(apart):
    """Torch's own mistake, against a loop: gradients of exp(x), beside an output that y reaches, where y alone is batched."""
    class Both(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y):
            return x * y.sin(), x.exp() + (y if apart else 0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, a, b):
            x, y = ctx.saved_tensors
            return a * y.sin() + b * x.exp(), a * x * y.cos() + (b if apart else 0)

    result = check(Both, randn(3), randn(3, seed=1))
    assert codes(result) == (set() if apart else {"GV110"})
    assert all("torch's generated rule counts" in finding.hint for finding in result.findings)
