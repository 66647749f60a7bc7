"""A call that somebody wrote in Python, read without importing anything."""

from __future__ import annotations

import ast


def call_in(text: str) -> ast.Call:
    """The call. Raises ValueError with a sentence for what is none."""
    try:
        found = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no Python expression: {error.msg}") from None
    if not isinstance(found, ast.Call):
        raise ValueError(f"{text!r} is no call: write it as in Python, `Name(torch.randn(2, 3), 0.5)`")
    return found
