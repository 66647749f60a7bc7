"""The source of a live function: its syntax tree, and where it stands."""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """`tree`: its definition; `lines`: as they stand in the file, of which they begin at line `first` (from 1); `file`: its name without folders."""

    tree: ast.FunctionDef | ast.AsyncFunctionDef
    file: str
    first: int
    lines: tuple[str, ...]

    def line(self, node: ast.expr | ast.stmt) -> int:
        """The number of a node's line in the file."""
        return self.first + node.lineno - 1


def source_of(function: Callable[..., Any]) -> Source | None:
    """None where the source cannot be read."""
    try:
        plain = inspect.unwrap(function)
        lines, first = inspect.getsourcelines(plain)
        file = inspect.getsourcefile(plain) or ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of odd escapes in other people's strings
            tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, ValueError, SyntaxError, RecursionError):
        return None
    node = next((node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    return None if node is None else Source(node, Path(file).name, max(first, 1), tuple(lines))
