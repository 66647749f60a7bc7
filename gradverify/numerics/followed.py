"""What became of the flagged lines of one pair, each counted once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gradverify.numerics.columns.costs import Mode
from gradverify.numerics.rungs import Index


@dataclass
class Lines:
    """`named`: lines found wrong, each once, `believed`: those said wrong unasked; `open`: neither right nor wrong, strays among them;
    `doubted`: the blocks of those that stay open; `bent`: blocks of one entry that is right at a kink; `told`: entries that were judged.
    """

    named: set[int] = field(default_factory=set)
    believed: int = 0
    cleared: int = 0
    open: int = 0
    doubted: set[int] = field(default_factory=set)
    bent: set[int] = field(default_factory=set)
    told: set[tuple[int, int]] = field(default_factory=set)

    @property
    def wrong(self) -> int:
        return len(self.named) + self.believed

    def leave_open(self, mode: Mode, lines: Index, blocks: Index) -> None:
        """Counts each of these lines once, of which the `blocks` are known: the block that verifies a line is not another one."""
        self.open += len(lines) if mode is not Mode.BLOCKS else int((~np.isin(blocks, list(self.doubted | self.bent))).sum())
        self.doubted |= set(blocks.tolist())

    def fresh(self, column: Index, out: Index) -> Index:
        """Which of these entries [E] nobody has told of yet; from now on they are told."""
        places = list(zip(column.tolist(), out.tolist(), strict=True))
        new = np.array([n for n, place in enumerate(places) if place not in self.told], np.intp)
        self.told.update(places)
        return new
