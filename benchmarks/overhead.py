"""What running checks in worker processes costs over running them in one process: CPU time, the
time to the first result, and memory.

    python benchmarks/overhead.py [--checks N] [--jobs N] [--repeats N]

CPU time is that of the command with all its descendants, also of those whose parents ended before
them. The computation itself is that of the same checks with --no-isolate, without what that process
takes for imports and its first check.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Of prctl: orphans of descendants become children of this process, whose CPU time it can ask for
SUBREAPER = 36
EARLY = 50  # results, after which memory is read for the first time
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
TORCH = (sys.executable, "-c", "import torch")
IMPORT = (sys.executable, "-c", "import gradverify.running.preload")
OP = """from torch.autograd import Function


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return 3 * x ** 2 * grad_output
"""


@dataclass(frozen=True)
class Measured:
    """Seconds of CPU and of the clock; `first`: until the first result is shown, `first_cpu`: used
    until then; `memory`: MiB of supervisor and workers, early and at the end."""

    cpu: float
    clock: float
    first: float = 0.0
    first_cpu: float = 0.0
    memory: tuple[float, ...] = ()


def command(spec: Path, *options: str) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "gradverify",
        "check",
        str(spec),
        "--format",
        "plain",
        "--no-progress",
        *options,
    )


def measured(
    arguments: Sequence[str], heard: Callable[[int, int], None] = lambda pid, results: None
) -> Measured:
    """One process with all its descendants, and how it was at its first line; `heard(pid, results)`
    as each result is shown."""
    before, started, first, first_cpu = _cpu(), time.perf_counter(), 0.0, 0.0
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, _ in enumerate(
            (line for line in process.stdout if line.startswith("PASS ")), 1
        ):
            first = first or time.perf_counter() - started
            first_cpu = first_cpu or used(process.pid)
            heard(process.pid, number)
    clock = time.perf_counter() - started
    _wait_for_orphans()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    return Measured(_cpu() - before, clock, first, first_cpu)


def used(pid: int) -> float:
    """Seconds of CPU of a process, its descendants, and those of them that have ended: whichever of
    them the first result waited for."""
    ticks = (
        sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]))
        for each in family(pid)
    )
    return sum(ticks) / TICKS


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for_orphans() -> None:
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return


# ---- memory
def resident(pid: int) -> float:
    """MiB of a process and its descendants, each with what it shares."""
    return (
        sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in family(pid))
        * PAGE
        / 2**20
    )


def family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def remembering(spec: Path, checks: int, jobs: int) -> Measured:
    """A run whose memory is read after few results and after all but the last few, when every
    worker is still there."""
    seen: list[float] = []

    def heard(pid: int, results: int) -> None:
        if results in (min(EARLY, checks // 2), checks - 2 * jobs):
            seen.append(resident(pid))

    found = measured(command(spec, "-j", str(jobs)), heard)
    return Measured(found.cpu, found.clock, found.first, found.first_cpu, tuple(seen))


# ---- the table
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checks", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    os.environ |= {"OMP_NUM_THREADS": "1", "CI": ""}
    with tempfile.TemporaryDirectory() as folder:
        one, all_ = specs(Path(folder), asked.checks)
        alternating = [
            (measured(TORCH).cpu, measured(command(one)).first_cpu) for _ in range(asked.repeats)
        ]
        rounds = [
            (
                measured(IMPORT),
                measured(command(one, "--no-isolate")),
                measured(command(all_, "--no-isolate")),
                remembering(all_, asked.checks, asked.jobs),
            )
            for _ in range(asked.repeats)
        ]
    for line in table(rounds, asked.checks, asked.jobs):
        print(line)
    # the least: other load makes CPU times longer, never shorter
    bare, first = (min(each) for each in zip(*alternating, strict=True))
    print(
        f"| CPU of all processes until the first result, and of `import torch` | {first:.2f} - "
        f"{bare:.2f} = {first - bare:.2f} s |"
    )


def specs(folder: Path, checks: int) -> tuple[Path, Path]:
    """One check, and so many of the same function."""
    (folder / "op.py").write_text(OP)
    text = "gradverify: 1\nchecks:\n"
    found = []
    for count in (1, checks):
        found.append(folder / f"{count}.yaml")
        found[-1].write_text(
            text
            + "".join(
                (
                    f"  - {{name: c{each}, function: 'op.py:Cube', seed: {each}, inputs: {{x: "
                    f"{{shape: "
                    f"[4]}}}}}}\n"
                )
                for each in range(count)
            )
        )
    return found[0], found[1]


def table(
    rounds: Sequence[tuple[Measured, Measured, Measured, Measured]], checks: int, jobs: int
) -> Iterator[str]:
    """Medians of the rounds."""

    def median(of: Callable[[Measured, Measured, Measured, Measured], float]) -> float:
        return statistics.median(of(*each) for each in rounds)

    computation = median(lambda imports, one, here, away: (here.cpu - one.cpu) / (checks - 1))
    overhead = median(
        lambda imports, one, here, away: away.cpu / checks - (here.cpu - one.cpu) / (checks - 1)
    )
    marginal = median(
        lambda imports, one, here, away: (
            (away.cpu - imports.cpu) / checks - (here.cpu - one.cpu) / (checks - 1)
        )
    )
    yield f"| {checks} checks, -j {jobs} | |"
    yield "| --- | --- |"
    yield f"| computation itself, CPU | {computation * 1e3:.1f} ms a check |"
    yield f"| overhead, CPU | {overhead * 1e3:.1f} ms a check |"
    yield f"| the same without importing torch once | {marginal * 1e3:.1f} ms a check |"
    yield (
        "| import of torch and gradverify, clock | "
        f"{median(lambda imports, one, here, away: imports.clock):.2f} s |"
    )
    yield f"| first result after | {median(lambda imports, one, here, away: away.first):.2f} s |"
    yield (
        "| the same over the import | "
        f"{median(lambda imports, one, here, away: away.first / imports.clock):.2f}× |"
    )
    yield (
        f"| memory after {EARLY} and after {checks} checks | "
        f"{', '.join(_memory(away.memory) for *_, away in rounds)} |"
    )


def _memory(found: tuple[float, ...]) -> str:
    early, late = found
    return f"{early:.0f} → {late:.0f} MiB ({100 * (late / early - 1):+.1f} %)"


if __name__ == "__main__":
    main()
