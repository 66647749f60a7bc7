"""One verdict of a run, the worst of its checks, and what decides it."""

from dataclasses import replace

import pytest
from factories import failing, passing

from gradverify.model.decisive import run_verdict
from gradverify.model.report import Gate, judged
from gradverify.model.result import Finding


def of(check, **changes):
    return judged(replace(check, **changes), Gate())


BAD = failing()
UNDECIDED = of(passing(), verdict="undecided", reason="too noisy")
ERROR = of(passing(), verdict="error", findings=(Finding("GV002", "forward raised"),))
SKIPPED, NOT_RUN = of(passing(), verdict="skip"), of(passing(), verdict="not_run", reason="-x")
RIGHT = of(passing())


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([RIGHT], "pass"),
        ([RIGHT, SKIPPED], "pass"),
        ([], "not_checked"),
        ([SKIPPED], "not_checked"),
        ([RIGHT, NOT_RUN], "not_checked"),
        ([NOT_RUN, UNDECIDED, RIGHT], "undecided"),
        ([UNDECIDED, ERROR, RIGHT], "error"),
        ([ERROR, of(BAD), UNDECIDED], "fail"),
        ([of(RIGHT, expect="fail")], "fail"),
        ([of(BAD, expect="fail")], "pass"),
    ],
)
def test_the_worst_check_decides(checks, verdict):
    found, decisive = run_verdict(checks)
    assert found == verdict and (decisive is None) == (
        verdict == "pass" or not checks or checks == [SKIPPED]
    )


def test_a_fault_of_gradverify_is_no_pass():
    assert run_verdict([RIGHT], crashed=True) == ("error", None)
    assert run_verdict([of(BAD)], crashed=True)[0] == "fail"


def test_the_first_finding_that_counts_is_shown_with_its_worst_element():
    _, decisive = run_verdict([RIGHT, of(BAD)])
    (error,) = BAD.errors[:1]
    shown = (decisive.id, decisive.code, decisive.message, decisive.cause, decisive.line)
    assert shown == (BAD.id, error.code, error.message, error.cause, error.line)
    worst = BAD.comparisons[0].worst[0]
    assert (decisive.worst.analytic, decisive.worst.numeric) == (worst.analytic, worst.numeric)
    assert (decisive.worst.input, decisive.worst.input_index) == (error.input, worst.input_index)


def test_without_a_finding_the_reason_is_shown():
    assert run_verdict([UNDECIDED])[1].message == "too noisy"
    assert "expected to fail" in run_verdict([of(RIGHT, expect="fail")])[1].message
