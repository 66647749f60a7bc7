"""What code writes into the pipes of its worker, or puts in place of what results go through, costs its own check (GV004, GV005).
The right check beside it passes, the wrong one fails, and the run ends with its report, at every door that runs checks in workers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import gradverify

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
"""
CODES = {"frames": "GV004", "half": "GV005", "nothing": "GV004", "another": "GV004", "not_even": "GV004"}
NAMES = [*CODES, "no_json", "Right", "Wrong"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "")
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n" + "".join(
        f"  - {{name: {name}, function: 'op.py:{name}', inputs: {{x: {{shape: [2]}}}}, rules: {{select: [GV101]}}, "
        f"timeout: {4 if name == 'half' else 60}}}\n" for name in NAMES))
    return tmp_path


def command(*arguments):
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("door", [("check", "s.yaml", "-j", "2"), ("hook", "s.yaml")])
def test_on_the_command_line(folder, door):
    done = command("gradverify", *door, "--report", "json:r.json")
    report = json.loads((folder / "r.json").read_text())
    found = {check["name"]: (check["verdict"], [finding["code"] for finding in check["findings"]]) for check in report["checks"]}
    assert found == expected(), done.stderr
    assert done.returncode == report["exit_code"] == 1 and done.stderr.count("Please report") == 0 and "Traceback" not in done.stderr


@pytest.mark.timeout(1000)
def test_from_python(folder):
    report = gradverify.run("s.yaml")
    assert {check.name: (check.verdict, [finding.code for finding in check.findings]) for check in report.checks} == expected()
    assert report.exit_code == 1 and report.crashed is None


@pytest.mark.timeout(1000)
def test_under_pytest(folder):
    done = command("pytest", "-q", "-p", "no:cacheprovider", "--gradverify-isolate", "-rA", "s.yaml")
    assert "2 passed, 6 failed" in done.stdout or "6 failed, 2 passed" in done.stdout, done.stdout + done.stderr


def expected():
    return {**{name: ("error", [code]) for name, code in CODES.items()}, "no_json": ("pass", []), "Right": ("pass", []), "Wrong": ("fail", ["GV101"])}
