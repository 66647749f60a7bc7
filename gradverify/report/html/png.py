"""A PNG file of coloured cells, as a data URI."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

Colour = tuple[int, int, int]
SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT_RGB = b"\x08\x02\x00\x00\x00"     # depth, colour type, then the only compression, filter and no interlace (PNG, 3rd edition, 11.2.1)
UNFILTERED = b"\x00"
LEVEL = 6


def data_uri(cells: Sequence[Sequence[Colour]]) -> str:
    """One pixel a cell, rows from the top; at least one cell."""
    raw = b"".join(UNFILTERED + bytes(part for colour in row for part in colour) for row in cells)
    header = struct.pack(">II", len(cells[0]), len(cells)) + EIGHT_BIT_RGB
    image = SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(raw, LEVEL)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
