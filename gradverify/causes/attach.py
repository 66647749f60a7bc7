"""Attach causes to findings, from the measurements of the subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from gradverify.causes.mistakes import explain, remedy
from gradverify.causes.pattern import Pattern, Side, Value
from gradverify.evidence import Evidence
from gradverify.model.result import Cause, Finding
from gradverify.model.rule import Causes, RuleInfo
from gradverify.numerics.function.coordinates import UNITS, numbers, one_hot
from gradverify.numerics.pairs.pair import (
    DEVIATES,
    SMALLEST_DEVIATION,
    Entries,
    Outcome,
    Pair,
    without_kinks,
)
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import U64, Array, Mask
from gradverify.subject.another import other_points
from gradverify.subject.differentiable import copied
from gradverify.subject.failure import Spent, tried

# Signs of the cotangents: a backward that depends on their signs alone differs for the second
SIDES = (1.0, -1.0, 1.0)
# Most backwards, and most elements, where groups do not give the elements individually
ROWS, DENSE = 512, 2**20
SAME = 2.0**-20  # relative: equal numbers, up to the roundings of float32 or wider
SLACK, SLACK_LOW = 1e-8, 1e-3  # of a sum's magnitudes: roundings of float64, of float32
# Bars by which elements may deviate from a cause, which has to fit thousands of them: of 800, one
# was off by 3
AT_ONCE = 4.0

Book = Mapping[str, RuleInfo]
"""The rules by code, with the kind of comparison that each declares for its findings."""


class Elsewhere:
    """The second point, at which a cause must hold too: the same function at other arguments.

    It is measured once, for the first cause that needs it, if the budget allows.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._here, self.afforded = evidence, True

    @cached_property
    def evidence(self) -> Evidence | None:
        """The evidence at the second point; None where the function is defined at no other point,
        or where the budget does not allow it."""
        here, choice = self._here, self._here.choice
        forward, backward = (choice.cost.forward, choice.cost.backward) if choice else (0, 0)

        def alike(there: Evidence) -> bool:
            own = there.infinite == here.infinite and there.forward.checked == here.forward.checked
            return own and bool(there.jacobian.pairs)

        try:
            with here.spending.bound(forward, backward):
                points = map(here.at, other_points(here.subject))
                return next((there for there in points if tried(alike, there)), None)
        except Spent:
            self.afforded = False
            return None


def with_causes(findings: Iterable[Finding], evidence: Evidence, book: Book) -> tuple[Finding, ...]:
    """Return the findings with their causes, and with hints that agree with these. A fault of
    gradverify costs the cause, never the finding."""
    elsewhere = Elsewhere(evidence)

    def explained(finding: Finding) -> Finding:
        rests = book[finding.code].causes
        if finding.cause is not None or rests is None:
            return finding
        cause = evidence.spared(
            f"the search for the cause of {finding.code}",
            lambda: _cause(finding, rests, evidence, elsewhere),
        )
        if cause is None:
            return finding
        hint = finding.hint if evidence.surrogate is not None else remedy(cause) or finding.hint
        found = replace(finding, cause=cause, hint=hint)
        rule = next((info for info in book.values() if info.takes_over == cause.name), None)
        if (
            rule is None
            or rests != "finite differences"
            or not evidence.settings.looks_for(rule.code)
        ):
            return found
        return replace(found, code=rule.code, name=rule.name, also=(finding.code, *finding.also))

    return tuple(map(explained, findings))


def _cause(
    finding: Finding, rests: Causes, evidence: Evidence, elsewhere: Elsewhere
) -> Cause | None:
    """Return the cause of a finding, by the comparison with finite differences also where backward
    differs from another oracle; None where none is found."""
    if rests == "linearity":
        return _of_linearity(finding, evidence)
    if evidence.spending.over:  # nothing is left for the second point, at which it must hold too
        evidence.spending.unexplained.add(finding.code)
        return None
    here = _seen(finding, rests, evidence)

    @cache
    def there() -> Pattern | None:
        return None if elsewhere.evidence is None else _seen(finding, rests, elsewhere.evidence)

    cause = None if here is None or not here.wrong.any() else explain(here, there)
    if not elsewhere.afforded:
        evidence.spending.unexplained.add(finding.code)
    return cause


def _seen(finding: Finding, rests: Causes, evidence: Evidence) -> Pattern | None:
    """Return the pattern of a finding; None where its elements are not known individually."""
    place = evidence.place_of(finding.input)
    if place is None or (argument := evidence.inputs[place]).symmetric:
        return None
    checked = evidence.forward.checked
    pairs = evidence.jacobian.pairs
    wrong = (
        checked[output]
        for (n, output), pair in pairs.items()
        if n == place and pair.count(Outcome.MISMATCH)
    )
    number = next(wrong, None) if finding.output is None else finding.output
    pair = pairs.get((place, checked.index(number))) if number in checked else None
    if number is None or pair is None or pair.entries is None:
        return None
    kept = _bars(evidence, pair.entries)
    entries = _true(evidence, pair, kept)
    if entries is None:
        return None
    x, y, name = argument.value, evidence.outputs[pair.output], evidence.name_of(number)
    others = [
        (_side(evidence.inputs[n].name, evidence.inputs[n].value), _bars(evidence, e))
        for (n, output), each in pairs.items()
        if output == pair.output and n != place and (e := each.entries) is not None and e.complete
    ]
    unknown = ~np.isin(entries.outcome, (Outcome.PASS, Outcome.MISMATCH))
    tensors = {
        each.name: each.value for each in (argument, *evidence.subject.arguments) if each.is_tensor
    } | {name: y}
    values = [
        Value(f"input {each}" if each.isdigit() else each, tuple(t.shape), numbers(t))
        for each, t in tensors.items()
        if not t.is_complex()
    ]
    integers = [
        Value(a.name, tuple(a.value.shape), numbers(a.value).astype(np.int64))
        for a in evidence.subject.arguments
        if a.is_tensor
        and a.value.dtype != torch.bool
        and not (a.value.is_floating_point() or a.value.is_complex())
    ]
    return Pattern(
        _side(argument.name, x),
        _side(name, y),
        entries,
        _wrong(rests, entries),
        unknown,
        max(pair.unit, UNITS.get(x.dtype, U64)),
        values,
        integers,
        others,
        entries is not kept,
        pair.count(Outcome.MISMATCH),
    )


