"""One timed call of each checker on a case: gradverify's whole check of the Jacobian, and
torch.autograd.gradcheck."""

from __future__ import annotations

import gc
import inspect
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from cases import Case
from torch import Tensor

from gradverify.model.case import Budget, Settings, SpecPlace
from gradverify.model.case import Case as Check
from gradverify.model.result import CaseResult
from gradverify.subject.prepare import assemble
from gradverify.subject.subject import Argument
from gradverify.subject.target import live
from gradverify.verify import verify

Returned = TypeVar("Returned")

TIGHT = "tight"  # `auto` with half of the calls that entries take
OURS = ("auto", TIGHT, "entries", "rows", "blocks")
THEIRS = ("gradcheck slow", "gradcheck fast")
LIMIT_BYTES = 8 << 30  # of the two whole Jacobians that gradcheck holds
SAMPLE = 0.3  # seconds: a sample is the mean of as many runs in a row as take so long
PATIENCE = 60.0  # seconds: a checker that has taken longer on a case is not asked again


@dataclass(frozen=True)
class Timed:
    """CPU seconds of each sample; of gradverify also the comparison that was made, its calls and
    verdict. No runs: not possible."""

    seconds: tuple[float, ...] = ()
    mode: str = ""
    forward: int = 0
    backward: int = 0
    verdict: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def timed(
    case: Case, repeats: int, modes: Sequence[str], theirs: Sequence[str] = THEIRS
) -> dict[str, Timed]:
    """Every checker on the case in turn, `repeats` samples of each, so that whatever else the
    machine does meets all of them."""
    checkers = [*modes, *theirs]
    calls = _half(case) if TIGHT in modes and possible(TIGHT, case) else None
    taken: dict[str, list[float]] = {name: [] for name in checkers if possible(name, case)}
    last: dict[str, CaseResult] = {}
    inputs = case.inputs()
    for _ in range(repeats):
        for name, samples in taken.items():
            if sum(samples) > PATIENCE:
                continue
            if name in THEIRS:
                samples.append(
                    _sample(partial(gradcheck, case, name == "gradcheck fast", inputs))[0]
                )
            else:
                mode, most = ("auto", calls) if name == TIGHT else (name, None)
                seconds, last[name] = _sample(partial(gradverify, case, mode, most, inputs))
                samples.append(seconds)
    return {name: _timed(taken.get(name, []), last.get(name)) for name in checkers}


def _half(case: Case) -> int:
    """Of the calls that entries take: a budget that they do not fit."""
    calls = gradverify(case, "entries").calls
    return (calls.forward + calls.backward) // 2


def _sample(run: Callable[[], Returned]) -> tuple[float, Returned]:
    """CPU seconds of a run, and what the last one returned."""
    gc.collect()  # nobody clears away what the one before left
    count, started = 0, time.process_time()
    while True:
        returned = run()
        count, elapsed = count + 1, time.process_time() - started
        if elapsed >= SAMPLE:
            return elapsed / count, returned


def _timed(seconds: Sequence[float], result: CaseResult | None) -> Timed:
    if result is None:
        return Timed(tuple(seconds))
    return Timed(
        tuple(seconds), result.mode, result.calls.forward, result.calls.backward, result.verdict
    )


def possible(name: str, case: Case) -> bool:
    """Does it fit into memory (gradcheck), and is it asked at all?"""
    inputs, outputs = case.size
    return ("entries" if name == TIGHT else name) not in case.too_long and (
        name != "gradcheck slow" or 2 * 8 * inputs * outputs <= LIMIT_BYTES
    )


def gradverify(
    case: Case, mode: str, calls: int | None = None, inputs: Sequence[Tensor] | None = None
) -> CaseResult:
    """GV101 alone, at the case's inputs, where none are given; `calls`: the budget of `auto`,
    beside its 10 seconds."""
    check = Check(
        id=case.name,
        name=case.name,
        check=case.name,
        spec=SpecPlace("benchmark", 1),
        target=case.name,
        inputs=(),
        settings=Settings(mode=mode, budget=Budget(calls=calls), select=("GV101",)),
    )
    names = (
        list(inspect.signature(case.forward).parameters)
        if inspect.isfunction(case.forward)
        else [f"x{n}" for n in range(len(case.shapes))]
    )
    arguments = [
        Argument(name, x, differentiable=True)
        for name, x in zip(names, inputs or case.inputs(), strict=False)
    ]
    return verify(assemble(check, live(case.name, case.forward, None, torch.float64), arguments))


def gradcheck(case: Case, fast: bool, inputs: Sequence[Tensor] | None = None) -> None:
    """With its defaults, at the case's inputs, where none are given."""
    torch.manual_seed(0)
    leaves = [x.detach().requires_grad_() for x in inputs or case.inputs()]
    torch.autograd.gradcheck(case.forward, leaves, fast_mode=fast)
