"""The graph of local imports: all local files that importing something imports, directly or by way of others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradverify.source.finders import SELF, Finder, Found, Module, is_local
from gradverify.source.imports import STAR, Import, Text, read

PYTHON = ".py"


@dataclass(frozen=True, slots=True)
class Imported:
    """`files`: absolute, deleted ones included; `unread`: those of them of which not all that they load can be told, because they are no Python
    or compute it; `missing`: modules that are asked for and are found nowhere."""

    files: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()

    def __or__(self, other: Imported) -> Imported:
        return Imported(self.files | other.files, self.unread | other.unread, self.missing | other.missing)


@dataclass
class Edges:
    """What one file imports itself."""

    modules: list[Module] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    is_read: bool = True

    def take(self, found: Found) -> None:
        self.modules += [module for module in found.modules if module.file is not None and is_local(module.file)]
        self.gone += found.gone

    def ask(self, name: str, found: Found) -> None:
        """A name that is certainly asked for."""
        if not found.is_whole:
            self.missing.append(name)
        self.take(found)


@dataclass
class Graph:
    """The local imports of many starts; each file is read once. `gone`: files that were deleted."""

    gone: frozenset[str] = frozenset()
    _texts: dict[str, Text | None] = field(default_factory=dict, init=False)
    _scopes: dict[tuple[str, ...], _Scope] = field(default_factory=dict, init=False)

    def of(self, targets: Iterable[str], modules: Iterable[str], folders: Sequence[str]) -> Imported:
        """Of all that a spec names: functions as `module:attribute`, `module.attribute`, `/file.py:attribute`, and modules; `folders` come first on
        the path. A file that is loaded by itself has its own folder before them while it loads, and no more when its functions run."""
        scope, starts, found = self._scope(folders), Edges(), Imported()
        for target in targets:
            place, _, _ = target.rpartition(":")
            if place.endswith(PYTHON):
                starts.modules.append(Module("", place))
                found |= self._scope((str(Path(place).parent), *folders)).reached(Edges([Module("", place)]))
            else:
                name = place or scope.longest(target)
                starts.ask(name, scope.finder.find(name))
        for name in modules:
            starts.ask(name, scope.finder.find(name))
        return found | scope.reached(starts)

    def text(self, file: str) -> Text | None:
        if file not in self._texts:
            self._texts[file] = read(file)
        return self._texts[file]

    def _scope(self, folders: Sequence[str]) -> _Scope:
        return self._scopes.setdefault(tuple(folders), _Scope(self, Finder(tuple(folders), self.gone)))


@dataclass
class _Scope:
    """All code that finds modules in the same folders. What each file imports is told once."""

    graph: Graph
    finder: Finder
    _edges: dict[Module, Edges] = field(default_factory=dict)

    def longest(self, dotted: str) -> str:
        """The longest beginning of `package.module.attribute` that is a module."""
        parts = dotted.split(".")
        names = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return next((name for name in names if self.finder.find(name).is_whole), parts[0])

    def reached(self, starts: Edges) -> Imported:
        files, unread, missing = set(starts.gone), set[str](), set(starts.missing)
        waiting = list(starts.modules)
        while waiting:
            module = waiting.pop()
            if module.file is None or module.file in files or not is_local(module.file):
                continue
            files.add(module.file)
            edges = self._of(module)
            waiting += edges.modules
            files.update(edges.gone)
            missing.update(edges.missing)
            if not edges.is_read:
                unread.add(module.file)
        return Imported(frozenset(files), frozenset(unread), frozenset(missing))

    def _of(self, module: Module) -> Edges:
        if module not in self._edges:
            text = self.graph.text(module.file) if module.file and module.file.endswith(PYTHON) else Text()
            self._edges[module] = Edges(is_read=False) if text is None else self._read(text, module)
        return self._edges[module]

    def _read(self, text: Text, module: Module) -> Edges:
        edges = Edges()
        for wanted in text.imports:
            name = _absolute(wanted, module)
            if name is None:        # any file, if it is computed; ours loads what a spec names
                edges.is_read = edges.is_read and (not wanted.whole or module.name.partition(".")[0] == SELF)
                continue
            found = self.finder.find(name)
            edges.ask(name, found)
            last = found.modules[-1] if found.is_whole else None
            if last is not None and last.is_local and last.folders:
                self._below(wanted, last, edges)
        return edges

    def _below(self, wanted: Import, package: Module, edges: Edges) -> None:
        """Submodules of a local package that an import takes out of it."""
        if wanted.whole and package.name.partition(".")[0] != SELF:       # gradverify's own names are imported when somebody asks for them
            edges.modules += _everything(package)
        for member in wanted.members:
            for name in self._exported(package) if member == STAR else (member,):
                found = self.finder.find(f"{package.name}.{name}")
                if found.is_whole or found.gone:
                    edges.take(found)

    def _exported(self, package: Module) -> Iterable[str]:
        text = self.graph.text(package.file) if package.file and package.file.endswith(PYTHON) else None
        return () if text is None else text.exported


def _everything(package: Module) -> Iterator[Module]:
    """Every module of a package."""
    for folder in package.folders:
        for root, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__")
            for path in (Path(root, file) for file in sorted(files) if file.endswith(PYTHON)):
                parts = path.relative_to(folder).with_suffix("").parts
                is_package = parts[-1] == "__init__"
                yield Module(".".join((package.name, *(parts[:-1] if is_package else parts))), str(path), (root,) if is_package else ())


def _absolute(wanted: Import, module: Module) -> str | None:
    """The dotted name that an import asks for; None where dots lead out of all packages."""
    if not wanted.level:
        return wanted.name or None
    parts = module.package.split(".") if module.package else []
    if wanted.level > len(parts):
        return None
    return ".".join([*parts[: len(parts) - wanted.level + 1], *([wanted.name] if wanted.name else [])])
