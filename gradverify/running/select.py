"""Which cases run: by keyword expression, by tag expression. (`PATH::NAME` is taken apart where paths are: spec/discover.py.)"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TypeVar

from gradverify.model.case import Case, Json
from gradverify.model.codec import to_json
from gradverify.model.event import CheckFinished, CheckStarted, Shard
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate, judged, repeat_of, told
from gradverify.model.result import Calls, CaseResult, Verdict
from gradverify.running.affected import needs_of
from gradverify.running.crew import CheckEvent, Crew
from gradverify.running.inline import Devices
from gradverify.running.signals import Stopped
from gradverify.running.supervisor import CannotStart
from gradverify.source.globs import files_of
from gradverify.source.graph import Graph

# ---- Which cases run: by keyword expression, by tag expression
_Match = Callable[[str], bool]


def select(cases: Sequence[Case], *, keyword: str | None = None, tags: str | None = None,
           options: tuple[str, str] = ("-k", "-m")) -> tuple[Case, ...]:
    """The cases that fit both, in their order.

    `keyword` is an expression over parts of ids (`softmax and not cuda`), `tags` one over whole tags. Raises ProblemsError for an
    expression that cannot be read, which names `options`, as whoever wrote them calls the two.
    """
    by_keyword, by_tag = _compile(keyword, options[0]), _compile(tags, options[1])

    def fits(case: Case) -> bool:
        return by_keyword(lambda word: word.lower() in case.id.lower()) and by_tag(lambda word: word in case.tags)

    return tuple(case for case in cases if fits(case))


def failed_first(cases: Sequence[Case], failed: Sequence[Case]) -> tuple[Case, ...]:
    """All cases; those that failed stand first, and otherwise each in its order."""
    ids = {case.id for case in failed}
    return tuple(sorted(cases, key=lambda case: case.id not in ids))


def _compile(expression: str | None, option: str) -> Callable[[_Match], bool]:
    """An expression of words with and, or, not and parentheses, as a predicate of what holds for one word."""
    if expression is None or not expression.strip():
        return lambda match: True
    words: dict[str, str] = {}
    source = _quote_words(expression, words)
    try:
        tree = ast.parse(source, mode="eval").body
        _refuse_other_syntax(tree)
    except (SyntaxError, ValueError):
        raise ProblemsError([Problem(f"{option} {expression!r}: not an expression of words with and, or, not and parentheses")]) from None
    return lambda match: _evaluate(tree, words, match)


def _quote_words(expression: str, words: dict[str, str]) -> str:
    """Words may hold anything but blanks and parentheses (`op[a=1]`, `conv-2d`): each becomes a plain name."""
    spaced = expression.replace("(", " ( ").replace(")", " ) ").split()
    out = []
    for part in spaced:
        if part in ("and", "or", "not", "(", ")"):
            out.append(part)
        else:
            words[f"w{len(words)}"] = part
            out.append(f"w{len(words) - 1}")
    return " ".join(out)


def _refuse_other_syntax(tree: ast.AST) -> None:
    allowed = (ast.BoolOp, ast.UnaryOp, ast.Name, ast.And, ast.Or, ast.Not, ast.Load)
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise ValueError(type(node).__name__)


def _evaluate(node: ast.expr, words: dict[str, str], match: _Match) -> bool:
    if isinstance(node, ast.BoolOp):
        results = (_evaluate(value, words, match) for value in node.values)
        return all(results) if isinstance(node.op, ast.And) else any(results)
    if isinstance(node, ast.UnaryOp):
        return not _evaluate(node.operand, words, match)
    assert isinstance(node, ast.Name)
    return match(words[node.id])


# ---- One of N parts of a selection
COMPILED = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".pyc", ".o")
OURS = f"{Path(__file__).resolve().parent.parent}{os.sep}"


def sharded(cases: Sequence[Case], index: int, count: int, *ruling: object) -> tuple[tuple[Case, ...], Shard]:
    """The cases of part `index` (from 1) of `count`, in their order, and what a report says of it. `ruling`: what else the verdicts depend on."""
    places = tuple(place for place, case in enumerate(cases) if part(case.id, count) == index)
    return tuple(cases[place] for place in places), Shard(index, count, fingerprint(cases, *ruling), len(cases), places)


def part(id: str, count: int) -> int:
    """From 1 to `count`; as even as drawing lots: of n checks a part gets n / count, give or take the square root of that."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) % count + 1


