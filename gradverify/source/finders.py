"""Names of modules to files, the way Python itself finds them, without importing a parent: folders first, then what the interpreter searches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path

import gradverify

SELF = "gradverify"
HEAVY = frozenset({"torch", "numpy"})       # what no spec's folder replaces, and nobody's change is looked for in
STDLIB = f"{Path(os.__file__).parent}{os.sep}"
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass(frozen=True, slots=True)
class Module:
    """`file`: what importing it runs, None for a namespace package; `folders`: where its submodules lie, none for a plain module."""

    name: str
    file: str | None
    folders: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """What relative imports in it count from."""
        return self.name if self.folders else self.name.rpartition(".")[0]

    @property
    def is_local(self) -> bool:
        """Is it, or may something in it be, neither Python's own nor installed?"""
        return any(is_local(place) for place in ((self.file,) if self.file else self.folders))


def is_local(place: str) -> bool:
    return not place.startswith(STDLIB) and not any(part in f"{place}{os.sep}" for part in INSTALLED)


@dataclass(frozen=True, slots=True)
class Found:
    """`modules`: those that importing a name imports, from the outermost package on; `gone`: deleted files that were among them, or would have
    been; `is_whole`: the last module has the whole name, or lies in what is installed."""

    modules: tuple[Module, ...]
    gone: tuple[str, ...]
    is_whole: bool


@dataclass
class Finder:
    """Where code finds modules that has `folders` first on its path. `gone`: files that were deleted."""

    folders: Sequence[str]
    gone: frozenset[str] = frozenset()
    _known: dict[str, Module | None] = field(default_factory=dict, init=False)

    def find(self, name: str) -> Found:
        """The module of a dotted name and those around it, as far as they are found."""
        modules: list[Module] = []
        gone: list[str] = []
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            folders = modules[-1].folders if modules else (*self.folders, *sys.path)
            gone += self._gone(parts[end - 1], folders)
            module = self._module(".".join(parts[:end]), folders)
            if module is None:
                return Found(tuple(modules), tuple(gone), False)
            modules.append(module)
            if not module.is_local:
                break
        return Found(tuple(modules), tuple(gone), True)

    def _gone(self, name: str, folders: Sequence[str]) -> Iterator[str]:
        if self.gone:
            yield from (file for folder in folders for file in _files(name, folder) if file in self.gone)

    def _module(self, name: str, folders: Sequence[str]) -> Module | None:
        if name not in self._known:
            own = self._top(name) if "." not in name else PathFinder.find_spec(name.rpartition(".")[2], list(folders)) if folders else None
            self._known[name] = _of_spec(name, own)
        return self._known[name]

    def _top(self, name: str) -> ModuleSpec | None:
        """Python's own modules win over all others of their names."""
        if name == SELF:
            return PathFinder.find_spec(name, [str(Path(place).parent) for place in gradverify.__path__])
        if name in HEAVY or (name in sys.stdlib_module_names and _in_library(name)):
            return ModuleSpec(name, None, origin=STDLIB)
        return PathFinder.find_spec(name, [*self.folders, *sys.path]) or _otherwise(name)


def _in_library(name: str) -> bool:
    """Not all that Python's library has on some platform is there on this one."""
    return name in sys.builtin_module_names or PathFinder.find_spec(name, [STDLIB, f"{STDLIB}lib-dynload"]) is not None


def _files(name: str, folder: str) -> tuple[str, str]:
    base = os.path.join(os.path.abspath(folder or os.curdir), name)  # noqa: PTH118, PTH100 - a hundred thousand of them, and Path is ten times slower
    return f"{base}.py", f"{base}{os.sep}__init__.py"


def _otherwise(name: str) -> ModuleSpec | None:
    """By the finders that installing in place (`pip install -e`) puts beside Python's own."""
    for finder in sys.meta_path:
        look = getattr(finder, "find_spec", None)
        if look is None or finder in (PathFinder, BuiltinImporter, FrozenImporter):
            continue
        try:
            found: ModuleSpec | None = look(name, None)
        except Exception:       # somebody else's finder: it cannot tell, so the name is not found
            continue
        if found is not None:
            return found
    return None


def _of_spec(name: str, spec: ModuleSpec | None) -> Module | None:
    if spec is None:
        return None
    folders = tuple(os.path.abspath(place) for place in spec.submodule_search_locations or ())  # noqa: PTH100
    file = spec.origin if spec.has_location or spec.origin == STDLIB else None
    return Module(name, None if file is None else os.path.abspath(file) if file != STDLIB else file, folders)  # noqa: PTH100
