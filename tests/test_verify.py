from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message
from own_fault import raising
from rules.functions import Right, X, Y, product, square

from gradverify.model.report import Gate, judged
from gradverify.model.result import Finding
from gradverify.verify import specific

WRONG = square(lambda x, g: x * g)
DEAF = square(lambda x, g: 2 * x)


def found(*findings):
    return [(finding.code, finding.also) for finding in specific(iter(findings))]


def finding(code, input=None, output=None, severity="error"):
    return Finding(code, "message", input=input, output=output, severity=severity)


@pytest.mark.parametrize(
    ("specific_code", "general"),
    [
        ("GV003", "GV212"),
        ("GV212", "GV102"),
        ("GV102", "GV201"),
        ("GV103", "GV101"),
        ("GV201", "GV202"),
        ("GV202", "GV101"),
        ("GV107", "GV101"),
        ("GV106", "GV101"),
        ("GV106", "GV111"),
        ("GV104", "GV106"),
    ],
)
def test_at_one_pair_the_most_specific_finding_stands_and_lists_the_other(specific_code, general):
    pair = finding(general, "x", 0), finding(specific_code, "x", 0)
    assert found(*pair) == found(*reversed(pair)) == [(specific_code, (general,))]


def test_a_finding_without_input_or_output_stands_for_all_of_them():
    assert found(finding("GV202", None, 0), finding("GV101", "x", 0), finding("GV101", "y", 0)) == [
        ("GV202", ("GV101",))
    ]
    assert found(finding("GV202", None, 0), finding("GV101", "x", 1)) == [
        ("GV202", ()),
        ("GV101", ()),
    ]
    assert found(finding("GV107", "x"), finding("GV101", "x", 1)) == [("GV107", ("GV101",))]


def test_codes_of_one_rank_and_codes_without_a_rank_explain_nothing():
    assert found(finding("GV107", "x"), finding("GV106", "x", 0)) == [("GV107", ()), ("GV106", ())]
    assert found(finding("GV201", "x"), finding("GV216")) == [("GV201", ()), ("GV216", ())]
    assert found(finding("GV102", "x", 0), finding("GV007", "x", 0)) == [
        ("GV102", ()),
        ("GV007", ()),
    ]


@pytest.mark.parametrize(
    ("function", "values", "settings", "verdict", "expected"),
    [
        (Right, (X,), {}, "pass", set()),
        (WRONG, (X,), {}, "fail", {"GV101"}),
        (DEAF, (X,), {}, "fail", {"GV201"}),
        (torch.relu, (-X.abs(),), {}, "pass", {"GV009"}),
        (torch.relu, (-X.abs(),), {"strict": True}, "error", {"GV009"}),
        (torch.sin, (X,), {"eps": 1e-30}, "undecided", {"GV007"}),
        (torch.log, (-X.abs(),), {}, "error", {"GV006"}),
        (lambda x: x.detach(), (X,), {}, "error", {"GV008"}),
        (lambda x: x @ x, (X,), {}, "error", {"GV002"}),
        (square(lambda x, g: x @ g), (X,), {}, "error", {"GV003"}),
        (square(lambda x, g: (g, g)), (X,), {}, "fail", {"GV212"}),
    ],
)
def test_the_verdict_follows_from_the_findings(function, values, settings, verdict, expected):
    result = check(function, *values, **settings)
    assert (result.verdict, codes(result)) == (verdict, expected)
    assert (result.reason is not None) == (verdict in ("error", "undecided"))


def test_strict_changes_the_severities_and_never_what_is_found():
    """Atomic sums of another order: a warning, after which the rules that repeat calls still
    run."""
    calls = [0]

    def atomic(ctx, x, y, g):
        calls[0] += 1
        return g * y * (1 + 2.0**-46 * (calls[0] % 2)), (g * x)[None]

    usual, strict = (check(product(atomic), X, Y, strict=strict) for strict in (False, True))
    assert [(f.code, f.also) for f in usual.findings] == [(f.code, f.also) for f in strict.findings]
    assert codes(usual) == {"GV206", "GV212"}
    assert statuses(usual) == statuses(strict)
    assert {f.severity for f in usual.findings} == {"warning"} and {
        f.severity for f in strict.findings
    } == {"error"}


