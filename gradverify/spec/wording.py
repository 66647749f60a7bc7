"""Plain sentences for errors of pydantic and PyYAML in specs: what was expected, what was found,
what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gradverify.model.case import Json
from gradverify.spec.document import FLOAT, INT
from gradverify.spec.fault import SYNONYMS, Fault, Path, allowed, flow, shown
from gradverify.spec.schema import (
    INT64,
    Budget,
    Check,
    Rules,
    RunSettings,
    Settings,
    Spec,
    Tensor,
    is_tag,
)

Model = TypeVar("Model", bound=BaseModel)
Ctx = dict[str, Any]

CODE_IN_A_LIST = re.compile(r"write \[(GV\d*)\]$")
NOT_A_BOOLEAN = "in YAML 1.2 this is text: write true or false"
BOOLEAN_WORDS = {"yes", "no", "on", "off", "y", "n"}
SPECIAL_NUMBERS = {
    "nan": ".nan",
    "inf": ".inf",
    "+inf": ".inf",
    "-inf": "-.inf",
    "infinity": ".inf",
}
TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "int_from_float": "an integer",
}
SHAPED = ("list_type", "dict_type", "model_type", "string_type")
"""Kinds of errors about the form of a value, for which an example is shown."""
PATTERNS = {
    "cpu": "cpu, cuda, cuda:<number> or auto",
    "GV[0-9]{3}": "a rule code such as GV101",
    "GV[0-9]{0,3}": "a rule code such as GV101, or a prefix such as GV1",
    "module:": "cuda, cuda:<number> or module:<name>",
    r"^[A-Za-z_][\w.-]*$": "a word of letters, digits, `_`, `-` and `.`, beginning with a letter",
}


def is_a_call(origin: str) -> bool:
    """Return whether settings come from a Python call, as `run()`."""
    return origin.endswith("()")


def in_python(fault: Fault) -> Fault:
    """Return the fault of a setting as one of the Python argument that gave it."""
    path = (
        fault.path[1:]
        if fault.path[:1] == ("rules",) and fault.path[1:2] and fault.path[1] in Rules.model_fields
        else fault.path
    )
    message = CODE_IN_A_LIST.sub(
        r"write ['\1']", fault.message.replace(NOT_A_BOOLEAN, "write True or False")
    )
    return replace(fault, path=path, message=message.replace("nothing (null)", "None"))


def names(model: type[BaseModel]) -> list[str]:
    """Return the keys of a model, as written in a spec."""
    return [info.alias or name for name, info in model.model_fields.items()]


HOMES = (
    (Rules, "in `rules: {…}`"),
    (Budget, "in `budget: {…}`"),
    (Spec, "at the top of the file, next to `checks`"),
    (RunSettings, "in a check, or in `defaults`"),
    (Settings, "in a spec: in a check, or in its `defaults`"),
    (Check, "in a check"),
    (Tensor, "in an input: `inputs: {x: {…}}`"),
)


def home_of(key: str, model: type[BaseModel]) -> str | None:
    """Return where a key that `model` lacks belongs in a spec; None if the format has no such key,
    or the model is no part of it."""
    if model.__module__ != Spec.__module__:
        return None
    return next(
        (
            f"it belongs {place}"
            for part, place in HOMES
            if key in names(part) and not issubclass(model, part)
        ),
        None,
    )


def validated(model: type[Model], data: Json, base: Path) -> Model | tuple[Fault, ...]:
    """Return the model of `data`, at path `base` of its document, or all its faults."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        return tuple(_fault(model, item, base) for item in error.errors(include_url=False))


