"""A rule as declared in the rule book: its code, its page, when it runs, and the meaning of its
findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradverify.model.result import Calls, Severity

Causes = Literal["finite differences", "deviations", "reference", "given numbers", "linearity"]
Method = Literal["forward", "backward", "saving", "jvp", "vmap", "apply"]
Kills = Literal["values", "elsewhere", "memory"]


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """One rule of the book. `page`: its text in rules/pages; `message`: the first line of that.

    file: the module of rules/ that contains its function `gvNNN`; by default the one named as its
    page.
    needs: the conditions for running it, separated by commas: names in rules/engine.py, codes that
    must not have been found (a rule that comes later runs ahead where this one finds anything), and
    "setting KEY" where the spec may turn it off. spoils: why a rule
    that requires this one's code not to be found does not run after it.
    severity: "warning" for a hazard in a function whose gradients are right.
    catches: the file of specs/gallery with a function that has the fault.
    asked: False for a code that is found while user code is called, and has no function of its own.
    last: it runs after all other rules.
    rank: of findings on one (input, output) the one of lowest rank is reported and names the
    others; None: it is reported in addition to others, as is one that is `apart`. price, worth: the
    least number of forward and backward calls of a rule that varies the call (one input, one
    output, nothing wrong), and its value. If the budget is short such rules run last, those of the
    largest worth first, and those that the budget does not afford are left out.
    verdict: of a check with this error. stops: no rule runs after this finding.
    refused: it explains why the autograd engine rejects the result of backward. spreads: a wrong
    write to memory affects the gradients of other inputs too. apart: it is no evidence against the
    gradient at this point.
    own_dtype: it compares the function in its own dtype, even where a float64 version of the
    function is used elsewhere.
    line: it concerns a gradient that a line of backward returns; that line is shown. method: the
    method whose line is shown ("saving": the one that saves for backward; "apply": one of the
    class's own); None: forward if a finding concerns an output alone, else backward.
    causes: the comparison in which the cause of a finding is sought. takes_over: the cause of a
    mismatch that is this rule's fault.
    kills: the mutants that `mutate` lets it judge: wrong values of a gradient, wrong values at
    other inputs ("elsewhere"), or state kept from call to call ("memory").
    """

    code: str
    name: str
    file: str = ""
    needs: str = ""
    spoils: str = ""
    severity: Severity = "error"
    catches: str | None = None
    asked: bool = True
    last: bool = False
    rank: int | None = None
    price: Calls | None = None
    worth: int = 0
    verdict: Literal["fail", "error", "undecided"] = "fail"
    stops: bool = False
    refused: bool = False
    spreads: bool = False
    apart: bool = False
    own_dtype: bool = False
    line: bool = False
    method: Method | None = None
    causes: Causes | None = None
    takes_over: str | None = None
    kills: Kills | None = None
    page: str = ""
    message: str = ""

    @property
    def module(self) -> str:
        """The name of the rule's page."""
        return f"{self.code}_{self.name}".lower().replace("-", "_")

    @property
    def numeric(self) -> bool:
        """Whether the rule uses finite differences at the point, whose elements show the cause."""
        return self.causes in ("finite differences", "deviations")
