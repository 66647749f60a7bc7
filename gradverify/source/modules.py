"""Python files read without importing them: where they are, their definitions, and what the names in them stand for."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

from gradverify.model.paths import files_below, is_file, is_folder, resolved


def python_path() -> list[str]:
    """`sys.path` as Python itself reads it: entries that are no text (a `Path` that somebody inserted) are passed over."""
    return [entry for entry in sys.path if isinstance(entry, str)]


LARGEST = 1 << 22       # bytes of a file that is read; what is longer was generated
LOCALS = "<locals>"     # as in Python's __qualname__

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Reference:
    """A dotted name; `root`: the folder it is looked up from (relative imports), None: the search folders."""

    dotted: str
    root: Path | None = None

    def __truediv__(self, rest: str) -> Reference:
        return Reference(".".join(part for part in (self.dotted, rest) if part), self.root)


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One file. `name` is what it is imported by from `root`; `definitions`: classes and functions by qualified name; `imported`, `assigned`: what
    names at its top stand for; `stars`: the modules of `from … import *`."""

    file: Path
    root: Path
    name: str
    tree: ast.Module
    definitions: Mapping[str, Definition]
    imported: Mapping[str, Reference]
    assigned: Mapping[str, ast.expr]
    stars: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class Meant:
    """What a name leads to: a definition or an assigned expression of a module that was read, and the attributes of it that are named (`rest`)."""

    module: Module
    name: str
    node: Definition | ast.expr
    rest: str = ""


@dataclass
class Library:
    """The files read so far. `folders`: where absolute imports are looked up; `unreadable`: the files that could not be read, with the reason."""

    folders: tuple[Path, ...] = ()
    unreadable: dict[Path, str] = field(default_factory=dict)
    _modules: dict[Path, Module | None] = field(default_factory=dict)

    def read(self, file: Path) -> Module | None:
        """None where the file is no Python that this interpreter reads."""
        file = resolved(file)
        if file not in self._modules:
            tree = parsed(file)
            if isinstance(tree, str):
                self.unreadable[file] = tree
            self._modules[file] = None if isinstance(tree, str) else _module(file, tree)
        return self._modules[file]

    def resolve(self, text: str, module: Module, scope: str = "") -> Meant | str:
        """What a dotted name means in a module, inside the definition `scope`; its full dotted name where it leads out of what can be read."""
        return self._local(text, module, scope, frozenset())

    def lookup(self, dotted: str, folders: Sequence[Path]) -> Meant | str:
        """What `package.module.attribute` names, looked up in these folders."""
        return self._absolute(Reference(dotted), tuple(folders), None, frozenset())

    def _local(self, text: str, module: Module, scope: str, seen: frozenset[tuple[Path, str]]) -> Meant | str:
        if (module.file, text) in seen:
            return text
        seen |= {(module.file, text)}
        head, _, rest = text.partition(".")
        for outer in _scopes(scope):
            if outer + head in module.definitions:
                return _inside(module, outer + text)
        if head in module.imported:
            return self._absolute(module.imported[head] / rest, (module.root, *self.folders), module, seen)
        if head in module.assigned:
            return self._of_assigned(head, rest, module, seen)
        for star in module.stars:
            found = self._absolute(star / text, (module.root, *self.folders), module, seen)
            if isinstance(found, Meant) or _is_torch(found):
                return found
        return text

    def _of_assigned(self, head: str, rest: str, module: Module, seen: frozenset[tuple[Path, str]]) -> Meant | str:
        """`Base = torch.autograd.Function` stands for what it names; any other expression for itself."""
        named = dotted(module.assigned[head])
        if named is None:
            return Meant(module, head, module.assigned[head], rest)
        return self._local(f"{named}.{rest}" if rest else named, module, "", seen)

    def _absolute(self, name: Reference, folders: Sequence[Path], importer: Module | None, seen: frozenset[tuple[Path, str]]) -> Meant | str:
        if _is_torch(name.dotted):
            return name.dotted
        parts = tuple(name.dotted.split("."))
        for folder in (name.root,) if name.root else folders:
            file, used = _located(folder, parts)
            if file is None or (importer is not None and not _near(file, importer.file) and resolved(file) not in self._modules):
                continue
            module = self.read(file)
            return name.dotted if module is None or used == len(parts) else self._local(".".join(parts[used:]), module, "", seen)
        return name.dotted


def parsed(file: Path) -> ast.Module | str:
    """The syntax tree, or why there is none."""
    try:
        with file.open("rb") as stream:
            text = stream.read(LARGEST + 1)
        if len(text) > LARGEST:
            return f"longer than {LARGEST >> 20} MiB"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of odd escapes in other people's strings
            return ast.parse(text, str(file))
    except SyntaxError as error:
        told = f"{type(error).__name__}: {error.msg}"
        return f"{told} (line {error.lineno})" if error.lineno else told
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__


