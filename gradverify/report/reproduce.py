"""The command that shows one check again, under the same overrides."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gradverify.model.result import CaseResult

WITH_VALUE = frozenset({"--eps", "--atol", "--rtol", "--seed", "--device", "--dtype", "--mode", "--select", "--ignore", "--undecided",
                        "--require-device"})
FLAGS = frozenset({"--strict", "--fail-on-skip"})
"""The options of `check` that change what a check computes or how it is judged; paths, selection and output are left out."""


def again(check: CaseResult, argv: Sequence[str]) -> str:
    """The command for one result: of one that stands for several repeats, with its seed."""
    return command(check.id, argv, check.seed if check.repeats else None)


def command(check_id: str, argv: Sequence[str], seed: int | None = None) -> str:
    """Ready to paste into a shell: `gradverify check 'specs/a.yaml::op[a=1]' --eps 1e-6`. `seed`: in place of that of `argv`."""
    kept = _overrides(argv, WITH_VALUE if seed is None else WITH_VALUE - {"--seed"})
    return shlex.join(["gradverify", "check", check_id, *kept, *(() if seed is None else ("--seed", str(seed)))])


def _overrides(argv: Sequence[str], with_value: frozenset[str]) -> Iterator[str]:
    words = iter(argv)
    for word in words:
        if word == "--":
            return
        if word in FLAGS or word.partition("=")[0] in with_value:
            yield word
        if word in with_value:
            yield from [value for value in [next(words, None)] if value is not None]
