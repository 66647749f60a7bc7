"""The hand-written backwards of source files, found by their syntax: their arguments, and which of them a spec leads to. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

from gradverify.source.modules import LOCALS, Definition, Library, Meant, Module, dotted

PLAIN = {"int", "float", "bool", "str", "complex", "None"}


@dataclass(frozen=True, slots=True)
class Argument:
    """`annotation` and `default` as they are written; `no_gradient`: the line on which backward returns None for it, always."""

    name: str
    annotation: str | None = None
    default: str | None = None
    kind: Literal["positional", "variadic", "keyword"] = "positional"
    no_gradient: int | None = None

    @property
    def may_have_gradient(self) -> bool:
        """Not where backward says None, the annotation a plain type, or the default is a number, word or truth value."""
        if self.no_gradient is not None:
            return False
        plain = {part.strip() for part in (self.annotation or "").replace("Optional[", "").replace("]", "").split("|")}
        return not (self.annotation and plain <= PLAIN) and self.default in (None, "None")


def arguments_of(function: Definition, skipped: int) -> tuple[Argument, ...]:
    """Of a function definition, without the first `skipped` (`ctx`)."""
    if isinstance(function, ast.ClassDef):
        return ()
    taken = function.args
    positional = [*taken.posonlyargs, *taken.args]
    defaults = [*[None] * (len(positional) - len(taken.defaults)), *taken.defaults]
    found = [_argument(each, default) for each, default in zip(positional, defaults, strict=True)][skipped:]
    found += [replace(_argument(taken.vararg, None), kind="variadic")] if taken.vararg is not None else []
    keywords = zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    return (*found, *(replace(_argument(each, default), kind="keyword") for each, default in keywords))


def _argument(each: ast.arg, default: ast.expr | None) -> Argument:
    written = None if each.annotation is None else ast.unparse(each.annotation)
    if isinstance(each.annotation, ast.Constant) and isinstance(each.annotation.value, str):
        written = each.annotation.value
    return Argument(each.arg, written, None if default is None else ast.unparse(default))


def without_gradient(arguments: Sequence[Argument], backward: Definition) -> tuple[Argument, ...]:
    """With the line on which backward returns None for each, where every one of its `return`s writes it so."""
    returned: list[ast.Return] = []
    pending: list[ast.AST] = list(backward.body)
    while pending:      # its own `return`s, not those of functions inside it
        node = pending.pop(0)
        if isinstance(node, ast.Return):
            returned.append(node)
        elif not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += list(ast.iter_child_nodes(node))
    marked = []
    for place, argument in enumerate(arguments):
        variadic = any(each.kind == "variadic" for each in arguments[: place + 1])
        nothing = bool(returned) and not variadic and all(_is_none(statement.value, place) for statement in returned)
        marked.append(replace(argument, no_gradient=returned[-1].lineno) if nothing else argument)
    return tuple(marked)


def _is_none(value: ast.expr | None, place: int) -> bool:
    """Is the element at a place of what is returned the word None? Not where a part of unknown length stands before it."""
    elements = value.elts[: place + 1] if isinstance(value, (ast.Tuple, ast.List)) else [value]
    if len(elements) <= place or any(isinstance(each, ast.Starred) for each in elements):
        return False
    return elements[place] is None or (isinstance(elements[place], ast.Constant) and ast.unparse(elements[place]) == "None")     # type: ignore[arg-type]


BASES = frozenset(f"torch.autograd.{name}" for name in (
    "Function", "NestedIOFunction", "function.Function", "function.InplaceFunction", "function.NestedIOFunction", "function.SingleLevelFunction"))
CUSTOM_OP = ("torch.library.custom_op", "torch._library.custom_ops.custom_op", "torch.library.triton_op", "torch._library.triton_op")
REGISTER = "torch.library.register_autograd"
OPERATOR = "torch.ops."


@dataclass(frozen=True, slots=True)
class Function:
    """A subclass of `torch.autograd.Function`, or an operator (`name`: torch.ops.library.operator) with a backward of its own.

    `line`: of its definition; `backward`: its line, None where it stands elsewhere; `inside`: the function that it is defined in, so
    that no spec can name it; `symbol`: of an operator, what Python calls it in the module.
    """

    kind: Literal["autograd.Function", "operator"]
    module: Module
    name: str
    line: int
    backward: int | None
    arguments: tuple[Argument, ...]
    inside: str | None = None
    symbol: str | None = None

    @property
    def file(self) -> Path:
        return self.module.file

    @property
    def full_name(self) -> str:
        return self.name if self.kind == "operator" else f"{self.module.name}.{self.name}" if self.module.name else self.name


def functions(library: Library, files: Iterable[Path]) -> Iterator[Function]:
    """All of them, file by file, in the order of their lines. A class without any `forward` is a base for others, and none."""
    for file in files:
        module = library.read(file)
        if module is None:
            continue
        try:
            yield from sorted((*_classes(library, module), *operators(library, module)), key=lambda found: found.line)
        except RecursionError:
            library.unreadable[module.file] = "an expression is nested too deeply to be followed"


def _classes(library: Library, module: Module) -> Iterator[Function]:
    for name in module.definitions:
        classes, others = lineage(library, module, name)
        if others.isdisjoint(BASES):
            continue

        def method(*names: str, classes: Sequence[tuple[Module, str]] = classes) -> tuple[Module, Definition] | None:
            found = ((home, home.definitions.get(f"{owner}.{wanted}")) for wanted in names for home, owner in classes)
            return next(((home, own) for home, own in found if isinstance(own, (ast.FunctionDef, ast.AsyncFunctionDef))), None)

        forward, backward = method("forward"), method("backward", "vjp")
        if forward is None or _is_abstract(forward[1]):
            continue
        taken = arguments_of(forward[1], 0 if method("setup_context") else 1)
        taken = without_gradient(taken, backward[1]) if backward else taken
        line = backward[1].lineno if backward is not None and backward[0] is module else None
        inside = name.partition(f".{LOCALS}")[0] if LOCALS in name else None
        yield Function("autograd.Function", module, name, module.definitions[name].lineno, line, taken, inside)


def lineage(library: Library, module: Module, name: str) -> tuple[list[tuple[Module, str]], set[str]]:
    """A class and those that it inherits from, nearest first, as far as they can be read; and the dotted names of the others."""
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
            meant = library.resolve(text, module, name.rpartition(".")[0]) if text is not None else ""
            if isinstance(meant, str):
                others.add(meant)
            elif not meant.rest:
                waiting.append((meant.module, meant.name))
    return classes, others


def _is_abstract(forward: Definition) -> bool:
    """Does it only say that a subclass is to define it?"""
    body = [line for line in forward.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
    return not body or (len(body) == 1 and isinstance(body[0], (ast.Raise, ast.Pass)))


def operators(library: Library, module: Module) -> Iterator[Function]:
    """Operators of `torch.library` that `register_autograd` gives a backward in the same file."""
    def operator_of(first: ast.expr | None) -> str | None:
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and "::" in first.value:
            return first.value
        return named.get(dotted(first) or "", ("", None))[0] or None if first is not None else None

    def meaning(node: ast.expr | None) -> Meant | str:
        text = dotted(node) if node is not None else None
        return library.resolve(text, module) if text else ""

    named: dict[str, tuple[str, Definition | None]] = {}       # name in the module → `library::operator`, and its definition
    for name, node in (*module.definitions.items(), *module.assigned.items()):
        for call in getattr(node, "decorator_list", [node]):
            if isinstance(call, ast.Call) and meaning(call.func) in CUSTOM_OP and (operator := operator_of(_given(call, call.args, "name"))):
                named[name] = operator, node if isinstance(node, Definition) else None
    found: dict[str, Function] = {}
    for call in ast.walk(module.tree):
        if not isinstance(call, ast.Call):
            continue
        owner, _, attribute = (dotted(call.func) or "").rpartition(".")
        operator, rest = (named[owner][0], call.args) if attribute == "register_autograd" and owner in named else (None, call.args[1:])
        if operator is None and call.args and meaning(call.func) == REGISTER:
            operator = operator_of(call.args[0])
        if operator is None:
            continue
        meant = meaning(_given(call, rest, "backward"))
        backward = meant.node if isinstance(meant, Meant) and isinstance(meant.node, ast.FunctionDef) else None
        symbol, forward = next(((name, definition) for name, (each, definition) in named.items() if each == operator), (None, None))
        taken = arguments_of(forward, 0) if forward is not None else ()
        taken = without_gradient(taken, backward) if backward is not None else taken
        found[operator] = Function("operator", module, f"{OPERATOR}{operator.replace('::', '.')}", (forward or call).lineno,
                                   None if backward is None else backward.lineno, taken, symbol=symbol)
    yield from found.values()


def _given(call: ast.Call, positional: Sequence[ast.expr], name: str) -> ast.expr | None:
    return positional[0] if positional else next((each.value for each in call.keywords if each.arg == name), None)


Key = tuple[str, str]


def key_of(function: Function) -> Key:
    """What one Function is known by: its file and name; an operator by its name alone."""
    return ("", function.name) if function.kind == "operator" else (str(function.file), function.name)


@dataclass(frozen=True, slots=True)
class Reached:
    """`direct`: the target is this Function itself; `through`: those that its code calls."""

    direct: Key | None = None
    through: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class Reach:
    """Targets looked up among `functions`."""

    library: Library
    functions: Mapping[Key, Function]

    def of(self, target: str, folders: Sequence[Path]) -> Reached:
        """`target` as a case holds it: files are absolute; modules are looked up in `folders`."""
        place, _, attribute = target.rpartition(":")
        module = self.library.read(Path(place)) if place.endswith(".py") else None
        meant = self.library.lookup(target.replace(":", "."), folders) if module is None else self.library.resolve(attribute, module)
        if key := self._key(meant, "", "apply"):
            return Reached(key)
        through, pending, seen = set[Key](), [meant], set[tuple[Path, str]]()
        while pending:
            meant = pending.pop()
            if isinstance(meant, str) or (meant.module.file, meant.name) in seen:
                continue
            seen.add((meant.module.file, meant.name))
            for text, scope in product(sorted(_names(meant.node)), _scopes(meant)):
                found = self.library.resolve(text, meant.module, scope)
                if key := self._key(found, "apply"):
                    through.add(key)
                else:
                    pending.append(found)
        return Reached(None, frozenset(through))

    def _key(self, meant: Meant | str, *named: str) -> Key | None:
        """A Function that is named so (with its `apply`), or an operator: torch.ops.library.operator, with or without an overload."""
        if isinstance(meant, str):
            key = ("", ".".join(meant.split(".")[:4]))
            return key if key in self.functions else None
        key = (str(meant.module.file), meant.name)
        if key in self.functions and meant.rest in named:
            return key
        return next((known for known, function in self.functions.items() if function.symbol == meant.name and function.module is meant.module), None)


def _scopes(meant: Meant) -> tuple[str, ...]:
    """Where the names of its code are looked up: of a class both in its body and around it, because its methods do not see its names."""
    if isinstance(meant.node, ast.ClassDef):
        return meant.name, meant.name.rpartition(".")[0]
    return (f"{meant.name}.{LOCALS}",) if isinstance(meant.node, Definition) else ("",)


def _names(node: ast.AST) -> set[str]:
    """Every dotted name in a piece of code, the longest form of each."""
    return {text for each in ast.walk(node) if isinstance(each, (ast.Attribute, ast.Name)) and (text := dotted(each)) is not None}
