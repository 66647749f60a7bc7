"""The command that repeats one check, with the same overrides."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gradverify.model.result import CaseResult

WITH_VALUE = frozenset(
    {
        "--eps",
        "--atol",
        "--rtol",
        "--seed",
        "--device",
        "--dtype",
        "--mode",
        "--select",
        "--ignore",
        "--input",
        "--kwarg",
        "--init",
        "--reference",
        "--undecided",
        "--require-device",
    }
)
FLAGS = frozenset({"--strict", "--poison", "--fail-on-skip"})
"""The options of `check` that change what a check computes or how it is judged; paths, selection
and output are left out."""


def again(check: CaseResult, argv: Sequence[str]) -> str:
    """Return the command, ready to paste into a shell: `gradverify check 'specs/a.yaml::op[a=1]'
    --eps 1e-6`."""
    return shlex.join(["gradverify", "check", check.id, *_overrides(argv)])


def _overrides(argv: Sequence[str]) -> Iterator[str]:
    words = iter(argv)
    for word in words:
        if word == "--":
            return
        if word in FLAGS or word.partition("=")[0] in WITH_VALUE:
            yield word
        if word in WITH_VALUE:
            yield from [value for value in [next(words, None)] if value is not None]
