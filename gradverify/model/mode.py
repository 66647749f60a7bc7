"""How a Jacobian is compared: element by element, or in sums that hold an element each."""

from __future__ import annotations

from enum import Enum
from typing import Literal, get_args

Lines = Literal["columns", "rows", "blocks"]
"""What is compared, where that is not elements; columns where gradients are compared with those of a reference."""
Asked = Literal["auto", "entries", "rows", "blocks"]
"""What a spec may ask for; `auto` chooses the strongest that the budget affords."""
ASKED: tuple[Asked, ...] = get_args(Asked)


class Mode(Enum):
    """The comparisons, strongest first."""

    ENTRIES = "entries"
    ROWS = "rows"
    BLOCKS = "blocks"

    @property
    def lines(self) -> Literal["", Lines]:
        """What it compares, where that is not elements."""
        return "" if self is Mode.ENTRIES else self.value
