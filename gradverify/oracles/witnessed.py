"""What torch's own derivative of the forward decides of elements that finite differences leave open.

Finite differences stay the judge. The witness is heard where they resolve the derivative to a small share of its row and only not to the tolerance,
and of a pair where it lies within their bar on *every* element. What then agrees with it to rounding, throughout the pair, is right. Where single
elements of a noisy pair are off by little beside their row, and all of it agrees with the witness to rounding, they are the noise's, and open too.
How far backward is from it is noted also of pairs that finite differences decide, if its rows are there anyway: for the reader, not the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.pairs.pair import OPEN, Outcome, Pair
from gradverify.numerics.pairs.revised import passed, with_undecided
from gradverify.numerics.pairs.values import Entries
from gradverify.numerics.rungs import U64, Array, Index
from gradverify.numerics.verdict import Limit
from gradverify.oracles.accused import CALLS, GROSS, Suspect, gross, rejected, with_mismatches
from gradverify.oracles.along import parts, real_size
from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes
from gradverify.oracles.witness import Absent, Witness, witness
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject

ROUGH = (Outcome.KINK, Outcome.JUMP, Outcome.NON_FINITE)       # a pair that has one is not asked about
NOISY = frozenset({Limit.NOISE, Limit.STAIRCASE, Limit.TRUNCATION, Limit.CANCELS, Limit.ALONE})
"""What the forward's own rounding and curvature leave open; all else (kinks, ends, buffers, budgets) is not for a derivative at the point to say."""

RESOLVED = 2.0**-10     # of the largest derivative of its row: a bar that is wider knows too little (measured with noise of 1e-9: up to 7e-4)
ROUNDINGS = 64.0        # of that largest derivative: two right ways to compute one (measured on the benchmark's functions: up to 6)
BEFORE = 8      # calls of the witness before its rows
ROWS = 1024             # outputs of a pair, each a backward
NOTHING = np.zeros(0, np.intp)


def beside_witness(found: Jacobian, subject: Subject, checked: Sequence[int], outputs: Sequence[Tensor], wishes: Wishes,
                   short_of: Callable[[int], bool], function: Gives | None = None) -> Jacobian:
    """The comparison with what the witness decides. It is called where something is open that it may speak of, and nothing is wrong beside it.

    `short_of`: would so many calls be more than the budget allows? `function`: with its backward, which may then be called wrong too.
    """
    asked = [key for key, pair in found.pairs.items() if _may_be_asked(pair, outputs, wishes)]
    if not asked or found.choice is None or any(pair.count(Outcome.MISMATCH) for key, pair in found.pairs.items() if key not in asked):
        return found
    if short_of(BEFORE + sum(real_size(outputs[place]) for place in {output for _, output in asked})):
        return replace(found, unwitnessed="the budget does not allow it")
    with witness(subject, checked, outputs, wishes) as called:
        if isinstance(called, Absent):
            return replace(found, unwitnessed=called.reason)
        told = {output for _, output in asked}
        beside = [pair for pair in found.pairs.values() if pair.output in told and _is_whole(pair, wishes)]
        try:
            heard = _Rows(called, subject.inputs, outputs, wishes).heard(beside)
        except UserCodeError as error:
            return replace(found, unwitnessed=error.message)
        pairs = {key: replace(pair, apart=heard[key].apart) if key in heard else pair for key, pair in found.pairs.items()}
        wrong = [key for key in asked if pairs[key].count(Outcome.MISMATCH)]
        decided = {key: with_undecided(pairs[key], Outcome.MISMATCH, Limit.NOISE) for key in wrong if heard[key].excuses}
        decided |= {key: _passed(pairs[key]) for key in asked if key not in wrong and heard[key].confirms}
        if function is not None and not wrong:
            suspects = {key: Suspect(pairs[key], heard[key].wrong) for key in asked if heard[key].accuses}
            decided |= {key: with_mismatches(one) for key, one in suspects.items()
                        if one.shown and not short_of(CALLS) and _is_rejected(one, function, called, wishes, subject)}
    return replace(found, pairs={**pairs, **decided})


def _is_rejected(one: Suspect, function: Gives, called: Witness, wishes: Wishes, subject: Subject) -> bool:
    source = generator(subject.case.settings.seed, subject.case.check, f"beside the witness {one.pair.input} {one.pair.output}")
    try:
        return rejected(one, function, called, wishes, source)
    except UserCodeError:
        return False


