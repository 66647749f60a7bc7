"""The hand-written backwards that a spec's target leads to, told from source text: the target's own, or those that its code calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from gradverify.source.functions import OPERATOR, Function
from gradverify.source.modules import LOCALS, Definition, Library, Meant, dotted

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
