from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
from live import check, codes, fixed, message, randn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rules.functions import Right, RightProduct, X, Y
from rules.tricky import Flat, InPlace, SavesOutput, Used


# ---- GV214 kept-alive
class OutputOnCtx(SavesOutput):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y


class InputOnCtx(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.x = x
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x


class SelfOnCtx(Right):
    """No tensor of the caller's is kept, but the node is."""

    @staticmethod
    def forward(ctx, x):
        ctx.again = ctx
        return Right.forward(ctx, x)


def test_an_output_on_ctx_is_a_circle():
    result = check(OutputOnCtx, X)
    assert [(found.code, found.severity) for found in result.findings] == [("GV214", "warning")]
    assert "y0 and the node of OutputOnCtx stay in memory" in message(result, "GV214")
    assert (result.verdict, check(OutputOnCtx, X, strict=True).verdict) == ("pass", "fail")


def test_a_node_alone_is_seen():
    assert message(check(SelfOnCtx, X), "GV214").startswith("the node of SelfOnCtx stays in memory")


def test_an_input_that_lives_as_long_as_the_output_is_named():
    (found,) = check(InputOnCtx, X, Y).findings
    assert (found.code, found.input) == ("GV214", "x")
    assert "x stays in memory as long as the output" in found.message


def test_a_cache_of_outputs_is_seen_in_a_callable_but_inputs_are_not_looked_at():
    kept = []

    def keeps(x):
        y = Right.apply(x)
        kept.append(y)
        return y

    assert "y0 and the node of Unary stay" in message(check(keeps, X, select=("GV214",)), "GV214")
    assert codes(check(lambda x, y: InputOnCtx.apply(x, y), X, Y)) == set()


@pytest.mark.parametrize("function", [Right, SavesOutput, Flat])
def test_what_is_saved_and_what_is_a_view_is_fine(function):
    assert codes(check(function, X)) == set()


# ---- GV215 stale-saved
def keeping(keep, read):
    """x · y that keeps x somewhere."""

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x, y):
            keep(ctx, x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = read(ctx)
            return grad_output * y, grad_output * x

    return Keeps


def as_attributes(ctx, x, y):
    ctx.x, ctx.y = x, y


def one_as_attribute(ctx, x, y):
    ctx.x = x
    ctx.save_for_backward(y)


STALE = [
    (as_attributes, lambda ctx: (ctx.x, ctx.y), ["x", "y"]),
    (one_as_attribute, lambda ctx: (ctx.x, *ctx.saved_tensors), ["x"]),
    (lambda ctx, x, y: ctx.save_for_backward(x, y.data), lambda ctx: ctx.saved_tensors, ["y"]),
]


@pytest.mark.parametrize(("keep", "read", "names"), STALE)
def test_each_input_without_a_version_is_a_warning(keep, read, names):
    result = check(keeping(keep, read), X, Y)
    assert [
        (found.input, found.severity) for found in result.findings if found.code == "GV215"
    ] == [(name, "warning") for name in names]
    assert result.verdict == "pass"


class Recomputed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
        )

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


def test_the_parameters_that_a_checkpointed_module_reads_in_backward_are_one_warning():
    result = check(Recomputed().double(), randn(2, 3))
    assert message(result, "GV215").startswith("when inner.0.weight is written in place")
    (hint,) = [found.hint for found in result.findings if found.code == "GV215"]
    assert "recomputes forward" in hint and "ctx" not in hint


