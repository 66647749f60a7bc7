"""Settings as a fold of partial layers: each holds only what was said in one place, and knows that place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradverify.model.case import Budget, Json, Settings
from gradverify.spec.schema import RunSettings

LISTS = ("select", "ignore", "outputs")
RUN_KEYS = tuple(RunSettings.model_fields)
"""The settings that say how a check runs, as a spec names them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place said. Keys are those of `model.case.Settings` (`select` and `ignore` stand alone), values plain data.

    `places`: keys → where exactly, for those of which more is known than `origin`.
    """

    origin: str
    said: Mapping[str, Json] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, name: str) -> str:
        return self.places.get(name, self.origin)


def settle(*layers: Layer) -> Settings:
    """The defaults under all layers; later ones win."""
    said: dict[str, Any] = {name: value for layer in layers for name, value in layer.said.items()}
    for name in LISTS:
        if said.get(name) is not None:
            said[name] = tuple(said[name])
    if isinstance(said.get("budget"), Mapping):
        said["budget"] = Budget(**said["budget"])
    return Settings(**said)


def origins(*layers: Layer) -> dict[str, str]:
    """Setting → the place whose word counts; settings that nobody named are left out."""
    return {name: layer.place(name) for layer in layers for name in layer.said}


def layer_of(model: RunSettings, origin: str, keys: Collection[str] = RUN_KEYS) -> Layer:
    """What a validated model says about running, as a layer."""
    return Layer(origin, flat({name: value for name, value in model.said().items() if name in keys and name in RUN_KEYS}))


def flat(said: Mapping[str, Any]) -> dict[str, Json]:
    """Spec keys to the names of `model.case.Settings`: `rules: {select: …}` becomes `select`, a budget plain data."""
    plain = {name: value for name, value in said.items() if name not in ("rules", "budget")}
    if "rules" in said:
        plain |= said["rules"].said()
    if "budget" in said:
        plain["budget"] = said["budget"].said()
    return plain


def as_written(layer: Layer) -> dict[str, Json]:
    """The inverse of `flat`: a layer in the keys of a spec, so that one model validates both."""
    rules = {name: _listed(layer.said[name]) for name in ("select", "ignore") if name in layer.said}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in layer.said.items() if name not in rules}
    return plain | ({"rules": rules} if rules else {})


def _listed(value: Any) -> Json:
    """Several values as a list, of whatever kind they are; one value, which is to be refused, as it is."""
    return list(value) if isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping)) else value
