"""Whatever checked code does to its process, or to the one that all workers are forked from, costs
its own check: the right checks beside it pass, the wrong one fails, and nothing is left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
from commands import apart, checks, codes, here, soon, spec, standing_in

from gradverify.running import server, supervisor

PLANTED = Path(__file__).with_name("planted.py")
HANGS = ("loops", "sleeps_in_c", "deadlocks", "HangsInBackward", "has_some_and_hangs")
ERRORS = {  # function: code, a part of the reason, and the line in the stack
    "segmentation_fault": ("GV004", "SIGSEGV (signal 11)", "ctypes.string_at(0)"),
    "abort": ("GV004", "SIGABRT (signal 6)", ""),
    "kills_itself": ("GV004", "SIGKILL (signal 9)", ""),
    "leaves_by_os": ("GV002", "os._exit(0)", ""),
    "leaves_by_posix": ("GV004", "status 0", ""),
    "exits_by_libc": ("GV004", "status 0", ""),
    "becomes_another_program": ("GV002", "os.execv(/bin/true)", ""),
    "interrupts_itself": ("GV002", "forward raised KeyboardInterrupt", ""),
    "allocates": ("GV002", "allocate", ""),
    "loops": ("GV005", "3 s", ("while True:", "pass")),
    "sleeps_in_c": ("GV005", "3 s", "LIBC.sleep(1000)"),
    "deadlocks": ("GV005", "3 s", "lock.acquire()"),
    "HangsInBackward": ("GV005", "3 s", "time.sleep(1000)"),
    "hang.py:f": ("GV005", "importing", "time.sleep(1000)"),
    "has_some_and_hangs": ("GV005", "3 s", ""),
    "leaves_some_and_crashes": ("GV004", "SIGKILL (signal 9)", ""),
}
HARMLESS = ("prints_much", "prints_natively", "closes_descriptors", "leaves_a_child")
HARMLESS += ("returns_twice", "leaves_a_thread", "leaves_some")
IMPORTED = "import signal\nfrom planted import ends_them_all\nends_them_all(signal.SIGKILL)\n"
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="processes are found by /proc"),
]


@pytest.fixture
def planted(folder):
    """`planted(*names)` writes the spec `s.yaml` with a check for each; a name may go on with a
    blank and words that tell it from others of its function."""
    (folder / "planted.py").write_text(PLANTED.read_text())
    (folder / "hang.py").write_text("import time\ntime.sleep(1000)\n")
    (folder / "imported.py").write_text(IMPORTED)

    def write(*names):
        lines = []
        for name in names:
            function = name.split()[0]
            place = function if ":" in function else f"planted.py:{function}"
            limit = ", timeout: 3" if function in HANGS else ""
            limit = ", timeout: 20" if ":" in function else limit  # also of importing
            lines.append(
                f"name: '{name}', function: '{place}', inputs: {{x: {{shape: [2]}}}}, "
                f"rules: {{select: [GV101]}}{limit}"
            )
        (folder / "s.yaml").write_text(spec(*lines))

    yield write
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    ours = (os.getpid(), server.number(), tracker)
    assert soon(lambda: not standing_in(folder, ours)), standing_in(folder, ours)


def ran(folder, *options):
    code, stdout, stderr = here("check", "s.yaml", "--report", "json:r.json", *options)
    assert "Traceback" not in stderr + stdout, stderr
    return code, checks(folder / "r.json")


def test_the_systems_limit_of_memory_holds_for_workers(planted, folder):
    planted("allocates_much", "right")
    command = (
        f"ulimit -d 4000000; {sys.executable} -P -m gradverify check s.yaml --report json:r.json"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = checks(folder / "r.json")
    assert (codes(found["allocates_much"]), found["right"]["verdict"]) == (["GV002"], "pass"), (
        done.stdout + done.stderr
    )
    assert "ulimit -d" in found["allocates_much"]["findings"][0]["hint"]


def test_each_is_blamed_for_what_it_did_and_no_other(planted, folder, monkeypatch):
    monkeypatch.setattr("gradverify.running.schedule.LOADING", 20.0)
    afters = [f"right {number}" for number in range(len(ERRORS) + len(HARMLESS))]
    names = [*ERRORS, *HARMLESS]
    planted(*(each for pair in zip(names, afters, strict=True) for each in pair), "Wrong")
    code, found = ran(folder, "-j", "2")
    assert (found["Wrong"]["verdict"], code) == ("fail", 1)
    assert {name for name in (*afters, *HARMLESS) if found[name]["verdict"] != "pass"} == set()
    for name, (rule, reason, line) in ERRORS.items():
        assert codes(found[name]) == [rule] and reason in found[name]["reason"], name
        frames = [frame["text"] for frame in found[name]["findings"][0]["frames"]]
        assert not line or any(text.endswith(line) for text in frames), name
    assert not found["prints_much"]["changed"]
    assert len(found["prints_much"]["captured"]) < 100_000
    assert "native words" in found["prints_natively"]["captured"]


def test_daemons_of_a_crashed_worker_hold_no_pipe_of_the_run(planted, folder):
    """Whoever reads the pipes of the run would wait for ever."""
    planted("leaves_some_and_crashes", "right")
    done = apart("check", "s.yaml", cwd=folder)
    assert done.returncode == 3 and "1 passed" in done.stdout, done.stderr


def test_processes_without_end_are_bounded(planted, folder, monkeypatch):
    monkeypatch.setattr(supervisor, "MOST", 30)
    monkeypatch.setattr(supervisor, "LOOKS_EVERY", 0.1)
    guilty = ("forks_children", "forks_in_children", "forks_in_groups")
    planted("right 0", *(each for name in guilty for each in (name, f"right {name}")))
    code, found = ran(folder, "-j", "2")
    assert code == 3
    for name in guilty:
        assert codes(found[name]) == ["GV004"]
        assert "processes that ran at the same time" in found[name]["reason"]
        assert found[f"right {name}"]["verdict"] == "pass"


SERVER = "the process that all checks are started from was ended by"


@pytest.mark.parametrize(
    ("guilty", "jobs", "said"),
    [
        ("kills_the_server", "2", "SIGKILL (signal 9) while this check ran"),
        ("terminates_the_server", "1", "SIGTERM (signal 15) while this check ran"),
        ("imported.py:f", "2", "SIGKILL (signal 9) while this check was imported"),
    ],
)
def test_whoever_ends_the_server_is_blamed_alone(planted, folder, monkeypatch, guilty, jobs, said):
    monkeypatch.setenv("JOBS", jobs)
    planted(guilty, *(["beside"] if jobs == "2" else []), "right", "right again")
    code, found = ran(folder, "-j", jobs)
    assert code == 3 and codes(found[guilty]) == ["GV004"]
    assert found[guilty]["reason"] == f"{SERVER} {said}, and again when it ran alone"
    assert {check["verdict"] for name, check in found.items() if name != guilty} == {"pass"}


def test_what_ends_the_server_once_is_nobodys_fault(planted, folder, monkeypatch):
    monkeypatch.setenv("JOBS", "2")
    planted("kills_it_once", "beside", "right")
    assert ran(folder, "-j", "2")[0] == 0


ENDS = {
    "a worker": "import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))\n",
    "its server": "import os, sys\nif 'forkserver' in ' '.join(sys.orig_argv):\n    os._exit(3)\n",
}


@pytest.mark.parametrize("what", ENDS)
def test_workers_that_all_end_before_they_are_ready_end_the_run(planted, folder, what):
    """What is on the path is the user's, so nothing of it can be blamed on a check."""
    (folder / "path").mkdir()
    (folder / "path" / "sitecustomize.py").write_text(ENDS[what])
    planted("right", "right again")
    done = apart(
        "check",
        "s.yaml",
        "--report",
        "json:r.json",
        cwd=folder,
        env={"PYTHONPATH": str(folder / "path")},
    )
    report = json.loads((folder / "r.json").read_text())
    assert done.returncode == report["exit_code"] == 4 and "worker process" in report["crashed"]
    assert {check["verdict"] for check in report["checks"]} == {"not_run"}
