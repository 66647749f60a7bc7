"""What a rule is: a function `gvNNN(evidence)` that yields what is wrong (Finding), what was compared (Comparison), and, as text, what `-v` is to
say of a rule that ran. What has to hold before it is asked is declared in the catalogue (`needs`)."""

from __future__ import annotations


class NotApplicable(Exception):     # noqa: N818 - no error: an answer
    """Raised by a rule where only the measurement shows that it cannot run; its text says why, in a few words."""
