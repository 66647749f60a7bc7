"""Read Python files without importing them: find them, their definitions, and the meaning of the
names in them."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gradverify.model.paths import files_below, is_file, is_folder, resolved


def python_path() -> list[str]:
    """Return `sys.path` as Python itself uses it: entries that are no strings (an inserted `Path`)
    are ignored."""
    return [entry for entry in sys.path if isinstance(entry, str)]


LARGEST = 1 << 22  # bytes of a file that is read; longer ones are generated
INSTALLED = frozenset({"site-packages", "dist-packages"})  # folders of installed packages
LOCALS = "<locals>"  # as in Python's __qualname__

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One file. `name`: its module name, imported from `root`; `definitions`: classes and
    functions by qualified name; `imported`, `assigned`: the meaning of names at top level;
    `stars`: the modules of `from … import *`."""

    file: Path
    root: Path
    name: str
    tree: ast.Module
    definitions: Mapping[str, Definition]
    imported: Mapping[str, str]
    assigned: Mapping[str, ast.expr]
    stars: Sequence[str]


class Meant(NamedTuple):
    """The meaning of a name: a definition or an assigned expression of a module that was read, and
    further attributes of it (`rest`)."""

    module: Module
    name: str
    node: Definition | ast.expr
    rest: str = ""


@dataclass
class Library:
    """The files read so far. `folders`: where absolute imports are looked up; `unreadable`: the
    files that could not be read, with the reason."""

    folders: tuple[Path, ...] = ()
    unreadable: dict[Path, str] = field(default_factory=dict)
    _modules: dict[Path, Module | None] = field(default_factory=dict)

    def read(self, file: Path) -> Module | None:
        """Read a file; None if this interpreter cannot parse it."""
        file = resolved(file)
        if file not in self._modules:
            tree = parsed(file)
            if isinstance(tree, str):
                self.unreadable[file] = tree
            self._modules[file] = None if isinstance(tree, str) else _module(file, tree)
        return self._modules[file]

    def resolve(
        self,
        text: str,
        module: Module,
        scope: str = "",
        seen: frozenset[tuple[Path, str]] = frozenset(),
    ) -> Meant | str:
        """Return the meaning of a dotted name in a module, inside the definition `scope`; its full
        dotted name if it is defined in no readable file."""
        if (module.file, text) in seen:
            return text
        seen |= {(module.file, text)}
        head, _, rest = text.partition(".")
        for outer in _scopes(scope):
            if outer + head in module.definitions:
                ends = itertools.accumulate((outer + text).split("."), "{}.{}".format)
                name = max((end for end in ends if end in module.definitions), key=len)
                return Meant(
                    module, name, module.definitions[name], (outer + text)[len(name) + 1 :]
                )
        if head in module.imported:
            return self.lookup(
                f"{module.imported[head]}.{rest}".strip("."),
                (module.root, *self.folders),
                module,
                seen,
            )
        # `Base = torch.autograd.Function` is an alias; any other expression is the meaning itself
        if head in module.assigned:
            named = dotted(module.assigned[head])
            if named is None:
                return Meant(module, head, module.assigned[head], rest)
            return self.resolve(f"{named}.{rest}".strip("."), module, "", seen)
        for star in module.stars:
            found = self.lookup(
                f"{star}.{text}".strip("."), (module.root, *self.folders), module, seen
            )
            if isinstance(found, Meant) or _is_torch(found):
                return found
        return text

    def lookup(
        self,
        name: str,
        folders: Sequence[Path],
        importer: Module | None = None,
        seen: frozenset[tuple[Path, str]] = frozenset(),
    ) -> Meant | str:
        """Return the meaning of `package.module.attribute`, looked up in these folders. Installed
        files are read only for an importer in the same package."""
        parts = name.split(".")
        for folder in () if _is_torch(name) else folders:
            file, used = _located(folder, parts)
            if file is None or (
                importer is not None
                and not _near(file, importer.file)
                and resolved(file) not in self._modules
            ):
                continue
            module = self.read(file)
            if module is None or used == len(parts):
                return name
            return self.resolve(".".join(parts[used:]), module, "", seen)
        return name


def parsed(file: Path) -> ast.Module | str:
    """Return the syntax tree of a file, or the reason why it cannot be parsed."""
    try:
        with file.open("rb") as stream:
            text = stream.read(LARGEST + 1)
        if len(text) > LARGEST:
            return f"longer than {LARGEST >> 20} MiB"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in strings
            return ast.parse(text, str(file))
    except SyntaxError as error:
        reason = f"{type(error).__name__}: {error.msg}"
        return f"{reason} (line {error.lineno})" if error.lineno else reason
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__


def python_files(place: Path) -> Iterator[Path]:
    """Yield the file itself, or all Python files below a folder, sorted, without those in hidden
    folders, virtual environments and build output."""
    return files_below(place, (".py",)) if place.is_dir() else iter((place,))


