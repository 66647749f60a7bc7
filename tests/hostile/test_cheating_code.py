"""Code that writes into the pipes of its worker, ends it, or replaces what judges it, and checks
that compare nothing: each costs its own check and is no pass. The right check beside them passes,
the wrong one fails, and the run ends with its report, at every door."""

from __future__ import annotations

import re
import subprocess

import pytest
from commands import SQUARES, checks, codes, here, pytest_run, spec

import gradverify

OP = """import gc, json, struct


def everywhere(data):
    for descriptor in range(3, 1024):
        try:
            os.write(descriptor, data)
        except OSError:
            pass


def frames(x):
    everywhere(struct.pack("!i", 9) + b"result \\n{}")
    return x * x


def half(x):
    everywhere(struct.pack("!i", 1000) + b"result")
    time.sleep(100)


def no_json(x):
    json.dumps = lambda *given, **options: "nonsense"
    return x * x


def sender():
    return next(each for each in gc.get_objects() if type(each).__name__ == "Sender" and each._task)


def nothing(x):
    sender().send("result", {})
    return x * x


def another(x):
    found, original = sender(), type(sender()).send
    def send(self, kind, payload=None):
        original(self, kind, {**payload, "id": "s.yaml::Square"} if kind == "result" else payload)
    type(found).send = send
    return x * x


def not_even(x):
    found = sender()
    for kind in ("calls", "plan", "partial", "here", "ready", "ended", "begins"):
        found.send(kind, "nonsense")
    os.abort()


def ends(x):
    os._exit(0)


class Patched(Wrong):
    @staticmethod
    def forward(ctx, x):
        from gradverify.rules import values
        values.gv101 = lambda evidence: iter(())
        return Square.forward(ctx, x)


class Ignored(Wrong):
    pass


class Empty(Wrong):
    pass
"""
CODES = {
    "frames": "GV004",
    "half": "GV005",
    "nothing": "GV004",
    "another": "GV004",
    "not_even": "GV004",
    "ends": "GV002",
    "Patched": "GV008",
    "Ignored": "GV008",
    "Empty": "GV008",
}
NAMES = [*CODES, "no_json", "Square", "Wrong"]
EXPECTED = {
    **{name: ("error", [code]) for name, code in CODES.items()},
    "no_json": ("pass", []),
    "Square": ("pass", []),
    "Wrong": ("fail", ["GV101"]),
}
RULES = {"Ignored": "select: [GV1], ignore: [GV101, GV108, GV109]"}


def line(name):
    shape = "[0]" if name == "Empty" else "[2]"
    rules = RULES.get(name, "select: [GV101]")
    return (
        f"name: {name}, function: 'op.py:{name}', inputs: {{x: {{shape: {shape}}}}}, "
        f"rules: {{{rules}}}, timeout: {4 if name == 'half' else 60}"
    )


@pytest.fixture
def folder(folder):
    subprocess.run(["git", "init", "--quiet"], check=True)
    (folder / "op.py").write_text(SQUARES + OP)
    (folder / "s.yaml").write_text(spec(*map(line, NAMES)))
    return folder


def verdicts(found):
    return {name: (check["verdict"], codes(check)) for name, check in found.items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("door", [("check", "-j", "2"), ("hook",)])
def test_on_the_command_line(folder, door):
    code, _, stderr = here(*door, "--report", "json:r.json", "--", "s.yaml")
    assert verdicts(checks(folder / "r.json")) == EXPECTED, stderr
    assert code == 1 and "Please report" not in stderr and "Traceback" not in stderr


@pytest.mark.timeout(600)
def test_from_python(folder):
    report = gradverify.run("s.yaml")
    (folder / "r.json").write_text(report.to_json())
    assert verdicts(checks(folder / "r.json")) == EXPECTED
    assert report.exit_code == 1 and report.crashed is None


@pytest.mark.timeout(600)
def test_under_pytest(folder):
    done = pytest_run(
        "-q", "-p", "no:cacheprovider", "--gradverify-isolate", "-rA", "s.yaml", cwd=folder
    )
    passed = re.findall(r"^PASSED s.yaml::(\w+)", done.stdout, re.MULTILINE)
    wanted = [name for name, (verdict, _) in EXPECTED.items() if verdict == "pass"]
    assert sorted(passed) == sorted(wanted), done.stdout + done.stderr
    assert f"{len(EXPECTED) - len(passed)} failed" in done.stdout
