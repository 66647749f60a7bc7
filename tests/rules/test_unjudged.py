from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from live import Oracles, Search, case, check, codes, fixed, message, randn, tensor
from live import case as made

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.model.event import CheckFinished
from gradverify.rules.unjudged import _may_be_empty
from gradverify.running.inline import run_case
from gradverify.running.schedule import Workers
from rules.functions import X, square


# ---- GV001 import-failed
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"target": "nowhere_at_all:f"},
            "function: nowhere_at_all:f: there is no module 'nowhere_at_all'",
        ),
        ({"target": "torch:sinn"}, "has no attribute 'sinn'"),
        ({"target": "torch:pi"}, "is of type float, not an autograd Function"),
        ({"oracles": Oracles(reference="nowhere_at_all:f")}, "reference: nowhere_at_all:f"),
        ({"oracles": Oracles(gradient="nowhere_at_all:f")}, "gradient: nowhere_at_all:f"),
        ({"inputs_from": "nowhere_at_all:f"}, "inputs_from: nowhere_at_all:f"),
        ({"search": Search(imports=("nowhere_at_all",))}, "import: nowhere_at_all"),
        ({"inputs": (tensor(10**6, 10**6, 10**6),)}, "making the tensor"),
    ],
)
def test_what_cannot_be_had_is_named_by_its_key_and_costs_this_check_alone(changes, said):
    result = run_case(case(**{"target": "torch:sin", "inputs": (tensor(2),), **changes}))
    assert (result.verdict, codes(result)) == ("error", {"GV001"})
    assert said in message(result, "GV001")
    assert result.reason == message(result, "GV001")
    assert result.findings[0].name == "import-failed"


def test_what_is_there_has_no_such_finding():
    assert (
        codes(run_case(case("torch:sin", (tensor(2),), oracles=Oracles(reference="torch:sin"))))
        == set()
    )


# ---- GV002 forward-raised
def raises(x):
    raise ValueError("not today")


def quits(x):
    sys.exit(0)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raises, "ValueError: not today"),
        (quits, "SystemExit: 0"),
        (lambda x: torch.mm(x, x), "RuntimeError: mat1 and mat2"),
    ],
)
def test_a_forward_that_raises_is_an_error_with_the_users_frames(function, said):
    result = check(function, randn(2, 3))
    assert (result.verdict, codes(result)) == ("error", {"GV002"})
    assert said in message(result, "GV002")
    assert [frame.file for frame in result.findings[0].frames] == [__file__]


def test_a_forward_that_raises_only_beside_the_point_is_not_called_raising():
    def border(x):
        if (x > 1).any():
            raise ValueError("outside")
        return x * 2

    result = check(border, torch.tensor([1.0, 0.5], dtype=torch.float64))
    assert (result.verdict, codes(result)) == ("pass", set()), (
        "one side of the border is enough for a bar"
    )


def test_nothing_else_is_judged_afterwards():
    result = check(raises, randn(2))
    assert {run.status for run in result.rules} == {"not_applicable"}
    assert result.comparisons == ()


# ---- GV003 backward-raised
def broken(x, grad_output):
    raise ValueError("no gradient today")


def test_a_backward_that_raises_is_an_error_with_the_users_frames():
    result = check(square(broken), X)
    assert (result.verdict, codes(result)) == ("error", {"GV003"})
    assert "backward raised ValueError: no gradient today" in message(result, "GV003")
    assert result.findings[0].frames[-1].function == "broken"


def test_it_is_said_once_although_every_way_is_tried():
    tried = []
    result = check(square(lambda x, g: tried.append(1) or broken(x, g)), X)
    assert len(tried) >= 3
    assert len(result.findings) == 1


@pytest.mark.parametrize("backward", [lambda x, g: (g, g), lambda x, g: g[:1]])
def test_a_wrong_number_or_shape_is_another_rules_finding(backward):
    assert codes(check(square(backward), X)) == {"GV212"}


def test_a_backward_that_works_only_in_leaf_mode_is_fine():
    def needs_leaf(x, grad_output):
        if torch._C._current_graph_task_id() < 0 or not leaf_mode():
            raise RuntimeError("use .backward()")
        return 2 * x * grad_output

    def leaf_mode():
        return torch.autograd._is_checkpoint_valid()

    assert codes(check(square(needs_leaf), X)) == set()


# ---- GV004 crashed
# A process that ends before there is a result is an error whatever its status, and the other checks
# run.
HERE = Path(__file__).parents[1] / "hostile" / "planted.py"


