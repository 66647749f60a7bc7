"""Records of arrays with one number per element along the last axis: selecting, replacing and
joining elements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np

from gradverify.numerics.rungs import AnyArray
from gradverify.numerics.rungs import joined as joined_arrays


@dataclass(frozen=True)
class Record:
    """Base of the records. Fields that are neither arrays nor records hold for all elements."""

    def take(self, i: AnyArray | slice) -> Self:
        """Return the record of elements i."""
        return type(self)(*(_taken(value, i) for value in _values(self)))

    def replaced(self, i: AnyArray, new: Self) -> Self:
        """Return the record with elements i replaced by those of `new`; fields that hold for all
        elements stay."""
        if len(i):
            return type(self)(
                *(
                    _exchanged(mine, i, theirs)
                    for mine, theirs in zip(_values(self), _values(new), strict=True)
                )
            )
        return self


AnyRecord = TypeVar("AnyRecord", bound=Record)


def joined(parts: Iterable[AnyRecord]) -> AnyRecord:
    """Return one record of the elements of several."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    return type(parts[0])(
        *(
            joined_arrays(of_all) if isinstance(of_all[0], np.ndarray) else of_all[0]
            for of_all in zip(*map(_values, parts), strict=True)
        )
    )


def _values(record: Record) -> list[Any]:
    return [getattr(record, name) for name in record.__dataclass_fields__]


def _taken(value: Any, i: AnyArray | slice) -> Any:
    if isinstance(value, np.ndarray):
        return value[i] if value.ndim == 1 else value[..., i]
    return value.take(i) if isinstance(value, Record) else value


def _exchanged(old: Any, i: AnyArray, new: Any) -> Any:
    """Return a field with elements i replaced; the field itself where it repeats one number for all
    elements and the new values equal it."""
    if isinstance(old, Record):
        return old.replaced(i, new)
    if not isinstance(old, np.ndarray) or new is None:
        return old
    if (
        old.strides == (0,)
        and len(old)
        and ((new == old[0]) | ((new != new) & (old[0] != old[0]))).all()
    ):
        return old
    result = old.copy()
    result[i] = new
    return result
