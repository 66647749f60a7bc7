"""The events of a run, in order: the one stream that progress, JSON lines, `-x`, Ctrl-C and the
report all read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradverify.model.result import CaseResult


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a run. `torch` and `numpy`: versions, None if not installed; `devices`:
    the CUDA devices found. `folder`: the folder in which the run was started, relative to the root
    of its repository (the nearest folder with `.git`); empty for the root itself, or without one.
    `reduced_precision`: the switches that make products on CUDA devices compute in fewer bits, as
    set in checks (`matmul.allow_bf16_reduced_precision_reduction`); checks turn TF32 off."""

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
    """The selection made on the command line. `deselected`: how many checks of the specs were not
    selected, without those of other shards. `left_out`: how many files and folders below the paths
    are no specs, or were not searched."""

    paths: tuple[str, ...] = ()
    keyword: str | None = None
    tags: str | None = None
    deselected: int = 0
    shard: Shard | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The start of a run. `started_at`: ISO 8601 with offset; `total`: the number of selected
    cases; `order`: their ids, in the order of the specs."""

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
    """The end of a run. `interrupted`: the exit code (130, 143) of the signal that ended it;
    `crashed`: an internal error of gradverify, as text."""

    duration_s: float
    interrupted: int | None = None
    crashed: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a Jacobian will be compared, and the predicted cost if the gradient is right. `memory`:
    bytes beyond torch's own; `check`: the name of the check, where several run at a time."""

    mode: str
    forward: int
    backward: int
    seconds: float
    memory: int
    check: str = ""


Planned = Callable[[Plan], None]
"""A callback that receives a plan before its comparison begins."""

Event = RunStarted | CheckStarted | CheckFinished | RunFinished
