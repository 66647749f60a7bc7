"""Sparse and jagged inputs and outputs: what the function gets, and that right gradients pass and
wrong ones are caught, at their dense index.

The truth is torch's: its own sparse operators are right, and the gradient of a planted fault is
theirs with one row scaled."""

from __future__ import annotations

import pytest
import torch
from gallery.twins import load
from live import case, tensor
from torch.autograd import Function

import gradverify
from gradverify.model.case import Oracles, Sparse
from gradverify.subject.forms import LARGEST, taken
from gradverify.subject.prepare import prepare
from gradverify.verify import verify

LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}


def matrix(layout="coo", shape=(4, 6), dtype=torch.float64):
    """About half of a normal matrix; blocks of 2 × 2 where the layout has blocks."""
    generator = torch.Generator().manual_seed(3)
    blocks = (
        (torch.rand(shape[0] // 2, shape[1] // 2, generator=generator) < 0.5)
        .repeat_interleave(2, 0)
        .repeat_interleave(2, 1)
    )
    dense = torch.randn(shape, generator=generator, dtype=dtype) * blocks
    return dense.to_sparse(layout=LAYOUTS[layout], blocksize=(2, 2) if layout[0] == "b" else None)


def dense(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def jagged(*lengths):
    return torch.nested.nested_tensor([dense(n, 3) for n in lengths], layout=torch.jagged)


def described(layout="coo", **said):
    blocksize = (2, 2) if layout[0] == "b" else None
    return prepare(
        case(
            "builtins:print",
            [tensor(4, 6, name="x", sparse=Sparse(layout, blocksize=blocksize, **said))],
        )
    )


# ---- what the function gets
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_holds_the_numbers_of_the_dense_tensor_and_its_gradient_comes_back(layout):
    [argument] = described(layout).arguments
    x = argument.value.clone().requires_grad_()
    made = argument.form.built(x)
    assert made.layout is LAYOUTS[layout] and torch.equal(made.to_dense(), argument.value)
    assert (
        0 < int(argument.form.specified.sum()) < 24
        and not argument.value[~argument.form.specified].any()
    )
    (made.to_dense() * dense(4, 6)).sum().backward()
    assert torch.equal(x.grad, dense(4, 6) * argument.form.specified)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_that_is_sparse_keeps_its_pattern_and_its_explicit_zeros(layout):
    given = matrix(layout)
    given.values().reshape(-1)[:1].zero_() if layout != "coo" else given._values()[:1].zero_()
    x, form = taken(given, "x is")
    assert (
        torch.equal(x, given.to_dense())
        and form.built(x).values().numel() == given.values().numel()
    )


def test_one_that_is_too_large_when_dense_is_refused_in_a_sentence():
    given = torch.sparse_coo_tensor([[0], [1]], [1.0], (LARGEST, 2))
    found = gradverify.check(lambda x: x.to_dense(), [given])
    assert (
        found.verdict == "error"
        and "too large to be made dense" in found.reason
        and not found.faults
    )


# ---- right ones
OPERATORS = {
    "mm": (lambda a, b: torch.sparse.mm(a, b), ("coo", "csr")),
    "@": (lambda a, b: a @ b, ("csc",)),
    "sum": (lambda a, b: torch.sparse.sum(a, 0), ("coo",)),
    "sparse @ sparse": (lambda a, b: torch.sparse.mm(a, a.transpose(0, 1)), ("coo",)),
    "sampled_addmm": (lambda a, b: torch.sparse.sampled_addmm(a, dense(4, 3), b.T), ("csr",)),
    "to_dense": (lambda a, b: a.to_dense(), ("bsr",)),
    "a + a": (lambda a, b: a + a, ("coo", "bsc")),
    "values": (
        lambda a, b: (
            a.values().exp() if a.layout is not torch.sparse_coo else a.coalesce().values().exp()
        ),
        ("coo", "bsr"),
    ),
}


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for name, (_, layouts) in OPERATORS.items() for layout in layouts],
)
def test_torchs_own_operators_pass(name, layout):
    found = gradverify.check(OPERATORS[name][0], [matrix(layout), dense(6, 3)])
    assert found.verdict == "pass" and not found.findings, str(found)


@pytest.mark.parametrize("layout", ["coo", "bsr"])
def test_a_dense_input_made_sparse_is_an_output_like_any(layout):
    blocks = (2, 2) if layout == "bsr" else None
    found = gradverify.check(
        lambda x: (x * x).to_sparse(layout=LAYOUTS[layout], blocksize=blocks), [dense(4, 6)]
    )
    assert found.verdict == "pass" and found.outputs[0].shape == (4, 6)


def test_a_function_may_write_into_what_it_gets():
    assert gradverify.check(lambda a: a.mul_(2).to_dense() ** 2, [matrix()]).verdict == "pass"


@pytest.mark.parametrize("mode", ["rows", "blocks"])
def test_the_other_modes_and_a_fixed_step_see_a_wrong_row_too(mode):
    for factor, verdict in ((1.0, "pass"), (1.5, "fail")):
        inputs = [matrix(), dense(6, 3)]
        assert (
            gradverify.check(Product.apply_with(factor, SHAPES["dense"]), inputs, mode=mode).verdict
            == verdict
        )
    assert (
        gradverify.check(Product.apply_with(1.5, SHAPES["dense"]), inputs, eps=1e-6).verdict
        == "fail"
    )


# ---- Functions
class Product(Function):
    """a @ b; the gradient of a as `shaped` makes it of the dense one, row 2 times `factor`."""

    factor = 1.0

    @staticmethod
    def shaped(gradient, a):
        return gradient

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @classmethod
    def apply_with(cls, factor, shaped):
        class Own(cls):
            @staticmethod
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                gradient = g @ b.T
                gradient[2] *= factor
                return shaped(gradient, a), a.to_dense().T @ g

        return Own


SHAPES = {
    "dense": lambda g, a: g,
    "of the same pattern": lambda g, a: g.sparse_mask(a),
    "sparse, of all elements": lambda g, a: g.to_sparse(),
}


@pytest.mark.parametrize("shaped", SHAPES)
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_gradient_of_any_layout_is_read_at_the_elements_held(shaped, layout):
    found = gradverify.check(Product.apply_with(1.0, SHAPES[shaped]), [matrix(layout), dense(6, 3)])
    assert found.verdict == "pass" and not found.findings, str(found)
    held = matrix(layout).values().numel() if layout == "csr" else matrix()._nnz()
    assert [c.elements for c in found.comparisons if c.input == "0" or c.input == "a"] == [
        held * 12
    ]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_wrong_one_is_found_at_its_dense_index(layout):
    found = gradverify.check(
        Product.apply_with(1.5, SHAPES["of the same pattern"]), [matrix(layout), dense(6, 3)]
    )
    worst = found.comparisons[0].worst[0]
    assert {each.code for each in found.findings} == {"GV101"} and worst.input_index[0] == 2
    assert (
        worst.analytic == pytest.approx(1.5 * worst.numeric)
        and matrix(layout).to_dense()[worst.input_index] != 0
    )


def test_rules_on_layouts_and_modes_say_why_they_pass_over_it():
    found = gradverify.check(
        load("swaps_sparse_indices").Right, [matrix("coo", (4, 4)), dense(4, 3)]
    )
    runs = {run.code: run for run in found.rules}
    assert found.verdict == "pass"
    for code in (
        "GV108",
        "GV109",
        "GV110",
        "GV209",
        "GV210",
        "GV211",
        "GV215",
        "GV219",
        "GV225",
        "GV228",
    ):
        assert (runs[code].status, runs[code].reason) == (
            "not_applicable",
            "a is a sparse COO tensor",
        )


def pulled(a, b, g):
    return g @ b.T, a.to_dense().T @ g


def pulled_sparse(a, b, g):
    return (g @ b.T).sparse_mask(a), a.to_dense().T @ g


def pulled_wrong(a, b, g):
    return 2 * (g @ b.T).sparse_mask(a), a.to_dense().T @ g


@pytest.mark.parametrize(
    ("oracle", "verdict"),
    [
        ({"gradient": "pulled"}, "pass"),
        ({"gradient": "pulled_sparse"}, "pass"),
        ({"gradient": "pulled_wrong"}, "fail"),
        ({"reference": "mm"}, "pass"),
    ],
)
def test_oracles_speak_of_the_elements_held(oracle, verdict):
    [(key, name)] = oracle.items()
    named = {key: f"{__file__}:{name}" if key == "gradient" else f"torch:{name}"}
    described = case(
        "torch:mm",
        [tensor(4, 6, sparse=Sparse("csr", 0.4)), tensor(6, 3)],
        oracles=Oracles(**named),
    )
    found = verify(prepare(described))
    assert found.verdict == verdict, [finding.message for finding in found.findings]


# ---- jagged
class Tanh(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.saved_tensors[0] ** 2)


class Wrong(Tanh):
    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.saved_tensors[0])


def test_jagged_tensors_count_by_their_values():
    found = gradverify.check(Tanh, [jagged(2, 0, 3)])
    assert (
        found.verdict == "pass"
        and not found.findings
        and found.inputs[0].layout == "jagged"
        and found.outputs[0].shape == (5, 3)
    )
    assert {each.code for each in gradverify.check(Wrong, [jagged(2, 0, 3)]).findings} == {"GV101"}
