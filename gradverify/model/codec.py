"""Model dataclasses to plain JSON data and back. Non-finite numbers are the strings "nan", "inf" and "-inf"."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gradverify.model.case import Json

T = TypeVar("T")


def to_json(value: object) -> Json:
    """Dataclasses become objects in field order, tuples become lists."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    raise TypeError(f"{type(value).__name__} is no plain data: {value!r}")


def from_json(cls: type[T], data: Json) -> T:
    """The inverse of `to_json`, guided by the type hints of `cls`. Raises ValueError where the data does not fit."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{cls.__name__} must be an object, not {data!r}")
    hints = get_type_hints(cls)
    unknown = set(data) - set(hints)
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")
    return cls(**{name: _decode(hints[name], item) for name, item in data.items()})


def _decode(hint: Any, data: Json) -> Any:
    origin = get_origin(hint)
    if hint is Any or hint is object:
        return data
    if hint is float:
        return _number(data)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(hint), data)
    if origin is Literal:
        return _member(get_args(hint), data)
    if origin is tuple:
        return _decode_tuple(get_args(hint), data)
    if origin is not None:                  # Mapping[str, X]
        return {key: _decode(get_args(hint)[1], item) for key, item in data.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return from_json(hint, data)
    if not isinstance(data, hint) or (isinstance(data, bool) and hint is not bool):
        raise ValueError(f"expected {hint.__name__}, got {data!r}")
    return data


def _decode_union(options: Sequence[Any], data: Json) -> Any:
    if data is None and type(None) in options:
        return None
    for option in options:
        if option is type(None):
            continue
        try:
            return _decode(option, data)
        except (ValueError, TypeError, AttributeError):
            continue
    raise ValueError(f"{data!r} fits none of {options}")


def _decode_tuple(members: Sequence[Any], data: Json) -> tuple[Any, ...]:
    if not isinstance(data, (list, tuple)):
        raise ValueError(f"expected a list, got {data!r}")
    return tuple(_decode(members[0], item) for item in data)


def _member(allowed: Sequence[Any], data: Json) -> Any:
    if data not in allowed:
        raise ValueError(f"{data!r} is none of {list(allowed)}")
    return data


def _number(data: Json) -> float:
    if data in ("nan", "inf", "-inf"):
        return float(data)
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        return float(data)
    raise ValueError(f"expected a number, got {data!r}")
