"""What a rule is: a function `gvNNN(evidence)` that yields what is wrong (Finding), what was compared (Comparison), and, as text, what `-v` is to
say of a rule that ran. `gvNNN_applies(evidence, found)` beside it gives None where the rule can run, else why not; `found` are the codes so far."""

from __future__ import annotations


class NotApplicable(Exception):     # noqa: N818 - no error: an answer
    """Raised by a rule where only the measurement shows that it cannot run; its text says why, in a few words."""
