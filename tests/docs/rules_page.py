"""The rule book as one Markdown page: docs/rules.md is this function's result."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from gradverify.model.rule import RuleInfo

HEAD = """# Rules

A rule is one thing that gradverify looks at, and what it finds has the code of the rule. GV0xx say that a check could not be judged (exit code 3),
GV1xx that numbers are wrong, and GV2xx that a Function breaks what autograd asks of it in another way. A warning is a hazard in a function whose
gradients are right; `--strict` makes it an error.

`gradverify explain` lists all rules; with a code or a name it prints what this page says of one. `rules: {select: […], ignore: […]}` in a spec, and
`--select` and `--ignore` on the command line, choose which rules run. `expect: [GV101]` in a spec says that exactly these errors are found.

Words of this page: a *cotangent* is the `grad_output` that backward is given; a *dense* one has no zeros. The *base* forward and backward are the
first ones of a check, which others are compared with, and the *second point* is another, freshly drawn set of inputs. ⟨a, b⟩ is the sum of the
products of two tensors' elements, J the Jacobian. The *ladder* is the sequence of steps of [finite differences](method.md#2-the-finite-difference).
"""
_LEAD = re.compile(
    r"^(What|Why it matters|How it is measured|How to repair|Example)\.", re.MULTILINE
)
_PYTHON = ("class ", "def ", "@")


def markdown(rules: Iterable[RuleInfo]) -> str:
    """All pages in the order of their codes, after a table of them."""
    rules = tuple(rules)
    rows = [
        f"| [{rule.code}](#{_anchor(rule)}) | {rule.name} | {rule.severity} | {rule.message} |"
        for rule in rules
    ]
    table = "\n".join(["| code | name | severity | when |", "| --- | --- | --- | --- |", *rows])
    return "\n".join([HEAD, table, "", *map(_page, rules)]).rstrip() + "\n"


def _anchor(rule: RuleInfo) -> str:
    return f"{rule.code.lower()}-{rule.name}"


def _page(rule: RuleInfo) -> str:
    body = rule.page.partition("\n")[2].strip()
    text = _LEAD.sub(r"**\1.**", body)
    return f"## {rule.code} {rule.name}\n\n{_code_blocks(text).rstrip()}\n"


def _code_blocks(text: str) -> str:
    """An indented block right after a line of text becomes a fenced one, named by what it holds;
    "Example." alone before it says no more."""
    text = re.sub(r"\n\n\*\*Example\.\*\*\n(?= {4})", "\n", text)
    return re.sub(
        r"\n((?: {4}.*\n?)+)", lambda match: _fenced(textwrap.dedent(match[1]).strip()), text
    )


def _fenced(code: str) -> str:
    language = "python" if code.startswith(_PYTHON) else "yaml"
    return f"\n\n```{language}\n{code}\n```\n"
