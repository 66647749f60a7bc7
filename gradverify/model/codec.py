"""Conversion of model dataclasses to plain JSON data and back. Non-finite numbers are the strings
"nan", "inf" and "-inf"."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from gradverify.model.case import Json

T = TypeVar("T")


def to_json(value: object, exact: bool = False) -> Json:
    """Return plain data: dataclasses become objects in field order, tuples become lists. `exact`:
    non-finite numbers stay numbers, which only Python's JSON reader accepts; the string "inf" among
    the user's values then keeps its meaning."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name), exact) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item, exact) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item, exact) for item in value]
    if isinstance(value, float):
        return (
            value
            if exact or math.isfinite(value)
            else "nan"
            if math.isnan(value)
            else "inf"
            if value > 0
            else "-inf"
        )
    raise TypeError(f"{type(value).__name__} is no plain data: {value!r}")


def as_text(value: object) -> str:
    """Return a value as an indented JSON document in ASCII."""
    return json.dumps(to_json(value), indent=2, allow_nan=False) + "\n"


def from_json(cls: type[T], data: Json) -> T:
    """Return the value that `to_json` converted, by the type hints of `cls`. Unknown fields are
    ignored, as a later version may have more. Raises ValueError if the data does not fit."""
    from pydantic import ValidationError

    try:
        found: T = reader(cls).validate_python(data)  # type: ignore[arg-type]
        return found
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None


@cache
def reader(cls: Any) -> Any:
    """Return the pydantic reader of a class, made once. pydantic is imported only here, as a hook
    with nothing to do does not need it."""
    from pydantic import TypeAdapter

    return TypeAdapter(cls)