def _fault(model: type[BaseModel], error: Any, base: Path) -> Fault:
    kind, loc, value, ctx = error["type"], error["loc"], error["input"], error.get("ctx", {})
    path = (*base, *(part for part in loc if not is_tag(part)))
    for part in loc[:-1]:
        field = _field(model, part)
        model = next(_models_in(field.annotation), model) if field else model
    if kind == "extra_forbidden":
        key, known = loc[-1], names(model)
        if value is None and ":" in key:
            return Fault(
                path,
                f"unknown key {key!r}: put a space after the colon: `{key.replace(':', ': ', 1)}`",
                key=True,
            )
        home = home_of(key, model)
        return Fault(
            path,
            f"unknown key {key!r} here: {home}"
            if home
            else f"unknown key {key!r}; {allowed(key, known)}",
            key=True,
        )
    if kind == "missing":
        return Fault(path[:-1], f"the key {loc[-1]!r} is missing")
    if loc and is_tag(loc[-1]) and (kind in TYPES or kind == "literal_error"):
        return Fault(path, _expected(loc[-1][1 : loc[-1].index(">")], value, ctx))
    if kind == "expected":  # no branch of an Either fits; its message says what all of them expect
        return Fault(path, _expected(error["msg"], value, {}))
    info = _field(model, loc[-1]) if loc else None
    sentence = _sentence(kind, value, ctx, error["msg"])
    if kind in SHAPED and ";" not in sentence:
        tensors = (
            "; for example {shape: [2, 3]}, as every other item of a list of tensors"
            if info is None and model is Tensor
            else ""
        )
        sentence += (
            f"; for example {flow(info.examples[0])}"
            if info is not None and info.examples
            else tensors
        )
    return Fault(path, sentence)


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    return next(
        (info for name, info in model.model_fields.items() if key in (name, info.alias)), None
    )


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if (
        isinstance(annotation, type)
        and not get_args(annotation)
        and issubclass(annotation, BaseModel)
    ):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _sentence(kind: str, value: Json, ctx: Ctx, message: str) -> str:
    """Return pydantic's message, or a clearer one for frequent mistakes."""
    if kind == "literal_error":
        return _literal(value, ctx)
    if kind == "string_pattern_mismatch":
        return _pattern(value, ctx)
    if kind in TYPES:
        return _expected(TYPES[kind], value, {})
    sentence = (
        message.replace("Input should be", "must be")
        .replace("greater than or equal to", "at least")
        .replace(str(INT64), "2**63")
    )
    return f"{sentence[:1].lower()}{sentence[1:]}, got {shown(value)}"


def _expected(what: str, value: Json, ctx: Ctx) -> str:
    """Return `expected an integer, got 'three'`, with the correction of a known mistake."""
    hint = number_hint(value)
    if hint is None and isinstance(value, str):
        literals = re.findall(r"'([^']*)'", ctx.get("expected", ""))
        if value.lower() in BOOLEAN_WORDS and "true" in what:
            hint = NOT_A_BOOLEAN
        elif re.fullmatch(
            r"GV\d{3}"
            if "list of rule codes" in what
            else r"GV\d{1,3}"
            if what == TYPES["list_type"]
            else "(?!)",
            value,
        ):
            hint = f"write [{value}]"
        elif literals and (near := allowed(value, literals)) != f"allowed: {', '.join(literals)}":
            hint = near
    return f"expected {what}, got {shown(value)}" + (f"; {hint}" if hint else "")


def number_hint(value: Json, finite: bool = True) -> str | None:
    """Return how to write a text that looks like a number as one, or None. `finite`: NaN and
    infinity are not allowed."""
    if not isinstance(value, str):
        return None
    if INT.match(value) or FLOAT.match(value):
        return "remove the quotes"
    if value.lower() in SPECIAL_NUMBERS:
        if finite:
            return "it must be finite"
        return f"in YAML this number is written {SPECIAL_NUMBERS[value.lower()]}"
    bare = value.replace("_", "")
    return f"write {bare}" if bare != value and (INT.match(bare) or FLOAT.match(bare)) else None


def _literal(value: Json, ctx: Ctx) -> str:
    literals = re.findall(r"'([^']*)'", ctx["expected"])
    if not literals:
        return f"expected {ctx['expected']}, got {shown(value)}" + (
            f"; {hint}" if (hint := number_hint(value)) else ""
        )
    if not isinstance(value, str):
        return f"expected one of {', '.join(literals)}; got {shown(value)}"
    if value.startswith("float8") and "float16" in literals:
        return (
            f"{shown(value)}: outputs and saved tensors may hold 8-bit floats, inputs are checked "
            "from float16 and bfloat16 on"
        )
    return f"unknown value {shown(value)}; {allowed(value, literals)}"


