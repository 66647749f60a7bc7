"""Select cases by keyword expression, tag expression, or part of N. (`PATH::NAME` is handled with
paths, in spec/discover.py.)"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

from gradverify.model.case import Case
from gradverify.model.problem import ProblemsError

# ---- Selection by keyword expression and by tag expression
_Match = Callable[[str], bool]
LOGIC = ("and", "or", "not")
# Expressions that Python would read as a call, or as an empty tuple
CALL = re.compile(r"\bw\d+\s*\(|\)\s*\(|\(\s*\)")


def select(
    cases: Sequence[Case],
    *,
    keyword: str | None = None,
    tags: str | None = None,
    options: tuple[str, str] = ("-k", "-m"),
) -> tuple[Case, ...]:
    """Return the cases that match both expressions, in their order.

    `keyword` is an expression over parts of ids (`softmax and not cuda`), `tags` one over whole
    tags. Raises ProblemsError for an invalid expression; the message calls the two by `options`.
    """
    by_keyword, by_tag = _compile(keyword, options[0]), _compile(tags, options[1])

    def fits(case: Case) -> bool:
        return by_keyword(lambda word: word.lower() in case.id.lower()) and by_tag(
            lambda word: word in case.tags
        )

    return tuple(case for case in cases if fits(case))


def _compile(expression: str | None, option: str) -> Callable[[_Match], bool]:
    """Compile an expression of words with and, or, not and parentheses. The result evaluates it,
    given a predicate of one word. Words may contain anything but blanks and parentheses
    (`op[a=1]`, `conv-2d`): each is replaced by a plain name."""
    if expression is None or not expression.strip():
        return lambda match: True
    words: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return found[0] if found[0] in LOGIC else words.setdefault(found[0], f"w{len(words)}")

    source = re.sub(r"[^\s()]+", named, expression).strip()
    try:
        if CALL.search(source):
            raise SyntaxError
        code = compile(source, "", "eval")
    except (SyntaxError, ValueError):
        raise ProblemsError(
            f"{option} {expression!r}: not an expression of words with and, or, not and parentheses"
        ) from None
    return lambda match: bool(eval(code, {}, {name: match(word) for word, name in words.items()}))


# ---- One of N parts of a selection
def part(id: str, count: int) -> int:
    """Return the part, from 1 to `count`, that a check belongs to, by a hash of its id: of n checks
    a part gets n / count, give or take the square root of that."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) % count + 1
