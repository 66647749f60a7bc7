"""A git repository in a folder of a test, what is called in it, and the check step of the
action."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from commands import process

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
IDENTITY = {
    f"GIT_{role}_{what}": text
    for role in ("AUTHOR", "COMMITTER")
    for what, text in (("NAME", "a"), ("EMAIL", "a@example.org"))
}


class Repository:
    """No configuration of the caller's, and a cache of pre-commit in `home`."""

    def __init__(self, folder: Path, home: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        own = {"PRE_COMMIT_HOME": str(home / "cache"), "GIT_CONFIG_GLOBAL": os.devnull}
        self.environ = {**IDENTITY, **own, "GIT_CONFIG_NOSYSTEM": "1", **environ}

    def run(self, *command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        return process(*command, cwd=self.folder, env={**self.environ, **environ})

    def call(self, *command: str | Path, **environ: str) -> tuple[int, str]:
        """(exit code, what is printed)."""
        done = self.run(*command, **environ)
        return done.returncode, done.stdout + done.stderr

    def git(self, *arguments: str) -> str:
        done = self.run("git", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, name: str, text: str) -> None:
        """Writes the file and stages it."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text, encoding="utf-8")
        self.git("add", "-A", "--", name)

    def commit(self, *options: str) -> tuple[int, str]:
        """A commit of what is staged: 0 where no hook objects."""
        return self.call("git", "commit", "-m", "a change", *options)

    def commits(self) -> int:
        return int(self.git("rev-list", "--count", "HEAD"))

    def pre_commit(self, *arguments: str) -> tuple[int, str]:
        """0 where every hook passed."""
        return self.call(Path(sys.executable).parent / "pre-commit", *arguments)


def action(folder: Path, **inputs: str) -> tuple[int, str, dict[str, str], str]:
    """The check step of action.yml as a runner would run it: its exit code, what it prints, its
    outputs, and its summary of the job."""
    defaults = {name: one["default"] for name, one in ACTION["inputs"].items()}
    given: dict[str, Any] = {**defaults, "python": sys.executable, **inputs}
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "check")
    filled = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], str(text))
        for name, text in step["env"].items()
    }
    output, summary = folder / "output", folder / "summary"
    for file in (output, summary):
        file.write_text("")
    files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    service = {"GITHUB_ACTIONS": "true", "CI": "true", "PYTHONPATH": str(ROOT)}
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
    done = process(*command, cwd=folder, env={**filled, **files, **service})
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return done.returncode, done.stdout + done.stderr, outputs, summary.read_text()