def root_of(file: Path) -> Path:
    """Return the folder that a file is imported from: the first above it that is no package."""
    folder = resolved(file).parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def dotted(node: ast.AST) -> str | None:
    """Return `a.b.c` for a chain of attributes; None for any other node."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


def _is_torch(name: str) -> bool:
    return name.partition(".")[0] in ("torch", "numpy")


def _near(file: Path, importer: Path) -> bool:
    """Return whether an imported file is to be read: any that is not installed, or one of the
    importer's own package."""
    if INSTALLED.isdisjoint(file.parts):
        return True
    root = root_of(importer)
    return (
        file.is_relative_to(root)
        and file.relative_to(root).parts[:1] == importer.relative_to(root).parts[:1]
    )


def _located(folder: Path, parts: Sequence[str]) -> tuple[Path | None, int]:
    """Return the file of the longest importable prefix of a dotted name, and the number of its
    parts."""
    found: tuple[Path | None, int] = (None, 0)
    if is_file(folder / "__init__.py"):
        found = (folder / "__init__.py", 0)
    for used, part in enumerate(parts, start=1):
        if is_file(folder / part / "__init__.py"):
            found = (folder / part / "__init__.py", used)
        elif is_file(folder / f"{part}.py"):
            return folder / f"{part}.py", used
        elif not is_folder(folder / part):
            break
        folder = folder / part
    return found


def _scopes(scope: str) -> Iterator[str]:
    """Yield the prefixes under which a name is looked up, from inside out: those of functions, and
    of a class in its own body only, not in its methods."""
    parts = scope.split(".") if scope else []
    at_hand = len(parts)
    while parts:
        if parts[-1] == LOCALS or len(parts) == at_hand:
            yield ".".join(parts) + "."
        parts.pop()
    yield ""


def _module(file: Path, tree: ast.Module) -> Module:
    """Return the module of a syntax tree: definitions in all branches and functions (the first of
    several with one name), imports anywhere, assignments at top level."""
    root = root_of(file)
    path = file.relative_to(root).with_suffix("")
    definitions: dict[str, Definition] = {}
    imported: dict[str, str] = {}
    assigned: dict[str, ast.expr] = {}
    stars: list[str] = []
    # A stack, not recursion: a thousand `elif`s are nested a thousand deep
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, prefix = waiting.pop()
        if isinstance(node, Definition):
            definitions.setdefault(prefix + node.name, node)
            prefix += (
                f"{node.name}." if isinstance(node, ast.ClassDef) else f"{node.name}.{LOCALS}."
            )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                imported.setdefault(alias.asname or top, alias.name if alias.asname else top)
        elif isinstance(node, ast.ImportFrom):
            above = file.parents[min(node.level, len(file.parents)) - 1] if node.level else root
            base = (
                [*above.relative_to(root).parts, *filter(None, [node.module])]
                if above.is_relative_to(root)
                else []
            )
            stars += [".".join(base) for alias in node.names if alias.name == "*"]
            imported |= {
                alias.asname or alias.name: ".".join((*base, alias.name))
                for alias in node.names
                if alias.name != "*"
            }
        elif (
            isinstance(node, (ast.Assign, ast.AnnAssign)) and not prefix and node.value is not None
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned |= {
                target.id: node.value for target in targets if isinstance(target, ast.Name)
            }
        waiting += [
            (child, prefix)
            for child in reversed(list(ast.iter_child_nodes(node)))
            if not isinstance(child, ast.expr)
        ]
    return Module(
        file,
        root,
        ".".join(path.parts[:-1] if path.name == "__init__" else path.parts),
        tree,
        definitions,
        imported,
        assigned,
        stars,
    )


MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def place_of(text: str, folders: Sequence[str]) -> Path | None:
    """Return the file or folder that `text` names: a path, else a module looked up in `folders`.
    None if there is none, or it has no Python source."""
    path = Path(text)
    if is_folder(path) or (is_file(path) and path.suffix == ".py"):
        return path
    parts = text.split(".") if MODULE.fullmatch(text) else []
    # Parent packages are searched, not imported
    for folder in map(Path, folders if parts else ()):
        file, used = _located(folder, parts)
        if file is not None and used == len(parts):
            return file.parent if file.name == "__init__.py" else file
    return next(
        (place for folder in folders if parts and is_folder(place := Path(folder, *parts))), None
    )


def shown(path: Path, cwd: Path) -> str:
    """Return a path relative to the current folder if it lies below that and is not installed, else
    relative to the folder that it is imported from."""
    root = root_of(path)
    if path.is_relative_to(cwd) and INSTALLED.isdisjoint(path.parts):
        return path.relative_to(cwd).as_posix()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
