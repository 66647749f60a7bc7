"""Model dataclasses to plain JSON data and back. Non-finite numbers are the strings "nan", "inf"
and "-inf"."""

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
    """Dataclasses become objects in field order, tuples become lists. `exact`: non-finite numbers
    stay numbers, for Python's own reader: among plain values of the user's the string "inf" means
    itself."""
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
    """The indented JSON document of a value, the same in ASCII whatever it holds."""
    return json.dumps(to_json(value), indent=2, allow_nan=False) + "\n"


def from_json(cls: type[T], data: Json) -> T:
    """The inverse of `to_json`, guided by the type hints of `cls`; fields that it does not have are
    left out, as a later version may have more. Raises ValueError where the data does not fit."""
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
    """Kept: it is made once for a class. pydantic is imported here, which a hook with nothing to do
    does without."""
    from pydantic import TypeAdapter

    return TypeAdapter(cls)
