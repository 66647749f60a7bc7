"""Undecided entries of a flagged line that are known as well as the screen asks of the line."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.flagged.column_row_block import FlaggedBlocks
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.probing.thresholds import SCREEN_LOW, screen_of
from gradverify.numerics.verdict import Verdict


def known_to_the_screen(lines: FlaggedBlocks, entries: Judged) -> Judged:
    """Undecided entries that are known to what a screen asks of their row are right: a zero's bar may be wider than its floor."""
    i = np.flatnonzero((entries.verdict == Verdict.UNDECIDED) & entries.derivative.smooth & np.isfinite(entries.analytic))
    if not i.size:
        return entries
    run, d, outputs = lines.run, entries.derivative.take(i), entries.out[i]
    c = run.point.columns
    rows = {j: float(np.linalg.norm(np.nan_to_num(run.point.row(j), posinf=0.0, neginf=0.0) * c.scale)) for j in np.unique(outputs).tolist()}
    norm = np.array([rows[j] for j in outputs.tolist()]) / c.scale[entries.column[i]]
    share = SCREEN_LOW if run.low_values()[lines.part].any() else screen_of(run.point)
    return entries.passed(i[np.isfinite(norm) & (np.abs(entries.analytic[i] - d.value) + d.bar <= share * norm)])