def test_the_numbers_are_those_of_the_gradient_then_and_now():
    class Attribute(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * ctx.x

    said = message(check(Attribute, torch.tensor(3.0, dtype=torch.float64)), "GV215")
    assert "backward does not raise but gives another gradient" in said
    seen, expected = (
        float(word.rstrip("."))
        for word in (said.split("gradient: ")[1].split()[0], said.split()[-1])
    )
    # The input is stretched by one in a hundred
    assert seen / expected == pytest.approx(1.01, rel=1e-4)


@pytest.mark.parametrize(
    ("function", "values"),
    [(Right, (X,)), (RightProduct, (X, Y)), (Flat, (X,)), (Used, (X,)), (torch.sin, (X,))],
)
def test_saved_tensors_raise_and_what_reads_nothing_is_unmoved(function, values):
    assert "GV215" not in codes(check(function, *values))


def test_a_copy_is_kept_for_good():
    copies = keeping(
        lambda ctx, x, y: ctx.save_for_backward(x.clone(), y.clone()), lambda ctx: ctx.saved_tensors
    )
    assert codes(check(copies, X, Y, second_order=False)) == set()


def test_the_graph_is_as_it_was_for_the_next_input():
    """Only y is stale: had x or its version not been put back, backward would raise for y too."""
    faulty = keeping(
        lambda ctx, x, y: (ctx.save_for_backward(x), setattr(ctx, "y", y)),
        lambda ctx: (*ctx.saved_tensors, ctx.y),
    )
    assert [found.input for found in check(faulty, X, Y).findings if found.code == "GV215"] == ["y"]


def test_what_writes_into_its_inputs_is_given_clones_and_not_judged():
    (run,) = (run for run in check(InPlace, X).rules if run.code == "GV215")
    assert run.reason == "the function writes into its inputs"


# ---- outputs: an in-place activation, a dropout or a residual added in place writes into what
# forward returned
def exponential(keep, kept=lambda ctx: ctx.y):
    """exp(x) that keeps its output somewhere."""

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            keep(ctx, y)
            return y

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * kept(ctx)

    return Exponential


def on_ctx(value):
    return lambda ctx, y: setattr(ctx, "y", value(y))


def by_saving(value):
    return lambda ctx, y: ctx.save_for_backward(value(y))


ALIASES = {
    "detached on ctx": exponential(on_ctx(torch.Tensor.detach)),
    "data on ctx": exponential(on_ctx(lambda y: y.data)),
    "a view of it": exponential(
        on_ctx(lambda y: y.detach().view(-1)), lambda ctx: ctx.y.view(2, 3)
    ),
    "in a list": exponential(on_ctx(lambda y: [y.detach()]), lambda ctx: ctx.y[0]),
    "data saved": exponential(by_saving(lambda y: y.data), lambda ctx: ctx.saved_tensors[0]),
}
SPARED = {
    "saved": exponential(by_saving(lambda y: y), lambda ctx: ctx.saved_tensors[0]),
    # Shares the version
    "detached and saved": exponential(
        by_saving(torch.Tensor.detach), lambda ctx: ctx.saved_tensors[0]
    ),
    "a copy": exponential(on_ctx(torch.Tensor.clone)),
    "not read": exponential(
        lambda ctx, y: (ctx.save_for_backward(y), setattr(ctx, "y", y.detach())),
        lambda ctx: ctx.saved_tensors[0],
    ),
}


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_of_the_output_without_a_version_is_a_warning(name):
    """Silently wrong: where torch would raise for a saved output, `y.mul_(2)` doubles this
    gradient."""
    function = ALIASES[name]
    x = X.clone().requires_grad_()
    y = function.apply(x)
    right = y.detach().clone()
    (y.mul_(2) / 2).sum().backward()
    assert torch.allclose(x.grad, 2 * right)
    result = check(function, X)
    assert [(found.code, found.output, found.severity) for found in result.findings] == [
        ("GV215", 0, "warning")
    ]
    assert (
        "when y0 is written in place after forward, as an in-place activation does, backward does "
        "not raise"
    ) in message(result, "GV215")


@pytest.mark.parametrize("name", SPARED)
def test_an_output_that_is_saved_or_copied_is_left_alone(name):
    assert codes(check(SPARED[name], X)) == set()


def test_an_output_that_is_its_own_attribute_is_told_once():
    circle = exponential(on_ctx(lambda y: y))
    assert codes(check(circle, X)) == {"GV214"}
    assert codes(check(circle, X, ignore=("GV214",))) == {"GV215"}


# ---- GV219 output-alias
def identity(give):
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return give(x)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.clone()

    return Identity


@pytest.mark.parametrize(
    "give", [lambda x: x.detach(), lambda x: torch.from_numpy(x.detach().numpy())]
)
def test_the_memory_of_an_input_that_autograd_does_not_know_is_a_warning(give):
    result = check(identity(give), X)
    assert [
        (found.code, found.severity, found.input, found.output) for found in result.findings
    ] == [("GV219", "warning", "x", 0)]
    assert "y0 shares memory with x" in message(result, "GV219")
    assert result.verdict == "pass"


@pytest.mark.parametrize("give", [lambda x: x, lambda x: x.view_as(x), torch.clone])
def test_the_input_itself_a_view_and_a_copy_are_fine(give):
    assert codes(check(identity(give), X)) == set()


def test_views_and_functions_in_place_are_fine():
    assert codes(check(Flat, X)) == codes(check(InPlace, X)) == set()


# ---- GV224 saved-unused
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x + y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output


class ReadsWhenNeeded(torch.autograd.Function):
    """x · y² reads x only where y needs a gradient; for x alone it would be enough to keep y."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.y = y
        return x * y * y

    @staticmethod
    def backward(ctx, grad_output):
        of_x = grad_output * ctx.y * ctx.y
        if not ctx.needs_input_grad[1]:
            return of_x, None
        x, y = ctx.saved_tensors
        return of_x, 2 * grad_output * x * y


class WritesAndSaves(torch.autograd.Function):
    """Its first forward is repeated on clones; what it saves is counted once, and read."""

    @staticmethod
    def forward(ctx, x):
        ctx.inside = x < 0.5
        x.data.clamp_(max=0.5)
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x * ctx.inside


class WritesAndForgets(WritesAndSaves):
    @staticmethod
    def backward(ctx, grad_output):
        return torch.zeros_like(grad_output)


def test_saving_for_nothing_is_a_warning():
    result = check(Sum, X, Y)
    assert [(found.code, found.severity) for found in result.findings] == [("GV224", "warning")]
    assert "forward saves 2 tensors" in message(result, "GV224")
    assert result.verdict == "pass"
    assert check(Sum, X, Y, strict=True).verdict == "fail"


def test_reading_what_was_saved_is_fine():
    assert codes(check(Right, X)) == set()
    assert codes(check(RightProduct, X, Y)) == set()
    assert "GV224" not in codes(check(ReadsWhenNeeded, X, Y))


def test_where_an_input_needs_no_gradient_backward_may_rightly_not_read():
    assert codes(check(ReadsWhenNeeded, X, fixed(Y))) == set()
    (run,) = (run for run in check(ReadsWhenNeeded, X, fixed(Y)).rules if run.code == "GV224")
    assert run.status == "not_applicable"


def test_a_function_that_writes_into_its_input_is_counted_once():
    x = torch.tensor([-1.0, 0.25, 2.0], dtype=torch.float64)
    assert "GV224" not in codes(check(WritesAndSaves, x))
    assert "forward saves 1 tensor for" in message(check(WritesAndForgets, x), "GV224")


def test_a_callable_saves_what_it_likes():
    assert "GV224" not in codes(check(lambda x, y: Sum.apply(x, y), randn(2), randn(2, seed=1)))
