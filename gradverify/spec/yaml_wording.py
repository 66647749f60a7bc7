"""PyYAML's complaints as sentences that say what to do, at the place where it is to be done."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

import yaml
from yaml.tokens import FlowMappingEndToken, FlowMappingStartToken, FlowSequenceEndToken, FlowSequenceStartToken

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
    return line, column, _expected(error, lines, line, column) or problem


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
    return line, column, _expected(error, lines, line, column) or str(error.problem)


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