def _may_be_asked(pair: Pair, outputs: Sequence[Tensor], wishes: Wishes) -> bool:
    own = {limit for limit, _ in pair.limits}
    return _is_whole(pair, wishes) and bool(pair.count(*OPEN)) and own <= NOISY and real_size(outputs[pair.output]) <= ROWS


def _is_whole(pair: Pair, wishes: Wishes) -> bool:
    """Can it be held against the witness, element by element?"""
    whole = pair.entries is not None and pair.entries.complete and not pair.lines and not pair.masked
    return whole and not pair.count(*ROUGH) and pair.unit <= U64 and not wishes.symmetric[pair.input]


@dataclass(frozen=True)
class _Heard:
    """What the witness says of a pair, or of rows of it.

    `apart`: how far backward is from it, as a share of the largest derivative of the row, 0 where that is rounding; `within`: it lies within
    every bar, and the bars of open elements are narrow enough; `wrong`: the kept entries that are open, and grossly off it;
    `near`: every mismatch is off its finite difference by no more than noise beside its row.
    """

    apart: float = 0.0
    within: bool = True
    wrong: Index = field(default_factory=NOTHING.copy)
    near: bool = True

    @property
    def confirms(self) -> bool:
        return self.within and not self.apart

    @property
    def excuses(self) -> bool:
        """Are its mismatches what noise does, of which the pair's open elements tell?"""
        return self.near and not self.apart

    @property
    def accuses(self) -> bool:
        return self.within and bool(self.wrong.size)

    def __and__(self, other: _Heard) -> _Heard:
        return _Heard(max(self.apart, other.apart), self.within and other.within, np.concatenate([self.wrong, other.wrong]),
                      self.near and other.near)


class _Rows:
    """The witness's rows beside the entries of pairs."""

    def __init__(self, called: Witness, inputs: Sequence[Tensor], outputs: Sequence[Tensor], wishes: Wishes) -> None:
        self._witness, self._outputs = called, outputs
        self._own = parts(inputs)
        columns = columns_of(inputs, wishes.domains, [False] * len(inputs))
        self._size = [columns.size[columns.of(place)] for place in range(len(inputs))]

    def heard(self, pairs: Sequence[Pair]) -> dict[tuple[int, int], _Heard]:
        """What it says of each of them. Raises UserCodeError (GV003)."""
        found = {(pair.input, pair.output): _Heard() for pair in pairs}
        for output in dict.fromkeys(pair.output for pair in pairs):
            own = {pair.input: (pair.entries, _by_row(pair.entries)) for pair in pairs if pair.output == output and pair.entries is not None}
            for row in range(real_size(self._outputs[output])):
                derivatives = self._witness.row(output, row)
                for place, (entries, by_row) in own.items():
                    found[place, output] &= self._beside(place, derivatives[self._own[place]], entries, by_row.get(row, NOTHING))
        return found

    def _beside(self, place: int, derivatives: Array, entries: Entries, kept: Index) -> _Heard:
        """One row of a pair [N]; `kept`: its entries; all others are zero on both sides."""
        size = self._size[place]
        reach = float((np.abs(derivatives) * size).max(initial=0.0))
        if not np.isfinite(derivatives).all():
            return _Heard(np.inf, False)
        seen = entries.take(kept)
        i = seen.input
        analytic, unseen = np.zeros_like(derivatives), derivatives.copy()
        analytic[i], unseen[i] = seen.analytic, 0.0
        rounding = ROUNDINGS * U64 * reach
        near = np.abs(derivatives[i] - seen.numeric) <= seen.bar + rounding / size[i]
        narrow = (seen.bar * size[i] <= RESOLVED * reach) | ~np.isin(seen.outcome, OPEN)
        off = float((np.abs(derivatives - analytic) * size).max(initial=0.0))
        within = bool((near & narrow).all() and (np.abs(unseen) * size <= rounding).all())
        missed = (seen.outcome == Outcome.MISMATCH) & ~(np.abs(seen.analytic - seen.numeric) * size[i] <= GROSS * reach)
        return _Heard(0.0 if off <= rounding else off / reach if reach else np.inf, within, kept[gross(seen, derivatives[i], size[i], reach)],
                      not missed.any())


def _by_row(entries: Entries) -> dict[int, Index]:
    order = np.argsort(entries.output, kind="stable")
    rows, first = np.unique(entries.output[order], return_index=True)
    parts = np.split(order, first[1:]) if len(order) else []
    return {int(row): np.sort(part) for row, part in zip(rows, parts, strict=True)}


def _passed(pair: Pair) -> Pair:
    """With what was open as passes."""
    return replace(passed(pair), witnessed=pair.count(*OPEN))
