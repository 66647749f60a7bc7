"""The bytes of a file as text. Light: a hook that has nothing to do imports this, and not the reader of specs."""

from __future__ import annotations

from gradverify.model.problem import Problem


def decode(raw: bytes) -> str | Problem:
    """The text of a UTF-8 file (a byte order mark is dropped)."""
    if b"\0" in raw:
        return _at_byte(raw, raw.index(b"\0"), "not UTF-8 text: a NUL byte (a binary file, or UTF-16)")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _at_byte(raw, error.start, f"not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}")


def _at_byte(raw: bytes, offset: int, message: str) -> Problem:
    """The problem with the line and column of a byte, columns counted in characters."""
    before = raw[:offset].decode("utf-8-sig", errors="replace")
    line = before.replace("\r\n", "\n").replace("\r", "\n").rpartition("\n")
    return Problem(message, line=line[0].count("\n") + len(line[1]) + 1, column=len(line[2]) + 1)
