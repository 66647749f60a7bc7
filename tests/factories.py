"""Results and Reports built by hand, so that what is shown can be tested without computing
anything."""

import math
from dataclasses import replace

from gradverify.model.case import SpecPlace
from gradverify.model.event import Environment, Selection
from gradverify.model.report import SCHEMA_VERSION, Gate, Report, Tool, exit_code, judged, summarise
from gradverify.model.result import (
    Calls,
    CaseResult,
    Cause,
    Comparison,
    Entry,
    ErrorMap,
    Finding,
    Frame,
    FunctionInfo,
    InputInfo,
    OutputInfo,
    RuleRun,
)

ARGV = ("check", "specs", "--eps", "1e-6", "--strict", "--format", "plain", "-k", "linear")
ENVIRONMENT = Environment("3.11.7", "2.13.0", "2.4.6", "Linux-x86_64", (), 2)


def entry(
    output_index=(0,),
    input_index=(3, 1),
    analytic=-0.785398163,
    numeric=0.785398163,
    bar=1.23e-11,
    tolerance=7.85e-7,
    **changes,
):
    error = abs(analytic - numeric)
    values = dict(
        output_index=output_index,
        input_index=input_index,
        analytic=analytic,
        numeric=numeric,
        bar=bar,
        tolerance=tolerance,
        abs_error=error,
        rel_error=error / abs(numeric),
        outcome="mismatch",
    )
    return Entry(**{**values, **changes})


def comparison(rule="GV101", input="x", output=0, elements=96, resolution=3.1e-10, **changes):
    return Comparison(rule, input, output, elements, resolution=resolution, **changes)


def result(name="linear", verdict="pass", **changes):
    base = CaseResult(
        id=f"specs/ops.yaml::{name}",
        spec=SpecPlace("specs/ops.yaml", 12),
        name=name,
        function=FunctionInfo("my_ops.act:Swish", "autograd.Function", "my_ops/act.py", 41),
        device="cpu",
        dtype="float64",
        seed=0,
        settings={"eps": "auto", "atol": 0.0, "rtol": 1e-6},
        verdict=verdict,
        calls=Calls(13, 24),
        seconds=0.0213,
        inputs=(InputInfo("x", (4, 6), "float64", "contiguous", True),),
        outputs=(OutputInfo(0, (4,), "float64"),),
    )
    return replace(base, **changes)


def passing(name="linear", **changes):
    rules = (
        RuleRun("GV101", "ran", calls=Calls(12, 24)),
        RuleRun("GV111", "not_applicable", "the function has no parameters"),
        RuleRun("GV224", "ignored", "by `ignore: [GV224]`"),
    )
    values = dict(
        comparisons=(comparison(elements=62),),
        rules=rules,
        mode="entries",
        mode_reason="96 elements are within the budget",
        could_miss="errors below 3.1e-10 at single elements",
    )
    return result(name, **{**values, **changes})


def failing(name="swish[rows=7,act=:fire:]", rows=12, **changes):
    worst = tuple(entry((i % 4,), (i, i % 6)) for i in range(rows))
    drawn = ErrorMap(
        tuple(tuple(10.0 ** (row + column - 2) for column in range(6)) for row in range(4))
    )
    found = Finding(
        "GV101",
        "64 of 96 elements of the Jacobian differ from the finite differences, by up to 2.0e+06 "
        "times the tolerance.",
        name="jacobian",
        input="x",
        output=0,
        cause=Cause("scaled", "every mismatched element is -1 times the numeric one"),
        also=("GV107",),
        hint="look for a missing minus sign in backward",
        file="my_ops/act.py",
        line=41,
        source="def backward(ctx, grad_output):\n    return -grad_output * ctx.saved_tensors[0][i,2]",
    )
    values = dict(
        comparisons=(
            comparison(
                mismatched=64, max_abs_error=1.57, max_rel_error=2.0, worst=worst, error_map=drawn
            ),
        ),
        findings=(found,),
        captured="step 1\r\nnan seen [i,2] :fire: \x1b[31mred\x1b[0m\n",
    )
    return result(name, "fail", **{**values, **changes})


