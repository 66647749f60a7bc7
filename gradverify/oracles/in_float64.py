"""The values in float64 of a function of float32, or of one that computes in it: of itself, else of the reference that the spec names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from gradverify.oracles.finite_difference import Gives
from gradverify.oracles.widened import OTHERS, InFloat64, RefusedError
from gradverify.subject.another import beside
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.subject.wide import InDouble, is_narrow, widened


def in_float64(subject: Subject, function: Gives, outputs: Sequence[Tensor], given_by: Callable[[Subject], Gives],
               reference: Callable[[Subject], Gives], *, lifts: bool) -> InFloat64:
    """`function`: of the subject, with its `outputs`; `given_by`: the same of another one; `reference`: that of the spec; `lifts`: what it casts to
    float32 inside is float64 first. Raises UserCodeError or RefusedError where the function refuses float64."""
    mode = InDouble(lifts=lifts)
    try:
        return InFloat64(function, given_by(widened(subject, mode)), outputs, partial(beside, subject), mode)
    except (UserCodeError, RefusedError):
        if not mode.lifts or not is_narrow(subject):
            raise
    mode = InDouble(lifts=False)
    try:
        return InFloat64(function, given_by(widened(subject, mode)), outputs, partial(beside, subject), mode)
    except (UserCodeError, RefusedError) as refused:
        found = (_of_reference(subject, function, outputs, reference)
                 or _shown_float32(subject, function, outputs, given_by, others=str(refused) == OTHERS))
        if found is None:
            raise
        return found


def _shown_float32(subject: Subject, function: Gives, outputs: Sequence[Tensor], given_by: Callable[[Subject], Gives],
                   others: bool) -> InFloat64 | None:
    """The values of the function where float64 says that it is float32, if it asserts that, or branches on it, and is the same function then."""
    mode = InDouble(lifts=True, shows=True)
    try:
        return InFloat64(function, given_by(widened(subject, mode)), outputs, partial(beside, subject), mode, others=others)
    except (UserCodeError, RefusedError):
        return None


def _of_reference(subject: Subject, function: Gives, outputs: Sequence[Tensor], reference: Callable[[Subject], Gives]) -> InFloat64 | None:
    """The values of the reference, where there is one and they are those of the function, within what float32 rounds."""
    if subject.case.oracles.reference is None or any(argument.parameter for argument in subject.arguments):
        return None
    mode = InDouble(lifts=True)
    try:
        return InFloat64(function, reference(widened(subject, mode)), outputs, partial(beside, subject), mode, of_reference=True)
    except (UserCodeError, RefusedError):
        return None
