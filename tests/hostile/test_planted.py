"""Whatever checked code does to its process costs its own check; the right ones after it pass, a wrong one fails, and nothing is left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = Path(__file__).with_name("planted.py")
LIMITS = ("--import-timeout", "20", "--memory", "6G")
HANGS = {"loops": 4, "sleeps_in_c": 4, "deadlocks": 4, "HangsInBackward": 4}     # seconds; no other check has a limit that a busy machine could reach
ERRORS = {      # function → code, and what the reason says
    "segmentation_fault": ("GV004", "SIGSEGV (signal 11)"), "abort": ("GV004", "SIGABRT (signal 6)"), "kills_itself": ("GV004", "SIGKILL (signal 9)"),
    "terminates_itself": ("GV004", "SIGTERM (signal 15)"), "leaves_by_os": ("GV002", "os._exit(0)"), "leaves_by_posix": ("GV004", "status 0"),
    "exits_by_libc": ("GV004", "status 0"), "leaves_by_libc": ("GV004", "status 0"), "becomes_another_program": ("GV002", "os.execv(/bin/true)"),
    "exits_by_sys": ("GV002", "SystemExit: 0"), "exits_when_printed": ("GV002", "Exits"), "interrupts": ("GV002", "KeyboardInterrupt"),
    "raises_what_cannot_be_printed": ("GV002", "Unprintable"), "loops": ("GV005", "4 s"), "sleeps_in_c": ("GV005", "4 s"),
    "deadlocks": ("GV005", "4 s"), "allocates": ("GV002", "allocate"), "recurses": ("GV002", "RecursionError"), "HangsInBackward": ("GV005", "4 s"),
    "hang.py:f": ("GV005", "importing"), "raise.py:f": ("GV001", "no import today")}
STACKS = {"segmentation_fault": "ctypes.string_at(0)", "loops": ("while True:", "pass"), "sleeps_in_c": "LIBC.sleep(1000)",
          "deadlocks": "lock.acquire()",
          "HangsInBackward": "time.sleep(1000)", "hang.py:f": "time.sleep(1000)"}
CHANGES = ("closes_descriptors", "leaves_a_child", "returns_twice", "leaves_a_thread", "replaces_grad", "replaces_mul", "changes_the_default_dtype",
           "leaves_anomaly_detection_on")
HARMLESS = ("returns_a_lambda_too", "prints_much", "prints_natively")
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what processes leave behind is read from /proc")


def target(name):
    return name if ":" in name else f"planted.py:{name}"


def spec(names, afters=("", " and after it")):
    checks = (f"  - {{name: '{name}{after}', function: '{target(name if not after else 'right')}', inputs: {{x: {{shape: [2]}}}}"
              f"{f', timeout: {HANGS[name]}' if name in HANGS and not after else ''}}}\n" for name in names for after in afters)
    return "gradverify: 1\nchecks:\n" + "".join(checks)


def processes():
    """Command lines of all processes with the word that only ours have."""
    lines = (path.read_bytes().replace(b"\0", b" ").decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    return [line for line in lines if "sleep 1234" in line]


@pytest.fixture
def checked(tmp_path):
    """`checked(names, *options)`: exit code, and the checks of the report by their names."""
    (tmp_path / "planted.py").write_text(PLANTED.read_text())
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(1000)\n")
    (tmp_path / "raise.py").write_text("raise RuntimeError('no import today')\n")

    def run(text, *options):
        (tmp_path / "s.yaml").write_text(text)
        done = subprocess.run([sys.executable, "-m", "gradverify", "check", "s.yaml", "--report", "json:r.json", *LIMITS, *options], cwd=tmp_path,
                              env={**os.environ, "CI": ""}, capture_output=True, text=True, timeout=800, check=False)
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        report = json.loads((tmp_path / "r.json").read_text())
        assert report["exit_code"] == done.returncode
        return done.returncode, {check["name"]: check for check in report["checks"]}

    return run


@pytest.mark.timeout(900)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_each_is_blamed_for_what_it_did_and_no_other(checked, jobs):
    names = [*ERRORS, *CHANGES, *HARMLESS]
    code, checks = checked(spec(names) + "  - {name: wrong, function: 'planted.py:Wrong', inputs: {x: {shape: [2]}}}\n", "-j", jobs)
    assert list(checks) == [f"{name}{after}" for name in names for after in ("", " and after it")] + ["wrong"]
    assert {name for name, check in checks.items() if name.endswith(" and after it") and check["verdict"] != "pass"} == set()
    blamed = {name: ([finding["code"] for finding in checks[name]["findings"]], checks[name]["reason"]) for name in ERRORS}
    assert {name: told for name, told in blamed.items() if told[0] != [ERRORS[name][0]] or ERRORS[name][1] not in told[1]} == {}
    frames = {name: [frame["text"] for frame in checks[name]["findings"][0]["frames"]] for name in STACKS}
    assert {name: lines for name, lines in frames.items() if not any(line.endswith(STACKS[name]) for line in lines)} == {}
    assert [name for name in HARMLESS if checks[name]["verdict"] != "pass" or checks[name]["changed"]] == []
    unmeasured = {name for name in CHANGES if checks[name]["verdict"] != "pass"}
    assert unmeasured == {"replaces_grad", "replaces_mul"}
    assert all((checks[name]["verdict"], checks[name]["findings"][0]["code"]) == ("undecided", "GV007") for name in unmeasured)
    assert {name for name in HANGS if not HANGS[name] <= checks[name]["seconds"] < 60} == set()
    assert "native words" in checks["prints_natively"]["captured"] and len(checks["prints_much"]["captured"]) < 100_000
    assert (checks["wrong"]["verdict"], code) == ("fail", 1)
    assert processes() == []


@pytest.mark.timeout(300)
def test_without_a_wrong_one_nothing_is_called_wrong(checked):
    names = [name for name in (*ERRORS, *CHANGES, *HARMLESS) if name not in HANGS and name != "hang.py:f"]
    code, checks = checked(spec(names, [""]), "-j", "2")
    assert code == 3 and "fail" not in {check["verdict"] for check in checks.values()}
    assert {name for name in names if checks[name]["verdict"] == "error"} == {name for name in names if name in ERRORS}
    assert processes() == []
