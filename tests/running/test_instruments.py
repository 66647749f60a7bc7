"""A check that runs short of memory is told so; one that fails for another reason is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import passing

from gradverify.model.result import Fault, Finding
from gradverify.running.lost import short_of_memory

FULL = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
    "of 79.10 GiB"
)
SHORT = (FULL, "MemoryError: ", "RuntimeError: DefaultCPUAllocator: can't allocate memory")


def raised(message, hint=None):
    return replace(
        passing(),
        verdict="error",
        findings=(Finding("GV003", message, name="backward-raised", hint=hint),),
    )


@pytest.mark.parametrize("message", SHORT)
def test_memory_that_ran_short_is_no_fault_of_ours_and_a_hint_for_theirs(message):
    ours = replace(
        passing(), verdict="error", faults=(Fault("the rule GV101", message, "flat.py:26", ""),)
    )
    (found,) = short_of_memory(ours).findings
    assert (
        found.code == "GV008"
        and found.message == "measuring it takes more memory than there is on cpu"
        and not short_of_memory(ours).faults
    )
    (theirs,) = short_of_memory(raised(f"forward raised {message}")).findings
    assert "ulimit -d" in theirs.hint and theirs.code == "GV003" and message in theirs.message


@pytest.mark.parametrize(
    "result", [raised("backward raised ValueError: 3 != 4"), raised("MemoryError", hint="its own")]
)
def test_everything_else_is_left_as_it_is(result):
    assert short_of_memory(result) == result
