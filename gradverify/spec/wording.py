"""pydantic's errors as plain sentences: what was expected, what was found, what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gradverify.model.case import Json
from gradverify.spec.fault import SYNONYMS, Fault, Path, allowed, flow, shown
from gradverify.spec.values import INT64, is_tag
from gradverify.spec.yaml12 import FLOAT, INT

Model = TypeVar("Model", bound=BaseModel)
Ctx = dict[str, Any]

NOT_A_BOOLEAN = "in YAML 1.2 this is text: write true or false"
BOOLEAN_WORDS = {"yes", "no", "on", "off", "y", "n"}
SPECIAL_NUMBERS = {"nan": ".nan", "inf": ".inf", "+inf": ".inf", "-inf": "-.inf", "infinity": ".inf"}
TYPES = {
    "int_type": "an integer", "float_type": "a number", "bool_type": "true or false", "string_type": "text", "list_type": "a list",
    "dict_type": "a mapping", "model_type": "a mapping", "int_from_float": "an integer",
}
SHAPED = ("list_type", "dict_type", "model_type", "string_type")
"""Kinds of errors about the form of a value, which an example tells best."""

PATTERNS = {
    "cpu": "cpu, cuda, cuda:<number> or auto",
    "GV[0-9]{3}": "a rule code such as GV101",
    "GV[0-9]{0,3}": "a rule code such as GV101, or a prefix such as GV1",
    "module:": "cuda, cuda:<number> or module:<name>",
    r"^[A-Za-z_][\w.-]*$": "a word of letters, digits, `_`, `-` and `.`, beginning with a letter",
}


def validated(model: type[Model], data: Json, base: Path) -> Model | tuple[Fault, ...]:
    """The model of `data`, which stands at `base` in its document, or all that is wrong with it."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        return tuple(_fault(model, item, base) for item in error.errors(include_url=False))


def _fault(model: type[BaseModel], error: Any, base: Path) -> Fault:
    kind, loc, value, ctx = error["type"], error["loc"], error["input"], error.get("ctx", {})
    path = (*base, *(part for part in loc if not is_tag(part)))
    if kind == "extra_forbidden":
        return Fault(path, _unknown_key(loc[-1], value, model_at(model, loc[:-1])), key=True)
    if kind == "missing":
        return Fault(path[:-1], f"the key {loc[-1]!r} is missing")
    if loc and is_tag(loc[-1]) and (kind in TYPES or kind == "literal_error"):
        return Fault(path, _expected(loc[-1][1 : loc[-1].index(">")], value, ctx))
    if kind == "expected":  # no branch of an Either fits; its message says what all of them expect
        return Fault(path, _expected(error["msg"], value, {}))
    whole = _whole(model, loc) if kind in ("greater_than_equal", "less_than") else None
    sentence = f"must be {whole}, got {shown(value)}" if whole else _sentence(kind, value, ctx, error["msg"])
    return Fault(path, sentence + (_example(model, loc) if kind in SHAPED and ";" not in sentence else ""))


def _field(model: type[BaseModel], loc: tuple[str | int, ...]) -> FieldInfo | None:
    """The key that a location ends at; None for an item of a list."""
    return next((info for name, info in model_at(model, loc[:-1]).model_fields.items() if loc and loc[-1] in (name, info.alias)), None)


def _whole(model: type[BaseModel], loc: tuple[str | int, ...]) -> str | None:
    """The whole numbers that a key takes, where it has a smallest one and a largest one."""
    info = _field(model, loc)
    bounds = {name: getattr(mark, name) for mark in (info.metadata if info else ()) for name in ("ge", "lt") if hasattr(mark, name)}
    if len(bounds) < len(("ge", "lt")):
        return None
    return f"a whole number from {bounds['ge']} to {'2**63 - 1' if bounds['lt'] == INT64 else bounds['lt'] - 1}"


def _example(model: type[BaseModel], loc: tuple[str | int, ...]) -> str:
    """What the key's value may look like, where the format gives an example."""
    from gradverify.spec.schema_inputs import Tensor

    info = _field(model, loc)
    if info is None and model_at(model, loc[:-1]) is Tensor:
        return "; for example {shape: [2, 3]}, as every other item of a list of tensors"
    return f"; for example {flow(info.examples[0])}" if info is not None and info.examples else ""


def _unknown_key(key: str, value: Json, model: type[BaseModel]) -> str:
    """The nearest key there is; where none is near, all of them."""
    if value is None and ":" in key:
        return f"unknown key {key!r}: put a space after the colon: `{key.replace(':', ': ', 1)}`"
    from gradverify.spec.misplaced import home_of  # knows the whole format

    home = home_of(key, model, value)
    known = [info.alias or name for name, info in model.model_fields.items()]
    return f"unknown key {key!r} here: {home}" if home else f"unknown key {key!r}; {allowed(key, known)}"


