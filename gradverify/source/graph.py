"""The graph of local imports: the imports in the text of each file, the files of the imported
modules, and all files that a module imports directly or indirectly."""

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
# Packages that no folder of a spec replaces, and that are not searched for changes
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
        # Functions that load a module whose name is known only at run time
        "run_path",
        "run_module",
        "resolve_name",
    }
)
RUNS_TEXT = "exec"
PYTHON = ".py"
INIT = "__init__.py"
ALL = "__all__"
STAR = "*"
NOTHING = frozenset[str]()


def is_local(place: str) -> bool:
    """Return whether a file or folder is neither in the standard library nor installed."""
    parts = place.split(os.sep)  # noqa: PTH206 - of every import, and pathlib is slow
    return not place.startswith(STDLIB) and INSTALLED.isdisjoint(parts)


# ---- The imports in a text
class Import(NamedTuple):
    """One name that is imported. `module`: with leading dots if relative; `member`: the name or
    submodule that is imported from it, "" for the module itself; `bound`: the name that it gets;
    `only_exported`: whether the file itself does nothing with that."""

    module: str
    member: str = ""
    bound: str = ""
    only_exported: bool = False


class Text(NamedTuple):
    """The imports of a file. `exported`: the names of a literal `__all__`, which `from package
    import *` imports if they are submodules. `loads`: the file may load any other file."""

    imports: tuple[Import, ...] = ()
    exported: tuple[str, ...] = ()
    loads: bool = False

    def taken(self, names: frozenset[str] | None) -> Iterator[Import]:
        """Yield the imports that matter to one that takes these names from the file (None: any):
        those that the file uses, and of the others those that bind such a name."""
        known = {each.bound for each in self.imports}
        for each in self.imports:
            if (
                names is None
                or not each.only_exported
                or each.bound in names
                or (each.member == STAR and names - known)
            ):
                yield each


