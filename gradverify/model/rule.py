"""A rule as the rule book declares it: its code, its page, when it is asked, what its findings
mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradverify.model.result import Calls, Severity

Causes = Literal["finite differences", "deviations", "reference", "given numbers", "linearity"]
Method = Literal["forward", "backward", "saving", "jvp", "vmap", "apply"]
Kills = Literal["values", "elsewhere", "memory"]


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """One rule of the book. `page` is what rules/pages holds of it, `message` its first line.

    file: the module of rules/ that holds its function `gvNNN`; by default one named as its page.
    needs: what has to hold before it is asked, with commas: the names in rules/engine.py, codes
    that must not have been found, and "setting KEY" where the spec may turn it off. spoils: why a
    rule that needs it not to be found is not asked after it.
    severity: "warning" for a hazard in a function whose gradients are right.
    catches: the file of specs/gallery with its fault.
    asked: no for a code that is found where user code is called. last: what is said when all is
    known.
    rank: of findings on one (input, output) the lowest stands and names the others; none: it stands
    beside others, as does one that is `apart`. price, worth: forward and backward calls that a rule
    takes at least which varies the call (one input, one output, nothing wrong); where the budget is
    short such rules wait, those of the largest worth are asked first, and what it does not afford
    is left out.
    verdict: of a check with this error. stops: nothing more can be said of the check after it.
    refused: it explains why the engine refuses what backward returned. spreads: what is written
    into enters the gradients of other inputs too. apart: it says nothing against the gradient at
    this point.
    own_dtype: what it compares is the function in its own dtype, whatever stands in for it in
    float64.
    line: it is about a gradient that a line of backward returns, which is shown. method: whose line
    is shown ("saving": the method that saves for backward; "apply": one of the class's own); none:
    of forward where a finding is about an output alone, else of backward.
    causes: the comparison in which the cause of a finding is looked for. takes_over: the cause of a
    mismatch that is this rule's fault.
    kills: what `mutate` lets it judge: the values of a gradient, those at other inputs, or what is
    remembered from call to call.
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
        """The name of its page."""
        return f"{self.code}_{self.name}".lower().replace("-", "_")

    @property
    def numeric(self) -> bool:
        """Does it rest on finite differences at the point, whose elements tell the cause?"""
        return self.causes in ("finite differences", "deviations")
