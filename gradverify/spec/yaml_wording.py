"""PyYAML's complaints as sentences that say what to do, at the place where it is to be done."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

from gradverify.spec.schema import Check, Spec
from gradverify.spec.schema_inputs import Tensor

Complaint = tuple[int, int, str]
"""Line and column, from 0, and the sentence."""

NO_SPACE = re.compile(r"""^[\s\-{]*(?P<key>\w+):(?=[^\s:/])""")
NO_COLON = re.compile(r"""^[\s\-]*(?P<key>\w+)\s+(?=[\[{])""")
EXPECTED = re.compile(r"expected (?P<wanted>.+), but (?:got|found) (?P<found>.+)")
FOUND = {"<stream end>": "the end of the file", "<scalar>": "text", "<block end>": "the end of the block", "<block mapping start>": "a key",
         "<block sequence start>": "a list", "<block entry>": "a `-`"}
CLOSES = {"]": "[", "}": "{"}
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
        return line, column, f"the end of the file: the quote begun on line {error.context_mark.line + 1} is not closed"
    missing = NO_COLON.match(lines[line]) if line < len(lines) else None
    if missing and missing["key"] in KEYS:
        return line, missing.end("key"), f"a colon is missing: `{missing['key']}: …`"
    return line, column, _expected(error, lines, line, column) or problem


def _colon(error: yaml.MarkedYAMLError, lines: Sequence[str], line: int, column: int) -> Complaint:
    """A colon too few, a blank too few behind one, or one in a text: told at the line that lacks it."""
    for number in (line, line - 1, error.context_mark.line if error.context_mark else line):
        match = NO_SPACE.match(lines[number]) if 0 <= number < len(lines) else None
        if match and match["key"] in KEYS:
            key, rest = match["key"], lines[number][match.end():].strip()
            return number, match.end(), f"a space is missing after the colon: `{key}: {rest[:20]}{'…' if len(rest) > 20 else ''}`"
    if "could not find" in str(error.problem) and error.context_mark:
        return error.context_mark.line, error.context_mark.column, "a key without a colon: write `key: value`"
    return line, column, "a `:` where no key can stand: check the indentation, or put text that contains `: ` in quotes"


def _expected(error: yaml.MarkedYAMLError, lines: Sequence[str], line: int, column: int) -> str | None:
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
