"""What happens during a run, in order. Progress, JSON lines, `-x`, Ctrl-C and the report all read
this one stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradverify.model.result import CaseResult


@dataclass(frozen=True, slots=True)
class Environment:
    """`torch` and `numpy` are versions, None where not installed; `devices` the CUDA devices seen.
    `folder`: where the run was started, below the root of its repository (the nearest folder with
    `.git`); empty: there, or there is none. `reduced_precision`: what makes products on CUDA
    devices compute in fewer bits, as checks find it
    (`matmul.allow_bf16_reduced_precision_reduction`); TF32 is off in them."""

    python: str
    torch: str | None
    numpy: str | None
    platform: str
    devices: tuple[str, ...] = ()
    threads: int | None = None
    folder: str | None = None
    reduced_precision: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` (from 1) of `count` of a selection of `total` checks."""

    index: int
    count: int
    total: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What was asked for on the command line. `deselected`: checks of the specs that were not;
    those of other shards are not among them. `left_out`: files and folders below the paths that are
    no specs, or were not searched."""

    paths: tuple[str, ...] = ()
    keyword: str | None = None
    tags: str | None = None
    deselected: int = 0
    shard: Shard | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RunStarted:
    """`started_at` is ISO 8601 with its offset; `total` counts the selected cases; `order`: their
    ids, as the specs have them."""

    started_at: str
    argv: tuple[str, ...]
    selection: Selection
    environment: Environment
    total: int
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckStarted:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CheckFinished:
    result: CaseResult


@dataclass(frozen=True, slots=True)
class RunFinished:
    """`interrupted`: the signal's exit code (130, 143) where one ended the run; `crashed`: a fault
    of gradverify's own, as text."""

    duration_s: float
    interrupted: int | None = None
    crashed: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a Jacobian is about to be compared, and what that is predicted to cost where nothing is
    wrong. `memory`: bytes beyond torch's own; `check`: its name, where several run at a time."""

    mode: str
    forward: int
    backward: int
    seconds: float
    memory: int
    check: str = ""


Planned = Callable[[Plan], None]
"""Gets a plan before it begins."""

Event = RunStarted | CheckStarted | CheckFinished | RunFinished
