from __future__ import annotations

import ctypes
import random
import warnings
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from gallery.twins import load
from live import check, codes, fixed, message, randn
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from gradverify.subject.machine import undisturbed
from rules.functions import X, Y, product, square
from rules.tricky import InPlace, IntoOut, Scratch


# ---- GV202 grad-output-modified
@pytest.mark.parametrize(
    "write",
    [
        lambda g: g.mul_(2),
        lambda g: g.data.mul_(2),
        lambda g: g.detach().numpy().__imul__(2),
        lambda g: g[0].mul_(2),
    ],
)
def test_a_write_into_grad_output_is_found_however_it_is_made(write):
    def backward(x, g):
        kept = g.clone()
        write(g)
        return 2 * x * kept

    result = check(square(backward), X)
    assert codes(result) == {"GV202"}
    assert "backward writes into grad_output of y0: grad_y0[0,0] was" in message(result, "GV202")


def test_a_write_of_the_same_number_and_a_write_into_a_copy_are_fine():
    # GV210: behind a sum it raises
    assert codes(check(square(lambda x, g: 2 * x * g.mul_(1)), X, ignore=("GV210",))) == set()
    assert codes(check(square(lambda x, g: g.clone().mul_(2).mul_(x)), X)) == set()


def test_the_second_output_is_named():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            result = 2 * first + 3 * second
            second.zero_()
            return result

    assert [(found.code, found.output) for found in check(Two, randn(2)).findings] == [("GV202", 1)]


def test_a_complex_cotangent_is_watched_too():
    def backward(x, g):
        kept = g.clone()
        g.mul_(1j)
        return 2 * x.conj() * kept

    assert codes(check(square(backward), randn(2, dtype=torch.complex128))) == {"GV202"}


def test_a_write_into_grad_output_is_no_fault_of_another_kind():
    assert (
        codes(check(square(lambda x, g: g.mul_(2).mul(x.detach())), X, ignore=("GV202", "GV109")))
        == set()
    )
    assert codes(check(square(lambda x, g: g.mul_(2).mul_(x.detach())), X)) == {"GV202"}


