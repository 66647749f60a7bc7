"""Commands whose help names no Python types: a flag takes no value, and what an argument is its metavar and help say."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    """typer 0.29 shows `<bool>` beside a flag and `<list[str]>` beside an argument; earlier versions have nothing to be silenced."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        elif getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params
