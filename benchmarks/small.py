"""Small inputs under all rules: CPU time and calls of a check as a user runs it, prepared from what
a spec says, beside torch's gradcheck."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import everyday
import torch

from gradverify.model.case import Case, InputRecipe, Search, Settings, SpecPlace, TensorRecipe
from gradverify.model.result import CaseResult
from gradverify.running.inline import run_case
from gradverify.subject.find import importable
from gradverify.subject.prepare import prepare

TITLE = "## Small inputs, all rules, as a user runs them"
DTYPES = ("float64", "float32")
RUNS = 5  # in a row: a sample is their mean
Inputs = tuple[InputRecipe, ...]


@dataclass(frozen=True)
class Row:
    """CPU seconds of gradcheck, the least of the samples; and by dtype those of a check, with its
    result."""

    name: str
    gradcheck: float
    seconds: dict[str, float]
    results: dict[str, CaseResult]

    def calls(self, dtype: str) -> int:
        return self.results[dtype].calls.forward + self.results[dtype].calls.backward


def _tensors(**shapes: tuple[int, ...]) -> Inputs:
    return tuple(InputRecipe(name, TensorRecipe(shape)) for name, shape in shapes.items())


TARGET = InputRecipe("target", TensorRecipe((3,), "integers", (0, 4)))
SMALL: tuple[tuple[str, str, Inputs], ...] = (
    ("SwiGLU", "2×3", _tensors(gate=(2, 3), x=(2, 3))),
    ("RMSNorm", "2×5, weight", _tensors(x=(2, 5), weight=(5,))),
    ("CrossEntropy", "3×4", (*_tensors(logits=(3, 4)), TARGET)),
    ("Linear", "(3,4)·(4,2), bias", _tensors(x=(3, 4), weight=(4, 2), bias=(2,))),
    ("Attention", "2 heads, 3×4", _tensors(q=(1, 2, 3, 4), k=(1, 2, 3, 4), v=(1, 2, 3, 4))),
)


def case(name: str, inputs: Inputs, dtype: str = "float64") -> Case:
    """The check of one of them, with the default rules and settings."""
    return Case(
        id=name,
        name=name,
        check=name,
        spec=SpecPlace("small.yaml", 1),
        target=f"everyday:{name}",
        inputs=inputs,
        search=Search(str(Path(__file__).parent)),
        settings=Settings(dtype=dtype),
    )


def rows(samples: int) -> Iterator[Row]:
    """Each function in turn, so many samples of each checker, taken by turns. Raises SystemExit
    where a check does not pass."""
    for name, size, inputs in SMALL:
        checks = {dtype: partial(run_case, case(name, inputs, dtype)) for dtype in DTYPES}
        results = {dtype: check() for dtype, check in checks.items()}
        for dtype, result in results.items():
            if result.verdict != "pass" or result.findings:
                raise SystemExit(
                    f"{name} in {dtype}: {result.verdict}, "
                    f"{[finding.message for finding in result.findings]}"
                )
        taken = [
            [_sample(run) for run in (_gradcheck(name, inputs), *checks.values())]
            for _ in range(samples)
        ]
        # The least: other load makes CPU times longer, never shorter
        theirs, *ours = map(min, zip(*taken, strict=True))
        yield Row(f"{name} {size}", theirs, dict(zip(DTYPES, ours, strict=True)), results)


def _gradcheck(name: str, inputs: Inputs) -> Callable[[], object]:
    """With its defaults, on the same inputs in float64."""
    with importable(case(name, inputs).search):
        arguments = prepare(case(name, inputs)).arguments
    values = [a.value.clone().requires_grad_() if a.differentiable else a.value for a in arguments]
    return partial(torch.autograd.gradcheck, getattr(everyday, name).apply, values)


def _sample(run: Callable[[], object]) -> float:
    gc.collect()
    started = time.process_time()
    for _ in range(RUNS):
        run()
    return (time.process_time() - started) / RUNS


# ---- the page
def section(found: Sequence[Row], samples: int) -> str:
    """With its title."""
    header = [
        "function",
        "gradcheck",
        *(f"all rules, {dtype}" for dtype in DTYPES),
        *(f"calls, {dtype}" for dtype in DTYPES),
        "of these GV101",
    ]
    table = "\n".join(
        "| " + " | ".join(cells) + " |"
        for cells in (header, ["---"] * len(header), *map(_cells, found))
    )
    middle = ", ".join(
        f"{median(row.calls(dtype) for row in found):.0f} in {dtype}" for dtype in DTYPES
    )
    what = (
        "Ordinary Functions (benchmarks/everyday.py) on small inputs: a check with all default "
        "rules, from the inputs being drawn to the "
        "result, in one process after imports, and `torch.autograd.gradcheck` with its defaults in "
        "float64, which compares the Jacobian alone."
    )
    how = (
        f"CPU time, the least of {samples} samples of {RUNS} runs, taken by turns; in parentheses "
        "how many times gradcheck's. Forward / backward "
        f"calls; their median: {middle}, which a test bounds."
    )
    return f"{TITLE}\n\n{what} {how}\n\n{table}"


def _cells(row: Row) -> list[str]:
    times = [
        f"{row.seconds[dtype] * 1e3:.3g} ms ({row.seconds[dtype] / row.gradcheck:.2g}×)"
        for dtype in DTYPES
    ]
    calls = [
        f"{row.results[dtype].calls.forward} / {row.results[dtype].calls.backward}"
        for dtype in DTYPES
    ]
    compared = next(run.calls for run in row.results["float64"].rules if run.code == "GV101")
    return [
        row.name,
        f"{row.gradcheck * 1e3:.3g} ms",
        *times,
        *calls,
        f"{compared.forward} / {compared.backward}",
    ]


def replaced(page: str, section: str) -> str:
    """The page with this section in the place of the one of its title; before the growth where
    there is none."""
    before, title, after = page.partition(TITLE)
    if not title:
        before, heading, after = page.partition("## Growth")
        return f"{before}{section}\n\n{heading}{after}"
    return f"{before}{section}\n\n{after[after.index('## ') :]}"
