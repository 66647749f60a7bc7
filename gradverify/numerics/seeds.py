"""Random numbers by purpose: every draw has its own generator, so that an additional draw changes
no other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np


def number(seed: int, check: str, purpose: str) -> int:
    """Return the seed of the generator of one purpose: 56 bits."""
    digest = hashlib.sha256(f"{seed}\0{check}\0{purpose}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


@dataclass(frozen=True)
class Seed:
    """The seed and the name of a check. `stage`: the prefix of all purposes."""

    seed: int = 0
    check: str = ""
    stage: str = ""

    def within(self, purpose: str, *which: object) -> Seed:
        """Return the seed of one stage, whose purposes are separate."""
        return replace(self, stage=f"{self._named(purpose, which)}, ")

    def generator(self, purpose: str, *which: object) -> np.random.Generator:
        """Return the generator of one purpose; `which` distinguishes several draws with the same
        purpose."""
        return np.random.Generator(
            np.random.PCG64(number(self.seed, self.check, self._named(purpose, which)))
        )

    def _named(self, purpose: str, which: tuple[object, ...]) -> str:
        return self.stage + " ".join([purpose, *map(str, which)])
