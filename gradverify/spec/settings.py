"""Settings as a fold of partial layers, each with the values given in one place, and that place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradverify.model.case import Budget, Json, Settings
from gradverify.spec.schema import Rules, RunSettings, Strict

RUN_KEYS = tuple(RunSettings.model_fields)
"""The settings of how a check runs, as named in a spec."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings given in one place, `origin`. Keys of `values`: those of `model.case.Settings`,
    with `select` and `ignore` at top level; its values are plain data.

    `places`: key → the exact place, where one more precise than `origin` is known.
    """

    origin: str
    values: Mapping[str, Json] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


def settle(*layers: Layer) -> Settings:
    """Return the settings of all layers over the defaults; later layers win."""
    values: dict[str, Any] = {}
    for layer in layers:
        values |= layer.values
    values |= {
        name: tuple(values[name])
        for name in ("select", "ignore", "outputs")
        if values.get(name) is not None
    }
    return Settings(
        **(
            values | {"budget": Budget(**values["budget"])}
            if isinstance(values.get("budget"), Mapping)
            else values
        )
    )


def origins(*layers: Layer) -> dict[str, str]:
    """Return setting → the place that its value comes from, without settings that no layer
    gives."""
    return {name: layer.places.get(name, layer.origin) for layer in layers for name in layer.values}


def layer_of(model: RunSettings, origin: str, keys: Collection[str] = RUN_KEYS) -> Layer:
    """Return the run settings of a validated model as a layer: `rules: {select: …}` becomes
    `select`, a budget plain data."""
    values: dict[str, Json] = {}
    for name, value in model.given().items():
        if name in keys and name in RUN_KEYS:
            values |= (
                value.given()
                if isinstance(value, Rules)
                else {name: value.given() if isinstance(value, Strict) else value}
            )
    return Layer(origin, values)


def as_written(layer: Layer) -> dict[str, Json]:
    """Return a layer in the keys of a spec, so that one model validates both. Any collection
    becomes a list."""
    plain = {
        name: list(value)
        if isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))
        else value
        for name, value in layer.values.items()
    }
    rules = {name: plain.pop(name) for name in Rules.model_fields if name in plain}
    return plain | ({"rules": rules} if rules else {})
