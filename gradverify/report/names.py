"""Names as they are shown: of an element, of a finding, of its pair; and text that came from outside, made harmless."""

from __future__ import annotations

import re
from typing import Literal

from gradverify.model.result import CaseResult, Entry, Finding, Index

INTERPRETERS = {"triton": "Triton's interpreter"}
"""What computed kernels in the place of a GPU, in words."""

Part = Literal["re", "im"] | None

ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""What moves a cursor, turns text around, ends a line unasked, cannot be encoded, or may not stand in XML 1.0."""

COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#(?:|vso|teamcity)\[)", re.MULTILINE | re.IGNORECASE)
"""Where a command of GitHub Actions, Azure Pipelines or TeamCity begins."""


def clean(text: str) -> str:
    """Every character as it can be read: a control character (escape sequences are made of them) written as `\\x07`; lines end in `\\n`."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text).expandtabs(4)


def inert(text: str) -> str:
    """The text with every beginning of a command of a CI service written as an escape, of JSON too: what checked code prints, or a file is
    called, must not command whoever runs this."""
    return COMMAND.sub(lambda found: "\\u0023" if found[1] is None else f"{found[1]}\\u003a", text)


def uncolored(text: str) -> str:
    """Of what a program printed for a terminal: without its escape sequences."""
    return clean(ESCAPE_SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    """For names and ids: nothing in them may start a new line."""
    return clean(text).replace("\n", "\\n")


def element(name: str, index: Index, part: Part = None) -> str:
    """x[3,1], y0[2], z[4].real; a 0-dim tensor is its bare name."""
    place = f"[{','.join(str(i) for i in index)}]" if index else ""
    return one_line(name) + place + {None: "", "re": ".real", "im": ".imag"}[part]


def output(number: int | None, name: str | None = None) -> str:
    """Its name; y0, y1… where it has none; `y` where a comparison is over all outputs together."""
    return "y" if number is None else f"y{number}" if name is None else one_line(name)


def output_element(entry: Entry, number: int | None, name: str | None = None) -> str:
    return element(output(number, name), entry.output_index, entry.output_part)


def input_element(entry: Entry, name: str) -> str:
    return element(name, entry.input_index, entry.input_part) if name else "-"


def device_of(check: CaseResult) -> str:
    """`cpu`; `cpu, under Triton's interpreter`."""
    return check.device + (f", under {INTERPRETERS.get(check.interpreter, one_line(check.interpreter))}" if check.interpreter else "")


def title_of(found: Finding) -> str:
    """`GV101 jacobian`."""
    return one_line(f"{found.code} {found.name}".strip())


def pair_of(found: Finding) -> str:
    """`y0 / x`: the output and the input that a finding stands for, as far as it names them."""
    parts = [output(found.output, found.output_name)] if found.output is not None else []
    return " / ".join([*parts, *([one_line(found.input)] if found.input else [])])