@pytest.mark.parametrize(
    ("expect", "function", "ok"),
    [
        ("pass", WRONG, False),
        ("fail", WRONG, True),
        ("fail", Right, False),
        (("GV101",), WRONG, True),
        (("GV201",), WRONG, False),
        (("GV101", "GV202"), WRONG, False),
        (("GV003",), square(lambda x, g: x @ g), True),
        ("fail", square(lambda x, g: x @ g), False),
    ],
)
def test_what_was_expected_is_held_against_what_came(expect, function, ok):
    assert judged(check(function, X, expect=expect), Gate()).ok is ok


def statuses(result):
    return {run.code: run.status for run in result.rules}


def test_selected_rules_run_and_whether_they_could_judge_is_always_asked():
    seen = statuses(check(Right, X, select=("GV2",)))
    assert seen["GV201"] == "ran"
    assert seen["GV101"] == "ignored"
    assert seen["GV006"] == seen["GV008"] == "ran"
    assert codes(check(WRONG, X, select=("GV2",))) == set()
    assert codes(check(WRONG, X, select=("GV10", "GV2"))) == {"GV101"}
    assert codes(check(DEAF, X, select=("GV1",))) == {"GV101"}


def test_ignored_rules_do_not_run_and_say_so():
    result = check(WRONG, X, ignore=("GV101",))
    assert statuses(result)["GV101"] == "ignored"
    # Nothing else compares the gradient
    assert (result.verdict, codes(result)) == ("error", {"GV008"})
    assert codes(check(WRONG, X, select=("GV1",), ignore=("GV101",))) == {"GV008"}
    assert codes(check(Right, X, ignore=("GV224",))) == set()
    assert codes(check(torch.relu, -X.abs(), ignore=("GV009",))) == set()


def test_the_result_describes_what_was_checked():
    result = check(lambda x, i: (x * 2, i), X, fixed(torch.tensor([1])))
    assert [(each.name, each.shape, each.dtype, each.requires_grad) for each in result.inputs] == [
        ("x", (2, 3), "float64", True),
        ("i", (1,), "int64", False),
    ]
    assert [(each.index, each.shape, each.dtype) for each in result.outputs] == [
        (0, (2, 3), "float64"),
        (1, (1,), "int64"),
    ]
    assert (result.settings["atol"], result.settings["rtol"]) == (0.0, 1e-6)
    assert check(torch.sin, X, eps=1e-6).settings["rtol"] == 1e-3
    assert result.mode == "entries"


def test_a_fault_of_our_own_is_not_blamed_on_the_user(monkeypatch):
    for place in (
        "gradverify.evidence.jacobian",
        "gradverify.subject.base_call.function_classes",
        "gradverify.rules.shown.element_name",
    ):
        with monkeypatch.context() as patched:
            patched.setattr(place, raising(AssertionError("ours")))
            result = check(square(lambda x, g: 3 * x * g), X)
            assert (
                result.verdict == "error"
                and {fault.what for fault in result.faults} == {"AssertionError: ours"}
                and not result.findings
            )


def test_what_the_users_code_raises_unforeseen_is_blamed_on_the_user(monkeypatch):
    def raises(*arguments, **keywords):  # its frame is outside the package
        raise SystemExit(0)

    monkeypatch.setattr("gradverify.evidence.jacobian", raises)
    result = check(square(lambda x, g: 2 * x * g), X)
    assert result.verdict == "error" and codes(result) == {"GV002"} and result.faults == ()
    assert message(result, "GV002") == "the function's code raised SystemExit: 0"


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-6), (torch.float32, 1e-3)])
def test_the_default_tolerance_is_the_documented_one(dtype, rtol):
    def off_by(share):
        x = torch.tensor([1.5, -2.0, 0.75], dtype=dtype)
        return check(
            square(lambda x, g: 2 * (1 + share) * x * g),
            x,
            dtype=str(dtype).removeprefix("torch."),
            select=("GV101",),
        ).verdict

    assert (off_by(0.8 * rtol), off_by(1.25 * rtol)) == ("pass", "fail")
