"""What results and single elements both speak of: indices, outcomes of an element, the checked function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["pass", "mismatch", "kink", "jump", "staircase", "undecided", "non_finite"]
Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """The checked function; `file` and `line` where its source could be found (an autograd Function: of its `backward`)."""

    target: str
    kind: str | None = None
    file: str | None = None
    line: int | None = None
