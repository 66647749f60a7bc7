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
MOST = 64       # of `(None,) * n` that is written out


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
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(taken.defaults)) + list(taken.defaults)
    found = [_argument(each, default) for each, default in zip(positional, defaults, strict=True)][skipped:]
    if taken.vararg is not None:
        found.append(Argument(taken.vararg.arg, _text(taken.vararg.annotation), kind="variadic"))
    keywords = [replace(_argument(each, default), kind="keyword") for each, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)]
    return (*found, *keywords)


def _argument(each: ast.arg, default: ast.expr | None) -> Argument:
    return Argument(each.arg, _text(each.annotation), None if default is None else ast.unparse(default))


def _text(node: ast.expr | None) -> str | None:
    if node is None:
        return None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def without_gradient(arguments: Sequence[Argument], backward: Definition) -> tuple[Argument, ...]:
    """With the line on which backward returns None for each, where every one of its `return`s does."""
    returned = [(statement.lineno, _elements(statement.value, _always_none(backward))) for statement in _returns(backward)]
    if not returned or any(elements is None for _, elements in returned):
        return tuple(arguments)
    marked = []
    for place, argument in enumerate(arguments):
        variadic = argument.kind == "variadic" or any(before.kind == "variadic" for before in arguments[:place])
        nothing = not variadic and all(elements is not None and place < len(elements) and elements[place] for _, elements in returned)
        marked.append(replace(argument, no_gradient=returned[-1][0]) if nothing else argument)
    return tuple(marked)


def _returns(function: Definition) -> Iterator[ast.Return]:
    """Its own, not those of functions inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += list(ast.iter_child_nodes(node))


def _elements(value: ast.expr | None, names: frozenset[str]) -> list[bool] | None:
    """For each element of what is returned: is it the word None? None where their number cannot be told."""
    if isinstance(value, (ast.Tuple, ast.List)):
        parts = [_elements(each.value, names) if isinstance(each, ast.Starred) else [_is_none(each, names)] for each in value.elts]
        return None if any(part is None for part in parts) else [each for part in parts for each in part or ()]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _elements(value.left, names), _elements(value.right, names)
        return left + right if left is not None and right is not None and _is_sequence(value.left) and _is_sequence(value.right) else [False]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and _is_sequence(value.left):
        times, inner = value.right, _elements(value.left, names)
        count = times.value if isinstance(times, ast.Constant) and isinstance(times.value, int) else None
        return inner * count if inner is not None and count is not None and 0 <= count <= MOST else None
    return [value is None or _is_none(value, names)]


def _is_sequence(value: ast.expr) -> bool:
    return isinstance(value, (ast.Tuple, ast.List)) or (isinstance(value, ast.BinOp) and _is_sequence(value.left))


def _is_none(value: ast.expr, names: frozenset[str]) -> bool:
    return (isinstance(value, ast.Constant) and value.value is None) or (isinstance(value, ast.Name) and value.id in names)


def _always_none(function: Definition) -> frozenset[str]:
    """The names that are assigned nothing but None."""
    stored = [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    nothing = [target.id for node in ast.walk(function) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
               and node.value.value is None for target in node.targets if isinstance(target, ast.Name)]
    return frozenset(name for name in nothing if stored.count(name) == nothing.count(name))


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
        if target.startswith(OPERATOR):
            return Reached(self._operator(target))
        place, _, attribute = target.rpartition(":")
        if place.endswith(".py"):
            module = self.library.read(Path(place))
            meant = self.library.resolve(attribute, module) if module is not None else target
        else:
            meant = self.library.lookup(target.replace(":", "."), folders)
        if isinstance(meant, str):
            return Reached(self._operator(meant))
        own = self._own(meant)
        return Reached(own) if own is not None else Reached(None, frozenset(self._through(meant)))

    def _operator(self, name: str) -> Key | None:
        """torch.ops.library.operator, with or without an overload."""
        key = ("", ".".join(name.split(".")[:4]))
        return key if key in self.functions else None

    def _own(self, meant: Meant) -> Key | None:
        key = (str(meant.module.file), meant.name)
        if key in self.functions and meant.rest in ("", "apply"):
            return key
        return next((known for known, function in self.functions.items() if function.symbol == meant.name and function.module is meant.module), None)

    def _through(self, start: Meant) -> Iterator[Key]:
        pending, seen = [start], set[tuple[Path, str]]()
        while pending:
            meant = pending.pop()
            if (meant.module.file, meant.name) in seen:
                continue
            seen.add((meant.module.file, meant.name))
            for text, scope in product(sorted(_names(meant.node)), _scopes(meant)):
                found = self.library.resolve(text, meant.module, scope)
                key = self._operator(found) if isinstance(found, str) else self._called(found)
                if key is not None:
                    yield key
                elif isinstance(found, Meant):
                    pending.append(found)

    def _called(self, meant: Meant) -> Key | None:
        """A Function that is named with its `apply`, or an operator."""
        key = self._own(meant)
        return key if key is not None and (meant.rest == "apply" or key[0] == "") else None


def _scopes(meant: Meant) -> tuple[str, ...]:
    """Where the names of its code are looked up: of a class both in its body and around it, because its methods do not see its names."""
    if isinstance(meant.node, ast.ClassDef):
        return meant.name, meant.name.rpartition(".")[0]
    return (f"{meant.name}.{LOCALS}",) if isinstance(meant.node, Definition) else ("",)


def _names(node: ast.AST) -> set[str]:
    """Every dotted name in a piece of code, the longest form of each."""
    return {text for each in ast.walk(node) if isinstance(each, (ast.Attribute, ast.Name)) and (text := dotted(each)) is not None}