def extreme(
    name="kernels/fused_attention_with_bias_and_dropout[heads=16,width=129,dtype=complex128]",
):
    worst = (
        entry(
            (12, 1023, 511),
            (1023, 4095),
            -1.2345678e-05,
            -1.2345679e-05,
            1.2e-16,
            1e-17,
            output_part="im",
            input_part="re",
        ),
        entry(
            (0, 0, 0),
            (0, 0),
            math.nan,
            -1.23456e-305,
            math.inf,
            1e-17,
            abs_error=math.nan,
            rel_error=math.nan,
            outcome="non_finite",
        ),
    )
    return failing(
        name,
        comparisons=(
            comparison(
                input="projection_weight",
                output=3,
                elements=1048576,
                mismatched=3,
                non_finite=1,
                worst=worst,
            ),
        ),
        findings=(
            Finding(
                "GV101", "4 elements differ.", name="jacobian", input="projection_weight", output=3
            ),
        ),
        captured=None,
    )


def warned(name="add"):
    return passing(
        name,
        findings=(
            Finding(
                "GV224",
                "`x` is saved for backward and never read: memory for nothing.",
                name="saved-unused",
                severity="warning",
            ),
        ),
    )


def raising(name="op[a=1]"):
    frames = (
        Frame("my_ops/act.py", 30, "forward", "return x.view(3)"),
        Frame("my_ops/util.py", 7, "<lambda>", "raise ValueError(x)"),
    )
    found = Finding(
        "GV002",
        "forward raised ValueError: shape '[3]' is invalid for input of size 4",
        name="forward-raised",
        frames=frames,
    )
    return result(
        name,
        "error",
        reason="forward raised ValueError: shape '[3]' is invalid for input of size 4",
        findings=(found,),
        calls=Calls(1, 0),
    )


def undecided(name="norm[a/b]"):
    found = Finding(
        "GV007",
        "20 of 96 elements have a bar above the tolerance; float32 inside forward limits it.",
        name="undecided",
        input="x",
        output=0,
    )
    worst = (entry(analytic=1.0, numeric=1.0001, bar=0.02, outcome="undecided"),)
    return result(
        name,
        "undecided",
        reason="20 of 96 elements have a bar above the tolerance.",
        findings=(found,),
        comparisons=(comparison(undecided=20, worst=worst, resolution=0.02),),
    )


def of_every_outcome(name="clip"):
    """An undecided check whose elements came out in every way that is neither right nor wrong."""
    found = Finding(
        "GV007",
        "5 of 96 elements could not be decided: at y0[2] / x[2,0] the function jumps",
        name="undecided",
        input="x",
        output=0,
    )
    worst = (
        entry((0,), (0, 0), 0.5, 1.0, 0.5, outcome="kink"),
        entry((1,), (1, 0), 1.0, 51234.5, 2e4, outcome="jump"),
        entry((2,), (2, 0), 1.0, 0.25, 1.2e-3, outcome="staircase"),
        entry((3,), (3, 0), 1.0, 1.0001, 0.02, outcome="undecided"),
        entry(
            (3,),
            (4, 0),
            1.0,
            math.nan,
            math.inf,
            abs_error=math.nan,
            rel_error=math.nan,
            outcome="non_finite",
        ),
    )
    return result(
        name,
        "undecided",
        reason=found.message,
        findings=(found,),
        expect="pass",
        comparisons=(comparison(kinks=1, undecided=3, non_finite=1, worst=worst, resolution=0.02),),
    )


def skipped(name="linear on a GPU"):
    return result(name, "skip", reason="no CUDA device was found", missing="cuda", calls=Calls())


def everything():
    """One check of every kind, a failure first."""
    return (
        failing(),
        passing(),
        warned(),
        replace(failing("mul of the tutorial"), expect=("GV101",)),
        passing("mul, mended", expect="fail"),
        undecided(),
        raising(),
        skipped(),
        result("sigmoid", "not_run", reason="left out after the first failure (-x)"),
    )


def report(*checks, gate=None, **changes):
    checks = tuple(judged(check, gate or Gate()) for check in (checks or everything()))
    base = Report(
        SCHEMA_VERSION,
        Tool(version="0.1.0"),
        "2026-01-02T03:04:05+00:00",
        3.4,
        ARGV,
        exit_code(checks),
        False,
        ENVIRONMENT,
        Selection(("specs",), "linear"),
        summarise(checks),
        checks,
    )
    return replace(base, **changes)
