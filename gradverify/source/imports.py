"""What the text of one Python file imports, by `ast`: nothing is run. Statements that may never run count too, because nobody can tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.source.modules import parsed

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
