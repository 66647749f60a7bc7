"""Damage done to the gradients of cases, one case after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gradverify.model.case import Case
from gradverify.model.mutation import MutatedCheck
from gradverify.running.inline import Devices, captured, devices


def mutated(cases: Sequence[Case], each: Callable[[Case], MutatedCheck] | None = None, probe: Callable[[], Devices] = devices) -> Iterator[MutatedCheck]:
    """Each case under all damage that can be done to it, as it ends. Imports torch."""
    has_cuda = any(case.skip is None for case in cases) and bool(probe().cuda)
    for case in cases:
        cuda = case.settings.device.startswith("cuda") or "cuda" in case.requires
        if case.skip is not None:
            yield MutatedCheck(case.id, left_out=f"skipped: {case.skip}")
        elif cuda and not has_cuda:
            yield MutatedCheck(case.id, left_out="skipped: no CUDA device")
        else:
            device = "cuda" if has_cuda else "cpu"
            placed = case if case.settings.device != "auto" else replace(case, settings=replace(case.settings, device=device))
            yield (each or mutate_case)(placed)


def mutate_case(case: Case) -> MutatedCheck:
    """What the user's code raises leaves the case out; only a fault of gradverify itself raises."""
    from gradverify.mutation import mutate
    from gradverify.subject.failure import UserCodeError
    from gradverify.subject.find import importable
    from gradverify.subject.machine import undisturbed

    started = time.perf_counter()
    with captured(), undisturbed():
        try:
            with importable(case.search):
                result = mutate(case)
        except UserCodeError as error:
            result = MutatedCheck(case.id, left_out=error.message)
    return replace(result, seconds=time.perf_counter() - started)