def read(file: str | None) -> Text | None:
    """Return the imports of a file; None if it cannot be parsed. A compiled module has no visible
    imports."""
    if file is None or not file.endswith(PYTHON):
        return Text()
    tree = parsed(Path(file))
    if isinstance(tree, str):
        return None
    nodes = list(_nodes(tree))
    plain = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    called = {
        *BY_NAME,
        *(alias.asname for node in plain for alias in node.names if alias.name in BY_NAME),
    }
    # Names that an `__init__` uses; any of these may be bound by a star
    used = {node.id for node in nodes if isinstance(node, ast.Name)} - {ALL}
    exports = Path(file).name == INIT

    def bound(module: str, member: str, name: str) -> Import:
        is_used = bool(used) if member == STAR else name in used
        return Import(module, member, name, exports and not is_used)

    imports = [
        bound("." * node.level + (node.module or ""), alias.name, alias.asname or alias.name)
        for node in plain
        for alias in node.names
    ]
    mentioned = {
        node.name if isinstance(node, ast.alias) else node.value
        for node in nodes
        if isinstance(node, (ast.alias, ast.Constant))
    } | {_called(node) for node in nodes if isinstance(node, ast.expr)}
    loads = RUNS_TEXT in used or not LOADERS.isdisjoint(mentioned)
    for node in nodes:
        if isinstance(node, ast.Import):
            imports += [
                bound(alias.name, "", alias.asname or alias.name.partition(".")[0])
                for alias in node.names
            ]
        elif isinstance(node, ast.Call) and _called(node.func) in called:
            name = _imported_by_name(node)
            loads |= name is None
            imports += [Import(name)] if name else []
    exported = [
        node.value
        for statement in tree.body
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        if ALL
        in map(
            _called, statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return Text(tuple(imports), tuple(exported), loads)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes without those under `if TYPE_CHECKING:`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _called(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _called(node: ast.expr) -> str | None:
    """Return the last name of `name` or `a.b.name`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _imported_by_name(call: ast.Call) -> str | None:
    """Return the literal name in `import_module(NAME)`, empty if none is given; None for a computed
    one, which may be any."""
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


# ---- Places of modules
class Module(NamedTuple):
    """A module. `file`: the file that importing it runs, None for a namespace package; `folders`:
    those of its submodules, none for a plain module."""

    name: str
    file: str | None
    folders: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The package that relative imports in the module refer to."""
        return self.name if self.folders else self.name.rpartition(".")[0]

    @property
    def is_local(self) -> bool:
        """Whether the module, or part of it, may be neither in the standard library nor
        installed."""
        return any(is_local(place) for place in ((self.file,) if self.file else self.folders))


# ---- Indirect imports
@dataclass
class Imported:
    """A set of imports. `files`: absolute paths; `unread`: those whose imports are not fully known,
    because they cannot be parsed or compute names; `names`: all names that are, or may be, imported
    modules, and those of the packages around them; `missing`: names that are certainly imported but
    not found; `modules`: those imported directly by one file, each with the names taken from it
    (None: it may be any); `by_way_of`: the file that imports each of `files`."""

    files: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    modules: list[tuple[Module, frozenset[str] | None]] = field(default_factory=list)
    by_way_of: dict[str, str] = field(default_factory=dict)

    def way(self, file: str) -> list[str]:
        """Return the files through which a file is imported, the first one first."""
        found = list[str]()
        while (file := self.by_way_of.get(file, "")) and file not in found:
            found.insert(0, file)
        return found


class Graph:
    """The local imports of any number of targets; each file is read once."""

    def __init__(self) -> None:
        text = cache(read)
        self._scope = cache(lambda *folders: _Scope(text, folders))

    def of(
        self, targets: Iterable[str], modules: Iterable[str], folders: Sequence[str]
    ) -> Imported:
        """Return the imports of the names in a spec: functions as `module:attribute`,
        `module.attribute`, `/file.py:attribute`, and modules. `folders` come first on the path. A
        file that is loaded by path has its own folder before them while it loads, but not when its
        functions run."""
        scope, starts, found = self._scope(*folders), Imported(), Imported()
        for target in targets:
            place, _, attribute = target.rpartition(":")
            if place.endswith(PYTHON):
                alone = Imported(modules=[(Module("", place), None)])
                starts.modules += alone.modules
                self._scope(str(Path(place).parent), *folders).reach(alone, found)
            else:
                module = place or scope.longest(target)
                attribute = attribute if place else target.removeprefix(f"{module}.")
                scope.add(module, starts, frozenset({attribute.partition(".")[0]}))
        for name in modules:
            scope.add(name, starts)
        scope.reach(starts, found)
        return found


class _Scope:
    """The lookup of modules with the same folders first on the path. The imports of each file are
    looked up once."""

    def __init__(self, text: Callable[[str | None], Text | None], folders: Sequence[str]) -> None:
        self._text, self._folders = text, folders
        self._located, self._of = cache(self._locate), cache(self._imported)

    def find(self, name: str) -> tuple[list[Module], bool]:
        """Return the modules imported by a dotted name, from the outermost package on, as far as
        they are found; and whether the last one has the whole name, or is installed."""
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
        """Return a module of a package with these `folders`, or a top-level one, for which the
        standard library has precedence."""
        if folders is not None:
            spec = PathFinder.find_spec(name.rpartition(".")[2], list(folders))
        elif name == SELF:
            spec = PathFinder.find_spec(
                name, [str(Path(place).parent) for place in gradverify.__path__]
            )
        # Some modules of the standard library do not exist on this platform
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
            # Finders of packages installed in place (`pip install -e`)
            for finder in sys.meta_path:
                look = getattr(finder, "find_spec", None)
                if (
                    spec is None
                    and look is not None
                    and finder not in (PathFinder, BuiltinImporter, FrozenImporter)
                ):
                    # If a foreign finder raises, the name counts as not found
                    with suppress(Exception):
                        spec = look(name, None)
        if spec is None:
            return None
        # Path.resolve would follow links
        within = tuple(map(os.path.abspath, spec.submodule_search_locations or ()))
        file = spec.origin if spec.has_location else None
        return Module(name, os.path.abspath(file) if file else None, within)  # noqa: PTH100

    def longest(self, dotted: str) -> str:
        """Return the longest prefix of `package.module.attribute` that is a module."""
        parts = dotted.split(".")
        names = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return next((name for name in names if self.find(name)[1]), parts[0])

    def add(
        self,
        name: str,
        edges: Imported,
        members: frozenset[str] | None = None,
        certain: bool = True,
    ) -> Module | None:
        """Add the modules imported by a name to `edges`, and return its module if it is found.
        `members`: the names taken from that; nothing is taken from the packages around it. Not
        `certain`: the name may be no module."""
        modules, is_whole = self.find(name)
        edges.names.update(accumulate(name.split("."), "{}.{}".format))
        edges.modules += [
            (module, members if is_whole and module is modules[-1] else NOTHING)
            for module in modules
            if module.file is not None and is_local(module.file)
        ]
        if certain and not is_whole:
            edges.missing.add(name)
        return modules[-1] if is_whole else None

    def reach(self, starts: Imported, found: Imported) -> None:
        """Add all direct and indirect imports of `starts` to `found`."""
        seen, waiting = set[tuple[str, frozenset[str] | None]](), [("", starts)]
        while waiting:
            importing, edges = waiting.pop()
            found.missing |= edges.missing
            found.names |= edges.names
            found.unread |= edges.unread
            for module, names in edges.modules:
                file = module.file
                if file is not None and (file, names) not in seen and is_local(file):
                    seen.add((file, names))
                    if file not in found.files:
                        found.files.add(file)
                        found.by_way_of[file] = importing
                    waiting.append((file, self._of(module, names)))

    def _imported(self, module: Module, names: frozenset[str] | None) -> Imported:
        """Return the direct imports of a module, for one that takes these names from it."""
        text, edges = self._text(module.file), Imported()
        if text is None or (text.loads and module.name.partition(".")[0] != SELF):
            edges.unread.add(str(module.file))
        # Files that gradverify itself loads by path are named in the spec
        for each in text.taken(names) if text else ():
            try:
                name = resolve_name(each.module, module.package)
            except ImportError:  # dots that lead out of all packages
                continue
            whole = each.member in ("", STAR)
            package = self.add(name, edges, None if whole else frozenset({each.member}))
            if package is not None and package.is_local and package.folders:
                stars = self._text(package.file) if each.member == STAR else None
                for member in stars.exported if stars else filter(None, [each.member]):
                    self.add(f"{name}.{member}", edges, certain=False)
        return edges
