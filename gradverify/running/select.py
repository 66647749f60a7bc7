"""Which cases run: by keyword expression, by tag expression. (`PATH::NAME` is taken apart where paths are: spec/discover.py.)"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Callable, Sequence

from gradverify.model.case import Case, Json
from gradverify.model.codec import to_json
from gradverify.model.event import Shard
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate

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
def sharded(cases: Sequence[Case], index: int, count: int, gate: Gate) -> tuple[tuple[Case, ...], Shard]:
    """The cases of part `index` (from 1) of `count`, in their order, and what a report says of it."""
    places = tuple(place for place, case in enumerate(cases) if part(case.id, count) == index)
    return tuple(cases[place] for place in places), Shard(index, count, fingerprint(cases, gate), len(cases), places)


def part(id: str, count: int) -> int:
    """From 1 to `count`; as even as drawing lots: of n checks a part gets n / count, give or take the square root of that."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) % count + 1


def fingerprint(cases: Sequence[Case], gate: Gate) -> str:
    """SHA-256 of what is selected and how it is judged: the same in every part and on every machine (folders are left out)."""
    data = [{**to_json(case, exact=True), "search": case.search.imports, "save": None} for case in cases]
    checks = sorted(json.dumps(_portable(each), sort_keys=True) for each in data)
    return hashlib.sha256(json.dumps([checks, to_json(gate)], sort_keys=True).encode()).hexdigest()


def _portable(data: Json) -> Json:
    """Plain data in which files stand by their names."""
    if isinstance(data, dict):
        return {name: _portable(each) for name, each in data.items()}
    if isinstance(data, (list, tuple)):
        return [_portable(each) for each in data]
    return os.path.basename(data) if isinstance(data, str) and os.path.isabs(data) else data  # noqa: PTH117, PTH119 - text
