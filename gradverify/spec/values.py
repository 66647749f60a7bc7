"""The kinds of values a spec holds, as types for the models: finite numbers, device names, either-or values, input values."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

UNSAID: Any = None
"""The default of a key whose absence means something else than any value it can have."""

COMPLEX = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
COMPLEX_NUMBER = re.compile(rf"(?:{COMPLEX}(?=[-+]))?(?:{COMPLEX})[jJ]")
INT64 = 2**63

Integer = Annotated[int, Field(ge=-INT64, lt=INT64)]
NotNegativeInteger = Annotated[int, Field(ge=0, lt=INT64)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:[0-9]+)?|auto)$")]

NESTED = "numbers"
"""Stands for the recursive definition that schema_json.py publishes; the elements themselves are checked in numbers.py."""

Numbers = Annotated[Any, WithJsonSchema({"type": NESTED})]


class Strict(BaseModel):
    """Unknown keys are errors, nothing is converted: `true` is no number, `"1"` neither."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=False)

    def said(self) -> dict[str, Any]:
        """Only what was written, in the order of the format."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class Either:
    """A union whose branch is chosen by what the value *is* (text, number, list, mapping, bool), so that one branch alone complains.

    `expects` names all branches for the message. It travels in the branch's tag, the one thing that pydantic's error carries along.
    """

    def __init__(self, expects: str) -> None:
        self.expects = expects

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        tags = {_kind_of_type(member): f"<{self.expects}>{number}" for number, member in enumerate(get_args(source))}
        choices = {tag: handler.generate_schema(member) for tag, member in zip(tags.values(), get_args(source), strict=True)}
        chosen: Callable[[Any], str | None] = lambda value: tags.get(kind_of(value))  # noqa: E731 - one expression, named for its type
        return core_schema.tagged_union_schema(
            choices, discriminator=chosen, custom_error_type="expected", custom_error_message=self.expects)


def is_tag(part: str | int) -> bool:
    """Whether a part of pydantic's location is a branch's tag, not a key."""
    return isinstance(part, str) and part.startswith("<")


def kind_of(value: Any) -> str:
    """text, bool, number, list, mapping or null."""
    for kind, types in (("text", str), ("bool", bool), ("number", (int, float)), ("list", (list, tuple)), ("mapping", (dict, BaseModel))):
        if isinstance(value, types):
            return kind
    return "null"


def _kind_of_type(member: Any) -> str:
    origin = get_origin(member)
    if origin is Annotated:
        return _kind_of_type(get_args(member)[0])
    if origin is Literal:
        return kind_of(get_args(member)[0])
    if origin in (Union, UnionType):
        raise TypeError("an either-or inside another")
    return {str: "text", bool: "bool", int: "number", float: "number", list: "list", dict: "mapping"}.get(origin or member, "mapping")


Auto: TypeAlias = Literal["auto"]
