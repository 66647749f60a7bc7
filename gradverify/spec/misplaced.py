"""A key that the format has, in the wrong place: where it belongs."""

from __future__ import annotations

from pydantic import BaseModel

from gradverify.model.case import Json
from gradverify.spec.arguments import Arguments
from gradverify.spec.schema import Check, Spec
from gradverify.spec.schema_inputs import Tensor
from gradverify.spec.schema_settings import Budget, Rules, RunSettings, Settings


def home_of(key: str, model: type[BaseModel], value: Json) -> str | None:
    """Where `key: value`, which `model` lacks, stands in a spec; None where the format has no such key, or `model` is no part of it."""
    if issubclass(model, Arguments):
        return _no_argument(key)
    if issubclass(model, RunSettings):
        return _beside_a_setting(key, model)
    if model in (Tensor, Budget, Rules) and key in Check.model_fields:
        return "it belongs to the check, next to `inputs`" if model is Tensor else "it belongs to the check"
    if model is Tensor and isinstance(value, dict):
        return f"a list of inputs has no names; as a mapping: `inputs: {{{key}: …}}`"
    if model is Spec and key in Check.model_fields:
        every = " or, for all of them, to `defaults`" if key in Settings.model_fields else ""
        return f"it belongs to a check below `checks`{every}"
    return None


def _no_argument(key: str) -> str | None:
    """Where a key stands that is no argument of a call."""
    if key in Budget.model_fields:
        return f"it belongs in `budget`: `budget={{'{key}': …}}`"
    home = _beside_a_setting(key, RunSettings)
    return f"it is a key of specs, which no call takes: write it in a spec, {_place(key)}" if home else None


def _place(key: str) -> str:
    return "next to `checks`" if key in _names(Spec) else "in the check" if key in Check.model_fields else "in an input of the check"


def _beside_a_setting(key: str, model: type[RunSettings]) -> str | None:
    for name, part in (("rules", Rules), ("budget", Budget)):
        if key in part.model_fields:
            return f"it belongs in `{name}`: `{name}: {{{key}: …}}`"
    if key in _names(Spec):
        return "it belongs at the top of the file, next to `checks`"
    if key in Check.model_fields and model is not Check:
        return "it belongs to a check, not to `defaults`"
    if key in Tensor.model_fields:
        return f"it belongs to an input: `inputs: {{x: {{{key}: …}}}}`" if model is Check else "it belongs to an input of a check"
    return None


def _names(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]
