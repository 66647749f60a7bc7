"""`--lf` and `--ff`: which checks were not as expected last time, kept from run to run in a folder of the project; once lost, none is remembered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gradverify.model.case import Case
from gradverify.model.paths import REPOSITORY, alone, nearest_with
from gradverify.model.result import CaseResult

FOLDER, FILE, VERSION = ".gradverify_cache", "failed.json", 1
OWN_FILES = {
    ".gitignore": "# made by gradverify\n*\n",
    "CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n# made by gradverify; see https://bford.info/cachedir/\n"}


@dataclass(frozen=True, slots=True)
class Memory:
    """`root` holds the memory; ids are of specs relative to `cwd`, in the memory relative to `root`. Both are absolute."""

    root: Path
    cwd: Path
    _seen: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)     # a spec holds up to thousands of checks

    def key(self, id: str) -> str:
        """The same for one check, from whichever folder it is run."""
        path, colons, name = id.partition("::")
        if path not in self._seen:
            self._seen[path] = Path(os.path.relpath((self.cwd / path).resolve(), self.root)).as_posix()
        return self._seen[path] + colons + name

    def spec(self, key: str) -> Path:
        return Path(os.path.normpath(self.root / key.partition("::")[0]))


def memory_at(cwd: Path) -> Memory:
    """Of the nearest folder, at or above `cwd`, that holds a pyproject.toml or is a repository; else `cwd` itself."""
    cwd = cwd.resolve()
    return Memory(nearest_with(cwd, "pyproject.toml", REPOSITORY) or cwd, cwd)


@dataclass(frozen=True, slots=True)
class Read:
    """Which specs were read, as absolute paths, and the keys of all checks in them, also of those that are not to run."""

    specs: frozenset[Path]
    keys: frozenset[str]


def read(memory: Memory, files: Iterable[Path], ids: Iterable[str]) -> Read:
    """Of `files` and `ids` as they are seen from `memory.cwd`."""
    return Read(frozenset((memory.cwd / file).resolve() for file in files), frozenset(map(memory.key, ids)))


def updated(memory: Memory, old: Iterable[str], seen: Read, results: Sequence[CaseResult], cases: Sequence[Case]) -> frozenset[str]:
    """The keys remembered after a run of `cases`, or a part of them, that came out as `results`.

    What was not run, or skipped because this machine lacks something, stays what it was.
    """
    left_out = {case.id for case in cases if case.skip is not None}
    failed = {memory.key(result.id) for result in results if result.ok is False and result.verdict != "not_run"}
    ok = {memory.key(result.id) for result in results if result.ok and (result.verdict != "skip" or result.id in left_out)}
    return frozenset(existing(memory, old, seen) - ok | failed)


def existing(memory: Memory, keys: Iterable[str], seen: Read) -> frozenset[str]:
    """Without checks that are gone from their spec, or whose spec is gone. Of a spec that was not read only the file is looked for."""
    return frozenset(key for key in keys if key in seen.keys or (memory.spec(key) not in seen.specs and _is_file(memory.spec(key))))


def _is_file(path: Path) -> bool:
    """False for what can be no path too."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def recall(memory: Memory) -> frozenset[str]:
    """The keys remembered; none where the file is missing, damaged, or of another version of this format."""
    try:
        data = json.loads((memory.root / FOLDER / FILE).read_text(encoding="utf-8"))
        if data["version"] == VERSION:
            return frozenset(key for key in data["failed"] if isinstance(key, str) and "::" in key and "\0" not in key)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return frozenset()


def remember(memory: Memory, seen: Read, results: Sequence[CaseResult], cases: Sequence[Case]) -> None:
    """Takes a run's results into the memory. Writes nothing where nothing changes, nor where nothing can be written."""
    folder = memory.root / FOLDER
    with suppress(OSError):
        if not folder.is_dir() and not updated(memory, (), seen, results, cases):
            return
        _make(folder)
        with alone(folder):
            old = recall(memory)
            new = updated(memory, old, seen, results, cases)
            if new != old:
                _write(folder / FILE, json.dumps({"version": VERSION, "failed": sorted(new)}, indent=1) + "\n")


def _make(folder: Path) -> None:
    """The folder, ignored by git and by backups from the beginning."""
    folder.mkdir(exist_ok=True)
    for name, text in OWN_FILES.items():
        if not (folder / name).exists():
            _write(folder / name, text)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