def model_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> type[BaseModel]:
    """The model that a location inside `model` leads to."""
    for part in loc:
        field = next((info for name, info in model.model_fields.items() if part in (name, info.alias)), None)
        model = next(_models_in(field.annotation), model) if field else model
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _sentence(kind: str, value: Json, ctx: Ctx, msg: str) -> str:
    if kind in TYPES:
        return _expected(TYPES[kind], value, {})
    special = SENTENCES.get(kind)
    return special(value, ctx) if special else f"{msg[:1].lower()}{msg[1:]}, got {shown(value)}"


def _expected(what: str, value: Json, ctx: Ctx) -> str:
    """`expected an integer, got 'three'`, with what to change where the slip is a known one."""
    names = re.findall(r"'([^']*)'", ctx.get("expected", ""))
    hints = (number_hint(value), _boolean_hint(what, value), _codes_hint(what, value),
             allowed(value, names) if names and isinstance(value, str) else None)
    hint = next((hint for hint in hints if hint), None)
    return f"expected {what}, got {shown(value)}" + (f"; {hint}" if hint and hint != f"allowed: {', '.join(names)}" else "")


def number_hint(value: Json, finite: bool = True) -> str | None:
    """What turns a text that looks like a number into one; `finite`: where NaN and infinity would be refused too."""
    if not isinstance(value, str):
        return None
    if INT.match(value) or FLOAT.match(value):
        return "remove the quotes"
    if value.lower() in SPECIAL_NUMBERS:
        return "it must be finite" if finite else f"in YAML this number is written {SPECIAL_NUMBERS[value.lower()]}"
    bare = value.replace("_", "")
    return f"write {bare}" if bare != value and (INT.match(bare) or FLOAT.match(bare)) else None


def _boolean_hint(what: str, value: Json) -> str | None:
    is_word = isinstance(value, str) and value.lower() in BOOLEAN_WORDS
    return NOT_A_BOOLEAN if is_word and "true" in what else None


def _codes_hint(what: str, value: Json) -> str | None:
    if not isinstance(value, str):
        return None
    is_code = re.fullmatch(r"GV\d{3}", value) and "list of rule codes" in what
    return f"write [{value}]" if is_code or (what == TYPES["list_type"] and re.fullmatch(r"GV\d{1,3}", value)) else None


def _literal(value: Json, ctx: Ctx) -> str:
    names = re.findall(r"'([^']*)'", ctx["expected"])
    if not names:
        return f"expected {ctx['expected']}, got {shown(value)}" + (f"; {hint}" if (hint := number_hint(value)) else "")
    if not isinstance(value, str):
        return f"expected one of {', '.join(names)}; got {shown(value)}"
    if value.startswith("float8") and "float16" in names:
        return f"{shown(value)}: outputs and saved tensors may hold 8-bit floats, inputs are checked from float16 and bfloat16 on"
    return f"unknown value {shown(value)}; {allowed(value, names)}"


def _pattern(value: Json, ctx: Ctx) -> str:
    what = next((text for mark, text in PATTERNS.items() if mark in ctx["pattern"]), ctx["pattern"])
    meant = SYNONYMS.get(value.casefold(), "") if isinstance(value, str) else ""
    if "GV" in ctx["pattern"] and isinstance(value, str):
        is_low = re.fullmatch(ctx["pattern"], value.upper())
        return f"expected {what}, got {shown(value)}; " + (f"write {value.upper()}" if is_low else "`gradverify explain` lists them with their names")
    return f"expected {what}, got {shown(value)}" + (f"; did you mean {meant!r}?" if meant and re.search(rf"\b{meant}\b", what) else "")


def _size(value: Json, ctx: Ctx) -> str:
    bounds = {"min_length": "at least", "max_length": "at most"}
    bound = next(f"{word} {ctx[key]}" for key, word in bounds.items() if key in ctx)
    return f"expected a list of {bound} {'value' if bound.endswith(' 1') else 'values'}, got {ctx['actual_length']}"


SENTENCES: dict[str, Callable[[Json, Ctx], str]] = {
    "literal_error": _literal,
    "string_pattern_mismatch": _pattern,
    "too_short": _size,
    "too_long": _size,
    "string_too_short": lambda value, ctx: "expected text, got an empty one",
    "finite_number": lambda value, ctx: f"expected a finite number, got {shown(value)}",
    "greater_than": lambda value, ctx: f"must be greater than {ctx['gt']:g}, got {shown(value)}",
    "greater_than_equal": lambda value, ctx: f"must be at least {ctx['ge']:g}, got {shown(value)}",
    "less_than": lambda value, ctx: f"must be less than {'2**63' if ctx['lt'] == 2**63 else format(ctx['lt'], 'g')}, got {shown(value)}",
}
