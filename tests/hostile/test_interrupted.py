"""A signal at any moment of a run: the report says what was checked and what was not, the exit code
which signal it was, and nothing goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from commands import begun, checks, soon, spec, standing_in

HANGS = "import os, time\nos.system('sleep 4321 &')\nprint('here')\ntime.sleep(1000)\n"
OP = (
    "import ctypes, os, subprocess, time\ndef right(x):\n    return x * x\n"
    + "def hangs(x):\n    "
    + HANGS.replace("\n", "\n    ").rstrip()
    + "\n    return x\n"
    + """
def swallows(x):
    try:
        hangs(x)
    except BaseException:
        return x

def hangs_in_native_code(x):
    subprocess.Popen(["sleep", "4321"], start_new_session=True)     # a daemon
    ctypes.PyDLL(None).sleep(1000)      # no other thread runs meanwhile
"""
)
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="what processes leave behind is read from /proc"
)


def heard():
    """The tests may run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def started(tmp_path):
    """`started(targets, *options)`: a run of these targets under way, in a session of its own as
    under a terminal."""
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "importing.py").write_text(HANGS)
    processes = []

    def start(targets, *options, preexec=heard):
        lines = (
            f"name: '{place}', function: '{target}', inputs: {{x: {{shape: [2]}}}}"
            for place, target in enumerate(targets)
        )
        (tmp_path / "s.yaml").write_text(spec(*lines))
        arguments = ("check", "s.yaml", "--report", "json:r.json", "--format", "plain", *options)
        how = {"start_new_session": True, "preexec_fn": preexec}
        processes.append(begun(*arguments, cwd=tmp_path, **how))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def sleepers(folder):
    return sum("sleep 4321" in line for line in standing_in(folder))


def ended(process, folder):
    """Exit code, and the verdicts of the report by name."""
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr, stderr
    report = json.loads((folder / "r.json").read_text())
    assert report["exit_code"] == process.returncode and report["interrupted"]
    assert soon(lambda: not standing_in(folder), 2.0), standing_in(folder)
    return process.returncode, {
        name: check["verdict"] for name, check in checks(folder / "r.json").items()
    }


@pytest.mark.parametrize(
    ("where", "jobs", "number", "code"),
    [
        ("op.py:hangs", 2, signal.SIGHUP, 129),
        ("op.py:swallows", 1, signal.SIGINT, 130),
    ],
)
def test_while_user_code_runs_or_is_imported(started, tmp_path, where, jobs, number, code):
    process = started(["op.py:right", where, where, "op.py:right"], "-j", str(jobs))
    for line in process.stdout:
        if line.startswith("PASS"):
            break
    assert soon(lambda: sleepers(tmp_path) == jobs)
    os.killpg(process.pid, number)  # as a terminal or a CI service does it
    left = {"1": "not_run", "2": "not_run", "3": "not_run"}
    assert ended(process, tmp_path) == (code, {"0": "pass", **left})


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_while_torch_is_imported(started, tmp_path, number, code):
    report = tmp_path / "r.json"
    report.write_text("of an earlier run")
    process = started(["op.py:right"])
    assert soon(lambda: not report.exists())  # the run has begun
    os.killpg(process.pid, number)
    assert ended(process, tmp_path) == (code, {"0": "not_run"})


def test_a_terminal_that_is_closed_ends_no_run_under_nohup(started, tmp_path):
    process = started(["op.py:right"], preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    for _ in process.stdout:
        os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(60) == 0 and checks(tmp_path / "r.json")["0"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("where", "together"), [("importing.py:f", False), ("op.py:hangs_in_native_code", True)]
)
def test_all_that_a_check_started_ends_with_a_supervisor_that_is_killed(
    started, tmp_path, where, together
):
    """Alone, or with all of its process group, as a shell or a CI service may do it."""
    process = started([where, where], "-j", "2")
    assert soon(lambda: sleepers(tmp_path) == 2, 60)
    if together:
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait(20)
    assert soon(lambda: not standing_in(tmp_path)), standing_in(tmp_path)
