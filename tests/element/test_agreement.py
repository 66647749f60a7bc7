"""`explain --element` says of an element what the check says of it: elements of all kinds.

The class: a second way to judge. What excuses a pair as a whole (an inner rounding, an iteration,
ties), what a screen compared in a sum and what was passed as a zero without a solver must come to
the element too. Both ways: nothing that is wrong by construction is right in `explain`, and nothing
that is right is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from live import subject

from element.kinds import KINDS, given, of_one
from gradverify.element.explain import Requested, explain
from gradverify.evidence import Evidence
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Limit
from gradverify.rules.shown import element_name

EACH = 2  # elements of a pair, those that do not pass first
RIGHT = ("pass", "kink")


@dataclass(frozen=True)
class CheckResult:
    """What the check says of an element; numbers where it gives them."""

    outcome: str
    numeric: float | None = None
    bar: float = 0.0
    tolerance: float | None = None


def results_of(evidence, pair):
    """By (output, input) coordinate, from what the report is made of: the table of the worst, the
    map, and for the rest the counts.

    Where lines were compared, only elements that were looked at one by one. What is one infinity
    throughout is no element of the comparison.
    """
    y, x = evidence.outputs[pair.output], evidence.inputs[pair.input].value
    rows, columns = (t.numel() * (2 if t.is_complex() else 1) for t in (y, x))
    rest = CheckResult(
        "pass" if pair.count(Outcome.PASS) else pair.limits[0][0].name if pair.limits else "pass"
    )
    rest = CheckResult("undecided") if rest.outcome != "pass" else rest
    infinite = np.isinf(y.detach().reshape(-1).abs().double().numpy())
    results = (
        {}
        if pair.lines
        else {
            (j, i): rest
            for j in range(rows)
            for i in range(columns)
            if not infinite[j if rows == len(infinite) else j // 2]
        }
    )
    if pair.entries is not None:
        e = pair.entries
        for j, i, code, value, bar in zip(
            e.output.tolist(),
            e.input.tolist(),
            e.outcome.tolist(),
            e.numeric.tolist(),
            e.bar.tolist(),
            strict=True,
        ):
            results[j, i] = CheckResult(Outcome(code).name.lower(), value, bar)
    left = evidence.jacobian.left.get((pair.input, pair.output))
    for worst in pair.worst:
        results[worst.output_index, worst.input_index] = CheckResult(
            worst.outcome.name.lower(),
            worst.numeric,
            worst.bar,
            None if left or evidence.settings.eps != "auto" else worst.tolerance,
        )
    return results


def chosen(results):
    """EACH of them, spread over the pair, those that do not pass first."""
    hard = [place for place in results if results[place].outcome != "pass"]
    easy = [place for place in results if results[place].outcome == "pass"]
    order = np.random.default_rng(0).permutation(len(easy)).tolist()
    first = hard[: EACH - 1] if easy else hard[:EACH]
    return first + [easy[n] for n in order[: EACH - len(first)]]


def moved_by_itself(evidence, pair, coordinate):
    """Not the mirror image of another element of a symmetric matrix."""
    argument = evidence.inputs[pair.input]
    return not argument.symmetric or coordinate // len(argument.value) <= coordinate % len(
        argument.value
    )


def explained(kind, evidence, pair, place):
    x, y = evidence.inputs[pair.input], evidence.outputs[pair.output]
    names = (
        element_name(x.name, x.value, place[1]),
        element_name(f"y{evidence.forward.checked[pair.output]}", y, place[0]),
    )
    return explain(kind.make(), Requested(*names))


@pytest.mark.parametrize("name", list(KINDS))
def test_an_element_is_explained_as_the_check_judges_it(name):
    kind = KINDS[name]
    evidence = Evidence(kind.make())
    for pair in evidence.jacobian.pairs.values():
        results = results_of(evidence, pair)
        for place in chosen(
            {at: result for at, result in results.items() if moved_by_itself(evidence, pair, at[1])}
        ):
            element, result = explained(kind, evidence, pair, place), results[place]
            m = element.measured
            if result.outcome == "undecided" and {limit for limit, _ in pair.limits} == {
                Limit.BUDGET
            }:
                # One element by itself is within the budget
                by_construction(kind, pair, element)
                continue
            assert (m.fixed.outcome if m.fixed else m.outcome) == result.outcome, (
                place,
                element.conclusion,
            )
            assert m.verdict == (
                "pass"
                if m.outcome in RIGHT
                else "mismatch"
                if m.outcome == "mismatch"
                else "undecided"
            )
            assert element.in_check is None
            if result.numeric is not None and m.fixed:
                assert (
                    m.fixed.quotient == result.numeric
                    or np.isnan([m.fixed.quotient, result.numeric]).all()
                )
            elif result.numeric is not None:
                assert abs(m.numeric - result.numeric) <= m.bar + result.bar, (
                    place,
                    m.numeric,
                    result.numeric,
                )
            if result.tolerance is not None:
                assert m.tolerance.value == pytest.approx(result.tolerance, rel=1e-5)
            in_words(element)
            by_construction(kind, pair, element)


def in_words(element):
    """The sentence fits the verdict; of what is undecided it says why, and what would decide it."""
    m = element.measured
    if m.fixed:
        return
    if m.verdict == "undecided":
        assert element.conclusion.startswith("neither right nor wrong: ")
        [words] = [words for words in Limit if words.whole == m.limit]
        advice = words.advice
        assert advice is None or element.conclusion.endswith(f"; {advice}")
    else:
        ways = {"pass": ("right: ", "f has a kink"), "mismatch": ("wrong: ", "f has a kink")}
        assert m.limit is None and element.conclusion.startswith(ways[m.verdict])


def by_construction(kind, pair, element):
    """Nothing right is called wrong, and nothing wrong right."""
    m = element.measured
    outcome = m.fixed.outcome if m.fixed else m.outcome
    if kind.wrong == "none":
        assert outcome != "mismatch"
    if kind.wrong == "all" and pair.input == 0 and (m.analytic, m.numeric) != (0.0, 0.0):
        assert outcome not in RIGHT
    assert kind.open or outcome in (*RIGHT, "mismatch")


def small_beside_large(mode):
    """a·x of which one small coefficient is off by 1e-3, beside others 1e6 times as large in its
    row and in its column."""
    a = torch.full((2, 2), 1e4, dtype=torch.float64)
    a[1, 1] = 1e-2
    wrong = a.clone()
    wrong[1, 1] *= 1 + 1e-3
    return subject(
        of_one(lambda x: a @ x.sin(), lambda x, g: (wrong.T @ g) * x.cos()),
        given(0.3, 0.7),
        mode=mode,
    )


@pytest.mark.parametrize("mode", ["rows", "blocks"])
def test_an_element_too_little_wrong_for_its_line_is_wrong_by_itself_and_the_check_is_quoted(mode):
    made = small_beside_large(mode)
    assert all(
        pair.count(Outcome.PASS) == pair.elements for pair in Evidence(made).jacobian.pairs.values()
    )
    element = explain(made, Requested("x[1]", "y0[1]"))
    assert element.measured.outcome == "mismatch" and element.conclusion.startswith("wrong: ")
    assert element.in_check.startswith(
        f"in the whole check the {mode[:-1]} that holds it passes. Could miss an entry wrong by "
        "less than "
    )
    assert (
        f"the check compares {mode}, each as a sum; here the element is judged by itself"
        in element.notes
    )
    right = explain(made, Requested("x[0]", "y0[0]"))
    assert right.measured.outcome == "pass" and right.in_check is None


def test_what_an_iteration_leaves_is_told_as_that():
    element = explain(KINDS["an iteration's start"].make(), Requested("w[1]", "y0[1]"))
    assert (
        element.measured.outcome == "pass"
        and element.measured.error > element.measured.tolerance.value
    )
    assert element.conclusion == (
        "right: 7e-12 away from the finite difference, as an iteration may leave it, small "
        "compared with its row"
    )


def test_a_zero_that_an_inner_rounding_may_hide_is_open_in_explain_too():
    for name in ("asleep, zero", "asleep with a domain, zero"):
        element = explain(KINDS[name].make(), Requested("x[2]", "y0[0]"))
        assert (element.measured.analytic, element.measured.verdict) == (0.0, "undecided")
        assert "f moves in steps of the rounding of larger numbers inside it" in element.conclusion


def test_of_an_undecided_element_the_numbers_the_reason_and_the_way_out_are_one_sentence():
    conclusion = explain(KINDS["noise"].make(), Requested("x[0]", "y0[0]")).conclusion
    assert conclusion.startswith("neither right nor wrong: the numeric value is 0.54")
    assert (
        ", the tolerance 5.4e-07; the forward's own noise is larger than the tolerance; compute in "
        "float64 inside, "
    ) in conclusion
