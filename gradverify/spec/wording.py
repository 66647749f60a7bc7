"""Errors in specs as plain sentences, pydantic's and PyYAML's: what was expected, what was found, what to write instead."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from yaml.tokens import FlowMappingEndToken, FlowMappingStartToken, FlowSequenceEndToken, FlowSequenceStartToken

from gradverify.model.case import Json
from gradverify.spec.document import FLOAT, INT
from gradverify.spec.fault import SYNONYMS, Fault, Path, allowed, flow, shown
from gradverify.spec.schema import INT64, Budget, Check, Rules, RunSettings, Settings, Spec, Tensor, is_tag

CODE_IN_A_LIST = re.compile(r"write \[(GV\d*)\]$")
LISTED = ("select", "ignore")


class Arguments(RunSettings):
    """What a call takes: the settings of one run of a check."""


def is_a_call(origin: str) -> bool:
    """Do the settings come from a call, `run()`?"""
    return origin.endswith("()")


def in_python(fault: Fault) -> Fault:
    """The fault of one setting, at the argument that gave it."""
    path = fault.path[1:] if fault.path[:1] == ("rules",) and fault.path[1:2] and fault.path[1] in LISTED else fault.path
    message = CODE_IN_A_LIST.sub(r"write ['\1']", fault.message.replace(NOT_A_BOOLEAN, "write True or False"))
    return replace(fault, path=path, message=message.replace("nothing (null)", "None"))


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
    info = _field(model, loc)
    if info is None and model_at(model, loc[:-1]) is Tensor:
        return "; for example {shape: [2, 3]}, as every other item of a list of tensors"
    return f"; for example {flow(info.examples[0])}" if info is not None and info.examples else ""


def _unknown_key(key: str, value: Json, model: type[BaseModel]) -> str:
    """The nearest key there is; where none is near, all of them."""
    if value is None and ":" in key:
        return f"unknown key {key!r}: put a space after the colon: `{key.replace(':', ': ', 1)}`"

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


Complaint = tuple[int, int, str]
"""Line and column, from 0, and the sentence."""

NO_SPACE = re.compile(r"""^[\s\-{]*(?P<key>\w+):(?=[^\s:/])""")
NO_COLON = re.compile(r"""^[\s\-]*(?P<key>\w+)\s+(?=[\[{])""")
EXPECTED = re.compile(r"expected (?P<wanted>.+), but (?:got|found) (?P<found>.+)")
FOUND = {"<stream end>": "the end of the file", "<scalar>": "text", "<block end>": "the end of the block", "<block mapping start>": "a key",
         "<block sequence start>": "a list", "<block entry>": "a `-`"}
CLOSES = {"]": "[", "}": "{"}
OPENS = {"[": "]", "{": "}"}
NO_BLANK = re.compile(r"^\s*-(?:(?P<key>\w+):(?=\s|$)|(?=[\[{]))")
CONTENT = "the node content"
END = "<stream end>"
KEYS = frozenset(info.alias or name for model in (Spec, Check, Tensor) for name, info in model.model_fields.items())


def complaint(error: yaml.MarkedYAMLError, lines: Sequence[str]) -> Complaint:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    problem, context = str(error.problem), error.context or ""
    if "'\\t'" in problem or "\t" in _indent(lines, line):
        return line, column, "a tab: YAML is indented with spaces"
    if "expected a single document" in context:
        return line, column, "a second document begins here: a spec is one document, without a second `---`"
    if "cannot start any token" in problem:
        return line, column, f"{problem}: put the text in quotes"
    if "mapping values are not allowed here" in problem or "could not find expected ':'" in problem:
        return _colon(error, lines, line, column)
    if "quoted scalar" in context and error.context_mark and "unexpected end of stream" in problem:
        begun = error.context_mark
        return begun.line, begun.column, f"found the end of the file: the quote begun on line {begun.line + 1} is not closed"
    for number in (line, error.context_mark.line if error.context_mark else line):
        dash = NO_BLANK.match(lines[number]) if number < len(lines) else None
        if dash and dash["key"] in (None, *KEYS):
            return _no_blank(lines, number)
    missing = NO_COLON.match(lines[line]) if line < len(lines) else None
    if missing and missing["key"] in KEYS:
        return line, missing.end("key"), f"a colon is missing: `{missing['key']}: …`"
    if CONTENT in problem or END in problem:
        return _unclosed(error, lines, line, column)
    return line, column, _not_valid(error, lines, line, column) or problem


def _unclosed(error: yaml.MarkedYAMLError, lines: Sequence[str], line: int, column: int) -> Complaint:
    """A bracket that is not closed, told at the bracket where the file ends before it is; or a value that is missing between brackets."""
    match, brackets = EXPECTED.fullmatch(str(error.problem)), _open(lines, line, column)
    found = match["found"].strip("'") if match else ""
    if brackets and (found == END or OPENS[brackets[-1][0]] != found in CLOSES):
        bracket, begun = brackets[-1]
        at = (begun.line, begun.column) if found == END else (line, column)
        wanted = f"`{OPENS[bracket]}`" if match and CONTENT in match["wanted"] else f"`,` or `{OPENS[bracket]}`"
        return *at, f"expected {wanted}, found {FOUND.get(found, f'`{found}`')}: the `{bracket}` begun on line {begun.line + 1} is not closed"
    if found in CLOSES:
        return line, column, f"a `{found}` that closes nothing: remove it, or put the text in quotes"
    if found == ",":
        return line, column, "a `,` without a value before it: remove it, or write the value"
    return line, column, _not_valid(error, lines, line, column) or str(error.problem)


def _open(lines: Sequence[str], line: int, column: int) -> list[tuple[str, yaml.Mark]]:
    """The brackets that are open at a place, outermost first."""
    found: list[tuple[str, yaml.Mark]] = []
    with contextlib.suppress(yaml.YAMLError):
        for token in yaml.scan("\n".join((*lines, ""))):
            if (token.start_mark.line, token.start_mark.column) >= (line, column):
                break
            if isinstance(token, (FlowSequenceStartToken, FlowMappingStartToken)):
                found.append((token.id, token.start_mark))
            elif isinstance(token, (FlowSequenceEndToken, FlowMappingEndToken)) and found:
                found.pop()
    return found


def _colon(error: yaml.MarkedYAMLError, lines: Sequence[str], line: int, column: int) -> Complaint:
    """A colon too few, a blank too few behind one, or one in a text: told at the line that lacks it."""
    above = next((number for number in range(line - 1, -1, -1) if lines[number].strip() and not lines[number].lstrip().startswith("#")), line)
    dash = NO_BLANK.match(lines[above])
    if dash and dash["key"] in KEYS:
        return _no_blank(lines, above)
    for number in (line, line - 1, error.context_mark.line if error.context_mark else line):
        match = NO_SPACE.match(lines[number]) if 0 <= number < len(lines) else None
        if match and match["key"] in KEYS:
            key, rest = match["key"], lines[number][match.end():].strip()
            return number, match.end(), f"a space is missing after the colon: `{key}: {rest[:20]}{'…' if len(rest) > 20 else ''}`"
    if "could not find" in str(error.problem) and error.context_mark:
        return error.context_mark.line, error.context_mark.column, "a key without a colon: write `key: value`"
    return line, column, "a `:` where no key can be: check the indentation, or put text that contains `: ` in quotes"


def _no_blank(lines: Sequence[str], line: int) -> Complaint:
    text = lines[line].strip()[1:]
    return line, len(_indent(lines, line)) + 1, f"a blank is missing after the `-`: `- {text[:20]}{'…' if len(text) > 20 else ''}`"


def _not_valid(error: yaml.MarkedYAMLError, lines: Sequence[str], line: int, column: int) -> str | None:
    match, begun = EXPECTED.fullmatch(str(error.problem)), error.context_mark
    if match is None or begun is None:
        return f"not valid YAML: {error.problem} ({error.context}, begun on line {begun.line + 1})" if begun and error.context else None
    found = FOUND.get(match["found"].strip("'"), f"`{match['found'].strip(chr(39))}`")
    closing = next((mark for mark in CLOSES if f"'{mark}'" in match["wanted"]), None)
    if closing:
        return f"expected `,` or `{closing}`, found {found}: the `{CLOSES[closing]}` begun on line {begun.line + 1} is not closed"
    if "<block end>" in match["wanted"]:
        own = column == len(_indent(lines, line))
        what = "list" if "sequence" in (error.context or "") or "collection" in (error.context or "") else "mapping"
        return (f"the indentation of this line fits no line above it; the {what} around it begins on line {begun.line + 1}" if own
                else f"{found} where the value ends already: put all of the value in quotes")
    return f"not valid YAML: {error.problem} ({error.context}, begun on line {begun.line + 1})"


def _indent(lines: Sequence[str], line: int) -> str:
    text = lines[line] if line < len(lines) else ""
    return text[: len(text) - len(text.lstrip())]
