"""What every value is that passes between the stages: a dataclass that cannot be changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """`dataclass(frozen=True, slots=True)`: its fields are given once."""
    return dataclass(frozen=True, slots=True)(cls)
