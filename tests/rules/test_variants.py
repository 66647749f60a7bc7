from __future__ import annotations

import warnings
from typing import Any

import pytest
import standin
import torch
from gallery.twins import GALLERY
from live import case, check, codes, evidence, message, randn, tensor
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from gradverify.rules.differ import Called, subsets
from gradverify.rules.variants import compared
from gradverify.running.inline import run_case
from rules.functions import Right, RightProduct, X, Y, product, square
from rules.tricky import TRICKY

# ---- GV118 devices
# Two devices that give other numbers; the second one is a stand-in, or the same computation in
# another order of its sums.
OTHER_THERE, SAME_THERE = (
    f"{GALLERY}/forgets_a_factor_on_cuda.py:{twin}" for twin in ("Faulty", "Right")
)


class SumOfSquares(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x * x).sum(1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g[:, None] * ctx.saved_tensors[0]


def sides(factor: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Any, Called, Called]:
    """Of the sums of squares: as checked, and one by one from the end, the gradient times a factor,
    as another device might."""
    x = randn(3, 200, dtype=dtype)
    found = evidence(SumOfSquares, x, dtype=str(dtype).removeprefix("torch."))
    here = Called(found.outputs, found.worked.gradients)
    total = torch.zeros(3, dtype=dtype)
    for column in reversed(range(x.shape[1])):
        total = total + x[:, column] * x[:, column]
    (g,) = found.cotangents("base")
    return found, here, Called([total], (factor * (g[:, None] * x + x * g[:, None]),))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_another_order_of_sums_is_left_alone_and_a_wrong_gradient_found(dtype: torch.dtype) -> None:
    assert list(compared(*sides(dtype=dtype), "cuda")) == []
    (found,) = compared(*sides(1.001, dtype), "cuda")
    assert (
        found.code == "GV118"
        and found.message.startswith("on cuda the gradient at x[")
        and found.message.endswith("as on cpu")
    )


def test_outputs_of_another_shape_are_told() -> None:
    found, here, there = sides()
    (told,) = compared(found, here, Called([there.outputs[0][:, None]], there.gradients), "cuda")
    assert told.message == "on cuda y0 is float64 [3, 1], and not float64 [3] as on cpu"


def on_a_device(target: str, **changes: Any) -> Any:
    """Checked on the stand-in, beside the CPU; what keeps references is left out, as the stand-in
    keeps some."""
    with standin.cuda():
        return run_case(
            case(
                target,
                [tensor(2, 3, name="x")],
                device="cuda",
                other_device="cpu",
                ignore=("GV214",),
                **changes,
            )
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_function_that_is_another_one_there_is_found_and_the_same_one_is_not(dtype: str) -> None:
    faulty = on_a_device(OTHER_THERE, dtype=dtype)
    assert codes(faulty) == {"GV118"} and len(faulty.findings) == 2  # y0, and the gradient of x
    right = on_a_device(SAME_THERE, dtype=dtype)
    assert (right.verdict, right.findings) == ("pass", ())
    assert next(run.reason for run in right.rules if run.code == "GV118") == "compared with cpu"


def test_it_says_why_it_does_not_run() -> None:
    said = {
        beside: next(
            run.reason
            for run in run_case(
                case(SAME_THERE, [tensor(2, name="x")], other_device=beside, select=("GV118",))
            ).rules
            if run.code == "GV118"
        )
        for beside in (None, "cpu")
    }
    assert said == {
        None: "the spec's `matrix` names no device before this one",
        "cpu": "both devices are cpu",
    }


def test_the_stand_in_refuses_what_a_device_refuses() -> None:
    with standin.cuda():
        x, here = randn(3).to("cuda"), randn(3)
        assert (
            x.is_cuda
            and x.device == torch.device("cuda", 0)
            and not x.cpu().is_cuda
            and (2 * x).is_cuda
        )
        for refused in (
            lambda: x + here,
            lambda: torch.stack([x, here]),
            x.numpy,
            lambda: here[torch.tensor([1]).to("cuda")],
            lambda: torch.randn(2, device="cuda", generator=torch.Generator()),
        ):
            with pytest.raises((RuntimeError, TypeError), match=r"cuda|cpu"):
                refused()


# ---- GV218 grad-mode
def switching(other):
    """x² by `Right`, and something else where gradients are off."""
    return lambda x: Right.apply(x) if torch.is_grad_enabled() else other(x)


@pytest.mark.parametrize(
    "other", [lambda x: x * x * 1.0001, lambda x: x * x + 1e-6, lambda x: torch.zeros_like(x)]
)
def test_other_values_without_gradients_are_found(other):
    result = check(switching(other), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV218"})
    assert "under torch.no_grad y0[" in message(result, "GV218")


def test_a_path_for_inference_mode_alone_is_found():
    result = check(lambda x: Right.apply(x) * (1.5 if torch.is_inference_mode_enabled() else 1), X)
    assert "under torch.inference_mode y0[" in message(result, "GV218")


@pytest.mark.parametrize("other", [lambda x: x.sum(), lambda x: None, lambda x: []])
def test_another_structure_is_found(other):
    result = check(switching(other), X)
    assert "under torch.no_grad y0 is " in message(result, "GV218")


@pytest.mark.parametrize("other", [torch.square, lambda x: x.pow(2), lambda x: x * x * (1 + 1e-14)])
def test_another_way_to_the_same_values_is_fine(other):
    assert codes(check(switching(other), X)) == set()


def test_a_gradient_that_is_wrong_only_under_create_graph_is_found():
    result = check(square(lambda x, g: x * g if torch.is_grad_enabled() else 2 * x * g), X)
    assert "GV218" in codes(result)
    assert "under create_graph=True the gradient at x[" in message(result, "GV218")
    assert torch.autograd.gradcheck(
        square(lambda x, g: x * g if torch.is_grad_enabled() else 2 * x * g).apply,
        X.clone().requires_grad_(),
    )


def test_what_refuses_a_mode_refuses_it_honestly():
    def refuses(x, g):
        if torch.is_grad_enabled():
            raise RuntimeError("no second derivative")
        return 2 * x * g

    assert "GV218" not in codes(check(square(refuses), X))

    def needs_gradients(x):
        if not torch.is_grad_enabled():
            raise RuntimeError("training only")
        return x * x

    assert codes(check(needs_gradients, X)) == set()


def test_once_differentiable_and_leaf_backward_are_fine():
    class Once(Right):
        backward = staticmethod(once_differentiable(Right.backward))

    assert "GV218" not in codes(check(Once, X))
    assert "GV218" not in codes(
        check(lambda x: checkpoint(lambda z: z.sin() * z, x, use_reentrant=True), X)
    )


@pytest.mark.parametrize("other", [lambda x: x * x * 1.0001, lambda x: torch.zeros_like(x)])
def test_other_values_where_no_input_requires_a_gradient_are_found(other):
    """Frozen layers and cached features take that path in training, where gradients are on."""
    result = check(lambda x: Right.apply(x) if x.requires_grad else other(x), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV218"})
    assert "under torch.no_grad" not in message(result, "GV218")
    assert "where no input requires a gradient y0[" in message(result, "GV218")


def test_saving_less_where_no_input_requires_a_gradient_is_fine():
    class Frugal(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if ctx.needs_input_grad[0]:
                ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    assert codes(check(Frugal, X)) == set()
    assert codes(check(lambda x: Right.apply(x) if x.requires_grad else x.pow(2), X)) == set()


# ---- GV208 input-subset
def result_value(x, y):
    """The gradient to y at its largest element, for the cotangents of the base call."""
    from live import evidence

    gradient = evidence(RightProduct, x, y).worked.gradients[1]
    assert int(gradient.abs().argmax()) == 5
    return float(gradient[1, 2])


def test_a_gradient_that_another_input_decides_on_is_found():
    result = check(
        product(lambda ctx, x, y, g: (g * y, g * x) if ctx.needs_input_grad[0] else (None, None)),
        X,
        Y,
    )
    assert codes(result) == {"GV208"}
    assert message(result, "GV208") == (
        "when only y requires a gradient the gradient at y[1,2] is 0, and not "
        f"{result_value(X, Y):.6g} as when all do"
    )


def test_a_wrong_number_is_found_as_well_as_a_missing_one():
    def backward(ctx, x, y, g):
        return g * y * (1 if ctx.needs_input_grad[1] else 2), g * x

    result = check(product(backward), X, Y)
    assert [(found.code, found.input) for found in result.findings] == [("GV208", "x")]
    assert "when only x requires a gradient" in message(result, "GV208")


def test_a_backward_that_raises_for_a_subset_is_found():
    def backward(ctx, x, y, g):
        if not all(ctx.needs_input_grad):
            raise KeyError("grad_x")
        return g * y, g * x

    found = [(found.code, found.input) for found in check(product(backward), X, Y).findings]
    assert found == [("GV208", "x"), ("GV208", "y")]
    assert (
        "when only x requires a gradient backward raised KeyError: 'grad_x'"
        in check(product(backward), X, Y).findings[0].message
    )


def test_a_forward_that_refuses_a_subset_is_left_alone():
    class Refuses(RightProduct):
        @staticmethod
        def forward(ctx, x, y):
            if not all(ctx.needs_input_grad):
                raise ValueError("train both")
            return RightProduct.forward(ctx, x, y)

    assert codes(check(Refuses, X, Y)) == set()


@pytest.mark.parametrize(("always", "severity"), [(False, "warning"), (True, "error")])
def test_a_forward_that_warns_of_having_no_gradient_is_a_warning(always, severity):
    """Not where it warns of the same with all inputs: that is of something else."""

    def frozen(x, y):
        if always or not x.requires_grad:
            warnings.warn("give x a gradient, or y gets none", stacklevel=2)
        return RightProduct.apply(x, y if x.requires_grad else y.detach())

    found = check(frozen, X, Y).findings
    assert [(each.code, each.severity, each.input) for each in found] == [("GV208", severity, "y")]


def test_right_functions_are_spared_in_every_subset():
    assert codes(check(RightProduct, X, Y)) == set()
    assert codes(check(*flat(TRICKY["only what is needed"]))) == set()


def flat(pair):
    return pair[0], *pair[1]


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 0), (2, 2), (3, 6), (4, 14), (5, 20), (7, 35), (8, 44), (9, 18)]
)
def test_all_subsets_of_four_and_the_ends_and_frozen_pairs_of_more(count, expected):
    found = subsets(count)
    assert len(found) == len(set(found)) == expected
    assert all(0 < len(subset) < count for subset in found)
    assert {(place,) for place in range(count)} <= set(found) or count == 1


class Frozen(Function):
    """A product of all, whose backward is right but where exactly these two need no gradient."""

    pair: tuple[int, int] | None = None

    @classmethod
    def forward(cls, ctx, *tensors):
        ctx.save_for_backward(*tensors)
        return torch.stack(tensors).prod(0)

    @classmethod
    def backward(cls, ctx, g):
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad
        frozen = tuple(place for place, needed in enumerate(needs) if not needed)
        off = 0.5 if frozen == cls.pair else 1.0
        return tuple(
            off * g * torch.stack(tensors[:i] + tensors[i + 1 :]).prod(0) if needed else None
            for i, needed in enumerate(needs)
        )


@pytest.mark.parametrize("pair", [(0, 1), (1, 4), (3, 4), None])
def test_of_five_inputs_every_two_are_frozen_together(pair):
    faulty = type("Faulty", (Frozen,), {"pair": pair})
    result = check(faulty, *(randn(2, seed=n) for n in range(5)))
    assert codes(result) == ({"GV208"} if pair else set())


def test_one_input_has_no_subset_and_a_plain_callable_no_branch():
    reasons = {
        name: next(run.reason for run in check(function, *values).rules if run.code == "GV208")
        for name, function, values in (("one", torch.sin, (X,)), ("plain", torch.mul, (X, Y)))
    }
    assert reasons == {
        "one": "there is one differentiable input",
        "plain": "no custom Function is in the graph",
    }


def test_other_values_when_one_input_needs_no_gradient_are_found():
    def approximate(x, y):
        return RightProduct.apply(x, y) * (1 if x.requires_grad else 1.001)

    result = check(approximate, X, Y, ignore=("GV218",))
    assert codes(result) == {"GV208"}
    assert message(result, "GV208").startswith("when only y requires a gradient y0[")


# ---- GV209 unused-output
def two(backward, materialize=False):
    """(2x, 3x) with `backward(g, h)`."""

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, g, h):
            return backward(g, h)

    return Two


def careful(g, h):
    parts = ([2 * g] if g is not None else []) + ([3 * h] if h is not None else [])
    return sum(parts[1:], parts[0]) if parts else None


RIGHT = {
    "None for None": two(careful),
    "zeros for None": two(
        lambda g, h: careful(g, h) if g is not None or h is not None else torch.zeros_like(X)
    ),
    "materialized": two(lambda g, h: 2 * g + 3 * h, materialize=True),
}


@pytest.mark.parametrize("function", RIGHT.values(), ids=RIGHT)
def test_a_backward_that_copes_with_every_subset_passes(function):
    assert codes(check(function, X)) == set()


def test_a_gradient_that_is_lost_when_one_output_is_unused_is_found():
    result = check(
        two(lambda g, h: torch.zeros_like(X) if g is None or h is None else 2 * g + 3 * h), X
    )
    assert codes(result) == {"GV209"}
    assert "with a gradient for one output at a time, summed, the gradient at x[" in message(
        result, "GV209"
    )


def test_a_backward_that_raises_for_none_is_found_and_the_output_named():
    result = check(two(lambda g, h: 2 * g + (3 * h if h is not None else 0)), X, select=("GV209",))
    assert [(found.code, found.output) for found in result.findings] == [("GV209", 1)]
    assert "with a gradient for y1 only, backward raised TypeError" in message(result, "GV209")


@pytest.mark.parametrize(("factor", "more"), [(3, set()), (4, {"GV101"})], ids=["right", "wrong"])
def test_after_a_backward_that_raises_for_none_the_other_rules_go_on(factor, more):
    result = check(two(lambda g, h: 2 * g + factor * h), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV209"} | more)
    assert {run.code: run.status for run in result.rules}["GV101"] == "ran"


def test_a_backward_that_raises_for_zeros_too_has_raised():
    def backward(g, h):
        if h is None or not h.all():
            raise ValueError("only together")
        return 2 * g + 3 * h

    result = check(two(backward), X, select=("GV101",))
    assert (result.verdict, codes(result)) == ("error", {"GV003"})


def test_what_compensates_in_the_sum_shows_against_zeros():
    """Alone, the first gets a third too much and the second as much too little."""

    def backward(g, h):
        if h is None:
            return 2 * g + X
        return 3 * h - X if g is None else 2 * g + 3 * h

    result = check(two(backward), X, select=("GV209",))
    assert "with a gradient for y0 only, the gradient at x[" in message(result, "GV209")
    assert "as with zeros for the others" in message(result, "GV209")


def test_a_backward_that_raises_when_no_output_is_used_is_a_warning():
    def backward(g, h):
        if g is None and h is None:
            raise ValueError("nothing to do")
        return careful(g, h)

    result = check(two(backward), X)
    assert result.verdict == "pass"
    assert [(found.code, found.severity) for found in result.findings] == [("GV209", "warning")]
    assert "with no gradient for any output" in message(result, "GV209")


def test_a_gradient_from_nothing_is_found():
    result = check(
        two(lambda g, h: X if g is None and h is None else careful(g, h)), X, select=("GV209",)
    )
    assert [(found.code, found.severity) for found in result.findings] == [("GV209", "error")]


def test_a_single_output_is_asked_for_an_undefined_gradient_too():
    class Single(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    assert [(found.code, found.severity) for found in check(Single, X).findings] == [
        ("GV209", "warning")
    ]
    assert codes(check(Right, X)) == set()


# ---- the other outputs are not compared: their gradients are always undefined
@pytest.mark.parametrize(("factor", "more"), [(2, set()), (2.5, {"GV101"})], ids=["right", "wrong"])
def test_a_backward_that_raises_for_the_none_of_an_output_that_is_not_compared_is_a_fault_and_the_rest_is_judged(
    factor, more
):
    """No error of the check: the class is a branch for None that is missing, whichever outputs the
    spec compares."""
    result = check(two(lambda g, h: factor * g + 3 * h), X, outputs=(0,))
    assert (result.verdict, codes(result), set(result.findings[0].also)) == (
        "fail",
        {"GV209"},
        more,
    )
    assert "with a gradient for y0 only, backward raised TypeError" in message(result, "GV209")
    assert {run.code: run.status for run in result.rules}["GV101"] == "ran"
    assert next(found for found in result.findings if found.code == "GV209").frames


@pytest.mark.parametrize("function", RIGHT.values(), ids=RIGHT)
def test_a_backward_that_copes_with_none_passes_whichever_outputs_are_compared(function):
    for place in (0, 1):
        assert codes(check(function, X, outputs=(place,))) == set()


def test_a_backward_that_raises_whatever_it_is_given_is_still_an_error():
    def broken(g, h):
        raise ValueError("always")

    result = check(two(broken), X, outputs=(0,))
    assert (result.verdict, codes(result)) == ("error", {"GV003"})
    assert "always" in message(result, "GV003")


def three(backward):
    """(2x, 3x, 4x) with `backward(f, g, h)`."""

    class Three(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x, 4 * x

        @staticmethod
        def backward(ctx, f, g, h):
            return backward(f, g, h)

    return Three


def sum_of_three(f, g, h):
    parts = [factor * part for factor, part in ((2, f), (3, g), (4, h)) if part is not None]
    return sum(parts[1:], parts[0]) if parts else None


def loses_one_of_two(f, g, h):
    """Right for all three, and for each alone."""
    return 3 * g if f is not None and g is not None and h is None else sum_of_three(f, g, h)


def raises_for_two(f, g, h):
    if g is None and f is not None and h is not None:
        raise TypeError("no middle")
    return sum_of_three(f, g, h)


def test_of_three_outputs_every_two_are_asked():
    assert codes(check(three(sum_of_three), X)) == set()
    wrong = check(three(loses_one_of_two), X)
    assert [(found.code, found.output) for found in wrong.findings] == [("GV209", 2)]
    assert "without a gradient for y2, the gradient at x[" in message(wrong, "GV209")
    raises = check(three(raises_for_two), X, select=("GV209",))
    assert "without a gradient for y1, backward raised TypeError" in message(raises, "GV209")
