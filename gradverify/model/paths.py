"""Files as a report names them."""

from __future__ import annotations

import os


def shown_path(file: str) -> str:
    """Relative to the current folder where it lies inside."""
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
