"""Where Python looks for modules."""

from __future__ import annotations

import sys


def python_path() -> list[str]:
    """`sys.path` as Python itself reads it: entries that are no text (a `Path` that somebody inserted) are passed over."""
    return [entry for entry in sys.path if isinstance(entry, str)]
