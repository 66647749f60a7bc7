"""A label of an axis or a colour bar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """`at`: units of the picture from where the axis begins."""

    at: float
    text: str
