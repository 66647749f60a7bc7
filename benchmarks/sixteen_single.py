"""The same operators in float32, judged as a user's check with `dtype: float32` and default
tolerances is: by its verdict."""

from __future__ import annotations

import sys
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

import sixteen_set as kit
import torch
from sixteen_judges import WIDE, Point, function_of, pulled
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.numerics.pairs.pair import Outcome
from gradverify.verify import evidence_of, verify

SIZES = (3.0, 1e2, 1e4, 1e6)  # native errors: a mistake counts above the first
CLASSES = (*(f"up to {size:g}" for size in SIZES), "more")
# Errors that are said of the function: a number that is none
FINITE = frozenset({"GV006", "GV103"})
# Seeds on which gradcheck is asked, and right ways are judged without a reference too
FEW = 1
WITHIN = 1e-3  # the default `rtol` of a check in float32


def said(point: Point, how: str, reference: bool, *, wrong: bool) -> str:
    """passed, undecided or caught. Of a `wrong` one it is asked first what GV105 and GV106 would
    find: no other rule takes that back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if wrong and reference and _differs(evidence_of(point.subject(how, reference))):
            return "caught"
        result = verify(point.subject(how, reference), briefly=wrong)
    if result.verdict == "fail" or any(each.code in FINITE for each in result.findings):
        return "caught"
    return "passed" if result.verdict == "pass" else "undecided"


def _differs(evidence: Evidence) -> bool:
    """Is a value or a derivative another one than the reference's?"""
    seen = evidence.reference
    values = any(
        isinstance(each, str) or each.count(Outcome.MISMATCH) for each in seen.value_pairs.values()
    )
    return values or any(pair.count(Outcome.MISMATCH) for pair in seen.rows.values())


def size_of(excess: float) -> str:
    """Its class."""
    return CLASSES[bisect_left(SIZES, excess)]


def counted(
    name: str, seed: int, few: int, right: Sequence[str], wrong: Sequence[str]
) -> Counter[str]:
    """Of all ways to compute an operator at one point. What is not as it should be is told on
    stderr."""
    counts, point = Counter[str](), Point(name, torch.float32, seed)
    for how in right:
        _, close, three = point.others(how)
        counts.update({f"{how} each": 1, f"{how} close": close, f"{how} three": three})
        if seed < few:
            counts.update({f"{how} few": 1, f"{how} gradcheck": point.gradcheck(how)})
        for reference in (False, True) if seed < few else (True,):
            verdict = said(point, how, reference, wrong=False)
            counts.update({f"{how} {reference} {verdict}": 1})
            if verdict != "passed":
                print(
                    f"  {verdict}, right: {name} seed {seed} {how}, reference {reference}",
                    file=sys.stderr,
                    flush=True,
                )
    wide = Point(name, torch.float32, seed, WIDE["no maximum"])
    for how in wrong:
        counts.update(_of_mistake(wide if how in WIDE else point, how, few))
    return counts


def _of_mistake(point: Point, how: str, few: int) -> dict[str, int]:
    excess, close, three = point.others(how)
    verdict, above = said(point, how, True, wrong=True), excess > SIZES[0]
    tolerable = above and verdict == "passed" and within(point, how)
    if above and verdict != "caught":
        print(
            f"  {verdict}, wrong: {point.name} seed {point.seed} {how}, {excess:.3g} × the native "
            f"error, within the tolerance: {tolerable}",
            file=sys.stderr,
            flush=True,
        )
    seen = {
        "all": True,
        "above": above,
        f"size {size_of(excess)} {verdict}": True,
        f"above {verdict}": above,
        "above within": tolerable,
        "close": above and close,
        "three": above and three,
    }
    if point.seed < few:
        seen |= {"few": above, "gradcheck": above and point.gradcheck(how)}
    return {f"{how} {key}": int(value) for key, value in seen.items()}


def within(point: Point, how: str) -> bool:
    """Is no value and no derivative off by more than the default tolerance, of itself or of the
    largest of its row? By torch, in float64."""
    mine, exact = (
        _jacobian(function, inputs)
        for function, inputs in (
            (function_of(point.name, how), point.inputs),
            (kit.plain(point.name), [x.detach().double() for x in point.inputs]),
        )
    )
    return all(
        bool(((a - b).abs() <= WITHIN * b.abs().amax(-1, keepdim=True)).all())
        for a, b in zip(mine, exact, strict=True)
    )


def _jacobian(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Values in their rows, and for each input the rows of its Jacobian."""
    y = function(*inputs)
    pulls = [
        pulled(function, inputs, each.reshape(y.shape))
        for each in torch.eye(y.numel(), dtype=torch.float64)
    ]
    values = pulls[0][0].reshape(-1, y.shape[-1] if y.dim() else 1)
    return [
        values,
        *(
            torch.stack([pull[place].flatten() for pull in pulls])
            for place in range(1, len(pulls[0]))
        ),
    ]
