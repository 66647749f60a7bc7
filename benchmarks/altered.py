"""The numeric constants of the engine, read from its source, and an import of it in which one of
them has another value.

The source is altered before it runs, so that every way to the number is: names imported from there,
defaults, and constants computed from it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

HOME = "gradverify.numerics"
OTHERS = ("oracles", "rules")  # of the package, beside numerics: `oracles.witnessed.RESOLVED`
# The number was, not what it is used for
MEASURED = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bthe )\bmeasured\b|\bby measurement\b")
SAID_OF_ALL = "Constants were set by measurement"  # in the docstring of a module
HOOK = "__altered__"


@dataclass(frozen=True)
class Constant:
    """A number, or a tuple of them, that a module names in capitals. `name`: from numerics, as
    `estimate.noise.FLAT`.

    `measured`: its comment says so, or the docstring of its module does of all.
    """

    name: str
    source: str
    comment: str
    measured: bool


@dataclass(frozen=True)
class Change:
    """A factor, or a number that is added to a count. Applied to each number of a tuple or of a
    range."""

    by: float
    counted: bool = False

    def __str__(self) -> str:
        return f"{self.by:+g}" if self.counted else FRACTIONS.get(self.by, f"×{self.by:g}")

    def of(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(self.of(each) for each in value)
        if isinstance(value, range):
            return range(self.of(value.start), self.of(value.stop))
        if self.counted:
            return value + int(self.by)
        new = value * self.by
        return int(new) if isinstance(value, int) and new == int(new) else new


FRACTIONS = {0.5: "×½", 0.25: "×¼"}


def package() -> Path:
    """Where gradverify lies, which is not imported for it."""
    spec = find_spec("gradverify")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("gradverify is not installed here, and not on PYTHONPATH")
    return Path(next(iter(spec.submodule_search_locations)))


def every() -> Mapping[str, Constant]:
    """All numeric constants of numerics, of the oracles and of the rules, by name."""
    root = package()
    folders = {root / HOME.partition(".")[2]: "", **{root / other: f"{other}." for other in OTHERS}}
    found = [
        constant
        for folder, prefix in folders.items()
        for file in sorted(folder.rglob("*.py"))
        for constant in of_source(
            file.read_text(encoding="utf-8"),
            prefix + ".".join(file.relative_to(folder).with_suffix("").parts),
        )
    ]
    return {each.name: each for each in found}


def of_source(text: str, module: str) -> Iterator[Constant]:
    """The numeric constants of a module's source."""
    tree, lines = ast.parse(text), text.splitlines()
    of_all = SAID_OF_ALL in " ".join((ast.get_docstring(tree) or "").split())
    for node in tree.body:
        for name, value in _assigned(node):
            if name.strip("_").isupper() and _numeric(value):
                comment = lines[(node.end_lineno or node.lineno) - 1].partition("# ")[2]
                yield Constant(
                    f"{module}.{name}",
                    " ".join(ast.unparse(value).split()),
                    comment,
                    of_all or bool(MEASURED.search(comment)),
                )


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of an assignment; of `A, B = 1, 2` each with its own."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node.value
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from (
                (each.id, value)
                for each, value in zip(target.elts, node.value.elts, strict=True)
                if isinstance(each, ast.Name)
            )


def _numeric(value: ast.expr) -> bool:
    """A number, or an expression of numbers and names of other constants: no text, no truth."""
    leaves = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
    return bool(leaves) and all(
        isinstance(leaf, (int, float)) and not isinstance(leaf, bool) for leaf in leaves
    )


# ---- an altered import
def module_of(name: str) -> str:
    """The full name of the module that a constant stands in."""
    owner = name.rpartition(".")[0]
    return (
        f"gradverify.{owner}"
        if owner.startswith(tuple(f"{other}." for other in OTHERS))
        else f"{HOME}.{owner}"
    )


def alter(name: str, change: Change) -> None:
    """From now on the constant has another value in this process, which has not imported gradverify
    yet."""
    if any(module.partition(".")[0] == "gradverify" for module in sys.modules):
        raise RuntimeError(
            "gradverify is imported already: its modules hold the value that is to be altered"
        )
    sys.meta_path.insert(0, _Finder(module_of(name), name.rpartition(".")[2], change.of))


class _Finder(MetaPathFinder):
    """Finds one module, whose source it alters."""

    def __init__(self, module: str, constant: str, change: Callable[[Any], Any]):
        self.module, self.constant, self.change = module, constant, change

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == self.module else None
        if spec is not None and spec.origin:
            spec.loader = _Loader(fullname, spec.origin, self.constant, self.change)
        return spec


class _Loader(SourceFileLoader):
    """Compiles the source with a call around the value of one constant."""

    def __init__(self, module: str, path: str, constant: str, change: Callable[[Any], Any]):
        super().__init__(module, path)
        self.constant, self.change = constant, change

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8"))
        for node in tree.body:
            values = [value for name, value in _assigned(node) if name == self.constant]
            if values and isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
                node.value = _Around(values[0]).visit(node.value)
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[HOOK] = self.change
        super().exec_module(module)


class _Around(ast.NodeTransformer):
    """A call of the hook around one expression."""

    def __init__(self, value: ast.expr):
        self.value = value

    def visit(self, node: ast.AST) -> Any:
        if node is self.value:
            return ast.copy_location(
                ast.Call(ast.Name(HOOK, ast.Load()), [self.value], []), self.value
            )
        return super().visit(node)
