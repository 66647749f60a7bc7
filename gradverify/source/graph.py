"""The graph of local imports: what the text of each file imports, which files that is, and all that
something imports by way of others."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import gradverify
from gradverify.source.modules import INSTALLED, parsed

SELF = "gradverify"
# What no spec's folder replaces, and nobody's change is looked for in
HEAVY = frozenset({"torch", "numpy"})
STDLIB = f"{Path(os.__file__).parent}{os.sep}"
BY_NAME = ("import_module", "__import__")  # functions whose first argument names a module
LOADERS = frozenset(
    {
        "spec_from_file_location",
        "spec_from_loader",
        "SourceFileLoader",
        "exec_module",
        "load_module",
        "load_source",
        # Functions that load what only the running program can name
        "run_path",
        "run_module",
        "resolve_name",
    }
)
RUNS_TEXT = "exec"
PYTHON = ".py"


def is_local(place: str) -> bool:
    """Is a file or folder neither Python's own nor installed?"""
    parts = place.split(os.sep)  # noqa: PTH206 - of every import, and pathlib is slow
    return not place.startswith(STDLIB) and INSTALLED.isdisjoint(parts)


# ---- What a text imports
class Text(NamedTuple):
    """`imports`: modules that are asked for, dots before relative ones, with what is taken out of
    each, names or submodules. `exported`: the names of a literal `__all__`, which `from package
    import *` imports where they are submodules. `loads`: it may load any file."""

    imports: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exported: tuple[str, ...] = ()
    loads: bool = False


