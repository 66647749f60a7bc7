"""A signal at any moment of a run: the report says what was checked and what was not, the exit code which signal it was, and nothing goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HANGS = "import os, time\nos.system('sleep 4321 &')\nprint('here')\ntime.sleep(1000)\n"
NATIVE = """def hangs_in_native_code(x):
    import ctypes, subprocess
    subprocess.Popen(["sleep", "4321"], start_new_session=True)     # a daemon
    ctypes.PyDLL(None).sleep(1000)      # no other thread runs meanwhile
"""
OPS = {"op.py": "def right(x):\n    return x * x\n\n\ndef hangs(x):\n    " + HANGS.replace("\n", "\n    ") + "\n\n\n" + NATIVE, "importing.py": HANGS}
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what processes leave behind is read from /proc")


def left(folder):
    """Processes that stand in this folder, and what they started."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").resolve() == folder.resolve():
                found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def soon(true, seconds=20.0):
    """Does it become true within this time?"""
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    return true()


@pytest.fixture
def started(tmp_path):
    """`started(targets, *options)`: a run of these targets under way, in a session of its own as under a terminal."""
    for name, text in OPS.items():
        (tmp_path / name).write_text(text)
    processes = []

    def start(targets, *options, **how):
        checks = "".join(f"  - {{name: '{place}', function: '{target}', inputs: {{x: {{shape: [2]}}}}}}\n" for place, target in enumerate(targets))
        (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n" + checks)
        command = [sys.executable, "-m", "gradverify", "check", "s.yaml", "--report", "json:r.json", "--format", "plain", *options]
        how.setdefault("preexec_fn", lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))      # the tests may run under nohup
        processes.append(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                          env={**os.environ, "CI": ""}, **how))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def ended(process, folder):
    """Exit code, and the verdicts of the report by name."""
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr, stderr
    report = json.loads((folder / "r.json").read_text())
    assert report["exit_code"] == process.returncode and report["interrupted"]
    return process.returncode, {check["name"]: check["verdict"] for check in report["checks"]}


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("where", ["op.py:hangs", "importing.py:f"])
def test_while_user_code_runs_or_is_imported(started, tmp_path, where, number, code, jobs):
    process = started(["op.py:right", where, where, "op.py:right"], "-j", jobs)
    for line in process.stdout:
        if line.startswith("PASS"):
            break
    assert soon(lambda: sum("sleep 4321" in line for line in left(tmp_path)) == int(jobs))
    os.killpg(process.pid, number)      # as a terminal or a CI service does it
    assert ended(process, tmp_path) == (code, {"0": "pass", "1": "not_run", "2": "not_run", "3": "not_run"})
    assert soon(lambda: not left(tmp_path), 2.0), left(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_while_torch_is_imported(started, tmp_path, number, code):
    (tmp_path / "r.json").write_text("of an earlier run")
    process = started(["op.py:right", "op.py:right"])
    assert soon(lambda: "not_run" in ((tmp_path / "r.json").read_text() if (tmp_path / "r.json").exists() else ""))     # the run has begun
    os.killpg(process.pid, number)
    assert ended(process, tmp_path) == (code, {"0": "not_run", "1": "not_run"})
    assert soon(lambda: not left(tmp_path), 2.0), left(tmp_path)


def test_a_terminal_that_is_closed_ends_no_run_under_nohup(started, tmp_path):
    process = started(["op.py:right"], preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    for _ in process.stdout:
        os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(60) == 0 and json.loads((tmp_path / "r.json").read_text())["summary"]["pass"] == 1


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("where", ["op.py:hangs", "importing.py:f", "op.py:hangs_in_native_code"])
def test_all_that_a_check_started_ends_with_a_supervisor_that_is_killed(started, tmp_path, where, together):
    """Alone, or with all of its process group, as a shell or a CI service may do it."""
    process = started([where, where], "-j", "2")
    assert soon(lambda: sum("sleep 4321" in line for line in left(tmp_path)) == 2, 60)
    if together:
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait(20)
    assert soon(lambda: not left(tmp_path)), left(tmp_path)


def test_a_signal_that_the_checked_code_sends_to_itself_costs_its_own_check(started, tmp_path):
    (tmp_path / "own.py").write_text("import os, signal, time\ndef f(x):\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(1)\n    return x\n")
    process = started(["own.py:f", "op.py:right"])
    _, stderr = process.communicate(timeout=200)
    report = json.loads((tmp_path / "r.json").read_text())
    assert [check["verdict"] for check in report["checks"]] == ["error", "pass"] and stderr == ""
    assert report["checks"][0]["reason"] == "forward raised KeyboardInterrupt"
