"""The bytes of a file as text. Light: a hook that has nothing to do imports this, and not the reader of specs."""

from __future__ import annotations

import codecs

from gradverify.model.problem import Problem

HEAD = 4096  # bytes by which UTF-16 without a byte order mark is known: half of them are NUL
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decode(raw: bytes) -> str | Problem:
    """The text of a UTF-8 file (a byte order mark is dropped)."""
    if raw.startswith(UTF16):
        return Problem("UTF-16 text: save the file as UTF-8", line=1, column=1)
    if any(len(raw) > 1 and half.count(0) > len(half) // 2 and raw.count(0) < len(raw) * 3 // 4 for half in (raw[0:HEAD:2], raw[1:HEAD:2])):
        return Problem("UTF-16 text without a byte order mark: save the file as UTF-8", line=1, column=1)
    if b"\0" in raw:
        return _at_byte(raw, raw.index(b"\0"), "a binary file, not YAML: a NUL byte")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _at_byte(raw, error.start, f"not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}")


def _at_byte(raw: bytes, offset: int, message: str) -> Problem:
    """The problem with the line and column of a byte, columns counted in characters."""
    before = raw[:offset].decode("utf-8-sig", errors="replace")
    line = before.replace("\r\n", "\n").replace("\r", "\n").rpartition("\n")
    return Problem(message, line=line[0].count("\n") + len(line[1]) + 1, column=len(line[2]) + 1)
