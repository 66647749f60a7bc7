"""One element of one case, measured in this process: what `gradverify explain PATH::NAME` runs."""

from __future__ import annotations

from gradverify.model.case import Case
from gradverify.model.element import Element
from gradverify.model.result import CaseResult
from gradverify.running.inline import devices, explain_case
from gradverify.running.requirements import placed
from gradverify.running.schedule import skipped


def explained(case: Case, element: tuple[str, str] | None) -> Element | CaseResult:
    """The evidence; or a result with the reason, where the case cannot be run here. `element`: names of the input's and the output's element.

    Raises ProblemsError where there is no such element.
    """
    machine = devices()
    return skipped(case, machine) or explain_case(placed(case, machine), element)
