"""What git knows of files: those that differ between two states, and those that are tracked.
Nothing is taken for unchanged where git does not answer, or because of the settings of whoever
asks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gradverify.model.problem import Problem, ProblemsError

# ---- What git knows of files: those that differ between two states, and those that are tracked
LIMIT_S = 60.0  # for one question to git; a large repository answers within seconds


# Whatever `diff.…` is set to
WHOLE = ("--no-renames", "--no-ext-diff", "--no-relative", "--ignore-submodules=none")
SUBMODULE = "160000"  # the mode of one


class NoGit(ProblemsError):  # noqa: N818
    """git could not answer."""

    def __init__(self, sentence: str) -> None:
        super().__init__([Problem(f"git cannot tell what changed: {sentence}")])


def _top(cwd: Path) -> Path:
    """The folder of the repository. Raises NoGit."""
    return Path(os.fsdecode(ask(cwd, "rev-parse", "--show-toplevel")).rstrip("\n"))


def _differing(top: Path, between: str) -> dict[Path, tuple[str, str, str]]:
    """What differs, with its mode before, its mode after, and the letter that git has for how.
    Raises NoGit."""
    fields = _names(ask(top, "diff", between, "--raw", "-z", *WHOLE, "--"))
    about = (word.lstrip(":").split() for word in fields[::2])
    return {
        top / name: (before, after, how)
        for (before, after, *_, how), name in zip(about, fields[1::2], strict=True)
    }


def tracked(cwd: Path, *patterns: str) -> tuple[Path, ...]:
    """Tracked files below `cwd`, relative to it. Raises NoGit."""
    return tuple(
        Path(name) for name in _names(ask(cwd, "ls-files", "--cached", "-z", "--", *patterns))
    )


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def ask(cwd: Path, *arguments: str) -> bytes:
    """What `git …` prints. Raises NoGit."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_PATHSPECS")}
    environ |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd,
            env=environ,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise NoGit("there is no git on the PATH") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoGit(f"git {arguments[0]} did not answer: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoGit(said[0] if said else f"git {arguments[0]} ended with {done.returncode}")
    return done.stdout


# ---- What changed: files, by both their names where they are linked
# Set by pre-commit where it hands over what lies between two commits
PUSHED = ("PRE_COMMIT_FROM_REF", "PRE_COMMIT_TO_REF")


@dataclass(frozen=True, slots=True)
class Changes:
    """`files`: absolute path → as it is shown; `folders`: those of them that are folders (a
    submodule), which stand for all in them; `gone`: those that are no more."""

    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()

    @property
    def count(self) -> int:
        """How many files changed: a linked one counts once."""
        return len(set(self.files.values()))

    def hit(self, places: Iterable[str]) -> str | None:
        """The first of these files that changed, as it is shown."""
        for place in places:
            found = self.files.get(place) or self.files.get(os.path.realpath(place))
            found = found or next(
                (
                    self.files[folder]
                    for folder in self.folders
                    if place.startswith(folder + os.sep)
                ),
                None,
            )
            if found:
                return found
        return None


def of_hook(named: Iterable[str], cwd: Path, environ: Mapping[str, str]) -> Changes:
    """The files handed to a hook, and what pre-commit may hand to nobody. Raises ProblemsError
    where git cannot tell."""
    start, end = (environ.get(name) for name in PUSHED)
    found = _differing(_top(cwd), f"{start}...{end}" if start and end else "--cached")
    # deleted files, and submodules, which settings can hide
    others = (
        path for path, (*modes, status) in found.items() if status == "D" or SUBMODULE in modes
    )
    return _changes((*(cwd / name for name in named), *others), cwd)


def since(ref: str, cwd: Path) -> Changes:
    """Everything that differs from the commit at which this branch left `ref`: in commits, staged
    or not, untracked files too, deleted ones and both names of renamed ones. Raises ProblemsError
    with a sentence where that cannot be told."""
    top, option = _top(cwd), f"--changed-from {ref}"
    try:
        ask(cwd, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except NoGit:
        raise ProblemsError(
            [
                Problem(
                    f"{option}: there is no commit {ref!r} in this repository (of a remote: git "
                    "fetch first)"
                )
            ]
        ) from None
    try:
        base = os.fsdecode(ask(cwd, "merge-base", "--", ref, "HEAD")).strip()
    except NoGit:
        sentence = (
            f"{option}: {ref!r} and HEAD have no commit in common here (a shallow clone? fetch "
            "more of its history)"
        )
        raise ProblemsError([Problem(sentence)]) from None
    untracked = _names(ask(top, "ls-files", "--others", "--exclude-standard", "-z"))
    return _changes((*_differing(top, base), *(top / name for name in untracked)), cwd)


def _changes(paths: Iterable[Path], cwd: Path) -> Changes:
    files: dict[str, str] = {}
    for path in paths:
        shown = _shown(path, cwd)
        files.setdefault(os.path.abspath(path), shown)  # noqa: PTH100 - links stay what they are
        files.setdefault(os.path.realpath(path), shown)
    gone = frozenset(file for file in files if not os.path.lexists(file))
    folders = tuple(file for file in files if os.path.isdir(file))  # noqa: PTH112 - false for what can be no path
    return Changes(files, folders, gone)


def _shown(path: Path, cwd: Path) -> str:
    relative = Path(os.path.relpath(path, cwd))
    return str(path) if relative.parts[:1] == (os.pardir,) else relative.as_posix()
