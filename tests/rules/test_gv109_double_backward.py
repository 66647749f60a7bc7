from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gallery.twins import load
from live import check, codes, evidence, fixed, message, randn
from oracles.test_noisy_forwards import by_bits
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gradverify.evidence import Evidence
from gradverify.numerics.function.coordinates import flat_all
from gradverify.oracles.along import Along
from gradverify.rules.derivatives import Inputs, Wrong, backwards

X, Y = randn(2, 3), randn(2, 3, seed=1)


def cubic(backward: Callable[[Any, Tensor, Tensor, Tensor], Any]) -> type[Function]:
    """x² y with `backward(ctx, x, y, grad_output)`; ctx.square holds x², an intermediate."""

    class Cubic(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.square = x * x
            ctx.save_for_backward(x, y, x * x)
            return x * x * y

        @staticmethod
        def backward(ctx, grad_output):
            return backward(ctx, *ctx.saved_tensors[:2], grad_output)

    return Cubic


def without_grad(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return 2 * x * y * g, x * x * g


def in_numpy(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    a, b, c = (t.detach().numpy() for t in (x, y, g))
    return torch.from_numpy(2 * a * b * c), torch.from_numpy(a * a * c)


WRONG = {
    "detach of an input": lambda ctx, x, y, g: (2 * x.detach() * y * g, x * x * g),
    "detach of both": lambda ctx, x, y, g: (2 * x.detach() * y.detach() * g, x.detach() ** 2 * g),
    "detach of the result": lambda ctx, x, y, g: ((2 * x * y * g).detach(), x * x * g),
    "detach of grad_output": lambda ctx, x, y, g: (2 * x * y * g.detach(), x * x * g.detach()),
    ".data": lambda ctx, x, y, g: (2 * x.data * y.data * g, x.data * x.data * g),
    "no_grad": without_grad,
    "NumPy": in_numpy,
    "an intermediate on ctx": lambda ctx, x, y, g: (2 * x * y * g, ctx.square * g),
    "an intermediate saved": lambda ctx, x, y, g: (2 * x * y * g, ctx.saved_tensors[2] * g),
    "one element": lambda ctx, x, y, g: (
        2 * x * y * g,
        torch.cat([x[:1], x[1:].detach()]) ** 2 * g,
    ),
}


@pytest.mark.parametrize("backward", WRONG.values(), ids=WRONG)
def test_a_second_derivative_that_is_silently_wrong_is_a_warning_and_an_error_where_it_must_be_right(
    backward,
):
    result = check(cubic(backward), X, Y)
    assert [(found.code, found.severity) for found in result.findings] == [("GV109", "warning")]
    assert "second derivatives are silently wrong: d grad_" in message(result, "GV109")
    assert result.verdict == "pass"
    must = check(cubic(backward), X, Y, second_order=True, select=("GV109",))
    assert (must.verdict, [(found.code, found.severity) for found in must.findings]) == (
        "fail",
        [("GV109", "error")],
    )


SMOOTH = {
    "sine": lambda x: (2 * x).sin(),
    "norm": lambda x: x / x.norm(),
    "logsumexp": lambda x: (3 * x).logsumexp(0)[None],
    "product": lambda x: x * x.flip(0) * x.sum(),
}
ROUGH = {"relu": lambda x: x.relu() * x.sum(), "a power of |x|": lambda x: x.abs() ** 1.5}


def noisy_backward(
    clean: Callable[[Tensor], Tensor], noise: float, kept: float = 1.0
) -> type[Function]:
    """Whose backward carries noise that torch does not see; double backward sees `kept` of the
    derivative to the inputs."""

    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return clean(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                still = x.detach().requires_grad_()
                parts = [
                    torch.autograd.grad(clean(at), at, g, create_graph=True)[0] for at in (x, still)
                ]
            return by_bits(kept * parts[0] + (1 - kept) * parts[1], noise)

    return Noisy


@pytest.mark.population(most=2)
@pytest.mark.parametrize("noise", [1e-9, 1e-7])
@pytest.mark.parametrize("name", [*SMOOTH, *ROUGH])
def test_noise_of_backward_is_not_taken_for_a_missing_derivative(name, noise):
    clean, x = {**SMOOTH, **ROUGH}[name], randn(5, seed=10)
    assert codes(check(noisy_backward(clean, noise), x, select=("GV109",), second_order=True)) <= {
        "GV007"
    }
    if name in SMOOTH:
        for kept in (0.0, 0.5):
            assert "GV109" in codes(
                check(noisy_backward(clean, noise, kept), x, select=("GV109",), second_order=True)
            )


def to_inputs(seen: Evidence) -> Wrong | None:
    return Inputs(seen, Along(seen.modes.backwards, seen.modes.columns)).wrong(
        seen.modes.direction("second order 0")
    )


def hessian(seen: Evidence, function: Callable[..., Tensor]) -> Tensor:
    """torch's own Hessian of ⟨v, function(x, …)⟩ over all inputs, flat, for the cotangents v that
    the rule takes."""
    v, inputs = seen.modes.second_weights[0], seen.subject.inputs
    sizes = [x.numel() for x in inputs]

    def total(flat: Tensor) -> Tensor:
        return (
            function(
                *(part.reshape(x.shape) for part, x in zip(flat.split(sizes), inputs, strict=True))
            )
            * v
        ).sum()

    return torch.autograd.functional.hessian(total, flat_all(inputs))


@pytest.mark.parametrize(
    "name", ["detach of an input", ".data", "an intermediate on ctx", "an intermediate saved"]
)
def test_the_missing_number_is_that_of_torchs_own_hessian(name):
    seen = evidence(cubic(WRONG[name]), X, Y)
    wrong = to_inputs(seen)
    right = hessian(seen, lambda x, y: x * x * y)
    assert wrong.truth == pytest.approx(float(right[wrong.gradient, wrong.place]), rel=1e-8)
    assert abs(wrong.double - wrong.truth) > 1e-3


class Remembers(Function):
    """x², whose backward keeps what it computed for the next one of the same graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.slope = None
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        ctx.slope = 2 * ctx.saved_tensors[0] if ctx.slope is None else ctx.slope
        return ctx.slope * grad_output


def test_what_an_earlier_backward_of_the_graph_left_is_no_wrong_second_derivative():
    """It is a constant there, and no constant in a graph of its own."""
    assert "GV109" not in codes(check(Remembers, randn(2, 3)))

    class Forgets(Remembers):
        @staticmethod
        def backward(ctx, grad_output):
            ctx.slope = 2 * ctx.saved_tensors[0].detach() if ctx.slope is None else ctx.slope
            return ctx.slope * grad_output

    assert "GV109" in codes(check(Forgets, randn(2, 3)))


def test_a_right_one_takes_three_forwards_and_five_backwards():
    """The gradients at the inputs are those of the base call; a second choice of weights takes the
    graph of the first."""
    calls = next(
        run.calls
        for run in check(cubic(lambda ctx, x, y, g: (2 * x * y * g, x * x * g)), X, Y).rules
        if run.code == "GV109"
    )
    assert (calls.forward, calls.backward) == (3, 5)


class Honest(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


class Refuses(Honest):
    @staticmethod
    def backward(ctx, grad_output):
        if torch.is_grad_enabled():
            raise RuntimeError("this backward cannot be differentiated")
        return 2 * ctx.saved_tensors[0] * grad_output


@pytest.mark.parametrize(
    "function, said",
    [(Honest, "once_differentiable"), (Refuses, "this backward cannot be differentiated")],
)
def test_a_backward_that_says_that_it_cannot_be_differentiated_is_right_unless_it_must(
    function, said
):
    result = check(function, X)
    (run,) = (run for run in result.rules if run.code == "GV109")
    assert (codes(result), run.status) == (set(), "not_applicable")
    assert run.reason.startswith("it says so itself: ") and said in run.reason
    must = message(check(function, X, second_order=True), "GV109")
    assert must.startswith("the spec says `second_order: true`, but ") and said in must


class Doubled(Function):
    """2 x in place."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


class SquareAndSign(Function):
    """x² with setup_context, and a sign that is not differentiable; undefined gradients stay
    None."""

    @staticmethod
    def forward(x):
        return x * x, x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output, _):
        return None if grad_output is None else 2 * ctx.saved_tensors[0] * grad_output


class OwnInput(Function):
    """x · y with x kept on ctx: it is the caller's tensor, so its history is whole."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.x = x
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].conj(), grad_output * ctx.x.conj()


class GivesBack(Function):
    """exp(x), whose backward reads its own output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].conj()


class Ramp(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (ctx.saved_tensors[0] > 0)


class Writes(Function):
    """Backward overwrites the clone it makes."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone().mul_(ctx.saved_tensors[0]).mul_(2)


class Once(Function):
    """y = x twice: linear, its gradient does not depend on x."""

    @staticmethod
    def forward(ctx, x):
        return torch.cat([x, x])

    @staticmethod
    def backward(ctx, grad_output):
        first, second = grad_output.chunk(2)
        return first + second


KINKS = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
COMPLEX = randn(3, dtype=torch.complex128), randn(3, dtype=torch.complex128, seed=1)
RIGHT = {
    "cubic": (cubic(lambda ctx, x, y, g: (2 * x * y * g, x * x * g)), (X, Y)),
    "one input fixed": (cubic(lambda ctx, x, y, g: (2 * x * y * g, x * x * g)), (X, fixed(Y))),
    "in place": (Doubled, (X,)),
    "not differentiable output": (SquareAndSign, (X,)),
    "an input on ctx": (OwnInput, (X, Y)),
    "an input on ctx, complex": (OwnInput, COMPLEX),
    "its own output": (GivesBack, (X,)),
    "its own output, complex": (GivesBack, COMPLEX[:1]),
    "a kink": (Ramp, (KINKS,)),
    "a kink of torch's": (torch.relu, (KINKS,)),
    "ties": (
        lambda x: x.amax(-1),
        (torch.tensor([[1.0, 1.0, 0.5], [0.0, 2.0, 2.0]], dtype=torch.float64),),
    ),
    "writes into a clone": (Writes, (X,)),
    "linear": (Once, (X,)),
    "random": (lambda x: F.dropout(x * x, 0.5), (X,)),
    "in place and random": (lambda x: F.dropout(x.mul_(2), 0.5), (X,)),
    "a norm at zero": (lambda x: x.norm(), (torch.zeros(3, dtype=torch.float64),)),
    "a row's norm at zero": (
        lambda x: x.norm(dim=-1),
        (torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, -1.0]], dtype=torch.float64),),
    ),
    "rounding throughout": (lambda x: x.softmax(-1).sum(-1), (X,)),
    "small": (lambda x: 1e-150 * x**2, (X,)),
    "a module": (nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double(), (X,)),
    "batch norm": (nn.BatchNorm1d(3).double(), (randn(4, 3),)),
    "dropout": (nn.Dropout(), (X,)),
    "attention": (
        nn.MultiheadAttention(4, 2).double(),
        (randn(3, 2, 4), randn(3, 2, 4, seed=1), randn(3, 2, 4, seed=2)),
    ),
}


@pytest.mark.parametrize("function, inputs", RIGHT.values(), ids=RIGHT)
def test_a_right_second_derivative_is_spared_and_may_be_demanded(function, inputs):
    result = check(
        function,
        *inputs,
        dtype=str(inputs[0].dtype).removeprefix("torch."),
        second_order=True,
        select=("GV109",),
        ignore=("GV0",),
    )
    (run,) = (run for run in result.rules if run.code == "GV109")
    assert (codes(result), run.status) == (set(), "ran")


def test_the_spec_may_leave_it_out():
    result = check(load("keeps_an_intermediate").Faulty, X, second_order=False)
    (run,) = (run for run in result.rules if run.code == "GV109")
    assert (codes(result), run.reason) == (set(), "the spec says `second_order: false`")


class Bent(Function):
    """x² + x above 0, else 0: a kink at 0, where backward jumps."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 0, x * x + x, torch.zeros_like(x))

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0]
        return grad_output * torch.where(x > 0, 2 * x + 1, torch.zeros_like(x))


class BentAndDetached(Bent):
    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0].detach()
        return grad_output * torch.where(x > 0, 2 * x + 1, torch.zeros_like(x))


def test_beside_a_kink_the_other_elements_are_judged():
    assert codes(check(Bent, KINKS)) == set()
    assert "d grad_x[2] / d x[2] is 0 by double backward" in message(
        check(BentAndDetached, KINKS), "GV109"
    )


ENDS = torch.tensor([-1.0, -0.5, 0.25, 1.0], dtype=torch.float64)


def test_what_an_infinite_gradient_leaves_nothing_to_say_of_is_no_fault():
    """asin ends at ±1: 0 · inf is NaN in torch's own double backward."""
    assert "GV109" not in codes(check(lambda x, y: x.asin() * y, ENDS, randn(4)))


def test_what_is_wrong_beside_an_infinite_gradient_is_found():
    wrong = cubic(WRONG["detach of an input"])
    result = check(lambda x, y, z: wrong.apply(x, y) + z.asin(), randn(4), randn(4, seed=1), ENDS)
    assert "GV109" in codes(result)


# ---- float32: finite differences of backward are those of float64 where it is the same backward
# there
def in_float32(function, *values):
    return evidence(function, *(x.float() for x in values), dtype="float32")


def test_in_float32_backward_is_differentiated_in_float64():
    seen = in_float32(lambda x: x.softmax(-1), randn(3, 4))
    assert backwards(seen).inputs[0].dtype == torch.float64
    result = check(lambda x: x.softmax(-1), randn(3, 4).float(), dtype="float32")
    assert "GV109" not in codes(result)
    assert (
        sum(
            rule.calls.forward + rule.calls.backward
            for rule in result.rules
            if rule.code == "GV109"
        )
        <= 40
    )


def test_in_float32_a_silent_fault_is_found_all_the_same():
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.cosine = x.cos()
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.cosine

    assert "GV109" in codes(check(Keeps, randn(5).float(), dtype="float32"))


def test_a_backward_that_is_another_one_in_float64_is_differentiated_in_float32():
    class Branches(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x if x.dtype == torch.float32 else grad * x * x

    assert backwards(in_float32(Branches, randn(4))).inputs[0].dtype == torch.float32
    assert "GV109" not in codes(check(Branches, randn(4).float(), dtype="float32"))


class NormByMoments(Function):
    """(x − mean) / sqrt(E[x²] − E[x]² + 1e-5), as fused kernels have it: of nearly constant rows
    the variance is rounding in float32."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        mean, r = NormByMoments.moments(x)
        return (x - mean) * r

    @staticmethod
    def moments(x):
        mean = x.mean(-1, keepdim=True)
        return mean, torch.rsqrt(((x * x).mean(-1, keepdim=True) - mean * mean).clamp_min(0) + 1e-5)

    @classmethod
    def backward(cls, ctx, grad_output):
        (x,) = ctx.saved_tensors
        mean, r = cls.moments(x)
        y = (x - mean) * r
        return r * (
            grad_output
            - grad_output.mean(-1, keepdim=True)
            - y * (grad_output * y).mean(-1, keepdim=True)
        )


class DetachedNormByMoments(NormByMoments):
    @staticmethod
    def moments(x):
        return tuple(each.detach() for each in NormByMoments.moments(x))


@pytest.mark.population(most=1)
@pytest.mark.parametrize("spread", [1e-7, 4e-6, 1e-5])
def test_what_float32_loses_of_nearly_constant_rows_is_no_wrong_second_derivative(spread):
    for seed in range(1, 3):
        x = (100 * (1 + spread * randn(3, 4, seed=seed))).float()
        assert "GV109" not in codes(
            check(NormByMoments, x, dtype="float32", seed=seed, select=("GV109",))
        )


def test_a_missing_one_of_rows_that_float32_resolves_is_found():
    for seed in range(1):
        x = (1 + 0.1 * randn(3, 4, seed=seed)).float()
        assert codes(
            check(DetachedNormByMoments, x, dtype="float32", seed=seed, select=("GV109",))
        ) == {"GV109"}
        assert not codes(check(NormByMoments, x, dtype="float32", seed=seed, select=("GV109",)))


# ---- tiny inputs, by which backward rounds as if they were at rest
def test_a_gradient_that_is_a_difference_of_large_numbers_is_no_constant():
    """The entropy's Hessian at zero is 1/n² − δ/n; its gradient in float32 does not move at all by
    steps of the logits' own size."""
    x = (randn(3, 4) * 1e-7).float()
    assert "GV109" not in codes(
        check(lambda x: torch.special.entr(x.softmax(-1)).sum(-1), x, select=("GV109",))
    )
    assert "GV109" not in codes(
        check(lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1), x, select=("GV109",))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_half_a_second_derivative_is_found_at_tiny_inputs_too(dtype):
    class Half(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x + x.detach())

    assert "GV109" in codes(check(Half, (randn(3) * 1e-7).to(dtype)))


class RootOfOutput(Function):
    """y = max(x, 0)², whose backward takes the root of y: right, and without a slope at 0."""

    @staticmethod
    def forward(ctx, x):
        y = x.clamp_min(0) ** 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * 2 * y.sqrt()


class SafeRootOfOutput(RootOfOutput):
    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * 2 * torch.where(y > 0, torch.where(y > 0, y, 1.0).sqrt(), 0.0)


def test_a_second_derivative_that_is_nan_has_a_hint_of_its_own():
    x = torch.tensor([0.7, -0.4, 1.3], dtype=torch.float64)
    (finding,) = check(RootOfOutput, x).findings
    assert (finding.code, "is nan by double backward, but 0 by" in finding.message) == (
        "GV109",
        True,
    )
    assert finding.hint.startswith("an operation of backward has no finite slope there")
    assert check(SafeRootOfOutput, x).findings == ()


def saturated(kind):
    """softmax with a backward from its inputs, which double backward differentiates in full, in
    part or not at all."""

    class Softmax(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.softmax(-1)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            p = {"right": x, "half": 0.5 * (x + x.detach()), "detached": x.detach()}[kind].softmax(
                -1
            )
            return p * (g - (g * p).sum(-1, keepdim=True))

    return Softmax


def logits(scale):
    return scale * torch.randn(
        2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )


def test_second_derivatives_that_are_zero_beside_rounding_are_not_wrong():
    """One softmax is 1 but for 5e-73: its gradient is 0 to rounding, and double backward says
    5e-73."""
    x = logits(100.0)
    assert float(x.softmax(-1).sort().values[1, 1]) < 1e-70
    for function in (
        saturated("right"),
        lambda x: x.softmax(-1),
        lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1),
    ):
        assert "GV109" not in codes(check(function, x, select=("GV109",)))


@pytest.mark.parametrize("kind", ["half", "detached"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_missing_ones_are_found_beside_them(kind, scale):
    assert "GV109" in codes(check(saturated(kind), logits(scale), select=("GV109",)))


def nearly_singular(size, smallest, dtype=torch.float64, seed=3):
    (u, _), (v, _) = (
        torch.linalg.qr(randn(size, size, seed=seed + n, dtype=dtype)) for n in (0, 100)
    )
    return (
        u
        * torch.linspace(1, 2, size, dtype=torch.float64).index_fill(
            0, torch.tensor([size - 1]), smallest
        )
        @ v
    )


class Determinant(Function):
    """det(A)·A⁻ᴴ, in which double backward may miss the factor det(A)."""

    @staticmethod
    def forward(ctx, a, kept):
        ctx.save_for_backward(a)
        ctx.kept = kept
        return torch.linalg.det(a)

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        factor = torch.linalg.det(a)
        factor = factor if ctx.kept else factor.detach()
        return g * (factor * torch.linalg.inv(a).mT).conj(), None


@pytest.mark.population(most=2)
@pytest.mark.parametrize("smallest", [1e-6, 1e-9, 1e-12, 1e-14])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_what_torchs_det_loses_to_rounding_is_not_wrong(dtype, smallest):
    """d² det / d a₀₀² of two rows is 0, and 1e-4 by its double backward at 1e-12: noise, which
    another point of the same kind shows."""
    for size, seed in ((2, 1), (3, 2)):
        result = check(
            torch.linalg.det,
            nearly_singular(size, smallest, dtype, seed),
            dtype=str(dtype)[6:],
            select=("GV109", "GV218"),
        )
        assert codes(result) <= {"GV007"}


@pytest.mark.parametrize("smallest", [1e-3, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_half_of_a_determinants_second_derivative_is_found(dtype, smallest):
    for kept, expected in ((True, set()), (False, {"GV109"})):
        a = nearly_singular(3, smallest, dtype)
        assert (
            codes(
                check(
                    Determinant, a, kept, dtype=str(dtype)[6:], select=("GV109",), ignore=("GV0",)
                )
            )
            == expected
        )


def keeps_second(keeps):
    """sin(x), whose double backward takes the first call's sine for ever, or its own."""
    first: dict[str, Tensor] = {}

    class Backward(Function):
        @staticmethod
        def forward(ctx, x, g):
            ctx.save_for_backward(x, g)
            return g * x.cos()

        @staticmethod
        def backward(ctx, weights):
            x, g = ctx.saved_tensors
            sine = first.setdefault("sine", x.sin().detach()) if keeps else x.sin()
            return -weights * g * sine, weights * x.cos()

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return Backward.apply(*ctx.saved_tensors, g)

    return Sine


def test_what_a_double_backward_keeps_from_the_first_point_is_found_at_another():
    """The gradients are right everywhere, and the double backward at the first point."""
    x = randn(2, 3)
    result = check(keeps_second(True), x, second_order=True)
    assert (result.verdict, codes(result)) == ("fail", {"GV109"})
    assert message(result, "GV109").startswith(
        "at another point of the same kind second derivatives are silently wrong: d grad_x["
    )
    assert codes(check(keeps_second(False), x, second_order=True)) == set()


def with_a_small_term(kind):
    """x y + 1e-8 x³, of which double backward may miss what the cube has."""

    class Sum(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y + 1e-8 * x**3

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            of_cube = {"right": x, "half": 0.5 * (x + x.detach()), "detached": x.detach()}[kind]
            return g * (y + 3e-8 * of_cube**2), g * x

    return Sum


@pytest.mark.parametrize(
    "kind, expected", [("right", set()), ("half", {"GV109"}), ("detached", {"GV109"})]
)
def test_what_is_small_beside_other_second_derivatives_is_found_where_they_must_be_right(
    kind, expected
):
    """d² / dx² is 6e-8 x beside d² / dx dy = 1: each gradient is held against each input alone."""
    result = check(
        with_a_small_term(kind), X, Y, second_order=True, select=("GV109",), ignore=("GV0",)
    )
    assert codes(result) == expected
    assert all(
        found.message.startswith("second derivatives are silently wrong: d grad_x[")
        for found in result.findings
    )


# ---- a double backward by hand
def by_hand(slope, to_cotangent=True):
    """x³, whose backward is a Function; `slope`: d 3x² / dx as that one says it."""

    class Slope(Function):
        @staticmethod
        def forward(ctx, x, g):
            ctx.save_for_backward(x, g)
            return 3 * x * x * g

        @staticmethod
        def backward(ctx, gg):
            x, g = ctx.saved_tensors
            return gg * g * slope(x), gg * 3 * x * x if to_cotangent else None

    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return Slope.apply(*ctx.saved_tensors, g)

    return Cube


@pytest.mark.parametrize(
    "wrong",
    [by_hand(lambda x: 3 * x), by_hand(lambda x: 6 * x, to_cotangent=False)],
    ids=["of the input", "of the cotangent"],
)
def test_where_backward_calls_a_function_of_its_own_that_is_found(wrong):
    (found,) = check(wrong, X, second_order=True).findings
    assert (found.code, "makes second derivatives by its own backward" in found.hint) == (
        "GV109",
        True,
    )
    assert codes(check(by_hand(lambda x: 6 * x), X, second_order=True)) == set()
