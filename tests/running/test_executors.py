"""Checks through executors. Whatever becomes of a future (its worker dies, it is cancelled, it is
not taken, its result is nonsense) is one check's error and the others' results stand; whatever a
check does to its process does nothing to the executor's."""

import os
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from live import case, tensor

import gradverify
from gradverify.model.case import Search
from gradverify.model.event import Environment
from gradverify.running.schedule import Request, distributed, environment

SPEC = """gradverify: 1
checks:
  - {name: gives up, function: "op.py:gives_up", inputs: {x: {shape: [3]}}}
  - {name: leaves, function: "op.py:leaves", inputs: {x: {shape: [3]}}}
  - {name: sum, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}}
  - {name: wrong, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, expected: {x: [2, 2]}}
  - {name: nowhere, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, requires: ["module:no_such_module"]}
"""
OP = """import ctypes, os


def gives_up(x):
    os.abort()


def leaves(x):
    ctypes.CDLL(None)._exit(0)
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SPEC)
    (tmp_path / "op.py").write_text(OP)


@pytest.fixture(params=["threads", "dask"])
def executor(request, tmp_path, monkeypatch):
    if request.param == "dask":
        distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
        monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", str(tmp_path))
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            before = set(client.run(lambda dask_worker: dask_worker.id).values())
            yield client.get_executor()
            assert (
                set(client.run(lambda dask_worker: dask_worker.id).values()) == before
                and len(before) == 2
            ), "a check cost Dask a worker"
        return
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.timeout(600)
def test_a_crash_costs_one_check_and_results_are_those_of_any_other_run(spec, executor):
    report = gradverify.run("s.yaml", executor=executor)
    assert [check.verdict for check in report.checks] == [
        "error",
        "error",
        "pass",
        "fail",
        "skip",
    ] and report.exit_code == 1
    assert "SIGABRT" in report.checks[0].reason and "ended with status 0" in report.checks[1].reason
    assert report.checks[4].reason == "no module 'no_such_module'"
    if not isinstance(executor, ThreadPoolExecutor):
        return
    alone = gradverify.run("s.yaml")
    assert [
        (check.name, check.calls, check.comparisons, check.findings) for check in report.checks[2:]
    ] == [
        (check.name, check.calls, check.comparisons, check.findings) for check in alone.checks[2:]
    ]
    assert report.environment == alone.environment and report.selection == alone.selection


RESULT = (
    '{"result": {"id": "live.yaml::%s", "spec": {"path": "live.yaml", "line": 1}, "name": "%s", '
    '"function": {"target": "f"}, "device": "cpu", "dtype": "float64", "seed": 0, "settings": {}, '
    '"verdict": "pass"}, "environment": {"python": "3.99", "torch": null, "numpy": null, '
    '"platform": "p"}}'
)


class Scripted(Executor):
    """Does with its futures what it is told; computes nothing."""

    def __init__(self, *doings):
        self.doings, self.futures = list(doings), []

    def submit(self, function, text):
        future, doing = Future(), self.doings[len(self.futures)]
        self.futures.append(future)
        if isinstance(doing, Exception) and doing.args == ("at once",):
            raise doing
        if isinstance(doing, BaseException):
            future.set_exception(doing)
        elif doing == "cancel":
            future.cancel()
            future.set_running_or_notify_cancel()
        elif doing is not None:
            future.set_result(doing)
        return future


def run_of(*doings):
    names = [f"c{place}" for place in range(len(doings))]
    request = Request(
        tuple(
            case(target="f", id=f"live.yaml::{name}", name=name, inputs=(tensor(2),))
            for name in names
        ),
        ".",
    )
    return Scripted(
        *(
            doing % (name, name) if doing == RESULT else doing
            for doing, name in zip(doings, names, strict=True)
        )
    ), request


class UnprintableError(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    "doing, said",
    [
        ("cancel", "the executor cancelled this check"),
        (RuntimeError("worker died"), "the executor lost this check: RuntimeError: worker died"),
        (RuntimeError("at once"), "the executor did not take this check: RuntimeError: at once"),
        (UnprintableError(), "the executor lost this check: UnprintableError"),
        ("nonsense", "the executor lost this check: JSONDecodeError"),
        ("[]", "the executor lost this check: TypeError"),
        ('{"result": {}, "environment": {}}', "the executor lost this check: ValueError"),
    ],
)
def test_what_becomes_of_a_future_is_one_checks_error(doing, said):
    executor, request = run_of(RESULT, doing, RESULT)
    results = {check.name: check for check in distributed(request, executor).checks}
    assert {name: result.verdict for name, result in results.items()} == {
        "c0": "pass",
        "c1": "error",
        "c2": "pass",
    }
    assert results["c1"].reason.startswith(said)


def test_the_environment_is_that_of_where_checks_ran():
    executor, request = run_of(RESULT)
    assert distributed(request, executor).environment == Environment("3.99", None, None, "p")
    executor, request = run_of("cancel")
    assert distributed(request, executor).environment == environment(None)


class Interrupted(Scripted):
    def submit(self, function, text):
        if self.futures:
            raise KeyboardInterrupt
        return super().submit(function, text)


def test_what_was_not_begun_is_cancelled_with_the_run():
    _, request = run_of(None, None)
    executor = Interrupted(None)
    with pytest.raises(KeyboardInterrupt):
        distributed(request, executor)
    assert [future.cancelled() for future in executor.futures] == [True]


class Broken(ProcessPoolExecutor):
    """Its worker is killed while the second check runs."""

    count = 0

    def submit(self, function, text):
        self.count += 1
        if self.count == 2:
            return super().submit(os._exit, 3)
        return super().submit(function, text)


def test_a_broken_pool_is_an_error_of_what_it_lost_and_not_the_runs_end(spec):
    with Broken(1) as pool:
        report = gradverify.run("s.yaml", keyword="sum or wrong or leaves", executor=pool)
    assert [check.verdict for check in report.checks][1:] == [
        "error",
        "error",
    ] and report.exit_code == 3
    assert (
        all("BrokenProcessPool" in check.reason for check in report.checks[1:])
        and "status 0" in report.checks[0].reason
    )


def test_a_machine_without_the_folder_says_so(tmp_path):
    folder = tmp_path / "gone"
    request = Request(
        (case(target="add", inputs=(tensor(2), tensor(2)), search=Search(str(tmp_path))),),
        str(folder),
    )
    with ThreadPoolExecutor(1) as pool:
        (result,) = distributed(request, pool).checks
    assert (
        result.verdict == "error"
        and f"no process could be started in {folder}: No such file or directory" in result.reason
    )
