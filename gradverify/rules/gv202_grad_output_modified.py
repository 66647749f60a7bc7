"""GV202 grad-output-modified: backward writes into grad_output."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import element_name


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    for output, change in evidence.worked.damaged:
        y = evidence.forward.outputs[output]
        detail = ""
        if change is not None:
            index, before, after = change
            detail = f": {element_name(f'grad_{evidence.name_of(output)}', y, index)} was {before:.6g} before, {after:.6g} after"
        yield Finding("GV202", f"backward writes into grad_output of {evidence.name_of(output)}{detail}", output=output,
                      hint="work on a copy: grad_output.clone(), torch.where, or a product with a mask")