def verified(*names, **options):
    crew = Workers(**options)
    cases = [
        case(f"{HERE}:{name}", (tensor(2),), id=f"s.yaml::{place}")
        for place, name in enumerate(names)
    ]
    try:
        found = {
            event.result.id: event.result
            for event in crew.run(cases)
            if isinstance(event, CheckFinished)
        }
    finally:
        crew.close()
    return [found[each.id] for each in cases]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("abort", "SIGABRT (signal 6)"),
        ("leaves_by_posix", "status 0"),
        ("exits_by_libc", "status 0"),
    ],
)
def test_a_process_that_ends_is_told_and_the_next_check_passes(name, said):
    ended, after = verified(name, "right")
    assert (ended.verdict, [finding.code for finding in ended.findings], after.verdict) == (
        "error",
        ["GV004"],
        "pass",
    )
    assert said in str(ended.reason) and ended.function.target.endswith(name)


def test_a_check_that_ends_in_order_is_none():
    assert [result.verdict for result in verified("right", "right")] == ["pass", "pass"]


def test_the_stack_of_a_crash_is_shown_with_the_line_of_the_user():
    (ended,) = verified("segmentation_fault")
    assert any(
        frame.text == "ctypes.string_at(0)" and frame.file.endswith(HERE.name)
        for frame in ended.findings[0].frames
    )
    assert "index, a stride" in str(ended.findings[0].hint)


# ---- GV005 timed-out
# A check has its time from its own start; what it names has a time of its own to be imported in.
@pytest.mark.parametrize(
    ("name", "line"), [("sleeps_in_c", "LIBC.sleep(1000)"), ("HangsInBackward", "time.sleep(1000)")]
)
def test_a_check_that_does_not_end_is_ended_and_shows_where_it_was(name, line):
    """Of a loop `hostile/test_processes.py` shows it."""
    hung, after = verified(name, "right", timeout=8.0)
    assert (hung.verdict, [finding.code for finding in hung.findings]) == ("error", ["GV005"])
    assert hung.reason == "the check did not end within 8 s" and after.verdict != "error"
    assert hung.findings[0].frames[-1].text == line


def test_time_to_import_is_not_the_checks(tmp_path, monkeypatch):
    from live import case, tensor

    from gradverify.model.event import CheckFinished
    from gradverify.running.schedule import Workers

    (tmp_path / "slow.py").write_text("import time\ntime.sleep(10)\ndef f(x): return 2 * x\n")
    (tmp_path / "never.py").write_text("import time\ntime.sleep(1000)\n")
    crew = Workers(timeout=8.0)
    slow, never = (
        case(f"{tmp_path}/{name}.py:f", (tensor(2),), id=name) for name in ("slow", "never")
    )
    try:
        results = {
            event.result.id: event.result
            for event in crew.run([slow])
            if isinstance(event, CheckFinished)
        }
        monkeypatch.setattr("gradverify.running.schedule.LOADING", 8.0)
        results |= {
            event.result.id: event.result
            for event in crew.run([never])
            if isinstance(event, CheckFinished)
        }
    finally:
        crew.close()
    assert results["slow"].verdict != "error"
    assert (
        results["never"].reason
        == "importing and building what the check names did not end within 8 s"
    )


# ---- GV006 non-finite
def at(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    ("function", "x", "said"),
    [
        (torch.log, at(1.0, -1.0), "1 of 2 numbers of y0 are not finite; first at y0[1]: nan"),
        (lambda x: 1 / x - 1 / x, at(0.0, 1.0), "y0[0]: nan"),
        (lambda x: x * torch.inf, at(1.0, 2.0), "infinite throughout"),
    ],
)
def test_nan_and_moving_or_total_infinity_are_errors(function, x, said):
    result = check(function, x)
    assert (result.verdict, codes(result)) == ("error", {"GV006"})
    assert said in message(result, "GV006")


def test_an_overflow_that_stays_is_judged_by_what_backward_gives_the_others():
    # 0 · inf: the row of y[0] holds NaN at x[1]
    assert codes(check(torch.exp, at(1.0, 1e4))) == {"GV103"}


def test_an_infinity_that_a_small_step_ends_is_an_error():
    result = check(lambda x: torch.where(x == 1, torch.inf, x), at(1.0, 2.0))
    assert codes(result) == {"GV006"}


def test_a_mask_of_minus_infinity_is_left_out_and_counted_out():
    mask = at(0.0, -torch.inf)
    result = check(lambda x: x * 3 + mask, at(1.0, 2.0))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert [each.elements for each in result.comparisons] == [2]


