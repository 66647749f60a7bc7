"""A check that runs short of memory under `--memory` is told the limit; one that fails for another reason, or under no limit, is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import passing

from gradverify.model.result import Fault, Finding
from gradverify.running.lost import within


def raised(message, hint=None):
    return replace(passing(), verdict="error", findings=(Finding("GV003", message, "backward-raised", hint=hint),))


@pytest.mark.parametrize("message", ["backward raised MemoryError: ", "backward raised RuntimeError: DefaultCPUAllocator: can't allocate memory"])
def test_the_limit_is_the_hint_of_what_ran_short_of_memory(message):
    found, = within(raised(message), 3 * 2**30).findings
    assert found.message == message and "`--memory` allows each worker 3.0 GiB" in found.hint


@pytest.mark.parametrize(("result", "memory"), [(raised("backward raised ValueError: 3 != 4"), 2**30), (raised("MemoryError"), None),
                                                (raised("MemoryError", hint="its own"), 2**30)])
def test_everything_else_is_left_as_it_is(result, memory):
    assert within(result, memory) == result


FULL = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"


@pytest.mark.parametrize("memory", [None, 2**30])
def test_a_device_that_is_full_is_no_fault_of_ours_and_a_hint_for_theirs(memory):
    ours = replace(passing(), device="cuda", verdict="error", faults=(Fault("the rule GV101", FULL, "flat.py:26", ""),))
    found, = within(ours, memory).findings
    assert found.code == "GV008" and found.message == "measuring it takes more memory than there is on cuda" and not within(ours, memory).faults
    theirs, = within(raised(f"forward raised {FULL}"), memory).findings
    assert "nvidia-smi" in theirs.hint and theirs.code == "GV003"
