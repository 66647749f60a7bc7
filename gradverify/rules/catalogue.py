"""The rule book without importing a rule: codes and names from the file names, pages and severities from the source."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from gradverify.model.result import Severity

_FILE = re.compile(r"gv(?P<number>\d{3})_(?P<name>\w+)\.py")
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """One rule of the book. `message` is the page's first line, `page` the whole docstring, `catches` the gallery file with its fault."""

    code: str
    name: str
    severity: Severity
    message: str
    page: str
    module: str
    catches: str | None


def codes() -> tuple[str, ...]:
    """All rule codes in order; reads file names only."""
    return tuple(f"GV{match['number']}" for match in _matches())


@cache
def rules() -> tuple[RuleInfo, ...]:
    """The whole book in the order of the codes."""
    return tuple(_read(match) for match in _matches())


def rule(code: str) -> RuleInfo | None:
    """One rule by its code; None where there is none."""
    return next((_read(match) for match in _matches() if f"GV{match['number']}" == code.upper()), None)


def _matches() -> list[re.Match[str]]:
    found = (_FILE.fullmatch(path.name) for path in sorted(_FOLDER.iterdir()))
    return [match for match in found if match]


def _read(match: re.Match[str]) -> RuleInfo:
    tree = ast.parse((_FOLDER / match[0]).read_text(encoding="utf-8"))
    page = ast.get_docstring(tree) or ""
    constants = {target.id: node.value.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
                 for target in node.targets if isinstance(target, ast.Name)}
    severity: Literal["error", "warning"] = "warning" if constants.get("SEVERITY") == "warning" else "error"
    first = page.partition("\n")[0]
    catches = constants.get("CATCHES")
    return RuleInfo(f"GV{match['number']}", match["name"].replace("_", "-"), severity, first.partition(": ")[2], page,
                    match[0].removesuffix(".py"), catches if isinstance(catches, str) else None)