def fingerprint(cases: Sequence[Case], *ruling: object) -> str:
    """SHA-256 of what is selected, of the sources that it names or imports, and of how it is judged: the same in every part and on every machine
    (folders are left out, and what is compiled, which each machine may have built for itself)."""
    data = [{**to_json(case, exact=True), "search": case.search.imports, "save": None} for case in cases]
    checks = sorted(json.dumps(_portable(each), sort_keys=True) for each in data)
    graph, needs = Graph(), dict.fromkeys(replace(needs_of(case, Path.cwd()), spec="") for case in cases)
    files = {file for each in needs for file in (*graph.of(each.targets, each.modules, each.folders).files, *each.files)}
    files |= {str(file) for each in needs for glob in each.globs for file in files_of(glob, each.folder)}
    sources = sorted({_digest(file) for file in files if not file.endswith(COMPILED) and not file.startswith(OURS)})
    said: Json = [checks, sources, [to_json(each) for each in ruling]]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _portable(data: Json) -> Json:
    """Plain data in which files stand by their names."""
    if isinstance(data, dict):
        return {name: _portable(each) for name, each in data.items()}
    if isinstance(data, (list, tuple)):
        return [_portable(each) for each in data]
    return os.path.basename(data) if isinstance(data, str) and os.path.isabs(data) else data  # noqa: PTH117, PTH119 - text


def _digest(file: str) -> str:
    try:
        with open(file, "rb") as stream:  # noqa: PTH123
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


# ---- Each check several times, with other seeds: a crew that asks another one, and tells one
# result of all repeats of a check
T = TypeVar("T")

SEEDS = 2**63       # what a spec's `seed` may be below
WORST_FIRST: dict[bool, tuple[Verdict, ...]] = {
    False: ("fail", "pass", "error", "undecided", "skip", "not_run"),       # what is wrong, a pass that ought to fail too, before what is not known
    True: ("fail", "error", "undecided", "pass", "skip", "not_run")}
"""By whether the result is as expected."""


@dataclass
class Repeating:
    """`crew` runs each case `times` times. `first_only`: a check has its result with the first repeat that is not as expected."""

    crew: Crew
    times: int
    gate: Gate
    first_only: bool = False
    _ended: dict[str, list[CaseResult]] = field(default_factory=dict, init=False)

    def machine(self) -> Devices:
        return self.crew.machine()

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        """Where the run is interrupted, a check of which a repeat was not as expected has its result; others have none."""
        try:
            for event in self.crew.run([repeat for case in cases for repeat in repeats(case, self.times)]):
                yield from self._started(event) if isinstance(event, CheckStarted) else self._finished(event.result)
        except (Stopped, KeyboardInterrupt, CannotStart, ProblemsError):
            yield from [CheckFinished(joined(results)) for results in self._ended.values() if any(not result.ok for result in results)]
            raise

    def close(self) -> None:
        self.crew.close()

    def _started(self, event: CheckStarted) -> Iterator[CheckEvent]:
        if event.id not in self._ended:
            self._ended[event.id] = []
            yield event

    def _finished(self, result: CaseResult) -> Iterator[CheckEvent]:
        results, result = self._ended[result.id], judged(result, self.gate)
        results.append(result)
        if len(results) == self.times or (self.first_only and not result.ok):
            yield CheckFinished(joined(results))
            results.clear()


def repeats(case: Case, times: int) -> tuple[Case, ...]:
    """The case with its seed, the next one, and so on."""
    settings = case.settings
    return tuple(replace(case, settings=replace(settings, seed=(settings.seed + number) % SEEDS)) for number in range(times))


def joined(results: Sequence[CaseResult]) -> CaseResult:
    """The worst of the judged `results` stands for all of them, with their calls and seconds, and what each came to."""
    results = sorted(results, key=lambda result: result.seed)
    worst = min(results, key=_rank)
    flipped, each = told(results), tuple(map(repeat_of, results))
    return replace(
        worst, repeats=each, reason=": ".join(filter(None, (flipped, worst.reason))) or None, seconds=sum(result.seconds for result in results),
        calls=sum((result.calls for result in results), Calls()), changed=_all(result.changed for result in results),
        faults=_all(result.faults for result in results))


def _rank(result: CaseResult) -> tuple[bool, int]:
    """Whatever is not as expected first."""
    as_expected = result.ok is not False
    return as_expected, WORST_FIRST[as_expected].index(result.verdict)


def _all(lists: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """Each once."""
    return tuple(dict.fromkeys(each for items in lists for each in items))
