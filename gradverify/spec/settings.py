"""Settings as a fold of partial layers: each holds only what was said in one place, and knows that
place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradverify.model.case import Budget, Json, Settings
from gradverify.spec.schema import Rules, RunSettings, Strict

RUN_KEYS = tuple(RunSettings.model_fields)
"""The settings that say how a check runs, as a spec names them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place said. Keys are those of `model.case.Settings` (`select` and `ignore` stand
    alone), values plain data.

    `places`: keys → where exactly, for those of which more is known than `origin`.
    """

    origin: str
    said: Mapping[str, Json] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


def settle(*layers: Layer) -> Settings:
    """The defaults under all layers; later ones win."""
    said: dict[str, Any] = {name: value for layer in layers for name, value in layer.said.items()}
    said |= {
        name: tuple(said[name])
        for name in ("select", "ignore", "outputs")
        if said.get(name) is not None
    }
    return Settings(
        **(
            said | {"budget": Budget(**said["budget"])}
            if isinstance(said.get("budget"), Mapping)
            else said
        )
    )


def origins(*layers: Layer) -> dict[str, str]:
    """Setting → the place whose word counts; settings that nobody named are left out."""
    return {name: layer.places.get(name, layer.origin) for layer in layers for name in layer.said}


def layer_of(model: RunSettings, origin: str, keys: Collection[str] = RUN_KEYS) -> Layer:
    """What a validated model says about running, as a layer: `rules: {select: …}` becomes `select`,
    a budget plain data."""
    said: dict[str, Json] = {}
    for name, value in model.said().items():
        if name in keys and name in RUN_KEYS:
            said |= (
                value.said()
                if isinstance(value, Rules)
                else {name: value.said() if isinstance(value, Strict) else value}
            )
    return Layer(origin, said)


def as_written(layer: Layer) -> dict[str, Json]:
    """A layer in the keys of a spec, so that one model validates both. Several values are a list,
    of whatever kind they are."""
    plain = {
        name: list(value)
        if isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))
        else value
        for name, value in layer.said.items()
    }
    rules = {name: plain.pop(name) for name in Rules.model_fields if name in plain}
    return plain | ({"rules": rules} if rules else {})
