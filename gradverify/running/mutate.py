"""Damage done to the gradients of cases, one case after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gradverify.model.case import Case
from gradverify.model.interrupt import interruptible, is_interrupt
from gradverify.model.mutation import MutatedCheck
from gradverify.running.inline import captured, devices
from gradverify.running.requirements import lack, placed
from gradverify.running.staying import staying


def mutated(cases: Sequence[Case], began: Callable[[Case], None]) -> Iterator[MutatedCheck]:
    """Each case under all damage that can be done to it, as it ends; `began` is told before it
    begins. Imports torch."""
    machine = devices() if any(case.skip is None for case in cases) else None
    for case in cases:
        missing = lack(case, machine)
        if missing is not None:
            yield MutatedCheck(
                case.id, case.name, case.target, left_out=f"skipped: {missing.reason}"
            )
            continue
        began(case)
        with interruptible():
            found = mutate_case(placed(case, machine))
        yield found


def mutate_case(case: Case) -> MutatedCheck:
    """What the user's code raises leaves the case out; only a fault of gradverify itself raises."""
    from gradverify.mutation.mutate import mutate
    from gradverify.subject.failure import UserCodeError, describe, is_users
    from gradverify.subject.find import importable
    from gradverify.subject.machine import undisturbed

    started = time.perf_counter()
    with captured(), undisturbed(), staying():
        try:
            with importable(case.search):
                result = mutate(case)
        except UserCodeError as error:
            result = MutatedCheck(
                case.id,
                case.name,
                case.target,
                left_out=f"it does not pass undamaged: {error.message}",
                broken=True,
            )
        except BaseException as error:
            if is_interrupt(error) or not is_users(error):
                raise
            result = MutatedCheck(
                case.id,
                case.name,
                case.target,
                left_out=f"the function's code raised {describe(error)}",
                broken=True,
            )
    return replace(result, seconds=time.perf_counter() - started)
