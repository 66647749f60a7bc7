"""Model dataclasses to plain JSON data and back. Non-finite numbers are the strings "nan", "inf" and "-inf"."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gradverify.model.case import Json

T = TypeVar("T")
LONGEST = 80    # characters of a value in a complaint


def to_json(value: object, exact: bool = False) -> Json:
    """Dataclasses become objects in field order, tuples become lists. `exact`: non-finite numbers stay numbers, for Python's own reader: among plain
    values of the user's the string "inf" means itself."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name), exact) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item, exact) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item, exact) for item in value]
    if isinstance(value, float):
        return value if exact or math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    raise TypeError(f"{type(value).__name__} is no plain data: {value!r}")


def as_text(value: object) -> str:
    """The indented JSON document of a value, the same in ASCII whatever it holds."""
    return json.dumps(to_json(value), indent=2, allow_nan=False) + "\n"


def from_json(cls: type[T], data: Json, *, later: bool = False) -> T:
    """The inverse of `to_json`, guided by the type hints of `cls`. Raises ValueError where the data does not fit.

    `later`: the data may be of a later version; fields that `cls` does not have are left out.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{cls.__name__} must be an object, not {_cut(data)}")
    kind: Any = cls
    hints, required = _fields(kind)
    unknown = set(data) - set(hints)
    if unknown and not later:
        raise ValueError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")
    missing = next((name for name in required if name not in data), None)
    if missing:
        raise ValueError(f"{cls.__name__} needs a field {missing!r}")
    return cls(**{name: _decode(hints[name], item, later) for name, item in data.items() if name in hints})


@cache
def _fields(cls: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The types of a dataclass's fields, and the names of those without a default. Kept: reading the hints takes 0.1 ms, a report has thousands."""
    required = tuple(field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING)
    return get_type_hints(cls), required


def _decode(hint: Any, data: Json, later: bool) -> Any:
    origin, members = get_origin(hint), get_args(hint)
    if hint is Any or hint is object or (data is None and type(None) in members):
        return data
    if origin in (Union, types.UnionType):
        refused = []
        for member in members:
            try:
                return _decode(member, data, later)
            except ValueError as error:
                refused.append(error)
        raise refused[0]
    if origin is Literal:       # `==` alone takes 0 for False and 1 for True
        if any(type(data) is type(each) and data == each for each in members):
            return data
        raise ValueError(f"{_cut(data)} is none of {list(members)}")
    if origin is tuple and isinstance(data, (list, tuple)):
        return tuple(_decode(members[0], item, later) for item in data)
    if origin is not None and origin is not tuple and isinstance(data, Mapping):
        return {key: _decode(members[1], item, later) for key, item in data.items()}
    if origin is not None:
        raise ValueError(f"expected {'a list' if origin is tuple else 'an object'}, got {_cut(data)}")
    if hint is float:
        return _number(data)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_json(hint, data, later=later)
    if not isinstance(data, hint) or (isinstance(data, bool) and hint is not bool):
        raise ValueError(f"expected {hint.__name__}, got {_cut(data)}")
    return data


def _number(data: Json) -> float:
    if isinstance(data, str) and data in ("nan", "inf", "-inf"):
        return float(data)
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise ValueError(f"expected a number below 1.8e308, got {_cut(data)}") from None
    raise ValueError(f"expected a number, got {_cut(data)}")


def _cut(data: Json) -> str:
    """As Python writes it, no longer than a line."""
    text = repr(data)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