# ---- GV203 input-modified
def clamps(write):
    """clamp(x, max=1)², with the clamped values written into x."""

    class Clamps(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.inside = x < 1
            write(x)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * 2 * x * ctx.inside

    return Clamps


def through_pointer(x):
    array = x.detach().numpy()
    array[array > 1] = 1


WRITES = [
    lambda x: x.data.clamp_(max=1),
    through_pointer,
    lambda x: x.detach().view(-1).clamp_(max=1),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_into_the_input_in_forward_is_found_however_it_is_made(write):
    result = check(clamps(write), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV203"})
    assert message(result, "GV203") == "forward writes into x: x[0,2] was 2 before, 1 after"


@pytest.mark.parametrize(
    "write",
    [lambda x: x.mul_(2), lambda x: x.data.mul_(2), lambda x: x.detach().numpy().__imul__(2)],
)
def test_a_write_into_the_input_in_backward_is_found_and_is_no_other_fault(write):
    def backward(x, g):
        gradient = 2 * x * g
        write(x)
        return gradient

    result = check(square(backward), X)
    assert codes(result) == {"GV203"}
    assert "backward writes into x: x[0,0] was 0.5 before, 1 after" in message(result, "GV203")


def test_a_write_into_statistics_is_a_warning_and_the_next_call_gets_them_as_they_were():
    def normalised(x, mean):
        mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return (x - mean.clone()) ** 2

    mean = torch.ones(3, dtype=torch.float64)
    result = check(normalised, X, fixed(mean), select=("GV203",), ignore=("GV007",))
    assert [(found.input, found.severity) for found in result.findings] == [("mean", "warning")]
    assert mean.tolist() == [1, 1, 1]


def test_a_module_may_count_in_its_buffers():
    assert codes(check(nn.BatchNorm1d, randn(4, 3), init={"num_features": 3})) == set()


def test_what_is_returned_was_written_on_purpose():
    assert "GV203" not in codes(check(InPlace, X))
    assert "GV203" not in codes(check(IntoOut, X, fixed(torch.zeros_like(X))))
    assert "GV203" not in codes(check(lambda x: x.mul_(2), X))


class Statistics(Function):
    @staticmethod
    def forward(ctx, x, mean):
        mean.copy_(x.mean(0))
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output, None


INNER = clamps(WRITES[0])


@pytest.mark.parametrize(
    ("call", "severity"),
    [
        (lambda x: INNER.apply(x * 3), "error"),
        (lambda x: Statistics.apply(x * 3, torch.zeros(3, dtype=torch.float64)), "warning"),
    ],
)
def test_a_function_inside_a_callable_is_watched_around_its_own_arguments(call, severity):
    (found,) = check(call, X).findings
    assert (found.code, found.severity) == ("GV203", severity)
    assert "writes into its argument" in found.message


def test_a_write_by_backward_is_not_answered_with_mark_dirty_which_is_for_forward():
    def backward(x, g):
        return 2 * x.data.mul_(1) * g + 0 * x.data.add_(1)

    hints = [
        finding.hint for finding in check(square(backward), X).findings if finding.code == "GV203"
    ]
    assert len(hints) == 1 and "mark_dirty" not in hints[0]
    assert "mark_dirty" in next(finding.hint for finding in check(clamps(WRITES[0]), X).findings)


def doubles_a(times):
    """x·y + sin(x), whose backward changes x by `times` before the gradient of y is computed from
    it, and after that of x."""

    def backward(ctx, x, y, g):
        first = g * y
        x.data.mul_(times)
        return first, g * x

    return product(backward)


def test_wrong_gradients_of_other_inputs_come_from_the_write():
    result = check(doubles_a(2), X, Y)
    assert [(finding.code, finding.input, finding.also) for finding in result.findings] == [
        ("GV203", "x", ("GV101",))
    ]
    assert codes(check(doubles_a(1), X, Y)) == set()


# ---- GV204 saved-modified
def exponential(write, keep=lambda y: y):
    """exp(x), whose backward does something to what forward saved."""

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(keep(y))
            return y

        @staticmethod
        def backward(ctx, grad_output):
            (y,) = ctx.saved_tensors
            gradient = grad_output * y
            write(y.detach())
            return gradient

    return Exponential


@pytest.mark.parametrize(
    "write", [lambda y: y.mul_(2), lambda y: y.data.mul_(2), lambda y: y.numpy().__imul__(2)]
)
def test_a_write_into_the_output_in_backward_is_that_and_no_other_fault(write):
    (found,) = check(exponential(write), X).findings
    assert (found.code, found.severity, found.output) == ("GV204", "error", 0)
    assert "backward writes into y0: y0[0,0] was 1.64872 before, 3.29744 after" in found.message


@pytest.mark.parametrize("write", [lambda y: y.mul_(2), lambda y: y.data.mul_(2)])
def test_a_write_into_a_saved_intermediate_is_found_too(write):
    result = check(exponential(write, torch.clone), X)
    assert codes(result) == {"GV204"}
    assert (
        "backward writes into the saved tensor 0 of Exponential: [0,0] was 1.64872 before"
        in message(result, "GV204")
    )


def test_an_input_is_named_by_its_own_rule():
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        gradient = grad_output * 2 * x
        x.data.zero_()
        return gradient

    assert codes(check(type("Saves", (Scratch,), {"backward": staticmethod(backward)}), X)) == {
        "GV203"
    }


class Counts(Function):
    @staticmethod
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        ctx.seen += 1
        return grad_output * 2, None


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        return Counts.apply(x, self.seen)


def test_a_buffer_may_change_in_forward_only():
    (found,) = check(Layer, X).findings
    assert found.code == "GV204"
    assert "backward writes into seen: seen was 0 before, 1 after" in found.message


def test_out_of_place_and_scratch_are_fine():
    assert codes(check(exponential(lambda y: y.mul(2)), X)) == set()
    # Right once: torch refuses the second backward
    assert codes(check(exponential(lambda y: y.mul_(1)), X)) == {"GV227"}
    assert codes(check(Scratch, X)) == set()


# ---- GV230 global-state
# Calls that leave the process's state changed, or seed its generators; those that draw, or put back
# what they set, are left alone.
SEEDS = range(1)


def square_within(forward=None, backward=None):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            with forward() if forward else warnings.catch_warnings():
                ctx.save_for_backward(x)
                return x * x

        @staticmethod
        def backward(ctx, grad_output):
            with backward() if backward else warnings.catch_warnings():
                return 2 * grad_output * ctx.saved_tensors[0]

    return Square


def inside(act):
    """A context that acts, and puts nothing back."""

    @contextmanager
    def context():
        act()
        yield

    return context


def found(function, *inputs, **settings):
    with undisturbed():
        return check(function, *(inputs or (randn(4),)), **settings)


SEEDED = {
    "torch's global generator": lambda: torch.manual_seed(3),
    "NumPy's global generator": lambda: np.random.seed(3),
    "Python's global generator": lambda: random.seed(3),
}
GRAVE = {
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "flushing of denormal numbers": lambda: torch.set_flush_denormal(True),
}
IN_FORWARD = {
    "torch's default device": lambda: torch.set_default_device("meta"),
    "autocast on the CPU": lambda: torch.set_autocast_enabled("cpu", True),
}
SLIGHT = {
    "the precision of float32 products": lambda: torch.set_float32_matmul_precision("high"),
    "the choice of deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "the number of torch's threads": lambda: torch.set_num_threads(3),
    "a setting of cuDNN": lambda: torch._C._set_cudnn_benchmark(True),
    "NumPy's handling of errors": lambda: np.seterr(all="ignore"),
    "the precision of reductions on CUDA": lambda: setattr(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False
    ),
}


@pytest.mark.population(most=10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("who", ["forward", "backward"])
@pytest.mark.parametrize("what", SEEDED)
def test_a_call_that_seeds_a_generator_is_found(what, who, seed):
    result = found(square_within(**{who: inside(SEEDED[what])}), seed=seed)
    assert (result.verdict, [(each.code, each.severity) for each in result.findings]) == (
        "pass",
        [("GV230", "warning")],
    )
    assert (
        message(result, "GV230")
        == f"{who} seeds {what}: what is drawn after it is the same after every call"
    )


@pytest.mark.population(most=2)
@pytest.mark.parametrize("seed", SEEDS)
def test_so_is_one_that_seeds_it_as_the_check_does_and_draws_or_not(seed):
    for act in (
        lambda: torch.manual_seed(seed),
        lambda: (torch.manual_seed(seed), torch.rand(3)),
        lambda: torch.manual_seed(seed + 1),
    ):
        assert codes(found(square_within(inside(act)), seed=seed)) == {"GV230"}
        assert codes(found(square_within(None, inside(act)), seed=seed)) == {"GV230"}


@pytest.mark.parametrize("who", ["forward", "backward"])
@pytest.mark.parametrize("what", [*GRAVE, *SLIGHT])
def test_a_setting_that_is_left_changed_is_found(what, who):
    if what == "flushing of denormal numbers":
        with undisturbed():
            if not torch.set_flush_denormal(True):
                pytest.skip("this processor does not flush denormal numbers")
    result = found(square_within(**{who: inside({**GRAVE, **SLIGHT}[what])}))
    assert (result.verdict, [(each.code, each.severity) for each in result.findings]) == (
        "pass",
        [("GV230", "warning")],
    )
    assert result.findings[0].message.startswith(f"{who} leaves {what} changed: ")


@pytest.mark.parametrize("what", IN_FORWARD)
def test_so_is_one_that_autograd_puts_back_after_backward_only(what):
    assert message(found(square_within(inside(IN_FORWARD[what]))), "GV230").startswith(
        f"forward leaves {what} changed: "
    )
    assert codes(found(square_within(None, inside(IN_FORWARD[what])))) == set()


def test_a_callable_that_leaves_gradients_off_is_found_and_a_function_where_autograd_puts_them_on_is_not():
    def frozen(x):
        y = x * x
        torch.set_grad_enabled(False)
        return y

    assert (
        message(found(frozen), "GV230")
        == "forward leaves the gradient mode changed: on before, off after"
    )
    assert codes(found(square_within(inside(lambda: torch.set_grad_enabled(False))))) == set()


@contextmanager
def kept(read, write, act):
    before = read()
    act()
    try:
        yield
    finally:
        write(before)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_put_back_is_left_alone(seed):
    def forked():
        return kept(torch.get_rng_state, torch.set_rng_state, lambda: torch.manual_seed(seed))

    def of_numpy():
        return kept(np.random.get_state, np.random.set_state, lambda: np.random.seed(seed))

    def dtype():
        return kept(
            torch.get_default_dtype,
            torch.set_default_dtype,
            lambda: torch.set_default_dtype(torch.float64),
        )

    for context in (
        forked,
        of_numpy,
        dtype,
        torch.no_grad,
        lambda: torch.autocast("cpu"),
        torch.random.fork_rng,
        lambda: torch.device("cpu"),
    ):
        # Under no_grad there is no second derivative
        assert codes(found(square_within(context, context), seed=seed)) <= {"GV109"}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_draws_is_left_alone(seed):
    for draw in (
        lambda: torch.rand(3),
        lambda: np.random.rand(),
        lambda: random.random(),
        lambda: torch.randperm(5),
    ):
        assert codes(found(square_within(inside(draw), inside(draw)), seed=seed)) == set()
    assert codes(found(torch.nn.Dropout(0.5), randn(4, 5), seed=seed)) == set()
    assert (
        codes(
            found(
                lambda x: checkpoint(torch.nn.functional.dropout, x, use_reentrant=False),
                randn(4, 5),
                seed=seed,
            )
        )
        == set()
    )


def test_drawing_again_in_backward_from_a_state_that_is_not_put_back_is_found():
    def rewinding(back):
        class Noise(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.state = torch.get_rng_state()
                return x * torch.rand_like(x)

            @staticmethod
            def backward(ctx, grad_output):
                with torch.random.fork_rng(devices=[], enabled=back):
                    torch.set_rng_state(ctx.state)
                    return grad_output * torch.rand_like(grad_output)

        return Noise

    assert message(found(rewinding(False)), "GV230").startswith(
        "backward seeds torch's global generator"
    )
    assert codes(found(rewinding(True))) == set()


def test_without_reseeding_nothing_is_said_of_generators():
    assert (
        codes(found(square_within(inside(SEEDED["torch's global generator"])), reseed=False))
        == set()
    )


# ---- GV231 unwritten-memory
# Results that hold what memory held before are found, in every run with the same code; what is
# written, or never read, is left alone.
def square_of(gradient: Any, value: Any = None) -> type[Function]:
    """`x²`, whose gradient 2x·v (and value) is what these make of it; they may leave memory
    unwritten."""

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return value(x * x) if value else x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient(2 * x * grad_output)

    return Square


def half(empty: Any) -> Any:
    """The first half of what `empty` hands out is written."""

    def written(g: Tensor) -> Tensor:
        out = empty(g)
        out.view(-1)[: g.numel() // 2] = g.reshape(-1)[: g.numel() // 2]
        return out

    return written


def all_but_the_tail(g: Tensor) -> Tensor:
    out, tile = torch.empty_like(g), 4
    for start in range(0, g.numel() - tile + 1, tile):
        out.view(-1)[start : start + tile] = g.reshape(-1)[start : start + tile]
    return out


def summed_into_empty(g: Tensor) -> Tensor:
    out = g.new_empty(g.shape)
    out += g
    return out


def by_a_mask(g: Tensor) -> Tensor:
    mask = torch.empty(g.shape, dtype=torch.bool)
    mask.view(-1)[1:] = True
    return torch.where(mask, g, 0)


def by_an_index(g: Tensor) -> Tensor:
    index = torch.empty(g.numel(), dtype=torch.int64)
    index[1:] = torch.arange(1, g.numel())
    return g.reshape(-1)[index].view(g.shape)


def by_an_unknown_count(g: Tensor) -> Tensor:
    return g * (torch.empty(1, dtype=torch.int64).clamp(0, 1) + 1)


def by_numpy(g: Tensor) -> Tensor:
    out = np.empty(tuple(g.shape))
    out[0] = g.numpy()[0]
    return torch.from_numpy(out)


def real_part_only(g: Tensor) -> Tensor:
    out = torch.empty(g.shape, dtype=torch.complex128)
    out.real.copy_(g)
    return out.abs()


def grown(g: Tensor) -> Tensor:
    out = g.reshape(-1)[:2].clone()
    return out.resize_(g.shape)


EMPTIES = {
    "empty": lambda g: torch.empty(g.shape, dtype=g.dtype),
    "empty_like": torch.empty_like,
    "new_empty": lambda g: g.new_empty(g.shape),
    "empty_strided": lambda g: torch.empty_strided(g.shape, g.stride(), dtype=g.dtype),
    "Tensor.new": lambda g: g.new(g.shape),
    "empty_permuted": lambda g: torch.empty_permuted(
        tuple(g.shape), tuple(range(g.dim())), dtype=g.dtype
    ),
}
LEFT = {
    **{name: half(empty) for name, empty in EMPTIES.items()},
    "a tile's tail": all_but_the_tail,
    "summed into": summed_into_empty,
    "mask": by_a_mask,
    "index": by_an_index,
    "count": by_an_unknown_count,
    "resize_": grown,
    "numpy.empty": by_numpy,
    "a real part": real_part_only,
}


@pytest.mark.parametrize("gradient", LEFT.values(), ids=LEFT)
def test_a_gradient_that_holds_what_memory_held_is_found_alone(gradient):
    for _ in range(2):  # whatever memory holds by now
        assert codes(check(square_of(gradient), randn(2, 3))) == {"GV231"}


@pytest.mark.parametrize(
    "value",
    [LEFT["empty_like"], all_but_the_tail, by_a_mask],
    ids=["empty_like", "a tile's tail", "mask"],
)
def test_so_is_a_forward(value):
    result = check(square_of(lambda g: g, value), randn(2, 3))
    assert codes(result) == {"GV231"} and result.verdict == "fail"
    assert message(result, "GV231").startswith("y0 depends on unwritten memory")


def test_what_forward_saved_unwritten_shows_in_the_gradient():
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            doubled = torch.empty_like(x)
            doubled[x > 0] = 2 * x[x > 0]
            ctx.save_for_backward(doubled)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return ctx.saved_tensors[0] * grad_output

    result = check(Square, randn(2, 3))
    assert codes(result) == {"GV231"}
    assert message(result, "GV231").startswith("the gradient of x depends on unwritten memory: ")


def written(g: Tensor) -> Tensor:
    return torch.empty_like(g).copy_(g)


def through_a_padded_workspace(g: Tensor) -> Tensor:
    rows = torch.empty(8, g.shape[1], dtype=g.dtype)
    rows[: len(g)] = g
    return rows[: len(g)].clone()


def by_out(g: Tensor) -> Tensor:
    return torch.mul(g, 1, out=torch.empty_like(g))


def beta_zero(g: Tensor) -> Tensor:
    return torch.addmm(torch.empty_like(g), g, torch.eye(g.shape[1], dtype=g.dtype), beta=0)


def by_a_count(g: Tensor) -> Tensor:
    count = torch.empty(1, dtype=torch.int64)
    count[0] = len(g)
    return g[: int(count)].clone()


def by_its_storage(g: Tensor) -> Tensor:
    return torch.empty(0, dtype=g.dtype).set_(g.contiguous().untyped_storage()).view(g.shape)


RIGHT = [
    written,
    by_its_storage,
    through_a_padded_workspace,
    by_out,
    beta_zero,
    by_a_count,
    torch.clone,
    lambda g: torch.empty(0, dtype=g.dtype).resize_(g.shape).copy_(g),
]


@pytest.mark.parametrize("gradient", RIGHT)
def test_what_is_written_or_never_read_is_left_alone(gradient):
    assert not {"GV231", "GV232"} & codes(
        check(square_of(gradient), randn(2, 3), select=("GV206", "GV231", "GV232", "GV101"))
    )


def test_where_memory_is_given_back_what_was_left_unwritten_is_found():
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            workspace = x.detach().clone()
            workspace.untyped_storage().resize_(0)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return half(torch.empty_like)(2 * x * grad_output)

    assert codes(check(Square, randn(2, 3))) == {"GV231"}


def test_a_gradient_that_nobody_asked_for_may_hold_anything():
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            ctx.save_for_backward(scale)
            return x * scale

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
            (scale,) = ctx.saved_tensors
            return grad_output * scale, torch.empty_like(scale)

    assert "GV231" not in codes(check(Scale, randn(3), fixed(randn(3, seed=1))))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.dropout(x, 0.5),
        lambda x: x.prod(0),
        lambda x: x * torch.rand(3),
    ],
)
def test_what_draws_or_rounds_in_another_way_depends_on_no_memory(function):
    assert not {"GV231", "GV205"} & codes(
        check(function, randn(2, 3), select=("GV205", "GV206", "GV231"))
    )


# ---- GV232 written-beside
# Kernels that write behind or before a tensor are found first, and alone.
Right = load("writes_one_too_many").Right


def put(tensor: Tensor, at: int) -> None:
    """One number at an index of its memory that may be none of its own; within what the allocator
    rounds up."""
    (ctypes.c_double * 1).from_address(tensor.data_ptr() + 8 * at)[0] = 1.5


def kernel(into: str, at: int) -> type[Function]:
    """`3x`, which writes beside what `into` names."""

    class Triple(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x, x.exp())
            y = 3 * x
            where = {"x": x, "y": y}.get(into)
            if where is not None:
                put(where, at)
            return y

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            grad = torch.zeros_like(grad_output)
            where = {"grad_output": grad_output, "grad": grad, "saved": ctx.saved_tensors[1]}.get(
                into
            )
            if where is not None:
                put(where, at)
            return grad + 3 * grad_output

    return Triple


@pytest.mark.parametrize(
    ("into", "at", "told"),
    [
        ("x", 4, "forward writes beside its tensor: 1 element behind the last of"),
        ("y", 4, "behind the last of the result of mul"),
        (
            "grad_output",
            4,
            "backward writes beside its tensor: 1 element behind the last of grad_output",
        ),
        ("x", -1, "1 element before the first of"),
        ("y", -2, "2 elements before the first of the result of mul"),
        ("grad", -1, "before the first of the result of zeros_like"),
        ("saved", -1, "before the first of the result of exp"),
        ("grad_output", -1, "1 element before the first of grad_output"),
        ("grad_output", -2, "2 elements before the first of"),
        ("grad", 4, "the result of zeros_like"),
        ("saved", 4, "the result of exp"),
    ],
)
def test_a_write_beside_a_tensor_is_found_alone(into, at, told):
    result = check(kernel(into, at), randn(4))
    assert codes(result) == {"GV232"} and result.verdict == "fail"
    assert told in message(result, "GV232")


def test_a_write_within_is_left_alone():
    assert not codes(check(Right, randn(4)))


def windows(x: Tensor) -> Tensor:
    y = x * 1
    return y.as_strided((3, 2), (1, 1), 0).sum(1)


def whole(x: Tensor) -> Tensor:
    """All of the memory of a result, and of the input."""
    return torch.empty(0, dtype=x.dtype).set_((x * 1).untyped_storage()) * x + 0 * torch.empty(
        0, dtype=x.dtype
    ).set_(x.untyped_storage())


def aside(x: Tensor) -> Tensor:
    """A copy whose memory is given back, and taken again."""
    copy = x.detach().clone()
    copy.untyped_storage().resize_(0)
    copy.untyped_storage().resize_(8 * x.numel())
    return copy.copy_(x) * x


def grown_by_one(x: Tensor) -> Tensor:
    """Into memory that a tensor got when it was resized."""
    buffer = x.detach()[:2].clone().resize_(4)
    buffer.copy_(x)
    return buffer * x


@pytest.mark.parametrize("function", [grown_by_one, windows, whole, aside])
def test_memory_that_is_a_tensors_own_is_no_ones_else(function):
    assert not {"GV231", "GV232"} & codes(
        check(function, randn(4), select=("GV231", "GV232", "GV206"))
    )
