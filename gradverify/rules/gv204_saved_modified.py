"""GV204 saved-modified: backward writes into what forward saved or returned

What. After backward a saved tensor, an output or a module's buffer holds other numbers than before.

Why it matters. An output belongs to the caller, and often it is what forward saved: the value that a later layer, a metric or a second backward
reads is damaged. A second backward of the graph (`retain_graph=True`) gives another gradient, or raises.

How it is measured. Outputs, buffers and the saved tensors of every custom Function in the graph are remembered by value around the base
backward. Other attributes of ctx may change: they are scratch. An input that changes is GV203.

How to repair. Work out of place, or on a clone, in backward.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        y, = ctx.saved_tensors          # y is the output
        y.mul_(1 - y)                   # must be grad_output * y * (1 - y)
        return grad_output * y
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import NO_FUNCTION, changed

CATCHES = "squares_its_output_in_place"
ORDER = 110
METHOD = "backward"
RANK = 60
SPREADS = True


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.worked.written:
        if each.held.kind != "argument":
            name = f"the {each.held.name}" if each.held.kind == "saved" else each.held.name
            label = "" if each.held.kind == "saved" else each.held.name
            yield Finding("GV204", f"backward writes into {name}{changed(label, each.held.tensor, each.change)}", output=each.held.place,
                          hint="work out of place or on a clone: what forward saved or returned is read again by others")
