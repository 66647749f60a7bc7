"""What git knows of files: those that differ from a commit, those whose deletion is staged, those that are tracked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gradverify.model.problem import Problem, ProblemsError

LIMIT_S = 60.0      # for one question to git; a large repository answers within seconds


class NoGit(Exception):  # noqa: N818 - carries git's own sentence, or says that there is no git
    """git could not answer."""


def changed_since(ref: str, cwd: Path) -> tuple[tuple[Path, ...], str]:
    """Absolute paths of all that differs from the commit at which this branch left `ref`: in commits, staged or not, untracked files too, deleted
    ones and both names of renamed ones; and that commit. Raises ProblemsError with a sentence where that cannot be told."""
    option = f"--changed-from {ref}"
    try:
        top = _top(cwd)
    except NoGit as error:
        raise ProblemsError([Problem(f"{option}: {cwd} is in no git repository: {error}")]) from None
    base = _base_of(ref, cwd, option)
    try:
        differing = ask(cwd, "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", base, "--")
        untracked = ask(cwd, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", ":/")
    except NoGit as error:
        raise ProblemsError([Problem(f"{option}: {error}")]) from None
    return tuple(top / name for name in _names(differing + untracked)), base


def _top(cwd: Path) -> Path:
    """The folder of the repository. Raises NoGit."""
    return Path(os.fsdecode(ask(cwd, "rev-parse", "--show-toplevel")).rstrip("\n"))


def _base_of(ref: str, cwd: Path, option: str) -> str:
    """The commit at which this branch left `ref`. Raises ProblemsError."""
    try:
        ask(cwd, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except NoGit:
        raise ProblemsError([Problem(f"{option}: there is no commit {ref!r} in this repository (of a remote: git fetch first)")]) from None
    try:
        return os.fsdecode(ask(cwd, "merge-base", "--", ref, "HEAD")).strip()
    except NoGit:
        sentence = f"{option}: {ref!r} and HEAD have no commit in common here (a shallow clone? fetch more of its history)"
        raise ProblemsError([Problem(sentence)]) from None


def deleted(cwd: Path, ends: tuple[str, str] | None) -> tuple[Path, ...]:
    """Absolute paths of files whose deletion is staged, or that were deleted between two commits; none where git cannot tell."""
    between = ["--cached"] if ends is None else [f"{ends[0]}...{ends[1]}"]
    try:
        top = _top(cwd)
        return tuple(top / name for name in _names(ask(cwd, "diff", *between, "--name-only", "-z", "--no-renames", "--diff-filter=D", "--")))
    except NoGit:
        return ()


def tracked(cwd: Path, *patterns: str) -> tuple[Path, ...]:
    """Tracked files below `cwd`, relative to it; none where git cannot tell."""
    try:
        return tuple(Path(name) for name in _names(ask(cwd, "ls-files", "--cached", "-z", "--", *patterns)))
    except NoGit:
        return ()


def text_at(commit: str, file: Path) -> bytes | None:
    """What a file held in a commit; None where it was not there, or where git cannot tell."""
    try:
        return ask(file.parent, "show", f"{commit}:./{file.name}")
    except NoGit:
        return None


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def ask(cwd: Path, *arguments: str) -> bytes:
    """What `git …` prints. Raises NoGit."""
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(["git", *arguments], cwd=cwd, env=environ, capture_output=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        raise NoGit("there is no git on the PATH") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoGit(f"git {arguments[0]} did not answer: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoGit(said[0] if said else f"git {arguments[0]} ended with {done.returncode}")
    return done.stdout
