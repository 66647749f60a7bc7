"""One written check to its variants: every combination of its matrix, with `$name` replaced."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradverify.model.case import Json
from gradverify.spec.fault import Fault, Path, allowed, flow, nearest, shown
from gradverify.spec.schema_settings import Matrix, Settings
from gradverify.spec.wording import validated

MAX_CASES = 10_000  # of one check; beyond that a matrix is a slip, or a reason to think again
MAX_LABEL = 40  # characters of one value inside a case's name; longer ones are shown by their place
VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
SETTERS = frozenset(Settings.model_fields) - {"matrix"} | {"layout"}
"""Variables of these names set the setting (or every tensor's layout), without a `$name` anywhere."""
UNTOUCHED = ("name", "matrix")


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination. `data` is the check with values in place of variables; `setters` those that set a setting;
    `places` says where each variable's value stands in the document; `axes` are all values of each."""

    data: Mapping[str, Json]
    part: str = ""
    values: Mapping[str, Json] = field(default_factory=dict)
    setters: frozenset[str] = frozenset()
    places: Mapping[str, Path] = field(default_factory=dict)
    axes: Mapping[str, list[Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Where the matrix is at fault the one variant is the check as written, so that the rest of it is looked at too; any fault here
    means that the variants are there to be looked at, not to become cases."""

    variants: tuple[Variant, ...]
    faults: tuple[Fault, ...] = ()


def expand(check: Mapping[str, Json], base: Path, inherited: Json = None) -> Expansion:
    """The variants of the check that stands at `base`; `inherited` is the matrix of the spec's defaults, used where it has none."""
    own = "matrix" in check
    written = check["matrix"] if own else inherited
    place: Path = (*base, "matrix") if own else ("defaults", "matrix")
    used = {name for _, name in variables(check)}
    if written is None and not own:
        return Expansion((_plain(check),), tuple(_unknown(check, base, ())))
    matrix = validated(Matrix, written, place)
    if isinstance(matrix, tuple):
        return Expansion((_plain(check),), matrix if own else ())
    axes: dict[str, list[Json]] = {name: values for name, values in written.items() if name != "exclude"}
    unknown = tuple(_unknown(check, base, tuple(axes)))
    faults = (*_axis_faults(axes, used, place), *_exclude_faults(matrix.exclude, axes, place))
    if faults:
        return Expansion((_plain(check),), (*faults, *unknown))
    variants = tuple(_variant(check, combination, axes, place) for combination in _combinations(axes, matrix.exclude))
    return Expansion(variants, unknown if variants else (*unknown, Fault((*place, "exclude"), "`exclude` drops every combination")))


def _plain(check: Mapping[str, Json]) -> Variant:
    return Variant({key: value if key in UNTOUCHED else substitute(value, {}) for key, value in check.items() if key != "matrix"})


def _variant(check: Mapping[str, Json], chosen: Mapping[str, int], axes: Mapping[str, list[Json]], place: Path) -> Variant:
    values = {name: axes[name][index] for name, index in chosen.items()}
    setters = frozenset(values) & SETTERS
    data = {key: value if key in UNTOUCHED else substitute(value, values) for key, value in check.items() if key != "matrix"}
    part = ",".join(f"{name}={label(values[name], index)}" for name, index in chosen.items())
    return Variant(data | {name: values[name] for name in setters if name != "layout"}, f"[{part}]" if part else "", values, setters,
                   {name: (*place, name, index) for name, index in chosen.items()}, axes)


def _combinations(axes: Mapping[str, list[Json]], exclude: list[dict[str, Json]]) -> Iterator[dict[str, int]]:
    keys = {name: [comparable(value) for value in values] for name, values in axes.items()}
    dropped = dict[tuple[str, ...], set[tuple[Hashable, ...]]]()
    for rule in exclude:
        dropped.setdefault(tuple(rule), set()).add(tuple(map(comparable, rule.values())))
    for indices in itertools.product(*(range(len(values)) for values in axes.values())):
        chosen = dict(zip(axes, indices, strict=True))
        if not any(tuple(keys[name][chosen[name]] for name in names) in rules for names, rules in dropped.items()):
            yield chosen


def label(value: Json, index: int) -> str:
    """A value as it stands in a case's name: `7`, `cuda`, `[2,3]`; a long one by its place: `#2`."""
    text = value if isinstance(value, str) else flow(value).replace(", ", ",").replace(": ", ":")
    return text if len(text) <= MAX_LABEL and text.isprintable() else f"#{index}"


def comparable(value: Json) -> Hashable:
    """What is equal for equal values: `true` is not 1, and NaN equals itself."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return value if is_number else json.dumps(value)


def placed(fault: Fault, variant: Variant, check: Mapping[str, Json], base: Path) -> Fault:
    """A fault of a variant at the place a person wrote: at the matrix's value where that set a setting, at the `$name` it came through."""
    inside = fault.path[len(base):]
    if inside and inside[0] in variant.places and inside[0] in variant.setters:
        return replace(fault, path=(*variant.places[str(inside[0])], *inside[1:]))
    value: Json = check
    for depth in range(len(inside) + 1):
        match = VARIABLE.fullmatch(value) if isinstance(value, str) else None
        if match and match[1] in variant.values:
            shows = f"{fault.message} (${match[1]} is {shown(variant.values[match[1]])})"
            return Fault((*base, *inside[:depth]), shows)
        if depth == len(inside) or not _has(value, inside[depth]):
            return fault
        value = value[inside[depth]]
    return fault


def _has(value: Json, part: str | int) -> bool:
    return (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int) and part < len(value))


def substitute(value: Json, values: Mapping[str, Json]) -> Json:
    """The value with every `$name` in it replaced, at any depth; `$$name` stands for the text `$name`."""
    if isinstance(value, str) and value.startswith("$"):
        match = VARIABLE.fullmatch(value)
        if match:
            return values.get(match[1], value)
        return value[1:] if VARIABLE.fullmatch(value[1:]) else value
    if isinstance(value, list):
        return [substitute(item, values) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, values) for key, item in value.items()}
    return value


def variables(value: Json, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Where which variable is used."""
    if isinstance(value, str) and value.startswith("$"):
        match = VARIABLE.fullmatch(value)
        if match:
            yield path, match[1]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from variables(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            if path or key not in UNTOUCHED:
                yield from variables(item, (*path, key))


def _unknown(check: Mapping[str, Json], base: Path, names: tuple[str, ...]) -> Iterator[Fault]:
    for path, name in variables(check):
        if name not in names:
            help_ = allowed(name, names, "variables of the matrix") if names else "the check has no `matrix`"
            yield Fault((*base, *path), f"unknown variable ${name}; {help_}")


def _axis_faults(axes: Mapping[str, list[Json]], used: set[str], place: Path) -> Iterator[Fault]:
    count = math.prod(len(values) for values in axes.values())
    if count > MAX_CASES:
        yield Fault(place, f"{count:,} combinations; at most {MAX_CASES:,} cases come from one check")
    for name, values in axes.items():
        if not VARIABLE.fullmatch(f"${name}"):
            yield Fault((*place, name), f"the variable {name!r} is no name of letters, digits and `_`", key=True)
        elif name not in SETTERS and name not in used:
            near = nearest(name, SETTERS)
            hint = f"; did you mean {near!r}?" if near else ""
            yield Fault((*place, name), f"${name} is used nowhere, and {name!r} is no setting{hint}", key=True)
        yield from _repeated(values, (*place, name))


def _repeated(values: list[Json], place: Path) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, value in enumerate(values):
        text: Any = json.dumps(value)
        if text in seen:
            yield Fault((*place, index), f"{shown(value)} is there twice: both cases would have one name")
        seen.add(text)


def _exclude_faults(exclude: list[dict[str, Json]], axes: Mapping[str, list[Json]], place: Path) -> Iterator[Fault]:
    known = {name: set(map(comparable, values)) for name, values in axes.items()}
    for index, rule in enumerate(exclude):
        for name, value in rule.items():
            path = (*place, "exclude", index, name)
            if name not in axes:
                yield Fault(path, f"unknown variable {name!r}; {allowed(name, tuple(axes), 'variables of the matrix')}", key=True)
            elif comparable(value) not in known[name]:
                yield Fault(path, f"{shown(value)} is no value of {name}; values: {', '.join(map(shown, axes[name]))}")
