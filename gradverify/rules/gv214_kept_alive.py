"""GV214 kept-alive: memory lives on after its last use."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import equal, on_another_graph
from gradverify.rules.shown import NO_FUNCTION
from gradverify.subject.failure import UserCodeError
from gradverify.subject.lifetime import Alive, still_alive


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV207" in found:
        return "state is kept between calls"
    if evidence.interpreter:
        return "Triton's interpreter keeps what kernels got until the garbage collector runs"
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    alive = _alive(evidence)
    if alive.gradients and all(map(equal, alive.values, evidence.outputs)):
        v, expected = evidence.worked.cotangents, evidence.worked.gradients
        yield from on_another_graph(evidence, expected, alive.gradients, v, "whose inputs are results (x * 1)")
    if alive.outputs or alive.nodes:
        what = " and ".join([*alive.outputs, *(f"the node of {name}" for name in dict.fromkeys(alive.nodes))])
        stay = "stays" if len(alive.outputs + alive.nodes) == 1 else "stay"
        yield Finding("GV214", f"{what} {stay} in memory after backward when everything was dropped, until the garbage collector runs",
                      hint="something refers to it in a circle, as an output does that is an attribute of ctx; "
                           "ctx.save_for_backward holds outputs without one")
    for name in alive.inputs:
        yield Finding("GV214", f"{name} stays in memory as long as the output, although backward is over", input=name,
                      hint="ctx.save_for_backward frees what it holds after backward, an attribute of ctx or a closure does not")


def _alive(evidence: Evidence) -> Alive:
    """Nothing where the function refuses inputs that are no leaves."""
    try:
        return still_alive(evidence.subject, evidence.function, evidence.worked.cotangents, evidence.subject.target.kind == "autograd.Function")
    except UserCodeError:
        return Alive((), (), ())
