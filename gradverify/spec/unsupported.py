"""What the format has and this version does not run yet: a table, one row per key with the values that run. A later version deletes rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gradverify.model.case import Json
from gradverify.model.dtypes import DTYPES, RUN, TABLE
from gradverify.spec.fault import Fault, Path, shown

SETTINGS: Mapping[str, tuple[Json, ...]] = {  # key → the values that are accepted because they change nothing, or are run
    "dtype": RUN,
}
TENSOR: Mapping[str, tuple[Json, ...]] = {
    "dtype": tuple(name for name in DTYPES if name in RUN or TABLE[name].integers),
}


@dataclass(frozen=True, slots=True)
class _Row:
    table: Mapping[str, tuple[Json, ...]]
    values: Mapping[str, Json]
    base: Path

    def faults(self) -> Iterator[Fault]:
        for key, accepted in self.table.items():
            if key in self.values and not any(_equal(self.values[key], value) for value in accepted):
                path = (*self.base, key)
                yield Fault(path, _sentence(key, self.values[key], accepted))


def settings_faults(values: Mapping[str, Json], base: Path) -> Iterator[Fault]:
    """Settings that cannot be honoured yet; `values` as written in a spec."""
    yield from _Row(SETTINGS, values, base).faults()


def check_faults(values: Mapping[str, Json], base: Path) -> Iterator[Fault]:
    """Everything in a check that cannot be run yet; `values` as written, variables replaced."""
    yield from settings_faults(values, base)
    inputs = values.get("inputs")
    members = inputs.items() if isinstance(inputs, dict) else _items(inputs)
    for name, value in members:
        yield from _input_faults(value, (*base, "inputs", name))


def _input_faults(value: Json, path: Path) -> Iterator[Fault]:
    if isinstance(value, dict):
        yield from _Row(TENSOR, value, path).faults()
    for index, item in _items(value):
        if isinstance(item, dict):
            yield from _Row(TENSOR, item, (*path, index)).faults()


def _items(value: Json) -> Iterator[tuple[int, Json]]:
    return iter(enumerate(value if isinstance(value, list) else ()))


def _equal(left: Json, right: Json) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _sentence(key: str, value: Json, accepted: tuple[Json, ...]) -> str:
    words = ", ".join(shown(item).strip("'") for item in accepted)
    return f"`{key}: {shown(value).strip(chr(39))}` is not supported yet; supported: {words}"
