"""The source that a name on the command line stands for: a file, a folder, or an importable module or package, found without importing it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from gradverify.model.paths import is_file, is_folder
from gradverify.source.modules import root_of

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def place_of(text: str, folders: Sequence[str]) -> Path | None:
    """The file or folder that `text` names: a path, else a module looked up in `folders`. None where there is none, or it has no Python source."""
    path = Path(text)
    if is_folder(path) or (is_file(path) and path.suffix == ".py"):
        return path
    return module_place(text, folders) if MODULE.fullmatch(text) else None


def module_place(name: str, folders: Sequence[str]) -> Path | None:
    """The folder of a package, the file of a module. Parents are not imported, only their folders looked into."""
    where: Sequence[str] | None = list(folders)
    for depth in range(1, name.count(".") + 2):
        if where is None:
            return None
        spec = PathFinder.find_spec(".".join(name.split(".")[:depth]), where)
        if spec is None:
            return None
        where = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    if where:
        return Path(where[0])
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def shown(path: Path, cwd: Path) -> str:
    """Relative to the current folder where it lies below it and is not installed there; else relative to where it is imported from."""
    root = root_of(path)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    if path.is_relative_to(cwd) and not installed:
        return path.relative_to(cwd).as_posix()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
