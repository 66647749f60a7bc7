"""What a verdict is worth beside the truth."""

from __future__ import annotations

from collections.abc import Collection

DECIDED = ("pass", "fail")
TRUTHS = ("right", "wrong", "unknown")  # others are the codes that are expected


def worth(truth: str, verdict: str, codes: Collection[str]) -> int:
    """Of what was said: true 2, nothing 1, false 0; codes that are expected have to be there."""
    if truth not in TRUTHS and set(truth.split()) <= set(codes):
        return 2
    if verdict not in DECIDED:
        return 1
    return 2 if (verdict == "pass") == (truth == "right") and truth in ("right", "wrong") else 0