def test_a_softmax_of_a_masked_row_is_found():
    mask = torch.full((3,), -torch.inf, dtype=torch.float64)
    assert codes(check(lambda x: (x + mask).softmax(0), at(1.0, 2.0, 3.0))) == {"GV006"}


# ---- GV007 undecided
def test_a_step_that_moves_nothing_decides_nothing():
    result = check(torch.sin, randn(3), eps=1e-30)
    assert (result.verdict, codes(result)) == ("undecided", {"GV007"})
    assert "9 of 9 elements" in message(result, "GV007")
    assert "does not move the input" in message(result, "GV007")
    assert "leave out `eps`" in result.findings[0].hint


def test_one_open_element_of_many_is_let_pass_and_counted():
    result = check(
        lambda x: x * 1,
        torch.tensor([*[1.0] * 4, 1e12], dtype=torch.float64)[:, None].expand(5, 1),
        eps=1e-6,
    )
    assert result.verdict == "undecided"  # a column of five
    one = check(
        lambda x: x.sum(), torch.tensor([1.0, 1.0, 1e12], dtype=torch.float64), eps=1e-5, atol=1.0
    )
    assert (one.verdict, sum(each.undecided for each in one.comparisons)) == ("pass", 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "function", [lambda x: x.exp() - 1, lambda x: (1 + x).log(), lambda x: (1 + x).sqrt() - 1]
)
def test_a_single_element_that_is_open_and_seems_wrong_is_no_pass(function, dtype):
    """f moves in steps of the rounding of 1 there, which leaves a zero open where the slope is 1;
    the right gradient passes."""

    class Last(torch.autograd.Function):
        kept = 9

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x)

        @classmethod
        def backward(cls, ctx, grad_output):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(function(x).sum(), x)
            return grad_output * slope * (torch.arange(10) < cls.kept)

    class Right(Last):
        kept = 10

    ignored = ("GV109", "GV226", "GV228")  # of the backward as it is written here
    x = (1e-6 * randn(10)).to(dtype)
    assert (
        check(Right, x, dtype=str(dtype).removeprefix("torch."), ignore=ignored).verdict == "pass"
    )
    assert check(Last, x, dtype=str(dtype).removeprefix("torch."), ignore=ignored).verdict in (
        "undecided",
        "fail",
    )


