"""Code that writes into the pipes of its worker, ends it, or replaces what judges it, and checks that compare nothing: each costs its own
check and is no pass. The right check beside them passes, the wrong one fails, and the run ends with its report, at every door."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gradverify

ROOT = Path(__file__).parents[2]

OP = """import gc, json, os, struct, threading, time
import torch


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return 2 * x * grad_output


class Wrong(Right):
    @staticmethod
    def backward(ctx, grad_output):
        return 1.5 * Right.backward(ctx, grad_output)


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


def words():
    return next(each for each in gc.get_objects() if type(each).__name__ == "Words" and each._task)


def nothing(x):
    words().say("result", {})
    return x * x


def another(x):
    said, original = words(), type(words()).say
    def say(self, kind, payload=None):
        original(self, kind, {**payload, "id": "s.yaml::Right"} if kind == "result" else payload)
    type(said).say = say
    return x * x


def not_even(x):
    said = words()
    for kind in ("calls", "plan", "partial", "here", "ready", "ended", "begins"):
        said.say(kind, "nonsense")
    os.abort()


def ends(x):
    os._exit(0)


class Patched(Wrong):
    @staticmethod
    def forward(ctx, x):
        from gradverify.rules import values
        values.gv101 = lambda evidence: iter(())
        return Right.forward(ctx, x)


class Ignored(Wrong):
    pass


class Empty(Wrong):
    pass
"""
CODES = {"frames": "GV004", "half": "GV005", "nothing": "GV004", "another": "GV004", "not_even": "GV004", "ends": "GV002",
         "Patched": "GV008", "Ignored": "GV008", "Empty": "GV008"}
NAMES = [*CODES, "no_json", "Right", "Wrong"]
EXPECTED = {**{name: ("error", [code]) for name, code in CODES.items()}, "no_json": ("pass", []), "Right": ("pass", []), "Wrong": ("fail", ["GV101"])}
RULES = {"Ignored": "select: [GV1], ignore: [GV101, GV108, GV109]"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "")
    subprocess.run(["git", "init", "--quiet"], check=True)
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n" + "".join(
        f"  - {{name: {name}, function: 'op.py:{name}', inputs: {{x: {{shape: [{0 if name == 'Empty' else 2}]}}}}, "
        f"rules: {{{RULES.get(name, 'select: [GV101]')}}}, timeout: {4 if name == 'half' else 60}}}\n" for name in NAMES))
    return tmp_path


def command(*arguments, **environ):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **environ})


def verdicts(checks):
    return {check["name"]: (check["verdict"], [finding["code"] for finding in check["findings"]]) for check in checks}


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("door", [("check", "-j", "2"), ("hook",)])
def test_on_the_command_line(folder, door):
    done = command(sys.executable, "-m", "gradverify", *door, "--report", "json:r.json", "--", "s.yaml")
    report = json.loads((folder / "r.json").read_text())
    assert verdicts(report["checks"]) == EXPECTED, done.stderr
    assert done.returncode == report["exit_code"] == 1 and done.stderr.count("Please report") == 0 and "Traceback" not in done.stderr


@pytest.mark.timeout(1000)
def test_in_the_action(folder):
    step = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"][-1]
    done = command("bash", "-eo", "pipefail", "-c", step["run"], GV_PYTHON=sys.executable, GV_PATHS="s.yaml", GV_ARGS="", GV_REPORT="r.json",
                   GITHUB_OUTPUT="output", PYTHONPATH=str(ROOT))
    assert done.returncode == 1 and verdicts(json.loads((folder / "r.json").read_text())["checks"]) == EXPECTED, done.stderr


@pytest.mark.timeout(1000)
def test_from_python(folder):
    report = gradverify.run("s.yaml")
    assert verdicts(json.loads(report.to_json())["checks"]) == EXPECTED
    assert report.exit_code == 1 and report.crashed is None


@pytest.mark.timeout(1000)
def test_under_pytest(folder):
    done = command(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--gradverify-isolate", "-rA", "s.yaml")
    passed = re.findall(r"^PASSED s.yaml::(\w+)", done.stdout, re.MULTILINE)
    assert sorted(passed) == sorted(name for name, (verdict, _) in EXPECTED.items() if verdict == "pass"), done.stdout + done.stderr
    assert f"{len(EXPECTED) - len(passed)} failed" in done.stdout
