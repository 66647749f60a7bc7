"""Whether checks can run in this environment at all."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from gradverify.model.case import Case
from gradverify.model.problem import Problem, ProblemsError


def with_torch(cases: Sequence[Case]) -> None:
    """Raises ProblemsError with a sentence where there are checks to run, and no torch to run them with."""
    if not all(case.skip is not None for case in cases):
        torch_is_here()


def torch_is_here() -> None:
    """Raises ProblemsError with a sentence where torch is not installed."""
    if _is_installed("torch"):
        return
    raise ProblemsError([Problem(f"torch is not in this environment ({sys.prefix}): run gradverify with the Python that has torch and what is to be "
                                 "checked, as `PYTHON -m gradverify`")])


def _is_installed(package: str) -> bool:
    found = importlib.util.find_spec(package)
    return found is not None and found.has_location       # a mere folder of that name is no package
