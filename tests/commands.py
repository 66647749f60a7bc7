"""How tests run `gradverify`: in this process, as a process of its own, under bash, or under
pytest. Every test goes through these."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any

from gradverify.cli.boundary import run
from gradverify.cli.output import Output

OF_THE_CALLER = (
    "CI",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
    "PRE_COMMIT",
    "PYTEST_ADDOPTS",
    "PYTEST_CURRENT_TEST",
    "PYTEST_XDIST_WORKER",
)
COMMAND = (sys.executable, "-m", "gradverify")
SQUARES = """import atexit, ctypes, os, random, signal, subprocess, sys, threading, time
import numpy as np
import torch
from torch.autograd import Function


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g


class Wrong(Square):
    @staticmethod
    def backward(ctx, g):
        return 1.5 * Square.backward(ctx, g)


"""
"""A module with a right Function and a wrong one, to which tests add what they try."""


def here(*arguments: str) -> tuple[int, str, str]:
    """Run in this process, checks in workers as always: (exit code, stdout, stderr)."""
    out = Output(arguments, StringIO(), StringIO())
    return run(out), out.stdout.getvalue(), out.stderr.getvalue()


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process without what tells of a CI service, of pytest or of git."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in OF_THE_CALLER and not name.startswith("GIT_")
    }
    return {**kept, **(changes or {})}


def process(
    *command: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 280,
    **changes: Any,
) -> subprocess.CompletedProcess[str]:
    """Run any command to its end; `env`: changes of the environment."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(env),
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
        **changes,
    )


def apart(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """`python -m gradverify` as a process of its own."""
    return process(*COMMAND, *arguments, **how)


def begun(*arguments: str, cwd: Path, **how: Any) -> subprocess.Popen[str]:
    """The same, not waited for."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *arguments], cwd=cwd, env=environment(), **pipes, **how)


def shell(text: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """`text` under bash; `gradverify` in it is that of this interpreter."""
    return process("bash", "-c", text.replace("gradverify ", f"{' '.join(COMMAND)} ", 1), **how)


PLUGIN = (
    ()
    if any(each.value == "gradverify.pytest_plugin" for each in entry_points(group="pytest11"))
    else ("-p", "gradverify.pytest_plugin")
)


def pytest_run(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """pytest with the plugin, as a process of its own."""
    return process(sys.executable, "-m", "pytest", *PLUGIN, *arguments, **how)


def spec(*checks: str) -> str:
    """The text of a spec; each check in the flow style of YAML, without its braces."""
    return "gradverify: 1\nchecks:\n" + "".join(f"  - {{{check}}}\n" for check in checks)


def checks(report: Path) -> dict[str, dict[str, Any]]:
    """The checks of a JSON report by their names."""
    return {check["name"]: check for check in json.loads(report.read_text())["checks"]}


def codes(check: Mapping[str, Any]) -> list[str]:
    return [finding["code"] for finding in check["findings"]]


def standing_in(folder: Path, but: Collection[int | None] = ()) -> list[str]:
    """Command lines of the processes whose current folder is this one; `but`: not of these."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if int(each.name) not in but and (each / "cwd").resolve() == folder.resolve():
                line = (each / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(line.decode(errors="replace"))
        except OSError:
            continue
    return found


def soon(holds: Callable[[], object], seconds: float = 20.0) -> bool:
    """Does it become true within this time?"""
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.05)
    return bool(holds())