def test_a_single_element_on_steps_too_flat_for_its_gradient_does_not_seem_wrong():
    """The imaginary part of `log Σ exp(z)` is that of the largest z modulo 2π: at 1e6 it jumps at
    every step, and its derivative is 1."""
    x = torch.view_as_complex(
        1e6
        * (1 + torch.rand(25, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    )
    result = check(
        lambda x: torch.logsumexp(x, 0), x, dtype="complex128", select=("GV101", "GV007")
    )
    assert (result.verdict, sum(each.undecided for each in result.comparisons)) == ("pass", 1)


def test_a_single_element_that_is_open_is_not_a_pass():
    assert (
        check(torch.sin, torch.tensor(1e12, dtype=torch.float64), eps=1e-6).verdict == "undecided"
    )


def test_a_single_line_that_is_open_is_not_a_pass_as_it_stands_for_many_elements():
    edge = lambda x, y: x.asin() * y  # noqa: E731
    x = torch.tensor([-1.0, -0.5, 0.25, 1.0], dtype=torch.float64)
    blocks = check(edge, x, randn(4), mode="blocks", select=("GV101",))
    assert sum(each.undecided for each in blocks.comparisons) == 1
    assert (blocks.verdict, codes(blocks)) == ("undecided", {"GV007"})
    assert "1 of 2 blocks" in message(blocks, "GV007")


def test_a_wrong_element_outweighs_open_ones():
    wrong = square(lambda x, g: x * g)
    result = check(wrong, torch.tensor([1.0, 1e12, 1e12], dtype=torch.float64), eps=1e-6)
    assert (result.verdict, codes(result)) == ("fail", {"GV101"})


def test_a_warning_does_not_hide_that_nothing_was_decided():
    saves = square(lambda x, g: 2 * x * g)

    class SavesForNothing(saves):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    result = check(SavesForNothing, randn(3), eps=1e-30)
    assert result.verdict == "undecided"
    assert codes(result) == {"GV224", "GV007"}


@pytest.mark.parametrize("select", [("GV101",), ("GV1",)])
def test_selecting_the_comparison_does_not_hide_it_either(select):
    assert check(torch.sin, randn(3), eps=1e-30, select=select).verdict == "undecided"


def test_whole_numbers_that_are_read_as_indices_come_with_what_to_write():
    """A spec's `values` have the check's dtype."""
    counts = lambda x, n: x * n.long()  # noqa: E731
    n = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    result = check(counts, randn(3), n, select=("GV101", "GV007"))
    assert result.verdict == "undecided" and "`dtype: int64`" in result.findings[0].hint
    between = check(
        lambda x: (x * 4).round(),
        torch.tensor([0.125, 0.375, 0.625], dtype=torch.float64),
        select=("GV101", "GV007"),
    )
    assert all("int64" not in (finding.hint or "") for finding in between.findings)


def multiplied(factor, inside):
    """x · w, of numbers of 16 bits."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return torch.tanh(x.to(inside) * w.to(inside)).to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            g = g * (1 - torch.tanh(x * w) ** 2)
            return g * w, factor * g * x

    return Product


def test_a_narrow_type_inside_is_named_and_its_own_check_decides():
    inside, name = torch.bfloat16, "bfloat16"
    x, w = randn(4), randn(4, seed=1)
    result = check(multiplied(1.0, inside), x, w)
    assert (result.verdict, codes(result) - {"GV222"}) == ("undecided", {"GV007"})
    assert f"forward computes in {name} inside" in message(result, "GV007")
    assert f"`dtype: {name}`" in next(
        finding.hint for finding in result.findings if finding.code == "GV007"
    )
    narrow = [
        check(multiplied(factor, inside), x.to(inside), w.to(inside), dtype=name).verdict
        for factor in (1.0, 1.02)
    ]
    assert narrow == ["pass", "fail"]


# ---- GV008 nothing-checked
@pytest.mark.parametrize(
    ("function", "values", "settings", "said"),
    [
        (torch.sin, (fixed(randn(2)),), {}, "no input is differentiable"),
        (lambda i: i.double(), (torch.tensor([1, 2]),), {}, "no input is differentiable"),
        (lambda x: x.detach() * 2, (randn(2),), {}, "no output has a graph"),
        (
            lambda x: torch.from_numpy(x.detach().numpy() * 2),
            (randn(2),),
            {},
            "no output has a graph",
        ),
        (
            lambda x: x.argmax(),
            (randn(2),),
            {},
            "no output has floating or complex numbers: y0 is int64",
        ),
        (lambda x: None, (randn(2),), {}, "returned no tensor: None"),
        (lambda x: [3.0, 4.0, "a"], (randn(2),), {}, "returned no tensor: float, str"),
        (lambda x: (), (randn(2),), {}, "returned no tensor: nothing at all"),
        (lambda x: (x.argmax(), x.detach()), (randn(2),), {}, "no output has a graph"),
        (lambda x: torch.no_grad()(torch.sin)(x), (randn(2),), {}, "no output has a graph"),
        (lambda x: x[:0], (randn(2),), {}, "no elements"),
        (
            lambda x: (x, x),
            (randn(2),),
            {"outputs": (2,)},
            "no floating output 2; the function returned 2 outputs",
        ),
        (
            lambda x: x,
            (randn(2),),
            {"outputs": (1,)},
            "no floating output 1; the function returned 1 output",
        ),
        (lambda x: (x, x.argmax()), (randn(2),), {"outputs": (1,)}, "no floating output 1"),
        (lambda x: (x * 2, torch.ones(2)), (randn(2),), {"outputs": (1,)}, "no output has a graph"),
    ],
)
def test_a_check_that_compares_nothing_is_an_error(function, values, settings, said):
    result = check(function, *values, **settings)
    assert (result.verdict, codes(result)) == ("error", {"GV008"})
    assert said in message(result, "GV008")


@pytest.mark.parametrize(
    "function", [lambda x: x, lambda x: (x.argmax(), x.sum()), lambda x: (x.detach(), x * 2)]
)
def test_one_element_with_a_graph_is_enough(function):
    result = check(function, randn(2))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert sum(each.elements for each in result.comparisons) > 0


def test_an_empty_tensor_that_the_spec_asked_for_is_no_fault():
    assert codes(check(lambda x: x * 2, randn(0, 3))) == set()


def test_selecting_other_rules_does_not_switch_it_off():
    assert check(lambda x: x.detach(), randn(2), select=("GV101",)).verdict == "error"


@pytest.mark.parametrize(
    ("values", "settings", "said"),
    [
        (
            (randn(2),),
            {"ignore": ("GV101",)},
            "GV101 is ignored, and no other rule compared an element of a gradient",
        ),
        ((randn(2),), {"select": ("GV1",), "ignore": ("GV101",)}, "GV101 is ignored"),
        ((randn(0),), {"select": ("GV101",)}, "GV221, which looks at empty tensors, is not to run"),
        (
            (randn(0, 3),),
            {"ignore": ("GV221",)},
            "GV221, which looks at empty tensors, is not to run",
        ),
    ],
)
def test_a_pass_has_compared_what_it_was_asked_to_compare(values, settings, said):
    result = check(lambda x: x * 2, *values, **settings)
    assert (result.verdict, codes(result)) == ("error", {"GV008"}) and said in message(
        result, "GV008"
    )


@pytest.mark.parametrize(
    "settings", [{"select": ("GV2",)}, {"select": ("GV206",)}, {"select": ("GV101", "GV221")}, {}]
)
def test_rules_that_are_selected_without_a_comparison_are_what_was_asked_for(settings):
    assert (
        check(
            lambda x: x * 2,
            randn(0 if settings.get("select") == ("GV101", "GV221") else 2),
            **settings,
        ).verdict
        == "pass"
    )


@pytest.mark.parametrize("settings", [{}, {"select": ("GV101",)}])
def test_a_rule_that_ran_and_compared_nothing_leaves_no_pass(settings, monkeypatch):
    """Whatever took its comparison away: checked code that replaced a function of ours, or a fault
    of our own."""
    from gradverify.rules import values

    monkeypatch.setattr(values, "gv101", lambda evidence: iter(()))
    result = check(lambda x: x * 2, randn(2), **settings)
    assert (result.verdict, codes(result)) == ("error", {"GV008"}) and message(
        result, "GV008"
    ) == "GV101 compared no element of a gradient"


@pytest.mark.parametrize(
    ("case", "may"),
    [
        ({"inputs": ({"shape": (0, 3)},)}, True),
        ({"inputs": ({"draw": "values", "arguments": []},)}, True),
        ({}, True),
        ({"inputs_from": "data.py:batch"}, False),
        ({"inputs": ({"draw": "file", "arguments": "/x.npy"},)}, False),
        ({"inputs": ({"draw": "file", "arguments": "/x.npy"}, {"shape": (0, 3)})}, True),
    ],
)
def test_an_empty_tensor_of_a_function_or_a_file_is_nobodys_wish(case, may):
    inputs = tuple(InputRecipe("x", TensorRecipe(**each)) for each in case.get("inputs", ()))
    assert (
        _may_be_empty(made(target="f", inputs=inputs, inputs_from=case.get("inputs_from"))) is may
    )


# ---- GV009 could-not-fail
def test_a_dead_region_is_told():
    result = check(F.relu, -randn(2, 3).abs() - 1)
    assert (result.verdict, codes(result)) == ("pass", {"GV009"})
    assert "every gradient is zero" in message(result, "GV009")


def test_a_gradient_that_is_rounding_throughout_is_told():
    result = check(lambda x: 1 + 1e-20 * x, randn(3))
    assert (result.verdict, codes(result)) == ("pass", {"GV009"})
    assert "zero up to rounding" in message(result, "GV009")
    assert codes(check(lambda x: 1 + 1e-3 * x, randn(3))) == set()


def test_a_tolerance_above_every_gradient_is_told():
    result = check(lambda x: 1e-3 * x, randn(3), atol=1e-2)
    assert (result.verdict, codes(result)) == ("pass", {"GV009"})
    assert "atol 0.01" in message(result, "GV009")
    assert codes(check(lambda x: x, randn(3), atol=1e-2)) == set()


def test_a_wrong_gradient_is_enough_said():
    assert codes(check(square(lambda x, g: g), torch.zeros(3, dtype=torch.float64))) == {"GV101"}


class DeadAndUnread(torch.autograd.Function):
    """relu that saves a tensor for nothing: a warning of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.mask = x > 0
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.mask


@pytest.mark.parametrize(
    ("strict", "severity", "verdict"), [(False, "warning", "pass"), (True, "error", "fail")]
)
def test_a_warning_does_not_silence_it_and_under_strict_the_same_is_found(
    strict, severity, verdict
):
    result = check(DeadAndUnread, -randn(2, 3).abs() - 1, strict=strict)
    assert {(finding.code, finding.severity) for finding in result.findings} == {
        ("GV009", severity),
        ("GV224", severity),
    }
    assert result.verdict == verdict  # what is wrong comes before what could not be told
