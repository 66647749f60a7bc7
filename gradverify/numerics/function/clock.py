"""How long a call takes: the least of several, and without the time that the machine gave to others meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter, process_time

SLICE = 2e-3  # seconds: a shorter call mostly runs undivided (beside six busy loops the least of 25 calls of 1.4 ms: 1.34 to 1.42; of 25 ms: to 438)
SCHEDULED = Path("/proc/thread-self/schedstat")  # of Linux: nanoseconds run, nanoseconds waited for a processor, slices


def waited() -> float:
    """Seconds that this thread was ready to run and did not; 0 where the system does not tell."""
    try:
        return int(SCHEDULED.read_bytes().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass(frozen=True)
class Clock:
    """Seconds since some moment, and those of them that went to other programs; CPU seconds of this process; seconds until which `timeout` counts."""

    now: Callable[[], float] = perf_counter
    waited: Callable[[], float] = waited
    cpu: Callable[[], float] = process_time
    wall: Callable[[], float] = monotonic


class Stopwatch:
    """`fastest`: seconds of the fastest call so far; infinite where there was none. `calls`: how many were timed."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.fastest = clock, math.inf
        self.calls = 0
        self._began = self._waited = 0.0

    def start(self) -> None:
        self._began = self.clock.now()
        self._waited = self.clock.waited() if SLICE < self.fastest < math.inf else math.inf  # short calls are not worth asking

    def stop(self) -> None:
        lost = self.clock.waited() - self._waited if self._waited < math.inf else 0.0
        took = self.clock.now() - self._began - lost
        self.calls += 1
        if took < self.fastest:
            self.fastest = max(took, 0.0)
