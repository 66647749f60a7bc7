"""What the exit codes of a run mean, without anything that takes long to import."""

from __future__ import annotations

OK, WRONG, USAGE, NOT_JUDGED, INTERNAL, NOTHING_CHECKED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
SIGNALLED = 128     # and the number of the signal that ended a run: 130, 143
OF_VERDICTS = (WRONG, NOT_JUDGED, NOTHING_CHECKED)      # what `--exit-zero` forgives; not usage, faults and interrupts
