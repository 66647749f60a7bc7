"""Names as they are shown: of an element, of a pair; and text that came from outside, made harmless."""

from __future__ import annotations

import re
from typing import Literal

from gradverify.model.result import Entry, Index

Part = Literal["re", "im"] | None

ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Without terminal escape sequences and carriage returns; any other control character written as `\\x07`."""
    text = ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text).expandtabs(4)


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
