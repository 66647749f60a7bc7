"""The same report but for times, however a run is divided: in one process after the other, two at a time, in shards that are merged. Among the checks
are those that tempt to a difference: a crash, random draws, a wrong gradient, one that is skipped, one that is expected to fail."""

import json
import subprocess
import sys

import pytest

SPEC = """gradverify: 1
checks:
  - {name: gives up, function: "op.py:gives_up", inputs: {x: {shape: [3]}}}
  - {name: "mul", function: mul, inputs: {x: {shape: [2, $n]}, y: {shape: [2, $n]}}, matrix: {n: [1, 3, 4]}}
  - {name: wrong, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, expected: {x: [2, 2]}, expect: [GV107]}
  - {name: later, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, skip: later}
  - {name: noisy, function: "op.py:noisy", inputs: {x: {shape: [4]}}}
"""
OP = """import os, torch


def gives_up(x):
    os.abort()


def noisy(x):
    print("seen")
    return torch.dropout(x, 0.5, True)
"""


@pytest.fixture
def check(tmp_path):
    (tmp_path / "s.yaml").write_text(SPEC)
    (tmp_path / "op.py").write_text(OP)

    def call(*arguments):
        done = subprocess.run([sys.executable, "-m", "gradverify", *arguments, "--report", "json:r.json"], cwd=tmp_path, capture_output=True,
                              text=True, timeout=300, check=False)
        text = (tmp_path / "r.json").read_text()
        data = json.loads(text)
        for name in ("started_at", "duration_s", "argv"):
            del data[name]
        for result in data["checks"]:
            del result["seconds"]
        return done.returncode, data, text

    return call


@pytest.mark.timeout(900)
def test_in_shards_and_several_at_a_time_it_is_the_same_report(check, tmp_path):
    code, whole, _ = check("check", "s.yaml")
    assert code == 3 and [result["verdict"] for result in whole["checks"]] == ["error", "pass", "pass", "pass", "fail", "skip", "pass"]
    assert check("check", "s.yaml", "-j", "2")[:2] == (code, whole)
    parts = []
    for index in (1, 2, 3):
        (tmp_path / f"s{index}.json").write_text(check("check", "s.yaml", "--shard", f"{index}/3")[2])
        parts.append(f"s{index}.json")
    assert check("merge", *parts[::-1])[:2] == (code, whole)
