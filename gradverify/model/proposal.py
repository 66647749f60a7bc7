"""Requests and results of `init`: plain data exchanged by the command and the worker that tries
calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradverify.model.case import InputRecipe, Json, Search
from gradverify.model.result import Fault

SMALL_SIZE = 4
"""Sizes that a recorded call keeps; an integer above that equals one of its sizes on purpose."""


@dataclass(frozen=True, slots=True)
class Sought:
    """A function for which a call is sought. `target`: as in a case; `call`: the file of a recorded
    call, which is to be repeated in small."""

    target: str
    search: Search
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call that runs, or the reason why none was found (`missing`, one sentence).

    `inputs`, `keywords`, `init` as in a case, also those of the furthest attempt where nothing ran;
    `remarks`: comments to be written after arguments;
    `varied`: arguments with several values that forward accepts, in every combination;
    `left_out`: optional arguments without which forward runs too; `dtype`, `device`: of the check;
    `note`: a sentence to be written above the check;
    `advised`: whether `missing` also says what to do;
    `fault`: the internal error of gradverify that ended the search.
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
    advised: bool = False
    fault: Fault | None = None
    attempts: int = 0