def _pattern(value: str, ctx: Ctx) -> str:
    what = next((text for mark, text in PATTERNS.items() if mark in ctx["pattern"]), ctx["pattern"])
    meant = SYNONYMS.get(value.casefold(), "")
    hint = f"; did you mean {meant!r}?" if meant and re.search(rf"\b{meant}\b", what) else ""
    if "GV" in ctx["pattern"]:
        is_low = re.fullmatch(ctx["pattern"], value.upper())
        hint = (
            f"; write {value.upper()}"
            if is_low
            else "; `gradverify explain` lists them with their names"
        )
    return f"expected {what}, got {shown(value)}{hint}"


# ---- Invalid YAML
Complaint = tuple[int, int, str]
"""Line and column, from 0, and the sentence."""

NO_BLANK = re.compile(
    r"^(?P<before>\s*)(?:-(?=(?P<item>\w+):(?:\s|$)|[\[{])|-?[ {]*(?P<key>\w+):(?=[^\s:/]))"
)
KEYS = frozenset(name for model in (Spec, Check, Tensor) for name in names(model))


def complaint(error: yaml.MarkedYAMLError, lines: Sequence[str]) -> Complaint:
    """Return PyYAML's message with its place, or a clearer one for frequent mistakes."""
    mark, begun = error.problem_mark or error.context_mark, error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    problem, context = str(error.problem), error.context or ""
    text = lines[line] if line < len(lines) else ""
    indent = len(text) - len(text.lstrip())
    if "'\\t'" in problem or "\t" in text[:indent]:
        return line, column, "a tab: YAML is indented with spaces"
    if "expected a single document" in context:
        return (
            line,
            column,
            "a second document begins here: a spec is one document, without a second `---`",
        )
    if "cannot start any token" in problem:
        return line, column, f"{problem}: put the text in quotes"
    if "quoted scalar" in context and begun and "unexpected end of stream" in problem:
        return (
            begun.line,
            begun.column,
            f"found the end of the file: the quote begun on line {begun.line + 1} is not closed",
        )
    is_colon = (
        "could not find expected ':'" in problem or "mapping values are not allowed here" in problem
    )
    above = next(
        (
            number
            for number in range(line - 1, -1, -1)
            if lines[number].strip() and not lines[number].lstrip().startswith("#")
        ),
        line,
    )
    for number in (above, line) if is_colon else (line, begun.line if begun else line):
        slip = NO_BLANK.match(lines[number]) if number < len(lines) else None
        if (
            slip
            and (slip["item"] or slip["key"] or next(iter(KEYS))) in KEYS
            and not (slip["key"] and not is_colon)
        ):
            head = lines[number][slip.end("before") : slip.end()]
            rest = lines[number][slip.end() :].strip()
            after = "colon" if slip["key"] else "`-`"
            return (
                number,
                slip.end(),
                f"a blank is missing after the {after}: "
                f"`{head.strip('-{ ') if slip['key'] else head} {_cut(rest)}`",
            )
    if is_colon:
        return (
            line,
            column,
            "a `:` where no key can be, or a key without one: check the indentation, or put text "
            "that contains `: ` in quotes",
        )
    if begun and "<block end>" in problem and column == indent:
        what = "list" if "sequence" in context or "collection" in context else "mapping"
        return (
            line,
            column,
            f"the indentation of this line fits no line above it; the {what} around it begins on "
            f"line {begun.line + 1}",
        )
    return (
        line,
        column,
        f"not valid YAML: {problem} ({context}, begun on line {begun.line + 1})"
        if begun and context
        else problem,
    )


def _cut(text: str) -> str:
    return f"{text[:20]}{'…' if len(text) > 20 else ''}"
