"""What `init` looks for, and what it found: plain data between the command and the worker that
tries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradverify.model.case import InputRecipe, Json, Search
from gradverify.model.result import Fault


@dataclass(frozen=True, slots=True)
class Sought:
    """A function that a call is to be found for. `target` as a case holds it."""

    target: str
    search: Search


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call that runs, or why none was found (`missing`, one sentence).

    `inputs`, `keywords`, `init` as in a case, also those of the furthest attempt where nothing ran;
    `remarks`: what stands behind an argument;
    `varied`: arguments and the values of theirs that forward accepts, of which every combination
    runs; `left_out`: optional arguments that it runs without, too; `dtype`, `device`: of the check,
    where it is not the default; `note`: a sentence above the check;
    `fault`: one of gradverify's own, for which nothing was found.
    """

    target: str
    inputs: tuple[InputRecipe, ...] = ()
    keywords: tuple[InputRecipe, ...] = ()
    init: Mapping[str, Json] | None = None
    remarks: Mapping[str, str] = field(default_factory=dict)
    varied: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    dtype: str = "float64"
    device: str = "cpu"
    note: str | None = None
    missing: str | None = None
    fault: Fault | None = None
    attempts: int = 0
