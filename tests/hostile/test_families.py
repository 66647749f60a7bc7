"""Code that ends the process that all workers are forked from, and code that starts processes without end: each costs its own check, whichever
checks run beside it, and nothing is left running.

Two classes: a check that takes others with it (whoever does it again when alone is to blame; what happens once, as when memory runs out, is nobody's
fault), and a check whose processes have no bound in number, time, group or parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

OP = """import os
import signal
import subprocess
import time
from pathlib import Path


def until(name):
    while not Path(name).exists():
        time.sleep(0.01)


def right(x):
    return x * x


def beside(x):      # runs when the other one does it
    Path("beside").touch()
    until("done")
    return x * x


def ends_them_all(number, again=True):
    if os.environ["JOBS"] == "2":
        until("beside")
    if again or not Path("done").exists():
        Path("done").touch()
        parent = os.getppid()
        if b"forkserver" in Path(f"/proc/{parent}/cmdline").read_bytes():      # and not whoever adopted an orphan
            os.kill(parent, number)
        time.sleep(60)


def kills_the_server(x):
    ends_them_all(signal.SIGKILL)


def terminates_the_server(x):
    ends_them_all(signal.SIGTERM)


def kills_it_once(x):
    ends_them_all(signal.SIGKILL, again=False)
    return x * x


def forks_children(x):
    while True:
        if os.fork() == 0:
            signal.pause()


def forks_in_children(x):
    while True:
        os.fork()
        time.sleep(0.05)


def forks_in_groups(x):
    while True:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.pause()
            os._exit(0)


def has_some_and_hangs(x):
    for _ in range(10):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.setsid()
            os.fork()
            while True:
                signal.pause()
    time.sleep(1000)


def daemons():
    # in sessions of their own, without parents; one is another program
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    signal.pause()
            os._exit(0)
    subprocess.Popen(["sleep", "1000"], start_new_session=True)


def leaves_some_and_crashes(x):
    daemons()
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_some(x):
    daemons()
    return x * x
"""
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what processes leave behind is read from /proc")


def left(folder):
    """Processes that stand in this folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").resolve() == folder.resolve():
                found.append(each.name)
        except OSError:
            continue
    return found


@pytest.fixture
def checked(tmp_path):
    """`checked(names, jobs)`: exit code, and the checks of the report by their names; nothing of the run goes on."""
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "imported.py").write_text("import signal\nfrom op import ends_them_all\nends_them_all(signal.SIGKILL)\n")

    def run(names, jobs, **environment):
        text = "".join(f"  - {{name: {name}, function: '{'imported.py:f' if name == 'imported' else f'op.py:{name.split()[0]}'}',"
                       f" inputs: {{x: {{shape: [2]}}}}{', timeout: 5' if 'hangs' in name else ''}}}\n" for name in names)
        (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n" + text)
        done = subprocess.run([sys.executable, "-m", "gradverify", "check", "s.yaml", "--report", "json:r.json", "-j", jobs], cwd=tmp_path,
                              env={**os.environ, "CI": "", "JOBS": jobs, **environment}, capture_output=True, text=True, timeout=280, check=False)
        assert environment or "Traceback" not in done.stderr + done.stdout, done.stderr
        report = json.loads((tmp_path / "r.json").read_text())
        until = time.monotonic() + 10       # hundreds of killed processes take a moment to go
        while left(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert report["exit_code"] == done.returncode and not left(tmp_path)
        return done.returncode, {check["name"]: check for check in report["checks"]}, report.get("crashed")

    return run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(("guilty", "said"), [
    ("kills_the_server", "was ended by SIGKILL (signal 9) while this check ran, and again when it ran alone"),
    ("terminates_the_server", "was ended by SIGTERM (signal 15) while this check ran, and again when it ran alone"),
    ("imported", "was ended by SIGKILL (signal 9) while this check was imported, and again when it ran alone")])
def test_whoever_ends_the_process_that_workers_come_from_is_blamed_alone(checked, guilty, said, jobs):
    code, checks, _ = checked([guilty, "beside", "right", "right again"], jobs)
    finding = checks[guilty]["findings"][0]
    assert code == 3 and finding["code"] == "GV004" and finding["message"] == f"the process that all checks are started from {said}"
    assert {name: check["reason"] for name, check in checks.items() if name != guilty and check["verdict"] != "pass"} == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_ends_it_once_is_nobodys_fault(checked, jobs):
    code, checks, _ = checked(["kills_it_once", "beside", "right"], jobs)
    assert code == 0, checks


@pytest.mark.population("guilty")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("guilty", ["forks_children", "forks_in_children", "forks_in_groups"])
def test_processes_without_end_are_bounded(checked, guilty, jobs):
    code, checks, _ = checked([guilty, "right", "right again"], jobs)
    finding = checks[guilty]["findings"][0]
    assert code == 3 and finding["code"] == "GV004" and "processes that ran at the same time" in finding["message"]
    assert (checks["right"]["verdict"], checks["right again"]["verdict"]) == ("pass", "pass")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_processes_of_a_check_end_with_its_limit(checked, jobs):
    code, checks, _ = checked(["has_some_and_hangs", "right"], jobs)
    assert code == 3 and [finding["code"] for finding in checks["has_some_and_hangs"]["findings"]] == ["GV005"]
    assert checks["right"]["verdict"] == "pass"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(("leaving", "found"), [("leaves_some_and_crashes", ["GV004"]), ("leaves_some", [])])
def test_what_a_check_left_in_sessions_of_its_own_ends_with_its_worker(checked, leaving, found, jobs):
    """A daemon forked of a worker that crashed keeps pipes of the run open: whoever reads them, as `checked` does, would wait for ever."""
    _, checks, _ = checked([leaving, "right", "right again"], jobs)
    assert [finding["code"] for finding in checks[leaving]["findings"]] == found
    assert (checks["right"]["verdict"], checks["right again"]["verdict"]) == ("pass", "pass")


ENDS = {"a worker ends": "import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))\n",
        "its server ends": "import os, sys\nif 'forkserver' in ' '.join(sys.orig_argv):\n    os._exit(3)\n",
        "its server is ended by it": """import os
def end():
    parent = os.getppid()
    if b"forkserver" in open(f"/proc/{parent}/cmdline", "rb").read():
        os.kill(parent, 9)
os.register_at_fork(after_in_child=end)
"""}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("how", ENDS)
def test_workers_that_all_end_before_they_are_ready_end_the_run(checked, tmp_path, how, jobs):
    """In place of one after the other for ever; what is on the path is the user's, so nothing of it can be blamed on a check."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(ENDS[how])
    code, checks, crashed = checked(["right", "right again"], jobs, PYTHONPATH=str(tmp_path / "path"))
    assert code == 4 and {check["verdict"] for check in checks.values()} == {"not_run"} and "worker process" in crashed
