"""Whatever a check does to its process, the checks after it in the same spec are judged as if it had not run: the right one passes, the wrong one
fails. Each check is a child of a process that has only imported what the spec names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.effects import EFFECTS

MODULE = """import atexit, builtins, contextlib, dataclasses, decimal, faulthandler, functools, gc, importlib, inspect, io, json, locale
import logging, math, multiprocessing.connection, multiprocessing.reduction, os, random, re, resource, signal, struct, subprocess, sys
import tempfile, threading, time, types
import warnings
import numpy as np
import torch

kept, original = [], os.system


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
        return 1.01 * Right.backward(ctx, grad_output)
"""
CHECK = "  - {{name: {}, function: 'effects_of:{}', inputs: {{x: {{shape: [2]}}}}, rules: {{select: [GV101]}}, timeout: 20}}\n"
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="processes that a check leaves are found by /proc"
)


def checked(folder, effects, neighbours, *options):
    """The verdicts of the neighbours of each effect, those of the effects, and the exit code."""
    text = MODULE
    lines = ["gradverify: 1\nchecks:\n"]
    for number, effect in enumerate(effects):
        text += f"\n\ndef effect_{number}(x):\n    if not kept:\n        kept.append(1)\n        {effect}\n    return x * x\n"
        lines.append(CHECK.format(f"effect {number}", f"effect_{number}"))
        lines += [
            CHECK.format(f"{name} {number} {again}", name)
            for again in range(neighbours)
            for name in ("Right", "Wrong")
        ]
    (folder / "effects_of.py").write_text(text)
    (folder / "s.yaml").write_text("".join(lines))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gradverify",
            "check",
            "s.yaml",
            "-q",
            "--report",
            "json:r.json",
            *options,
        ],
        cwd=folder,
        env={**os.environ, "CI": ""},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    verdicts = {
        check["name"]: check["verdict"]
        for check in json.loads((folder / "r.json").read_text())["checks"]
    }
    reached = {
        effect: found
        for number, effect in enumerate(effects)
        if set(
            found := [
                (name, verdicts[f"{name} {number} {again}"])
                for again in range(neighbours)
                for name in ("Right", "Wrong")
            ]
        )
        != {("Right", "pass"), ("Wrong", "fail")}
    }
    return (
        reached,
        {effect: verdicts[f"effect {number}"] for number, effect in enumerate(effects)},
        done.returncode,
    )


def test_there_are_enough():
    assert sum(map(len, EFFECTS.values())) >= 120 and len(EFFECTS) >= 12


@pytest.mark.timeout(900)
def test_no_side_effect_reaches_a_neighbour(tmp_path):
    """One in five; `GRADVERIFY_EFFECTS=all` runs all of them, which takes a minute."""
    step = 1 if os.environ.get("GRADVERIFY_EFFECTS") == "all" else 5
    effects = [effect for kind in EFFECTS.values() for effect in kind[::step]]
    reached, own, _ = checked(tmp_path, effects, 1)
    assert reached == {} and "not_run" not in own.values()
    assert not [line for line in processes() if str(tmp_path) in line]


def processes():
    """Folders of all processes."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            found.append(str((each / "cwd").resolve()))
        except OSError:
            continue
    return found


IMPORTS = {
    "a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
        "started 1 thread while it was imported",
    ),
    "threads of torch": (
        "torch.set_num_threads(2)\ntorch.ones(1 << 20).exp()\n",
        "started 1 thread while it was imported",
    ),
    "a graph": (
        "x = torch.ones(3, requires_grad=True)\n(x * x).sum().backward()\nnp.linalg.inv(np.eye(300))\n",
        None,
    ),
    "once": ("with open('imported', 'a') as file:\n    file.write('x')\n", None),
}


@pytest.mark.population(most=2)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", IMPORTS)
def test_a_module_that_computes_or_starts_threads_while_it_is_imported(tmp_path, how):
    """A process with threads is not forked; any other one imports a module once for all checks."""
    text, told = IMPORTS[how]
    (tmp_path / "effects_of.py").write_text(MODULE + text)
    (tmp_path / "s.yaml").write_text(
        "gradverify: 1\nchecks:\n"
        + "".join(
            CHECK.format(f"{name} {again}", name)
            for again in range(2)
            for name in ("Right", "Wrong")
        )
    )
    subprocess.run(
        [sys.executable, "-m", "gradverify", "check", "s.yaml", "-q", "--report", "json:r.json"],
        cwd=tmp_path,
        timeout=280,
        check=False,
    )
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert [check["verdict"] for check in checks] == ["pass", "fail"] * 2
    assert [check["changed"] for check in checks] == [[told] if told else []] * 4
    assert how != "once" or (tmp_path / "imported").read_text() == "x"


def test_checks_of_two_files_of_one_name_do_not_meet(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder, attribute in (("a", "Right"), ("b", "Wrong")):
        (tmp_path / folder / "effects_of.py").write_text(MODULE + f"\nf = {attribute}\n")
        (tmp_path / folder / "s.yaml").write_text(
            "gradverify: 1\nchecks:\n" + CHECK.format(folder, "f")
        )
    subprocess.run(
        [
            sys.executable,
            "-m",
            "gradverify",
            "check",
            "a",
            "b",
            "a",
            "-q",
            "--report",
            "json:r.json",
        ],
        cwd=tmp_path,
        timeout=280,
        check=False,
    )
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert {check["name"]: check["verdict"] for check in checks} == {"a": "pass", "b": "fail"}
