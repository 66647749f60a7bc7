"""GV116 compiled: through torch.compile the function gives other numbers, or raises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import gradients_apart, outputs_apart, unsteady
from gradverify.rules.protocol import NotApplicable
from gradverify.subject.another import other_points
from gradverify.subject.compiled import Compiler, no_compiler
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError

HINT = "look for what Python decides or keeps, which is fixed where torch.compile traces it"
BACKEND = re.compile(r"BackendCompilerFailed: backend='\w+' raised: ")     # what torch says before what was raised
TOLD = 400      # characters of what was raised


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if not evidence.settings.compile:
        return "the spec does not say `compile: true`"
    if evidence.draws:
        return "random numbers may be drawn in another order when compiled"
    return unsteady(found) or no_compiler()


def check(evidence: Evidence) -> Iterator[Finding | str]:
    compiler = Compiler()
    found = tuple(_compared(compiler, evidence, ""))
    yield from found
    if not compiler.graphs and not found:
        raise NotApplicable("torch.compile finds nothing in it that it can compile, and runs it eagerly")
    if found:
        return
    for arguments in islice(other_points(evidence.subject), 1):
        there = evidence.at(arguments)
        try:
            assert there.worked is not None
        except UserCodeError:
            return
        yield from _compared(compiler, there, " at another point of the same kind", evidence)


def _compared(compiler: Compiler, evidence: Evidence, where: str, first: Evidence | None = None) -> Iterator[Finding]:
    """Yield what differs between compiled and eager mode. At another point: of a function compiled at the `first` one."""
    v, eager = evidence.cotangents("base"), evidence.worked.gradients
    try:
        with compiler.compiling(evidence.subject):
            if first is not None:
                Differentiable(compiler.through(first.subject), first.forward.checked).once(first.cotangents("base"))
            outputs, gradients = Differentiable(compiler.through(evidence.subject), evidence.forward.checked).once(v)
    except UserCodeError as error:
        text = BACKEND.sub("", error.message).partition(" Set TORCH")[0]
        yield Finding("GV116", f"through torch.compile{where} {text if len(text) <= TOLD else f'{text[:TOLD]}…'}", frames=error.frames)
        return
    for number, y, usual in zip(evidence.forward.checked, outputs, evidence.outputs, strict=True):
        if (y.dtype, y.shape) != (usual.dtype, usual.shape):
            said = [f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}" for each in (y, usual)]
            yield Finding("GV116", f"through torch.compile{where} {evidence.name_of(number)} is {said[0]}, and not {said[1]} as in eager mode",
                          output=number, hint=HINT)
            return
    for apart in chain(outputs_apart(evidence, outputs), gradients_apart(evidence, eager, gradients, v)):
        yield Finding("GV116", f"through torch.compile{where} {apart.text} as in eager mode", input=apart.input, output=apart.output, hint=HINT)
