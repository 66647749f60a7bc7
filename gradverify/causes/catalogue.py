"""The known mistakes: what the files of this folder declare, `EXPLANATIONS` and `REMEDIES`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from gradverify.causes.pattern import Explanation
from gradverify.model.result import Cause


@cache
def explanations() -> tuple[Explanation, ...]:
    """The simplest first."""
    return tuple(sorted((each for module in _modules() for each in getattr(module, "EXPLANATIONS", ())), key=lambda each: each.order))


def remedy(cause: Cause) -> str | None:
    """What to change, in a sentence, where a finding's own hint would suggest something else; None where that serves."""
    return next((hint for name, hint in _remedies().items() if cause.name.startswith(name)), None)


@cache
def _remedies() -> Mapping[str, str]:
    """By the beginning of a cause's name, the longest first."""
    found = {name: hint for module in _modules() for name, hint in getattr(module, "REMEDIES", {}).items()}
    return dict(sorted(found.items(), key=lambda each: -len(each[0])))


def _modules() -> tuple[ModuleType, ...]:
    return tuple(import_module(f"gradverify.causes.{found.name}") for found in iter_modules([str(Path(__file__).parent)]))
