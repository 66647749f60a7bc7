"""The graph of local imports: what the text of each file imports, which files that is, and all that something imports by way of others."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path

import gradverify
from gradverify.source.modules import parsed

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


BY_NAME = ("import_module", "__import__")       # functions whose first argument names a module
LOADERS = frozenset({"spec_from_file_location", "spec_from_loader", "SourceFileLoader", "exec_module", "load_module", "load_source",
                     "run_path", "run_module", "resolve_name"})     # functions that load what only the running program can name
RUNS_TEXT = "exec"
OWN_PACKAGE = ("__package__", "__name__")
STAR = "*"


@dataclass(frozen=True, slots=True)
class Import:
    """One module that is asked for: `name` after `level` dots. `members`: what is taken out of it, names or submodules; `whole`: any module below
    it may be meant, because the rest of the name is computed; any file at all where there is no name and no dot."""

    name: str
    level: int = 0
    members: tuple[str, ...] = ()
    whole: bool = False


ANYTHING = Import("", whole=True)


@dataclass(frozen=True, slots=True)
class Text:
    """`exported`: the names of a literal `__all__`, which `from package import *` imports where they are submodules."""

    imports: tuple[Import, ...] = ()
    exported: tuple[str, ...] = ()


def read(file: str) -> Text | None:
    """What the file says; None where it cannot be read as Python."""
    tree = parsed(Path(file))
    if isinstance(tree, str):
        return None
    source = Path(file).read_bytes()
    try:
        return Text(tuple(_imports(tree, any(name.encode() in source for name in (*BY_NAME, *LOADERS, RUNS_TEXT)))), tuple(_exported(tree)))
    except RecursionError:      # a computed name of a thousand parts
        return None


def _imports(tree: ast.Module, by_name: bool) -> Iterator[Import]:
    """Expressions are looked into only where one of them may load something: they are nine tenths of a tree."""
    nodes = list(_nodes(tree, by_name))
    plain = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    called = {*BY_NAME, *(alias.asname for node in plain for alias in node.names if alias.name in BY_NAME)}
    yield from (Import(node.module or "", node.level, tuple(alias.name for alias in node.names)) for node in plain)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node.func) in called:
            yield from _by_name(node)
        if _loads(node):
            yield ANYTHING


def _loads(node: ast.AST) -> bool:
    """Is a function that loads files mentioned, in whatever way?"""
    if isinstance(node, ast.alias):
        return node.name in LOADERS
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in LOADERS
    return isinstance(node, (ast.Name, ast.Attribute)) and (_called(node) in LOADERS or (isinstance(node, ast.Name) and node.id == RUNS_TEXT))


def _nodes(tree: ast.AST, expressions: bool) -> Iterator[ast.AST]:
    """All nodes (or only statements and what holds them), without what stands under `if TYPE_CHECKING:`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        inside = node.orelse if isinstance(node, ast.If) and _called(node.test) == "TYPE_CHECKING" else ast.iter_child_nodes(node)
        waiting += [child for child in inside if expressions or not isinstance(child, (ast.expr, ast.expr_context, ast.operator))]


def _called(node: ast.expr) -> str | None:
    """The last name of `name` or `a.b.name`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _by_name(call: ast.Call) -> Iterator[Import]:
    """Of `import_module(NAME)`: a literal name, the package that a computed one begins with, else anything."""
    first = next((word.value for word in call.keywords if word.arg == "name"), call.args[0] if call.args else None)
    if first is None:
        return
    begins, is_whole = _literal(first)
    level = len(begins) - len(begins.lstrip("."))
    package = next((word.value for word in call.keywords if word.arg == "package"), call.args[1] if len(call.args) > 1 else None)
    found = Import(begins[level:], level)
    if level and isinstance(package, ast.Constant) and isinstance(package.value, str):
        above = package.value.split(".")
        found = Import(".".join([*above[: len(above) - level + 1], begins[level:]]).rstrip("."))
    if is_whole:
        yield found
    elif "." in begins and (not level or found.level == 0 or _called(package or first) in OWN_PACKAGE):
        yield replace(found, name=found.name.rpartition(".")[0], whole=True)
    else:
        yield ANYTHING


def _literal(node: ast.expr) -> tuple[str, bool]:
    """The text that an expression begins with, and whether that is all of it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, True
    if isinstance(node, ast.JoinedStr) and node.values:
        return _literal(node.values[0])[0], False
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        text = _literal(node.left)[0]
        return (text.partition("%")[0] if isinstance(node.op, ast.Mod) else text), False
    return "", False


def _exported(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        value = getattr(node, "value", None)
        if any(_called(target) == "__all__" for target in targets) and isinstance(value, (ast.List, ast.Tuple)):
            yield from (item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str))


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