def _side(name: str, x: Tensor) -> Side:
    return Side(name, tuple(x.shape), x.is_complex())


def _bars(evidence: Evidence, entries: Entries) -> Entries:
    """Return the elements with the bars that causes are judged by; under a fixed step, which has
    none, the error that its tolerance allows."""
    if evidence.settings.eps == "auto":
        return replace(entries, bar=AT_ONCE * entries.bar)
    atol, rtol = evidence.settings.tolerances()
    return replace(entries, bar=atol + rtol * np.abs(entries.numeric), ratio=(np.inf, -np.inf))


def _true(evidence: Evidence, pair: Pair, e: Entries) -> Entries | None:
    """Return the elements with analytic values that are backward's own for each of them.

    Values from groups come from compressed cotangents, and are right if backward is zero outside of
    f's structure, which one random cotangent tests. Otherwise they are computed by one backward for
    each output element, if these are few; None if not. Raises UserCodeError.
    """
    y = evidence.outputs[pair.output]
    m = len(numbers(evidence.outputs[pair.output]))
    n = len(numbers(evidence.inputs[pair.input].value))
    cotangent = evidence.cotangents("elements")[pair.output]
    parts = e.analytic * numbers(cotangent)[e.output]
    gradient, size = np.bincount(e.input, parts, n), np.bincount(e.input, np.abs(parts), n)
    slack = SLACK_LOW if evidence.unit > U64 else SLACK
    off = np.abs(_gradient(evidence, pair, cotangent) - gradient)
    if (off <= slack * size + slack * slack * size.max(initial=0.0)).all():
        return e
    if not e.complete or m > ROWS or m * n > DENSE or pair.elements != m * n:
        return None
    rows = np.stack(
        [_gradient(evidence, pair, one_hot(y.shape, y.dtype, y.device, j)) for j in range(m)]
    )
    analytic, wrong = rows[e.output, e.input], e.outcome == Outcome.MISMATCH
    outcome = np.where(wrong & (np.abs(analytic - e.numeric) <= e.bar), Outcome.PASS, e.outcome)
    rows[e.output, e.input] = 0.0
    out, in_ = np.nonzero(rows)
    nothing, wrong = np.zeros(len(out)), np.full(len(out), Outcome.MISMATCH, np.int8)
    numbers_of = (rows[out, in_], nothing, nothing, nothing, nothing)
    more = Entries(out, in_, *numbers_of, *without_kinks(wrong, {}))
    return joined(
        [replace(e, analytic=analytic, outcome=outcome.astype(np.int8), complete=True), more]
    )


def _gradient(evidence: Evidence, pair: Pair, cotangent: Tensor) -> Array:
    x = evidence.inputs[pair.input].value
    reply = evidence.function.vjp(
        [cotangent if k == pair.output else None for k in range(len(evidence.outputs))]
    )[pair.input]
    return numbers(torch.zeros_like(x) if reply is None else reply)


def _wrong(rests: Causes, e: Entries) -> Mask:
    """Return the mask of wrong elements: the mismatches, or, for deviations, elements that are off
    by far more than their bar."""
    if rests != "deviations":
        return np.asarray(e.outcome == Outcome.MISMATCH)
    off, size = np.abs(e.analytic - e.numeric), np.maximum(np.abs(e.analytic), np.abs(e.numeric))
    return np.asarray(
        (e.outcome == Outcome.PASS) & (off > DEVIATES * e.bar) & (off > SMALLEST_DEVIATION * size)
    )


def _of_linearity(finding: Finding, evidence: Evidence) -> Cause | None:
    """Return the cause that backward ignores grad_output, if it gives the same numbers for several
    different cotangents; else None. Raises UserCodeError."""
    place = evidence.place_of(finding.input)
    if place is None:
        return None
    cotangents = [
        [side * v for v in evidence.cotangents(f"ignored {n // 2}")] for n, side in enumerate(SIDES)
    ]
    replies = [copied(evidence.function.vjp(v))[place] for v in cotangents]
    first, *others = [numbers(torch.zeros(0) if reply is None else reply) for reply in replies]
    size = float(np.abs(first).max(initial=0.0))
    if (
        not np.isfinite(size)
        or size == 0
        or not all(len(each) and (np.abs(each - first) <= SAME * size).all() for each in others)
    ):
        return None
    anew = evidence.function.once(cotangents[1])[1][place]
    if anew is not None and (np.abs(numbers(anew) - first) > SAME * size).any():
        return Cause(
            "keeps its first gradient",
            f"a further backward of one graph gives the {len(first)} numbers of the first one for "
            f"{finding.input}, whatever grad_output is; on a graph of its own it does not",
        )
    return Cause(
        "ignores grad_output",
        f"backward gives the same {len(first)} numbers for {finding.input} whatever grad_output "
        f"is, for {len(replies)} of them",
    )
