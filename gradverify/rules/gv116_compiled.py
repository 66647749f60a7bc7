"""GV116 compiled: through torch.compile the function gives other numbers, or raises

What. Called through `torch.compile`, at the inputs or at another point of the same kind, outputs or gradients are not those of the eager function.

Why it matters. Whoever compiles a model compiles the functions in it. What depends on Python state, reads values that tracing bakes in, or takes
another path while it is compiled then computes something else, without a word.

How it is measured. Under `compile: true`, which may stand in a `matrix:`. With the backend `aot_eager`, which traces forward and backward and runs
them by torch's own kernels, so that numbers may differ by rounding only; where torch.compile breaks the graph, the rest runs eagerly. The eager
function is judged by all other rules of the same check. Random functions are not compared: compiled, they may draw in another order. Importing the
compiler takes two to four seconds in every worker.

How to repair. No branches on `torch.compiler.is_compiling()`, on values or on state that Python keeps; `torch.library.custom_op` with a fake kernel
for what cannot be traced.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        if torch.compiler.is_compiling():
            return grad_output * x              # forgets the factor
        return grad_output * 2 * x
"""

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

CATCHES = "forgets_a_factor_when_compiled"
ORDER = 446
PRICE, WORTH = (4, 4), 60
APART = True
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
