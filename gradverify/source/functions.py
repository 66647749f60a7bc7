"""The hand-written backwards of source files: autograd Functions and custom operators, found by their syntax; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gradverify.source.arguments import Argument, arguments_of, without_gradient
from gradverify.source.modules import LOCALS, Definition, Library, Meant, Module, dotted

BASES = frozenset(f"torch.autograd.{name}" for name in (
    "Function", "NestedIOFunction", "function.Function", "function.InplaceFunction", "function.NestedIOFunction", "function.SingleLevelFunction"))
CUSTOM_OP = ("torch.library.custom_op", "torch._library.custom_ops.custom_op", "torch.library.triton_op", "torch._library.triton_op")
REGISTER = "torch.library.register_autograd"
OPERATOR = "torch.ops."


@dataclass(frozen=True, slots=True)
class Function:
    """A subclass of `torch.autograd.Function`, or an operator (`name`: torch.ops.library.operator) with a backward of its own.

    `line`: of its definition; `forward`, `backward`: their lines, None where they stand elsewhere; `inside`: the function that it is defined in, so
    that no spec can name it; `symbol`: of an operator, what Python calls it in the module.
    """

    kind: Literal["autograd.Function", "operator"]
    module: Module
    name: str
    line: int
    forward: int | None
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
    for name, node in module.definitions.items():
        if not isinstance(node, ast.ClassDef) or not is_function(library, module, name):
            continue
        forward = method(library, module, name, "forward")
        if forward is None or _is_abstract(forward[1]):
            continue
        backward = method(library, module, name, "backward") or method(library, module, name, "vjp")
        skipped = 0 if method(library, module, name, "setup_context") else 1
        taken = arguments_of(forward[1], skipped)
        taken = without_gradient(taken, backward[1]) if backward else taken
        yield Function("autograd.Function", module, name, node.lineno, _line(forward, module), _line(backward, module), taken, _inside(name))


def is_function(library: Library, module: Module, name: str, seen: frozenset[tuple[Path, str]] = frozenset()) -> bool:
    """Is the class of this qualified name a subclass of `torch.autograd.Function`, also by way of others that can be read?"""
    node = module.definitions.get(name)
    if not isinstance(node, ast.ClassDef) or (module.file, name) in seen:
        return False
    for base in _bases(library, module, name, node):
        if isinstance(base, str) and base in BASES:
            return True
        if isinstance(base, Meant) and not base.rest and is_function(library, base.module, base.name, seen | {(module.file, name)}):
            return True
    return False


def method(library: Library, module: Module, name: str, wanted: str, depth: int = 0) -> tuple[Module, Definition] | None:
    """The definition of a method, the class's own or inherited from one that can be read."""
    own = module.definitions.get(f"{name}.{wanted}")
    if own is not None and not isinstance(own, ast.ClassDef):
        return module, own
    node = module.definitions.get(name)
    if not isinstance(node, ast.ClassDef) or depth > 20:      # deeper than any real hierarchy: bases in a circle
        return None
    for base in _bases(library, module, name, node):
        found = method(library, base.module, base.name, wanted, depth + 1) if isinstance(base, Meant) and not base.rest else None
        if found is not None:
            return found
    return None


def _bases(library: Library, module: Module, name: str, node: ast.ClassDef) -> Iterator[Meant | str]:
    for base in node.bases:
        text = dotted(base.value if isinstance(base, ast.Subscript) else base)
        if text is not None:
            yield library.resolve(text, module, name.rpartition(".")[0])


def _is_abstract(forward: Definition) -> bool:
    """Does it only say that a subclass is to define it?"""
    body = [line for line in forward.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
    return not body or (len(body) == 1 and isinstance(body[0], (ast.Raise, ast.Pass)))


def _line(found: tuple[Module, Definition] | None, module: Module) -> int | None:
    return found[1].lineno if found is not None and found[0] is module else None


def _inside(name: str) -> str | None:
    return name.partition(f".{LOCALS}")[0] if LOCALS in name else None


def operators(library: Library, module: Module) -> Iterator[Function]:
    """Operators of `torch.library` that `register_autograd` gives a backward in the same file."""
    named = dict(_custom_ops(library, module))
    backwards = dict(_registered(library, module, named))
    for operator, (node, backward) in backwards.items():
        symbol = next((symbol for symbol, (_, name) in named.items() if name == operator), None)
        forward = named[symbol][0] if symbol else None
        forward = forward if isinstance(forward, Definition) else None
        taken = arguments_of(forward, 0) if forward is not None else ()
        taken = without_gradient(taken, backward) if backward is not None else taken
        line = forward.lineno if forward is not None else node.lineno
        yield Function("operator", module, f"{OPERATOR}{operator.replace('::', '.')}", line, line if forward is not None else None,
                       backward.lineno if backward is not None else None, taken, symbol=symbol)


def _custom_ops(library: Library, module: Module) -> Iterator[tuple[str, tuple[ast.AST, str]]]:
    """Name in the module → its definition, and `library::operator`."""
    for name, node in module.definitions.items():
        for call in getattr(node, "decorator_list", ()):
            operator = _named_operator(library, module, call)
            if operator is not None:
                yield name, (node, operator)
    for name, value in module.assigned.items():
        operator = _named_operator(library, module, value)
        if operator is not None and isinstance(value, ast.Call):
            wrapped = dotted(value.args[1]) if len(value.args) > 1 else None
            meant = library.resolve(wrapped, module) if wrapped else ""
            yield name, (meant.node if isinstance(meant, Meant) else value, operator)


def _named_operator(library: Library, module: Module, call: ast.expr) -> str | None:
    """`library::operator` of `torch.library.custom_op("library::operator", …)`."""
    text = dotted(call.func) if isinstance(call, ast.Call) else None
    if text is None or not isinstance(call, ast.Call) or library.resolve(text, module) not in CUSTOM_OP:
        return None
    first = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg == "name"), None)
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) and "::" in first.value else None


def _registered(library: Library, module: Module, named: dict[str, tuple[ast.AST, str]]) -> Iterator[tuple[str, tuple[ast.Call, Definition | None]]]:
    """`library::operator` → the call that registers its backward, and the backward's definition where it can be read."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        text = dotted(node.func) or ""
        owner, _, attribute = text.rpartition(".")
        operator, rest = None, list(node.args)
        if attribute == "register_autograd" and owner in named:
            operator = named[owner][1]
        elif text and rest and library.resolve(text, module) == REGISTER:
            operator, rest = _operator_of(rest[0], named), rest[1:]
        if operator is not None:
            given = rest[0] if rest else next((each.value for each in node.keywords if each.arg == "backward"), None)
            yield operator, (node, _definition(library, module, given))


def _operator_of(first: ast.expr, named: dict[str, tuple[ast.AST, str]]) -> str | None:
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and "::" in first.value:
        return first.value
    return named[first.id][1] if isinstance(first, ast.Name) and first.id in named else None


def _definition(library: Library, module: Module, given: ast.expr | None) -> Definition | None:
    text = dotted(given) if given is not None else None
    meant = library.resolve(text, module) if text else None
    return meant.node if isinstance(meant, Meant) and isinstance(meant.node, ast.FunctionDef) else None
