"""What parity.py judges: the checks of the gallery and the built-ins, PyTorch's operator samples,
and the functions of the benchmark of verdicts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import torch
from checkers import COARSE, Error, Noise, planted
from families import FAMILIES, Family
from user import MODES, differentiated, judged, judged_case
from verdicts import SCALES, SETTINGS

from gradverify.cli.gather import gather, sound
from gradverify.model.case import Case
from gradverify.model.result import CaseResult

ROOT = Path(__file__).parents[1]
SPECS = ("specs/gallery", "specs/seeds", "specs/features")
ENDS_ITS_PROCESS = ("gv004_crashed", "gv005_timed_out")
SEEDS = (0, 1, 2)
WRONG_IN_TORCH = (
    "as_strided_scatter",
    "native_group_norm",
    "normal",
    "normal.number_mean",
    # Some of their samples: tests/corpus/test_operators.py
    *(f"nn.functional.max_unpool{n}d" for n in (1, 2, 3)),
)
# One of so many: about three minutes of one core together
QUICK_SPECS, QUICK_OPERATORS, QUICK_SAMPLES, QUICK_FAMILIES = 11, 6, 2, 11

sys.path.insert(0, str(ROOT / "tests"))  # for corpus


@dataclass(frozen=True)
class Planned:
    """One record to be made. `function`, `fault`, `mode` and `seed` name it; `turn`: it is quick
    where this is 0.

    `truth`: "right", "wrong", "unknown", or the codes that are expected.
    """

    function: str
    fault: str
    mode: str
    seed: int
    truth: str
    turn: int
    judge: Callable[[], CaseResult]

    @property
    def name(self) -> str:
        return f"{self.function} | {self.fault} | {self.mode} | {self.seed}"


Kind = Literal["spec", "family", "sample"]
KINDS: tuple[Kind, ...] = ("spec", "family", "sample")


@dataclass(frozen=True)
class Unit:
    """Records that are planned together, by one process. `quick`: are there quick ones among
    them?"""

    kind: Kind
    name: str
    place: int
    quick: bool = True

    def planned(self) -> Iterator[Planned]:
        return {"spec": _of_spec, "sample": _of_operator, "family": _of_family}[self.kind](self)


def units(kinds: Collection[Kind] = KINDS) -> Iterator[Unit]:
    """All there are of some kinds, in a fixed order."""
    if "spec" in kinds:
        files = [
            file
            for folder in SPECS
            for file in sorted((ROOT / folder).glob("*.yaml"))
            if file.stem not in ENDS_ITS_PROCESS
        ]
        yield from (
            Unit("spec", str(file.relative_to(ROOT)), place) for place, file in enumerate(files)
        )
    if "family" in kinds:
        yield from (
            Unit("family", f"family {family.name}", place) for place, family in enumerate(FAMILIES)
        )
    if "sample" in kinds:  # which takes seconds to import
        for place, (operator, dtype) in enumerate(_corpus()):
            name = f"sample {operator.full_name} {str(dtype).removeprefix('torch.')}"
            yield Unit("sample", name, place, place % QUICK_OPERATORS == 0)


def kinds_of(names: Iterable[str]) -> Collection[Kind]:
    """Where functions are to be looked for whose names contain one of these, or which are these."""
    begins: dict[Kind, str] = {"spec": "specs/", "family": "family ", "sample": "sample "}
    return [
        kind
        for kind in KINDS
        if any(
            name.startswith(begins[kind]) or not name.startswith(tuple(begins.values()))
            for name in names
        )
    ]


def unit_of(record: str) -> str:
    """The name of the unit that a record belongs to."""
    function = record.partition(" | ")[0]
    if function.startswith("sample "):
        return function.rpartition(" ")[0]
    return function.partition("::" if function.startswith("specs/") else ",")[0]


def _seed(*places: int) -> int:
    """One of the seeds in turn: all three for each function would take two hours."""
    return SEEDS[sum(places) % len(SEEDS)]


# ---- specs
def _of_spec(unit: Unit) -> Iterator[Planned]:
    """Every check of a file as it is written, but for mode and seed."""
    with chdir(ROOT):
        cases = sound(gather([unit.name])).cases
    for case in cases:
        if case.settings.device != "cpu" or case.skip or case.requires:
            continue
        truth = (
            "right"
            if case.expect == "pass"
            else " ".join([case.expect] if isinstance(case.expect, str) else case.expect)
        )
        for place, mode in enumerate(MODES):
            for seed in SEEDS:
                turn = (crc32(case.id.encode()) + place + len(MODES) * seed) % QUICK_SPECS
                own = replace(case, settings=replace(case.settings, mode=mode, seed=seed))  # type: ignore[arg-type]
                yield Planned(
                    case.id, "as written", mode, seed, truth, turn, partial(_in_root, own)
                )


def _in_root(case: Case) -> CaseResult:
    with chdir(ROOT):
        return judged_case(case)


# ---- operators of torch
@cache
def _corpus() -> Sequence[tuple[Any, torch.dtype]]:
    from corpus.operator_samples import corpus

    return corpus()


def _of_operator(unit: Unit) -> Iterator[Planned]:
    """The first and the last small sample, right, and with one entry off by a hundred
    tolerances."""
    from corpus.operator_samples import damaged, is_usual, plain, samples_of

    for seed in SEEDS:
        for s, sample in enumerate(samples_of(*_corpus()[unit.place], seed=seed)):
            if not all(map(is_usual, sample.leaves)):
                continue
            truth = "unknown" if sample.name.split()[0] in WRONG_IN_TORCH else "right"
            name = f"sample {sample.name}"
            for n, (fault, made) in enumerate(
                (("none", plain(sample)), ("one entry", damaged(sample)))
            ):
                for place, mode in enumerate(MODES):
                    turn = (unit.place % QUICK_OPERATORS) or (
                        unit.place // QUICK_OPERATORS + s + n + place
                    ) % QUICK_SAMPLES
                    if made is not None and _seed(unit.place, s, n, place) == seed:
                        yield Planned(
                            name,
                            fault,
                            mode,
                            seed,
                            "wrong" if n else truth,
                            turn,
                            partial(judged, name, *made, mode, seed),
                        )


# ---- the functions of the benchmark of verdicts
def _of_family(unit: Unit) -> Iterator[Planned]:
    family = FAMILIES[unit.place]
    settings = [
        (dtype, noise) for dtype, noise in SETTINGS if family.complex or not dtype.is_complex
    ]
    # last, so that the seeds of the others stay what they were
    settings.sort(key=lambda setting: setting[1].seen)
    conditions = [(dtype, noise, scale) for dtype, noise in settings for scale in SCALES]
    for c, (dtype, noise, scale) in enumerate(conditions):
        kind = f"noise {noise.relative:g}{', differentiated' if noise.seen else ''}"
        name = f"family {family.name}, {str(dtype).removeprefix('torch.')}, {kind}, scale {scale:g}"
        for n, error in enumerate(COARSE):
            for place, mode in enumerate(MODES):
                seed = _seed(unit.place, c, n, place)
                turn = (unit.place + c + 2 * n + 3 * place) % QUICK_FAMILIES
                judge = partial(_family, name, family, dtype, noise, scale, error, mode, seed)
                yield Planned(
                    name,
                    error.name.lower(),
                    mode,
                    seed,
                    "right" if error is Error.NONE else "wrong",
                    turn,
                    judge,
                )


def _family(
    name: str,
    family: Family,
    dtype: torch.dtype,
    noise: Noise,
    scale: float,
    error: Error,
    mode: str,
    seed: int,
) -> CaseResult:
    function = planted(family.at(scale), error, noise)
    return judged(name, function, differentiated(family.inputs(seed, scale, dtype)), mode, seed)
