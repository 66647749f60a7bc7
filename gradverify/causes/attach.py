"""Findings with their causes, from what was measured of the subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gradverify.causes.catalogue import remedy
from gradverify.causes.elsewhere import Elsewhere, summed
from gradverify.causes.explain import explain
from gradverify.causes.pattern import Other, Pattern, Side, Value
from gradverify.evidence import Evidence
from gradverify.model.result import Cause, Finding
from gradverify.model.rule import Causes, RuleInfo
from gradverify.numerics.function.coordinates import UNITS, mirror_of, numbers, one_hot
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair
from gradverify.numerics.pairs.tally import DEVIATES, SMALLEST_DEVIATION
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import U64, Array, Mask
from gradverify.oracles.given import Given
from gradverify.subject.arguments import Argument
from gradverify.subject.differentiable import copied
from gradverify.subject.failure import UserCodeError

SIDES = (1.0, -1.0, 1.0)     # of the cotangents: a backward that keeps no more than their signs differs for the second
ROWS, DENSE = 512, 2**20  # backwards at most, and elements, where groups do not tell the elements
SAME = 2.0**-20  # relative: the same numbers, up to the roundings of any dtype from float32 on
SLACK, SLACK_LOW = 1e-8, 1e-3  # of a sum's magnitudes: roundings of float64, of float32
INSIDE = 4.0  # roundings of a pair's largest element that its small ones may be off: they needed 0.4 where tanh is differentiated in two ways
AT_ONCE = 4.0  # bars that the elements may be off a cause, which has to fit all of thousands: of 800, one was off by 3
NUMERIC = ("finite differences", "deviations")
TOLD = (Outcome.PASS, Outcome.MISMATCH)


Book = Mapping[str, RuleInfo]
"""The rules by code: what each declares of the comparison that its findings rest on."""


def with_causes(findings: Iterable[Finding], evidence: Evidence, book: Book) -> tuple[Finding, ...]:
    """The findings with their causes, and with hints that agree with them; a fault of ours costs the cause, never the finding."""
    elsewhere = Elsewhere(evidence)

    def told(finding: Finding) -> Finding:
        rests = book[finding.code].causes
        others = () if rests is None else finding.also
        bases = (rests, *(book[code].causes for code in others if book[code].causes == NUMERIC[0] != rests))
        cause = evidence.spared(f"the search for the cause of {finding.code}", lambda: _cause(finding, bases, evidence, elsewhere))
        return finding if cause is None else _explained(finding, cause, evidence, book)

    return tuple(told(finding) if finding.cause is None else finding for finding in findings)


def _explained(finding: Finding, cause: Cause, evidence: Evidence, book: Book) -> Finding:
    """With its cause; under the code of the rule whose fault the cause is."""
    told = replace(finding, cause=cause, hint=_hint(finding, cause, evidence, book[finding.code].causes))
    rule = next((info for info in book.values() if info.takes_over == cause.name), None)
    if rule is None or book[finding.code].causes != "finite differences" or not evidence.settings.looks_for(rule.code):
        return told
    return replace(told, code=rule.code, name=rule.name, also=(finding.code, *finding.also))


def _hint(finding: Finding, cause: Cause, evidence: Evidence, rests: Causes | None) -> str | None:
    """What to change in backward; the finding's own hint where a gradient may be meant so (it names `surrogate`), where the cause knows none, and
    where no finite difference says that backward is wrong, and not what it is compared with."""
    if rests in ("reference", "given numbers") and not any(
            pair.count(Outcome.MISMATCH) for (n, _), pair in evidence.jacobian.pairs.items() if evidence.inputs[n].name == finding.input):
        return finding.hint
    meant = finding.hint is not None and "`surrogate`" in finding.hint and cause.name in ("sign flipped", "scaled")
    return finding.hint if meant or evidence.surrogate is not None else remedy(cause) or finding.hint


def _cause(finding: Finding, bases: Sequence[Causes | None], evidence: Evidence, elsewhere: Elsewhere) -> Cause | None:
    """By the comparison that the finding rests on, or by one that another rule made of the same pair (`also`)."""
    if bases[0] == "linearity":
        return _of_linearity(finding, evidence)
    if evidence.spending.over:      # it would have to hold at another point, which is not afforded
        evidence.spending.unexplained.add(finding.code)
        return None
    return next((cause for rests in bases if (cause := _by(finding, rests, evidence, elsewhere)) is not None), None)


def _by(finding: Finding, rests: Causes | None, evidence: Evidence, elsewhere: Elsewhere) -> Cause | None:
    here = _seen(finding, rests, evidence)
    if here is None:
        return None
    found: list[Pattern | None] = []

    def there() -> Pattern | None:
        if not found:
            found.append(None if elsewhere.evidence is None else _seen(finding, rests, elsewhere.evidence, there=True))
        return found[0]

    cause = explain(here, there)
    if not elsewhere.afforded:
        evidence.spending.unexplained.add(finding.code)
    return cause


def _seen(finding: Finding, rests: Causes | None, evidence: Evidence, there: bool = False) -> Pattern | None:
    """The pattern of a finding, or what is its like at another point (`there`); None where its elements are not known one by one."""
    place = next((n for n, argument in enumerate(evidence.inputs) if argument.name == finding.input), None) if finding.input else None
    pair = None if place is None else _pair(finding, rests, evidence, place, there)
    if place is None or pair is None or pair.entries is None:
        return None
    entries = _bars(evidence, rests, pair.entries)
    told = _true(evidence, pair, entries) if rests in NUMERIC else entries
    return None if told is None else _pattern(finding, rests, evidence, place, pair, told, told is not entries and told.complete)


def _pair(finding: Finding, rests: Causes | None, evidence: Evidence, place: int, there: bool) -> Pair | None:
    """The comparison that a finding about values rests on."""
    if rests == "given numbers":
        if there and evidence.subject.case.oracles.expected is not None:
            return summed(evidence, place)
        compared = [oracle.pairs.get((place, None)) for oracle in evidence.oracles.values() if isinstance(oracle, Given)]
        return next((pair for pair in compared if pair is not None and pair.count(Outcome.MISMATCH)), None)
    if finding.output is None or finding.output not in evidence.forward.checked:
        return None
    output = evidence.forward.checked.index(finding.output)
    if rests in NUMERIC:
        return evidence.jacobian.pairs.get((place, output))
    return evidence.reference.rows.get((place, output)) if rests == "reference" else None


def _pattern(finding: Finding, rests: Causes | None, evidence: Evidence, place: int, pair: Pair, entries: Entries, scattered: bool) -> Pattern:
    x = evidence.inputs[place].value
    y = None if finding.output is None else evidence.outputs[pair.output]
    named = "" if finding.output is None else evidence.name_of(finding.output)
    output = Side("", ()) if y is None else Side(named, tuple(y.shape), y.is_complex())
    unit = max(pair.unit, UNITS.get(x.dtype, U64))
    return Pattern(Side(evidence.inputs[place].name, tuple(x.shape), x.is_complex()), output, entries, _wrong(rests, entries),
                   ~np.isin(entries.outcome, TOLD), unit, _values(evidence, place, y, named), _integers(evidence),
                   _others(evidence, rests, place, pair), scattered, pair.count(Outcome.MISMATCH))


def _bars(evidence: Evidence, rests: Causes | None, entries: Entries) -> Entries:
    """A fixed step has no bar: what its rule forgives stands in for it. Where autograd through a reference gives small elements, both sides rounded
    numbers of the size of the large ones on their way."""
    if rests == "reference":
        largest = np.abs(entries.numeric[np.isfinite(entries.numeric)]).max(initial=0.0)
        return replace(entries, bar=np.maximum(entries.bar, INSIDE * max(evidence.unit, U64) * largest))
    if rests not in NUMERIC:
        return entries
    if evidence.settings.eps == "auto":
        return replace(entries, bar=AT_ONCE * entries.bar)
    atol, rtol = evidence.settings.tolerances()
    return replace(entries, bar=atol + rtol * np.abs(entries.numeric), ratio=(np.inf, -np.inf))


def _true(evidence: Evidence, pair: Pair, e: Entries) -> Entries | None:
    """Elements whose analytic values are backward's own, one by one.

    Those of column groups come from compressed cotangents: right where backward is zero outside of f's structure, which one random cotangent
    tells. Else a backward for each output element, if they are few; None if not. Of a symmetric input only one triangle is here.
    """
    m, n = len(numbers(evidence.outputs[pair.output])), len(numbers(evidence.inputs[pair.input].value))
    try:
        if _adds_up(evidence, pair, e, n):
            return replace(e, complete=False) if evidence.inputs[pair.input].symmetric else e
        return _by_rows(evidence, pair, e, m) if m <= ROWS and m * n <= DENSE and pair.elements == m * n and e.complete else None
    except UserCodeError:
        return None


def _adds_up(evidence: Evidence, pair: Pair, e: Entries, n: int) -> bool:
    """Do the elements give the gradient of a random cotangent? What was not compared says nothing."""
    cotangent = evidence.cotangents("elements")[pair.output]
    parts = e.analytic * numbers(cotangent)[e.output]
    gradient, size = np.bincount(e.input, parts, n), np.bincount(e.input, np.abs(parts), n)
    slack = SLACK_LOW if evidence.unit > U64 else SLACK
    told = _moved(evidence.inputs[pair.input], _gradient(evidence, pair, cotangent))
    return bool((np.abs(told - gradient) <= slack * size + slack * slack * size.max(initial=0.0)).all())


def _moved(argument: Argument, gradient: Array) -> Array:
    """Along what moves: an off-diagonal element of a symmetric input moves with its mirror, which has no element of its own."""
    if not argument.symmetric:
        return gradient
    place, sign = mirror_of(argument.value)
    own = np.arange(len(place))
    pairs = np.where(own < place, gradient + sign * gradient[place], 0.0)
    return np.where((own == place) & (sign > 0), gradient, pairs)


def _by_rows(evidence: Evidence, pair: Pair, e: Entries, m: int) -> Entries:
    y = evidence.outputs[pair.output]
    rows = np.stack([_gradient(evidence, pair, one_hot(y.shape, y.dtype, y.device, j)) for j in range(m)])
    analytic = rows[e.output, e.input]
    missed = (e.outcome == Outcome.MISMATCH) & (np.abs(analytic - e.numeric) > e.bar)
    outcome = np.where(missed, Outcome.MISMATCH, np.where(e.outcome == Outcome.MISMATCH, Outcome.PASS, e.outcome))
    rows[e.output, e.input] = 0.0
    out, in_ = np.nonzero(rows)
    nothing, wrong = np.zeros(len(out)), np.full(len(out), Outcome.MISMATCH, np.int8)
    more = Entries.without_kinks(out, in_, rows[out, in_], nothing, nothing, nothing, nothing, wrong, {})
    return joined([replace(e, analytic=analytic, outcome=outcome.astype(np.int8), complete=True), more])


def _gradient(evidence: Evidence, pair: Pair, cotangent: Tensor) -> Array:
    x = evidence.inputs[pair.input].value
    reply = evidence.function.vjp([cotangent if k == pair.output else None for k in range(len(evidence.outputs))])[pair.input]
    return numbers(torch.zeros_like(x) if reply is None else reply)


def _wrong(rests: Causes | None, e: Entries) -> Mask:
    """The mismatches; of deviations what is off by far more than its bar."""
    if rests != "deviations":
        return np.asarray(e.outcome == Outcome.MISMATCH)
    off, size = np.abs(e.analytic - e.numeric), np.maximum(np.abs(e.analytic), np.abs(e.numeric))
    return np.asarray((e.outcome == Outcome.PASS) & (off > DEVIATES * e.bar) & (off > SMALLEST_DEVIATION * size))


def _values(evidence: Evidence, place: int, y: Tensor | None, named: str) -> tuple[Value, ...]:
    """The input itself, the other tensor arguments, the output: those that are real."""
    own = evidence.inputs[place]
    arguments = [own, *(a for a in evidence.subject.arguments if a.is_tensor and a is not own and a.name != own.name)]
    tensors = [(a.name, a.value) for a in arguments] + ([] if y is None else [(named, y)])
    return tuple(Value(_said(name), tuple(t.shape), numbers(t)) for name, t in tensors if not t.is_complex())


def _said(name: str) -> str:
    """An argument without a name is called by its number, which no sentence shall take for one."""
    return f"input {name}" if name.isdigit() else name


def _integers(evidence: Evidence) -> tuple[Value, ...]:
    given = [a for a in evidence.subject.arguments if a.is_tensor and not (a.value.is_floating_point() or a.value.is_complex())]
    return tuple(Value(a.name, tuple(a.value.shape), numbers(a.value).astype(np.int64)) for a in given if a.value.dtype != torch.bool)


def _others(evidence: Evidence, rests: Causes | None, place: int, pair: Pair) -> tuple[Other, ...]:
    """The other inputs' elements of the same comparison with finite differences."""
    if rests not in NUMERIC:
        return ()
    seen = [(evidence.inputs[n], other.entries) for (n, output), other in evidence.jacobian.pairs.items() if output == pair.output and n != place]
    return tuple(Other(a.name, tuple(a.value.shape), a.value.is_complex(), _bars(evidence, rests, entries))
                 for a, entries in seen if entries is not None and entries.complete)


def _of_linearity(finding: Finding, evidence: Evidence) -> Cause | None:
    """By a few more backwards: does backward give the same numbers for all of several different cotangents?"""
    place = next((n for n, argument in enumerate(evidence.inputs) if argument.name == finding.input), None)
    if place is None:
        return None
    try:
        cotangents = [[side * v for v in evidence.cotangents(f"ignored {n // 2}")] for n, side in enumerate(SIDES)]
        replies = [copied(evidence.function.vjp(v))[place] for v in cotangents]
    except UserCodeError:
        return None
    first, *others = [numbers(torch.zeros(0) if reply is None else reply) for reply in replies]
    size = float(np.abs(first).max(initial=0.0))
    if not np.isfinite(size) or size == 0 or not all(len(each) and (np.abs(each - first) <= SAME * size).all() for each in others):
        return None
    return Cause("ignores grad_output",
                 f"backward gives the same {len(first)} numbers for {finding.input} whatever grad_output is, for {len(replies)} of them")
