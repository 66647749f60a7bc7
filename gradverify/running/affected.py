"""Find the checks that a change affects: by the files that git reports, the checks' specs, the
modules that their functions import, and the files that they name. No user module is imported.
No file counts as unchanged because git fails, or because of the user's git settings."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.paths import resolved
from gradverify.model.problem import Problem, ProblemsError
from gradverify.source.functions import functions
from gradverify.source.globs import matches
from gradverify.source.graph import Graph, Imported
from gradverify.source.modules import Library
from gradverify.spec.walk import (
    PROJECT_FILE,
    SPEC_FOLDER,
    SUFFIXES,
    Mentions,
    folder_of,
    is_spec,
    mentions,
    own_specs,
    specs_below,
)

# ---- Files by git: those that differ between two states, and those that are tracked
LIMIT_S = 60.0  # seconds for one git command; in a large repository it takes a few


# Options that override the user's `diff.…` settings
EVERYTHING = ("--no-renames", "--no-ext-diff", "--no-relative", "--ignore-submodules=none")
SUBMODULE = "160000"  # git's file mode of a submodule


class NoGit(ProblemsError):  # noqa: N818
    """Raised if a git command fails."""

    def __init__(self, sentence: str) -> None:
        super().__init__([Problem(f"git cannot tell what changed: {sentence}")])


def _top(cwd: Path) -> Path:
    """Return the top folder of the repository. Raises NoGit."""
    return Path(os.fsdecode(git(cwd, "rev-parse", "--show-toplevel")).rstrip("\n"))


def _differing(top: Path, between: str) -> dict[Path, tuple[str, str, str]]:
    """Return the paths that differ, each with its mode before, its mode after, and git's status
    letter. Raises NoGit."""
    fields = _names(git(top, "diff", between, "--raw", "-z", *EVERYTHING, "--"))
    about = (word.lstrip(":").split() for word in fields[::2])
    return {
        top / name: (before, after, how)
        for (before, after, *_, how), name in zip(about, fields[1::2], strict=True)
    }


def tracked(cwd: Path, *patterns: str) -> tuple[Path, ...]:
    """Return the tracked files below `cwd`, relative to it. Raises NoGit."""
    return tuple(
        Path(name) for name in _names(git(cwd, "ls-files", "--cached", "-z", "--", *patterns))
    )


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def git(cwd: Path, *arguments: str) -> bytes:
    """Run a git command and return its stdout. Raises NoGit."""
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
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoGit(lines[0] if lines else f"git {arguments[0]} ended with {done.returncode}")
    return done.stdout


# ---- Changed files; a symbolic link is listed by both paths
# Set by pre-commit where it checks the changes between two commits
PUSHED = ("PRE_COMMIT_FROM_REF", "PRE_COMMIT_TO_REF")


@dataclass(frozen=True, slots=True)
class Changes:
    """The changed files. `files`: absolute path → path as shown; `folders`: those that are folders
    (submodules), all of whose files count as changed; `gone`: those that are deleted."""

    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()

    @property
    def count(self) -> int:
        """The number of changed files; a linked one counts once."""
        return len(set(self.files.values()))

    def hit(self, places: Iterable[str]) -> str | None:
        """Return the first of these files that changed, as shown; None if none did."""
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
    """Return the changes for a hook: the files passed to it, and those that pre-commit leaves out.
    Raises ProblemsError if git fails."""
    start, end = (environ.get(name) for name in PUSHED)
    found = _differing(_top(cwd), f"{start}...{end}" if start and end else "--cached")
    # pre-commit leaves out deleted files, and submodules where settings hide them
    others = (
        path for path, (*modes, status) in found.items() if status == "D" or SUBMODULE in modes
    )
    return _changes((*(cwd / name for name in named), *others), cwd)


def since(ref: str, cwd: Path) -> Changes:
    """Return all differences from the commit at which this branch left `ref`: committed, staged or
    not, untracked and deleted files, and both names of renamed ones. Raises ProblemsError if they
    cannot be determined."""
    top, option = _top(cwd), f"--changed-from {ref}"
    try:
        git(cwd, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except NoGit:
        raise ProblemsError(
            f"{option}: there is no commit {ref!r} in this repository (of a remote: git "
            "fetch first)"
        ) from None
    try:
        base = os.fsdecode(git(cwd, "merge-base", "--", ref, "HEAD")).strip()
    except NoGit:
        sentence = (
            f"{option}: {ref!r} and HEAD have no commit in common here (a shallow clone? fetch "
            "more of its history)"
        )
        raise ProblemsError(sentence) from None
    untracked = _names(git(top, "ls-files", "--others", "--exclude-standard", "-z"))
    return _changes((*_differing(top, base), *(top / name for name in untracked)), cwd)


def _changes(paths: Iterable[Path], cwd: Path) -> Changes:
    files: dict[str, str] = {}
    for path in paths:
        shown = _shown(path, cwd)
        files.setdefault(os.path.abspath(path), shown)  # noqa: PTH100 - links stay what they are
        files.setdefault(os.path.realpath(path), shown)
    gone = frozenset(file for file in files if not os.path.lexists(file))
    folders = tuple(file for file in files if os.path.isdir(file))  # noqa: PTH112 - false for an invalid path
    return Changes(files, folders, gone)


def _shown(path: Path, cwd: Path) -> str:
    relative = Path(os.path.relpath(path, cwd))
    return str(path) if relative.parts[:1] == (os.pardir,) else relative.as_posix()


FILE_TARGET = ".py"
KERNELS = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip")  # files of which nothing imports anything
TARGET = re.compile(r".+:[A-Za-z_][\w.]*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
WHOLE = 0  # as a line number: all checks of a spec


def affected(changes: Changes, cwd: Path, specs: Iterable[str]) -> Mapping[tuple[str, int], str]:
    """Return why each affected check is: (spec as shown, line) → reason. A spec that cannot be
    read, or has a name that no file can have, counts as affected by any change."""
    graph, found = Graph(), dict[tuple[str, int], str]()
    configuration = cache(_configuration)

    def why(spec: str, mentioned: Mentions, texts: Iterable[str]) -> str | None:
        try:
            if changes.hit([str(cwd / spec)]):
                return "its spec changed"
            configured = changes.hit(configuration(resolved(cwd / spec).parent))
            if configured:
                return f"{configured} changed"
            return _why(spec, mentioned, tuple(dict.fromkeys(texts)), changes, graph, cwd)
        except (OSError, ValueError, RuntimeError):  # a name that is too long, links in a circle
            return "names what can be no file"

    for spec in specs if changes.files else ():
        mentioned = mentions(cwd / spec)
        if mentioned is None:
            found[spec, WHOLE] = "its spec cannot be read"
        # First all checks of the spec together: most often none of them is affected
        elif why(spec, mentioned, chain.from_iterable(mentioned.checks.values())):
            found |= {
                (spec, line): reason
                for line, texts in mentioned.checks.items()
                if (reason := why(spec, mentioned, texts))
            }
    return found


def _why(
    spec: str,
    mentioned: Mentions,
    texts: tuple[str, ...],
    changes: Changes,
    graph: Graph,
    cwd: Path,
) -> str | None:
    """Return why checks with these `texts` are affected; None if they are not. Every text that may
    name a function, a module or a file is treated as such."""
    folder = resolved(cwd / spec).parent
    named = changes.hit(
        os.path.realpath(folder / text.partition("#")[0])
        for text in texts
        if text and "\0" not in text
    )
    named = named or next(
        (
            shown
            for file, shown in changes.files.items()
            for text in texts
            if matches(text, str(folder), file)
        ),
        None,
    )
    if named:
        return f"names {named}"
    project = folder_of(folder)
    folders = (
        *(str(resolved(folder / place)) for place in mentioned.path),
        str(folder),
        *([str(project)] if project else []),
        str(cwd),
    )
    targets = (
        f"{BUILTINS[text].module}:{BUILTINS[text].attribute}"
        if text in BUILTINS
        else _target(text, folder)
        for text in texts
    )
    reach = graph.of(tuple(filter(None, targets)), mentioned.imports, tuple(dict.fromkeys(folders)))
    for file in sorted(reach.files):
        if hit := changes.hit([file]):
            way = ", ".join(_shown(Path(each), cwd) for each in reach.way(file))
            return f"imports {hit}{f' by way of {way}' if way else ''}"
    if hit := next(_by_name(reach, changes), None):
        return f"imports {hit}"
    return next(
        (
            f"imports {Path(file).name}, whose own imports cannot be determined"
            for file in sorted(reach.unread)
        ),
        None,
    )


def _target(text: str, folder: Path) -> str | None:
    place, _, attribute = text.rpartition(":")
    return (
        None
        if not TARGET.fullmatch(text)
        else f"{resolved(folder / place)}:{attribute}"
        if place.endswith(FILE_TARGET)
        else text
    )


def _by_name(reach: Imported, changes: Changes) -> Iterator[str]:
    """Yield the changed files with the name of an imported module that was not found, as the code
    may add their folder to the path; and the deleted files with the name of any imported module."""
    for file, shown in changes.files.items():
        path = Path(file).with_suffix("").as_posix().removesuffix("/__init__")
        modules = reach.names if file in changes.gone else reach.missing
        if file.endswith(".py") and any(
            path.endswith(f"/{name.replace('.', '/')}") for name in modules
        ):
            yield shown


def sieved(changes: Changes, cwd: Path) -> tuple[tuple[str, ...], int]:
    """Return the specs with affected checks, and the number of specs examined: those of the project
    and all changed ones."""
    changed = (
        shown
        for file, shown in changes.files.items()
        if file.lower().endswith(SUFFIXES) and file not in changes.gone and is_spec(Path(file))
    )
    specs = tuple(dict.fromkeys((*project_specs(cwd), *changed)))
    return tuple(dict.fromkeys(spec for spec, _ in affected(changes, cwd, specs))), len(specs)


def unnamed(changes: Changes, cwd: Path) -> tuple[list[str], list[Path]]:
    """Return the changed kernels that no spec lists, as shown, and the changed Python files with
    Functions that no spec names, which may be checked through others."""
    kept = [file for file in changes.files if file not in changes.gone]
    kernels = [file for file in kept if file.endswith(KERNELS)]
    modules = [Path(file) for file in kept if file.endswith(FILE_TARGET) and _may_define(file)]
    if not kernels and not modules:
        return [], []
    named, listed = set[str](), set[str]()
    for spec in project_specs(cwd):
        found, folder = mentions(cwd / spec), str(resolved(cwd / spec).parent)
        texts = {text for each in found.checks.values() for text in each} if found else set()
        named |= {re.split(r"[:.]", text)[-1] for text in texts}
        listed |= {
            file for file in kernels for text in texts if text and matches(text, folder, file)
        }
    unlisted = [changes.files[file] for file in kernels if file not in listed]
    return list(dict.fromkeys(unlisted)), [
        file
        for file in dict.fromkeys(map(resolved, modules))
        if any(
            each.name.rpartition(".")[2] not in named
            for each in functions(Library((cwd,)), [file])
            if each.inside is None
        )
    ]


def _may_define(file: str) -> bool:
    try:
        text = Path(file).read_bytes()
    except OSError:
        return False
    return any(word in text for word in (b"Function", b"register_autograd", b"custom_op"))


def project_specs(cwd: Path) -> tuple[str, ...]:
    """Return the specs that `check` runs without paths; if the project sets no `paths`, also all
    specs that git tracks below `cwd`."""
    listed = _listed(cwd)
    if listed is not None:
        return _relative((file for place in listed for file in _members(place)), cwd)
    folder = cwd / SPEC_FOLDER
    found = _members(folder) if folder.is_dir() else own_specs(cwd)
    others = (cwd / file for file in tracked(cwd, *(f":(icase)*{suffix}" for suffix in SUFFIXES)))
    return _relative((*found, *(file for file in others if file.is_file() and is_spec(file))), cwd)


def _configuration(folder: Path) -> list[str]:
    """Return the files that count for all checks of a folder: those of projects around it, and the
    baseline of the nearest one."""
    files = [str(above / PROJECT_FILE) for above in (folder, *folder.parents)]
    project, baseline = _setting(folder, "baseline") or (folder, None)
    return [*files, str(project / baseline)] if isinstance(baseline, str) else files


def _setting(cwd: Path, key: str) -> tuple[Path, Any] | None:
    """Return the project's folder and a key of its `[tool.gradverify]`; None if there is none, or
    the file is invalid, which is reported where it is read in full."""
    folder = folder_of(cwd)
    if folder is None:
        return None
    try:
        table: Any = tomllib.loads((folder / PROJECT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for name in ("tool", "gradverify", key):
        table = table.get(name) if isinstance(table, dict) else None
    return (folder, table) if isinstance(table, str | list) else None


def _listed(cwd: Path) -> list[Path] | None:
    """Return `paths` of the project, None if it has none."""
    folder, places = _setting(cwd, "paths") or (cwd, [])
    found = [folder / place for place in places if isinstance(place, str)]
    return found if found and isinstance(places, list) else None


def _members(place: Path) -> list[Path]:
    if place.is_dir():
        return list(specs_below(place))
    return [place] if place.exists() else []


def _relative(files: Iterable[Path], cwd: Path) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for file in files:
        first.setdefault(os.path.realpath(file), Path(os.path.relpath(file, cwd)).as_posix())
    return tuple(first.values())
