"""The rule book as one Markdown page: docs/rules.md is this function's result."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from gradverify.rules.catalogue import RuleInfo

HEAD = """# Rules

Every finding has a code. `gradverify explain CODE` prints the page of one; `rules: {select: […], ignore: […]}` in a spec, `--select` and
`--ignore` on the command line choose which run; `expect: [GV101]` in a spec says that exactly these errors are found. GV0xx: the check could
not be judged (exit code 3). GV1xx: values. GV2xx: the contract of an autograd Function. A warning is a hazard on a function whose gradients are
right; `--strict` makes it an error.
"""
_LEAD = re.compile(r"^(What|Why it matters|How it is measured|How to repair|Example)\.", re.MULTILINE)
_PYTHON = ("class ", "def ", "@")


def markdown(rules: Iterable[RuleInfo]) -> str:
    """All pages in the order of their codes, after a table of them."""
    rules = tuple(rules)
    rows = [f"| [{rule.code}](#{_anchor(rule)}) | {rule.name} | {rule.severity} | {rule.message} |" for rule in rules]
    table = "\n".join(["| code | name | severity | when |", "| --- | --- | --- | --- |", *rows])
    return "\n".join([HEAD, table, "", *map(_page, rules)]).rstrip() + "\n"


def _anchor(rule: RuleInfo) -> str:
    return f"{rule.code.lower()}-{rule.name}"


def _page(rule: RuleInfo) -> str:
    body = rule.page.partition("\n")[2].strip()
    text = _LEAD.sub(r"**\1.**", body)
    return f"## {rule.code} {rule.name}\n\n{rule.message[:1].upper()}{rule.message[1:]}.\n\n{_code_blocks(text).rstrip()}\n"


def _code_blocks(text: str) -> str:
    """An indented block right after a line of text becomes a fenced one, named by what it holds."""
    return re.sub(r"\n((?: {4}.*\n?)+)", lambda match: _fenced(textwrap.dedent(match[1]).strip()), text)


def _fenced(code: str) -> str:
    language = "python" if code.startswith(_PYTHON) else "yaml"
    return f"\n\n```{language}\n{code}\n```\n"
