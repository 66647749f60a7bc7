from __future__ import annotations

import contextlib
import signal
from dataclasses import replace
from unittest.mock import patch

import pytest

from gradverify.model.case import Case, Settings, SpecPlace
from gradverify.model.event import CheckFinished, CheckStarted, RunFinished, RunStarted, Selection
from gradverify.model.report import Gate, fold
from gradverify.model.result import CaseResult, FunctionInfo
from gradverify.running import schedule
from gradverify.running.inline import Devices
from gradverify.running.schedule import Here, Request, run


@pytest.fixture(autouse=True)
def hears_ctrl_c():
    """As on a terminal: what runs in the background of a script ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def made(name, **changes):
    settings = Settings(**{key: changes.pop(key) for key in ("device", "seed") if key in changes})
    return Case(
        f"a.yaml::{name}", name, name, SpecPlace("a.yaml", 1), "f", settings=settings, **changes
    )


def result(case, verdict="pass"):
    return CaseResult(
        case.id,
        case.spec,
        case.name,
        FunctionInfo(case.target),
        case.settings.device,
        case.settings.dtype,
        0,
        {},
        verdict,
        expect=case.expect,
    )


class Runner:
    """Gives each case the verdict that its name says, or raises; remembers what it was given."""

    def __init__(self):
        self.cases = []

    def __call__(self, case, planned=None):
        self.cases.append(case)
        if case.name == "interrupt":
            signal.raise_signal(signal.SIGINT)
        if case.name == "bug":
            raise ZeroDivisionError("ours")
        return result(case, case.name.partition(" ")[0])


def run_by(runner, cases, cuda=(), gate=Gate(), maxfail=None):  # noqa: B008 - frozen
    """The events of a run in this process, in which `runner` stands in for a check."""
    with patch.multiple(schedule, run_case=runner, devices=lambda: Devices(cuda, 2)):
        request = Request(
            tuple(cases), argv=("check",), selection=Selection(("a.yaml",)), gate=gate
        )
        return list(run(request, Here(), maxfail))


def events(*cases, **options):
    runner = Runner()
    return run_by(runner, cases, **options), runner


def verdicts(seen):
    return [
        (event.result.name, event.result.verdict)
        for event in seen
        if isinstance(event, CheckFinished)
    ]


def code(seen):
    return fold(seen, Gate(), "0").exit_code


def test_a_run_begins_starts_and_finishes_each_check_in_order_and_ends():
    seen, _ = events(made("pass"), made("fail"))
    assert [type(event) for event in seen] == [
        RunStarted,
        CheckStarted,
        CheckFinished,
        CheckStarted,
        CheckFinished,
        RunFinished,
    ]
    assert (seen[0].total, seen[0].argv, seen[0].selection.paths) == (2, ("check",), ("a.yaml",))
    assert verdicts(seen) == [("pass", "pass"), ("fail", "fail")]
    assert (seen[-1].interrupted, seen[-1].crashed) == (None, None)
    assert seen[-1].duration_s >= 0


def test_x_stops_at_the_first_check_that_is_not_as_expected():
    seen, runner = events(
        made("pass"),
        made("fail", expect="fail"),
        made("fail 2"),
        made("pass 2"),
        made("fail 3"),
        maxfail=1,
    )
    assert verdicts(seen)[2:] == [("fail 2", "fail"), ("pass 2", "not_run"), ("fail 3", "not_run")]
    assert [case.name for case in runner.cases] == ["pass", "fail", "fail 2"]
    assert all(
        event.result.reason.startswith("-x")
        for event in seen
        if isinstance(event, CheckFinished) and event.result.verdict == "not_run"
    )
    assert code(seen) == 1
    assert verdicts(events(made("fail"), made("pass"))[0]) == [("fail", "fail"), ("pass", "pass")]


def test_x_asks_the_gate():
    assert verdicts(events(made("undecided"), made("pass"), maxfail=1)[0])[1] == ("pass", "pass")
    assert verdicts(
        events(made("undecided"), made("pass"), maxfail=1, gate=Gate(undecided="fail"))[0]
    )[1] == ("pass", "not_run")


def test_ctrl_c_inside_a_check_leaves_the_rest_not_run_and_exits_with_130():
    seen, _ = events(made("pass"), made("interrupt"), made("fail"))
    assert verdicts(seen) == [("pass", "pass"), ("interrupt", "not_run"), ("fail", "not_run")]
    assert seen[-1].interrupted == 130
    assert code(seen) == 130
    assert fold(seen, Gate(), "0").interrupted


def test_a_fault_of_our_own_costs_its_check_and_exits_with_4():
    seen, _ = events(made("pass"), made("bug"), made("fail"))
    assert verdicts(seen) == [("pass", "pass"), ("bug", "error"), ("fail", "fail")]
    (fault,) = seen[4].result.faults
    assert (fault.what, fault.costs) == (
        "ZeroDivisionError: ours",
        True,
    ) and 'raise ZeroDivisionError("ours")' in fault.trace
    assert seen[-1].crashed is None
    assert code(seen) == 4


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), BaseException("odd")])
def test_no_exception_of_a_check_ends_the_run_or_sets_its_code(error):
    def raising(case, planned=None):
        if case.name == "raises":
            raise error
        return result(case)

    seen = run_by(raising, [made("raises"), made("pass")])
    assert verdicts(seen) == [("raises", "error"), ("pass", "pass")] and code(seen) == 4


def test_ctrl_c_that_a_check_swallowed_interrupts_after_it():
    def swallows(case, planned=None):
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        return result(case)

    before = signal.getsignal(signal.SIGINT)
    seen = run_by(swallows, [made("a"), made("b")])
    assert (
        verdicts(seen) == [("a", "not_run"), ("b", "not_run")]
        and code(seen) == 130
        and signal.getsignal(signal.SIGINT) is before
    )


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_a_handler_that_a_check_sets_is_gone_after_it(handler):
    def sets(case, planned=None):
        signal.signal(signal.SIGINT, handler)
        return result(case)

    before = signal.getsignal(signal.SIGINT)
    run_by(sets, [made("a")])
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("case", "cuda", "verdict", "reason"),
    [
        (made("pass", device="cuda"), (), "skip", "no CUDA device"),
        (made("pass", device="cuda"), ("A",), "pass", None),
        (
            made("pass", device="cuda:1"),
            ("A",),
            "skip",
            "there is no cuda:1: 1 CUDA device(s) seen",
        ),
        (made("pass", device="cuda:1"), ("A", "B"), "pass", None),
        (made("pass", requires=("cuda",)), (), "skip", "no CUDA device"),
    ],
)
def test_a_check_whose_device_is_missing_is_skipped_with_the_reason(case, cuda, verdict, reason):
    seen, _ = events(case, cuda=cuda)
    done = seen[2].result
    assert (done.verdict, done.reason) == (verdict, reason)
    assert done.missing == ("cuda" if verdict == "skip" else None)


@pytest.mark.parametrize(("cuda", "device"), [((), "cpu"), (("A",), "cuda")])
def test_an_automatic_device_is_cuda_where_there_is_one(cuda, device):
    case = made("pass", device="auto")
    _, runner = events(case, cuda=cuda)
    assert [each.settings.device for each in runner.cases] == [device]
    assert replace(runner.cases[0], settings=case.settings) == case
