"""What the format has and this version does not run yet: a table, one row per key. A later version deletes rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gradverify.model.case import Json
from gradverify.spec.fault import Fault, Path, shown

NEVER: tuple[Json, ...] = ()

SETTINGS: Mapping[str, tuple[Json, ...]] = {  # key → the values that are accepted because they change nothing, or are run
    "dtype": ("float64", "float32", "complex128", "complex64"),
    "mode": ("auto", "entries"),
    "budget": ({}, {"seconds": 10}),
    "timeout": (300,),
    "sources": ([],),
}
CHECK: Mapping[str, tuple[Json, ...]] = {"surrogate": NEVER, "grad_output": NEVER}
TENSOR: Mapping[str, tuple[Json, ...]] = {
    "choice": NEVER, "kind": NEVER, "make": NEVER, "distinct": NEVER, "device": NEVER,
    "layout": ("contiguous",),
    "dtype": ("float64", "float32", "complex128", "complex64", "int64", "int32", "int16", "int8", "uint8", "bool"),
}
TARGET_KEYS = ("function", "reference", "gradient", "surrogate", "inputs_from")
REGISTERED = "torch.ops."


@dataclass(frozen=True, slots=True)
class _Row:
    table: Mapping[str, tuple[Json, ...]]
    values: Mapping[str, Json]
    base: Path

    def faults(self) -> Iterator[Fault]:
        for key, accepted in self.table.items():
            if key in self.values and not any(_equal(self.values[key], value) for value in accepted):
                path = (*self.base, key)
                yield Fault(path, _sentence(key, self.values[key], accepted), key=accepted == NEVER)


def settings_faults(values: Mapping[str, Json], base: Path) -> Iterator[Fault]:
    """Settings that cannot be honoured yet; `values` as written in a spec."""
    yield from _Row(SETTINGS, values, base).faults()
    for index, requirement in _items(values.get("requires")):
        if isinstance(requirement, str) and requirement.startswith("module:"):
            yield Fault((*base, "requires", index), f"`{requirement}` is not supported yet; supported: cuda")


def check_faults(values: Mapping[str, Json], base: Path) -> Iterator[Fault]:
    """Everything in a check that cannot be run yet; `values` as written, variables replaced."""
    yield from settings_faults(values, base)
    yield from _Row(CHECK, values, base).faults()
    for key in TARGET_KEYS:
        target = values.get(key)
        if isinstance(target, str) and target.startswith(REGISTERED):
            yield Fault((*base, key), "a registered operator (torch.ops…) is not supported yet")
    inputs = values.get("inputs")
    members = inputs.items() if isinstance(inputs, dict) else _items(inputs)
    for name, value in members:
        yield from _input_faults(value, (*base, "inputs", name))


def _input_faults(value: Json, path: Path) -> Iterator[Fault]:
    if isinstance(value, dict):
        yield from _Row(TENSOR, value, path).faults()
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield Fault(path, "a list of tensors is not supported yet")


def _items(value: Json) -> Iterator[tuple[int, Json]]:
    return iter(enumerate(value if isinstance(value, list) else ()))


def _equal(left: Json, right: Json) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _sentence(key: str, value: Json, accepted: tuple[Json, ...]) -> str:
    if accepted == NEVER:
        return f"`{key}` is not supported yet"
    words = ", ".join(shown(item).strip("'") for item in accepted)
    return f"`{key}: {shown(value).strip(chr(39))}` is not supported yet; supported: {words}"


def layout_faults(layouts: Json, place: Path) -> Iterator[Fault]:
    """A matrix over memory layouts."""
    if layouts not in (None, ["contiguous"]):
        yield Fault(place, "a matrix over `layout` is not supported yet")
