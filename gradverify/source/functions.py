"""Find the hand-written backwards in source files by syntax, and those that the target of a spec
reaches. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from gradverify.source.modules import LOCALS, Definition, Library, Meant, Module, dotted

BASES = frozenset(
    f"torch.autograd.{name}"
    for name in (
        "Function",
        "NestedIOFunction",
        "function.Function",
        "function.InplaceFunction",
        "function.NestedIOFunction",
        "function.SingleLevelFunction",
    )
)
CUSTOM_OP = (
    "torch.library.custom_op",
    "torch._library.custom_ops.custom_op",
    "torch.library.triton_op",
    "torch._library.triton_op",
)
REGISTER = "torch.library.register_autograd"
OPERATOR = "torch.ops."


@dataclass(frozen=True, slots=True)
class Function:
    """A subclass of `torch.autograd.Function`, or an operator (`name`: torch.ops.library.operator)
    with a backward of its own.

    `line`: of its definition; `backward`: the line of backward, None if it is in another file;
    `inside`: the function that it is defined in, so that no spec can name it; `symbol`: the Python
    name of an operator in the module.
    """

    kind: Literal["autograd.Function", "operator"]
    module: Module
    name: str
    line: int
    backward: int | None
    inside: str | None = None
    symbol: str | None = None

    @property
    def file(self) -> Path:
        return self.module.file

    @property
    def full_name(self) -> str:
        return (
            self.name
            if self.kind == "operator"
            else f"{self.module.name}.{self.name}"
            if self.module.name
            else self.name
        )


def functions(library: Library, files: Iterable[Path]) -> Iterator[Function]:
    """Yield all Functions, file by file, in the order of their lines. A class without `forward` is
    a base class, and does not count."""
    for module in filter(None, map(library.read, files)):
        found = list(operators(library, module))
        for name in module.definitions:
            classes, others = lineage(library, module, name)
            if others.isdisjoint(BASES):
                continue
            methods: dict[str, tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]] = {}
            for wanted, (home, owner) in product(("forward", "backward", "vjp"), classes):
                own = home.definitions.get(f"{owner}.{wanted}")
                if isinstance(own, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    methods.setdefault(wanted, (home, own))
            body = methods["forward"][1].body if "forward" in methods else []
            body = [
                each
                for each in body
                if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
            # Abstract: a subclass defines forward
            if not body or (len(body) == 1 and isinstance(body[0], (ast.Raise, ast.Pass))):
                continue
            backward = methods.get("backward") or methods.get("vjp")
            line = backward[1].lineno if backward is not None and backward[0] is module else None
            inside = name.partition(f".{LOCALS}")[0] if LOCALS in name else None
            found.append(
                Function(
                    "autograd.Function", module, name, module.definitions[name].lineno, line, inside
                )
            )
        yield from sorted(found, key=lambda each: each.line)


def lineage(
    library: Library, module: Module, name: str
) -> tuple[list[tuple[Module, str]], set[str]]:
    """Return a class and its base classes, nearest first, as far as they can be read; and the
    dotted names of the other bases."""
    classes: list[tuple[Module, str]] = []
    others: set[str] = set()
    waiting = [(module, name)]
    while waiting:
        module, name = waiting.pop(0)
        node = module.definitions.get(name)
        if not isinstance(node, ast.ClassDef) or (module, name) in classes:
            continue
        classes.append((module, name))
        for base in node.bases:
            text = dotted(base.value if isinstance(base, ast.Subscript) else base)
            meant = (
                library.resolve(text, module, name.rpartition(".")[0]) if text is not None else ""
            )
            if isinstance(meant, str):
                others.add(meant)
            elif not meant.rest:
                waiting.append((meant.module, meant.name))
    return classes, others


def operators(library: Library, module: Module) -> Iterator[Function]:
    """Yield the operators of `torch.library` that get a backward by `register_autograd` in the same
    file."""

    def operator_of(first: ast.expr | None) -> str | None:
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and "::" in first.value:
            return first.value
        return named.get(dotted(first) or "", ("", None))[0] or None if first is not None else None

    def meaning(node: ast.expr | None) -> Meant | str:
        text = dotted(node) if node is not None else None
        return library.resolve(text, module) if text else ""

    # Name in the module → `library::operator`, and its definition
    named: dict[str, tuple[str, Definition | None]] = {}
    for name, node in (*module.definitions.items(), *module.assigned.items()):
        for call in getattr(node, "decorator_list", [node]):
            if (
                isinstance(call, ast.Call)
                and meaning(call.func) in CUSTOM_OP
                and (operator := operator_of(_given(call, call.args, "name")))
            ):
                named[name] = operator, node if isinstance(node, Definition) else None
    found: dict[str, Function] = {}
    for call in ast.walk(module.tree):
        if not isinstance(call, ast.Call):
            continue
        owner, _, attribute = (dotted(call.func) or "").rpartition(".")
        operator, rest = (
            (named[owner][0], call.args)
            if attribute == "register_autograd" and owner in named
            else (None, call.args[1:])
        )
        if operator is None and call.args and meaning(call.func) == REGISTER:
            operator = operator_of(call.args[0])
        if operator is None:
            continue
        meant = meaning(_given(call, rest, "backward"))
        backward = (
            meant.node
            if isinstance(meant, Meant) and isinstance(meant.node, ast.FunctionDef)
            else None
        )
        symbol, forward = next(
            ((name, definition) for name, (each, definition) in named.items() if each == operator),
            (None, None),
        )
        found[operator] = Function(
            "operator",
            module,
            f"{OPERATOR}{operator.replace('::', '.')}",
            (forward or call).lineno,
            None if backward is None else backward.lineno,
            symbol=symbol,
        )
    yield from found.values()


def _given(call: ast.Call, positional: Sequence[ast.expr], name: str) -> ast.expr | None:
    if positional:
        return positional[0]
    return next((each.value for each in call.keywords if each.arg == name), None)


Key = tuple[str, str]


def key_of(function: Function) -> Key:
    """Return the key of a Function: its file and name; for an operator just its name."""
    if function.kind == "operator":
        return ("", function.name)
    return (str(function.file), function.name)


class Reached(NamedTuple):
    """The Functions that a target reaches. `direct`: the target is this Function itself;
    `through`: the Functions that its code calls."""

    direct: Key | None = None
    through: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class Reach:
    """The lookup of targets among `functions`."""

    library: Library
    functions: Mapping[Key, Function]

    def of(self, target: str, folders: Sequence[Path]) -> Reached:
        """Return the Functions that a case's `target` reaches; modules are looked up in
        `folders`."""
        place, _, attribute = target.rpartition(":")
        module = self.library.read(Path(place)) if place.endswith(".py") else None
        meant = (
            self.library.lookup(target.replace(":", "."), folders)
            if module is None
            else self.library.resolve(attribute, module)
        )
        if key := self._key(meant, "", "apply"):
            return Reached(key)
        through, pending, seen = set[Key](), [meant], set[tuple[Path, str]]()
        while pending:
            meant = pending.pop()
            if isinstance(meant, str) or (meant.module.file, meant.name) in seen:
                continue
            seen.add((meant.module.file, meant.name))
            names = {
                text
                for each in ast.walk(meant.node)
                if isinstance(each, (ast.Attribute, ast.Name))
                and (text := dotted(each)) is not None
            }
            # Names in a class are looked up in its body and around it, as methods do not see the
            # names of the body
            scopes = (
                (meant.name, meant.name.rpartition(".")[0])
                if isinstance(meant.node, ast.ClassDef)
                else (f"{meant.name}.{LOCALS}" if isinstance(meant.node, Definition) else "",)
            )
            for text, scope in product(sorted(names), scopes):
                found = self.library.resolve(text, meant.module, scope)
                if key := self._key(found, "apply"):
                    through.add(key)
                else:
                    pending.append(found)
        return Reached(None, frozenset(through))

    def _key(self, meant: Meant | str, *named: str) -> Key | None:
        """Return the key of a Function with one of these attributes (as `apply`), or of an
        operator: torch.ops.library.operator, with or without an overload."""
        if isinstance(meant, str):
            key = ("", ".".join(meant.split(".")[:4]))
            return key if key in self.functions else None
        key = (str(meant.module.file), meant.name)
        if key in self.functions and meant.rest in named:
            return key
        return next(
            (
                known
                for known, function in self.functions.items()
                if function.symbol == meant.name and function.module is meant.module
            ),
            None,
        )
