"""A function judged as a user's check judges it: `prepare`, `verify` and all between, by a clock
under which every call takes the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Case, Settings, SpecPlace
from gradverify.model.result import CaseResult
from gradverify.numerics.function.point import Clock
from gradverify.running.inline import captured, staying
from gradverify.subject.find import importable
from gradverify.subject.machine import as_torch_starts, compute_on_one_thread, undisturbed
from gradverify.subject.prepare import assemble, prepare
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import live
from gradverify.verify import broken, verify

MODES = ("entries", "rows", "blocks", "auto")
# The rules that compare backward with finite differences at the point
JACOBIAN = ("GV101", "GV102", "GV103", "GV104", "GV111", "GV114")
# Seconds of every call: `auto` chooses by them, and a choice by the true ones would differ from run
# to run
CALL = 5e-5


def judged(
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    mode: str,
    seed: int,
    select: tuple[str, ...] = JACOBIAN,
) -> CaseResult:
    """A live function at its arguments, under the rules of the Jacobian (or `select`), up to the
    first that finds an error, and without its cause."""
    dtypes = [argument.value.dtype for argument in arguments if argument.differentiable]
    settings = Settings(
        dtype=str(dtypes[0]).removeprefix("torch."), mode=mode, seed=seed, select=select
    )  # type: ignore[arg-type]
    case = Case(
        id=name,
        name=name,
        check=name,
        spec=SpecPlace("benchmark", 1),
        target=name,
        settings=settings,
    )
    with undisturbed(), as_torch_starts(), staying():
        return _verified(
            case,
            lambda: assemble(case, live(name, function, None, torch.float64), arguments),
            briefly=True,
        )


def judged_case(case: Case) -> CaseResult:
    """A check of a spec, under all rules."""
    with (
        captured() as printed,
        undisturbed(),
        as_torch_starts(),
        staying(),
        importable(case.search, printed.only_if_raised),
    ):
        return _verified(case, lambda: prepare(case))


def differentiated(inputs: Sequence[Tensor]) -> list[Argument]:
    """Tensors that are all differentiated."""
    return [Argument(f"x{place}", x, True) for place, x in enumerate(inputs)]


def _verified(case: Case, made: Callable[[], Subject], briefly: bool = False) -> CaseResult:
    try:
        return verify(_steady(made()), briefly=briefly)
    except BaseException as error:
        return broken(case, error)


def _steady(subject: Subject) -> Subject:
    """A subject whose calls all take as long, by its clock."""
    compute_on_one_thread(subject.size)
    ticks = count()
    subject.clock = Clock(now=lambda: CALL * next(ticks), waited=lambda: 0.0)
    return subject