def python_files(place: Path) -> Iterator[Path]:
    """The file itself, or all below a folder, sorted; hidden folders, virtual environments and build output left out."""
    return files_below(place, (".py",)) if place.is_dir() else iter((place,))


def root_of(file: Path) -> Path:
    """The folder that a file is imported from: the first above it that is no package."""
    folder = resolved(file).parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of a chain of attributes; None of anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


def _is_torch(name: str) -> bool:
    return name.partition(".")[0] in ("torch", "numpy")


def _near(file: Path, importer: Path) -> bool:
    """Is an imported file worth reading? Of what is installed only the importer's own package, beside what was read anyway."""
    if "site-packages" not in file.parts and "dist-packages" not in file.parts:
        return True
    root = root_of(importer)
    return file.is_relative_to(root) and file.relative_to(root).parts[:1] == importer.relative_to(root).parts[:1]


def _located(folder: Path, parts: Sequence[str]) -> tuple[Path | None, int]:
    """The file of the longest importable beginning of a dotted name, and how many of its parts that is."""
    found: tuple[Path | None, int] = (None, 0)
    if (folder / "__init__.py").is_file():
        found = (folder / "__init__.py", 0)
    for used, part in enumerate(parts, start=1):
        if (folder / part / "__init__.py").is_file():
            found = (folder / part / "__init__.py", used)
        elif (folder / f"{part}.py").is_file():
            return folder / f"{part}.py", used
        elif not (folder / part).is_dir():
            break
        folder = folder / part
    return found


def _scopes(scope: str) -> Iterator[str]:
    """The prefixes that a name is looked up under, from inside out: those of functions, and of a class in its own body alone, not in its methods."""
    parts = scope.split(".") if scope else []
    at_hand = len(parts)
    while parts:
        if parts[-1] == LOCALS or len(parts) == at_hand:
            yield ".".join(parts) + "."
        parts.pop()
    yield ""


def _inside(module: Module, text: str) -> Meant:
    """The longest definition that a qualified name leads to."""
    parts = text.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        if name in module.definitions:
            return Meant(module, name, module.definitions[name], ".".join(parts[end:]))
    raise KeyError(text)


def _module(file: Path, tree: ast.Module) -> Module:
    root = root_of(file)
    path = file.relative_to(root).with_suffix("")
    parts = path.parts[:-1] if path.name == "__init__" else path.parts
    definitions: dict[str, Definition] = {}
    imported: dict[str, Reference] = {}
    assigned: dict[str, ast.expr] = {}
    stars: list[Reference] = []
    _define(tree.body, "", definitions, assigned)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                imported.setdefault(alias.asname or top, Reference(alias.name if alias.asname else top))
        elif isinstance(node, ast.ImportFrom):
            base = _imported_from(node, file)
            stars += [base for alias in node.names if alias.name == "*"]
            imported |= {alias.asname or alias.name: base / alias.name for alias in node.names if alias.name != "*"}
    return Module(file, root, ".".join(parts), tree, definitions, imported, assigned, tuple(stars))


def _imported_from(node: ast.ImportFrom, file: Path) -> Reference:
    if not node.level:
        return Reference(node.module or "")
    return Reference(node.module or "", file.parents[min(node.level, len(file.parents)) - 1])


def _define(body: Sequence[ast.stmt], prefix: str, into: dict[str, Definition], assigned: dict[str, ast.expr]) -> None:
    """Definitions in all branches and all functions; of names that are defined twice the first. `assigned`: those at the top."""
    waiting = _in_turn(body, prefix, assigned)
    while waiting:
        statement, prefix, assigned = waiting.pop()
        if isinstance(statement, Definition):
            name = prefix + statement.name
            into.setdefault(name, statement)
            waiting += _in_turn(statement.body, f"{name}." if isinstance(statement, ast.ClassDef) else f"{name}.{LOCALS}.", {})
        elif isinstance(statement, ast.Assign):
            assigned |= {target.id: statement.value for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
            assigned[statement.target.id] = statement.value
        else:
            blocks = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))]
            waiting += _in_turn([each for block in blocks for each in block], prefix, assigned)


def _in_turn(body: Sequence[ast.stmt], prefix: str, assigned: dict[str, ast.expr]) -> list[tuple[ast.stmt, str, dict[str, ast.expr]]]:
    """For a stack, the first on top: a thousand `elif`s are nested as deep."""
    return [(statement, prefix, assigned) for statement in reversed(body)]


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
