"""Results that the measurement itself makes undecided: the check replaced what gradients are measured with, or memory ran short."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gradverify.model.case import Case
from gradverify.model.result import CaseResult, Finding
from gradverify.report.numbers import memory as in_bytes
from gradverify.running.unrun import without_running

NO_MEMORY = re.compile(r"MemoryError|[Cc]an(?:'t|not) allocate memory")     # of Python, NumPy and torch, as they say it
NO_DEVICE_MEMORY = "CUDA out of memory"
HELD = re.compile(r"^VmData:\s+(\d+) kB$", re.MULTILINE)
ROOM = 24 * 2**20       # bytes that the smallest check took beyond what a worker holds at its start; 12 MiB are too little
STEP = 10 * 2**20       # of what is advised
SMALLER = "check a smaller input, or see what else holds memory there (`nvidia-smi`)"


def undecided(result: CaseResult, replaced: tuple[str, ...], before: tuple[str, ...] = ()) -> CaseResult:
    """The result of a check at whose end something of `subject.instruments` was `replaced`: nothing of what passed or failed it can be said, and what
    went wrong within our own code is no fault of ours. What the function's own code raised stands. `before`: what was replaced already when the
    check began."""
    if not replaced or result.verdict in ("skip", "not_run", "undecided"):
        return result
    found = replaced[0]
    if found not in before and result.verdict == "error" and not result.faults and any(finding.frames for finding in result.findings):
        return result
    what = f"{found.split()[1]} was replaced before this check, in the same process" if found in before else f"the check {found}"
    finding = Finding("GV007", f"{what}, which gradients are measured with: no verdict can be given", "undecided",
                      hint="put it back before the call returns; all code of a process shares it")
    return replace(result, verdict="undecided", reason=finding.message, findings=(finding,), faults=())


def within(result: CaseResult, memory: int | None) -> CaseResult:
    """The result under a limit of so many bytes: where that failed our own computing, the check could not be judged, and nothing is at fault. What
    the user's code raised for want of memory gets the limit as its hint. So it is where a device has no more."""
    if any(NO_DEVICE_MEMORY in fault.what for fault in result.faults):
        finding = Finding("GV008", f"measuring it takes more memory than there is on {result.device}", "nothing-checked", hint=SMALLER)
        return replace(result, verdict="error", reason=finding.message, findings=(finding,), faults=())
    result = replace(result, findings=tuple(_told_of_the_device(finding) for finding in result.findings))
    if memory is None:
        return result
    if not any(NO_MEMORY.search(fault.what) for fault in result.faults):
        return replace(result, findings=tuple(_limited(finding, memory) for finding in result.findings))
    finding = Finding("GV008", f"measuring it takes more memory than `--memory` allows each worker, {in_bytes(memory)}", "nothing-checked",
                      hint="give more `--memory`, check a smaller input, or run fewer checks at a time (`-j`)")
    return replace(result, verdict="error", reason=finding.message, findings=(finding,), faults=())


def too_little(memory: int | None) -> str | None:
    """The sentence where a limit of so many bytes leaves nothing to a worker that has imported torch; None where it does, or that is not known."""
    held = _held()
    if memory is None or held is None or memory >= held + ROOM:
        return None
    least = -(-(held + ROOM) // STEP) * STEP
    allowed, takes = f"{max(1, memory // 2**20):,} MiB", f"{least // 2**20:,} MiB"
    return f"`--memory` allows each worker {allowed}, which is too little to start one: it takes about {takes} at least"


def not_started(case: Case, message: str) -> CaseResult:
    """The result of a check that a worker has no memory for."""
    finding = Finding("GV008", message, "nothing-checked", hint="give more `--memory`: what the check itself needs comes on top")
    return replace(without_running(case, "error", message), findings=(finding,))


def _held() -> int | None:
    """Bytes of this process that the limit counts (`RLIMIT_DATA`), as Linux says it."""
    with suppress(OSError):
        found = HELD.search(Path("/proc/self/status").read_text())
        return None if found is None else int(found[1]) * 1024
    return None


def _told_of_the_device(finding: Finding) -> Finding:
    return replace(finding, hint=SMALLER) if NO_DEVICE_MEMORY in finding.message and not finding.hint else finding


def _limited(finding: Finding, memory: int) -> Finding:
    if finding.hint or finding.severity != "error" or not NO_MEMORY.search(finding.message):
        return finding
    return replace(finding, hint=f"`--memory` allows each worker {in_bytes(memory)}: give more, check a smaller input, or find what keeps growing")