def read(file: str | None) -> Text | None:
    """What the file says; None where it cannot be read as Python. What is not Python's source (a
    compiled module) imports nothing that can be seen."""
    if file is None or not file.endswith(PYTHON):
        return Text()
    tree = parsed(Path(file))
    if isinstance(tree, str):
        return None
    source = Path(file).read_bytes()
    # Expressions are looked into only where one of them may load something: they are nine tenths of
    # a tree.
    nodes = list(
        _nodes(tree, any(name.encode() in source for name in (*BY_NAME, *LOADERS, RUNS_TEXT)))
    )
    plain = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    called = {
        *BY_NAME,
        *(alias.asname for node in plain for alias in node.names if alias.name in BY_NAME),
    }
    imports = [
        ("." * node.level + (node.module or ""), tuple(alias.name for alias in node.names))
        for node in plain
    ]
    loads = False
    for node in nodes:
        if isinstance(node, ast.Import):
            imports += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node.func) in called:
            name = _imported_by_name(node)
            loads |= name is None
            imports += [(name, ())] if name else []
        elif isinstance(node, (ast.alias, ast.Constant)):
            loads |= (node.name if isinstance(node, ast.alias) else node.value) in LOADERS
        elif isinstance(node, (ast.Name, ast.Attribute)):
            loads |= _called(node) in LOADERS or (
                isinstance(node, ast.Name) and node.id == RUNS_TEXT
            )
    exported = [
        node.value
        for statement in tree.body
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        if "__all__"
        in map(
            _called, statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return Text(tuple(imports), tuple(exported), loads)


def _nodes(tree: ast.AST, expressions: bool) -> Iterator[ast.AST]:
    """All nodes (or only statements and what holds them), without what stands under `if
    TYPE_CHECKING:`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        inside = (
            node.orelse
            if isinstance(node, ast.If) and _called(node.test) == "TYPE_CHECKING"
            else ast.iter_child_nodes(node)
        )
        waiting += [
            child
            for child in inside
            if expressions or not isinstance(child, (ast.expr, ast.expr_context, ast.operator))
        ]


def _called(node: ast.expr) -> str | None:
    """The last name of `name` or `a.b.name`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _imported_by_name(call: ast.Call) -> str | None:
    """Of `import_module(NAME)` a literal name, empty where none is given; None of a computed one,
    which may be any."""
    given = dict(zip(("name", "package"), call.args, strict=False)) | {
        word.arg: word.value for word in call.keywords
    }
    name, package = given.get("name"), given.get("package")
    if name is None:
        return ""
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return None
    try:
        if isinstance(package, ast.Constant):
            return resolve_name(name.value, str(package.value))
        return name.value
    except ImportError:  # dots that lead out of the package
        return ""


# ---- Where modules are
class Module(NamedTuple):
    """`file`: what importing it runs, None for a namespace package; `folders`: where its submodules
    lie, none for a plain module."""

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


# ---- What is imported by way of others
@dataclass
class Imported:
    """`files`: absolute; `unread`: those of them of which not all that they load can be told,
    because they are no Python or compute it; `names`: all names that are, or may be, modules that
    are asked for, and those of the packages around them; `missing`: those that are certainly asked
    for and found nowhere; `modules`: those that one file imports itself."""

    files: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    modules: list[Module] = field(default_factory=list)


class Graph:
    """The local imports of many starts; each file is read once."""

    def __init__(self) -> None:
        text = cache(read)
        self._scope = cache(lambda *folders: _Scope(text, folders))

    def of(
        self, targets: Iterable[str], modules: Iterable[str], folders: Sequence[str]
    ) -> Imported:
        """Of all that a spec names: functions as `module:attribute`, `module.attribute`,
        `/file.py:attribute`, and modules; `folders` come first on the path. A file that is loaded
        by itself has its own folder before them while it loads, and no more when its functions
        run."""
        scope, starts, found = self._scope(*folders), Imported(), Imported()
        for target in targets:
            place, _, _ = target.rpartition(":")
            if place.endswith(PYTHON):
                alone = Imported(modules=[Module("", place)])
                starts.modules += alone.modules
                self._scope(str(Path(place).parent), *folders).reach(alone, found)
            else:
                scope.ask(place or scope.longest(target), starts)
        for name in modules:
            scope.ask(name, starts)
        scope.reach(starts, found)
        return found


class _Scope:
    """All code that finds modules in the same folders, which come first on its path. What each file
    imports is looked up once."""

    def __init__(self, text: Callable[[str | None], Text | None], folders: Sequence[str]) -> None:
        self._text, self._folders = text, folders
        self._located, self._of = cache(self._locate), cache(self._imported)

    def find(self, name: str) -> tuple[list[Module], bool]:
        """The modules that importing a dotted name imports, from the outermost package on, as far
        as they are found; and whether the last one has the whole name, or lies in what is
        installed."""
        modules: list[Module] = []
        for dotted in accumulate(name.split("."), "{}.{}".format):
            module = self._located(dotted, modules[-1].folders if modules else None)
            if module is None:
                return modules, False
            modules.append(module)
            if not module.is_local:
                break
        return modules, True

    def _locate(self, name: str, folders: Sequence[str] | None) -> Module | None:
        """A module of a package that has `folders`, or one at the top, where Python's own win over
        all others of their names."""
        if folders is not None:
            spec = PathFinder.find_spec(name.rpartition(".")[2], list(folders))
        elif name == SELF:
            spec = PathFinder.find_spec(
                name, [str(Path(place).parent) for place in gradverify.__path__]
            )
        # Not all that Python's library has on some platform is there on this one
        elif (
            name in HEAVY
            or name in sys.builtin_module_names
            or (
                name in sys.stdlib_module_names
                and PathFinder.find_spec(name, [STDLIB, f"{STDLIB}lib-dynload"]) is not None
            )
        ):
            return Module(name, STDLIB)
        else:
            spec = PathFinder.find_spec(name, [*self._folders, *sys.path])
            # What installing in place (`pip install -e`) puts beside Python's own
            for finder in sys.meta_path:
                look = getattr(finder, "find_spec", None)
                if (
                    spec is None
                    and look is not None
                    and finder not in (PathFinder, BuiltinImporter, FrozenImporter)
                ):
                    # Somebody else's finder: it cannot tell, so the name is not found
                    with suppress(Exception):
                        spec = look(name, None)
        if spec is None:
            return None
        # Path.resolve would follow links
        within = tuple(map(os.path.abspath, spec.submodule_search_locations or ()))
        file = spec.origin if spec.has_location else None
        return Module(name, os.path.abspath(file) if file else None, within)  # noqa: PTH100

    def longest(self, dotted: str) -> str:
        """The longest beginning of `package.module.attribute` that is a module."""
        parts = dotted.split(".")
        names = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return next((name for name in names if self.find(name)[1]), parts[0])

    def ask(self, name: str, edges: Imported, certain: bool = True) -> Module | None:
        """Add what importing a name imports; its module where that is found whole. Not `certain`:
        it may be no module at all."""
        modules, is_whole = self.find(name)
        edges.names.update(accumulate(name.split("."), "{}.{}".format))
        edges.modules += [
            module for module in modules if module.file is not None and is_local(module.file)
        ]
        if certain and not is_whole:
            edges.missing.add(name)
        return modules[-1] if is_whole else None

    def reach(self, starts: Imported, found: Imported) -> None:
        """Add all that is imported from there on."""
        files, waiting = set[str](), [starts]
        while waiting:
            edges = waiting.pop()
            found.missing |= edges.missing
            found.names |= edges.names
            found.unread |= edges.unread
            for module in edges.modules:
                if module.file is not None and module.file not in files and is_local(module.file):
                    files.add(module.file)
                    waiting.append(self._of(module))
        found.files |= files

    def _imported(self, module: Module) -> Imported:
        text, edges = self._text(module.file), Imported()
        if text is None or (text.loads and module.name.partition(".")[0] != SELF):
            edges.unread.add(str(module.file))
        # What gradverify loads itself is what a spec names
        for asked, members in text.imports if text else ():
            try:
                name = resolve_name(asked, module.package)
            except ImportError:  # dots that lead out of all packages
                continue
            package = self.ask(name, edges)
            if package is not None and package.is_local and package.folders:
                stars = self._text(package.file) if "*" in members else None
                for member in (*members, *(stars.exported if stars else ())):
                    self.ask(f"{name}.{member}", edges, certain=False)
        return edges
