"""One call of a function, forward and backward, at the inputs of a case."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from gradverify.model.case import Case
from gradverify.model.fault import ToolError
from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import Frame
from gradverify.subject.draw import DTYPES, generator, signed
from gradverify.subject.failure import UserCodeError, attempted, describe
from gradverify.subject.machine import seeded
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.subject.subject import Argument, Graph, Subject
from gradverify.subject.target import Target, live

SMALL, LARGE = 1e-4, 3.0  # steps relative to an argument, to see whether forward is constant there
FEW = 0.1  # share of outputs that may change by a small step of a piecewise constant function
VISIBLE = 20  # rounding errors of an output that the change by a small step must exceed


class Level(IntEnum):
    """How far a call came."""

    NONE, RAISED, NOT_DIFFERENTIABLE, NOT_FINITE, NO_BACKWARD, ZERO, WHOLE = range(7)


class Outcome(NamedTuple):
    """The outcome of one call. `frame`: the line of the user's code that raised; `nothing`: the
    arguments for which backward returned no gradient; `stepped`: one in which forward is piecewise
    constant though backward returned a gradient for it."""

    level: Level
    error: str = ""
    hint: str | None = None
    frame: Frame | None = None
    nothing: tuple[str, ...] = ()
    stepped: str | None = None

    @property
    def surrogate(self) -> str | None:
        """Why the gradient cannot be compared with that of forward, and what to do; else None."""
        return self.stepped and (
            f"forward is piecewise constant in {self.stepped}, and backward gives it a gradient: "
            "name the function whose gradient that is under `surrogate`"
        )

    @property
    def reached(self) -> tuple[int, int]:
        """How far the call came: the larger, the more it did before it failed."""
        return self.level, self.frame.line if self.frame else 0


def called(case: Case, target: Target, build: type[torch.nn.Module] | None = None) -> Outcome:
    """Call a function forward and backward once at the inputs of a case, whose module class is
    `build`. Raises ToolError, and interrupts."""

    def ran() -> tuple[Subject, Graph, list[Tensor]]:
        made = target
        if build is not None:
            with seeded(0):
                made = live(case.target, build, case.init, DTYPES[case.settings.dtype])
        subject = assemble(case, made, drawn_inputs(case))
        graph = subject.probed(subject.leaves())
        return subject, graph, [y for y in graph.outputs if _differentiable(y)]

    try:
        found = attempted(ran)
    except BaseException as error:
        if is_interrupt(error) or isinstance(error, ToolError):
            raise
        return Outcome(Level.NONE, describe(error))
    if isinstance(found, UserCodeError):
        return Outcome(
            Level.RAISED, found.message, found.hint, found.frames[-1] if found.frames else None
        )
    subject, graph, outputs = found
    if not graph.leaves or not outputs:
        return Outcome(
            Level.NOT_DIFFERENTIABLE,
            "no output depends on an input in a way that autograd knows of",
        )
    if not all(y.numel() and bool(torch.isfinite(y.to_dense()).all()) for y in outputs):
        return Outcome(Level.NOT_FINITE, "its outputs are empty, or not finite")
    source = generator(0, "trial", "grad_output")
    gradients = attempted(subject.pull, graph, outputs, [signed(y, source) for y in outputs])
    if isinstance(gradients, UserCodeError):
        return Outcome(Level.NO_BACKWARD, gradients.message)
    given = list(zip(subject.differentiable, gradients, strict=True))
    nothing = tuple(argument.name for argument, gradient in given if gradient is None)
    dense = [gradient.to_dense() for gradient in gradients if gradient is not None]
    if any(bool(torch.isfinite(gradient).all() and (gradient != 0).any()) for gradient in dense):
        stepped = (
            argument.name
            for argument, gradient in given
            if gradient is not None and _stepped(subject, argument, gradient.to_dense(), outputs)
        )
        return Outcome(Level.WHOLE, nothing=nothing, stepped=next(stepped, None))
    return Outcome(Level.ZERO, "its gradients are zero", nothing=nothing)


def _differentiable(y: object) -> bool:
    return isinstance(y, Tensor) and y.requires_grad


def _stepped(subject: Subject, argument: Argument, gradient: Tensor, outputs: list[Tensor]) -> bool:
    """Whether hardly any output changes by a small step of an argument whose gradient says that
    many do, though they change by a large one: of a quantiser, with a gradient of its own."""
    before = [y.detach().to_dense() for y in outputs]
    x = argument.value.detach()
    rounding = max(torch.finfo(y.dtype).eps for y in (x, *before))
    if subject.odd:
        return False
    # Not in the direction of x, in which what normalises x is constant
    step = x.abs().clamp(min=SMALL) * signed(x, generator(0, "trial", "step"))
    expected = float((SMALL * step * gradient).abs().max())
    if expected <= VISIBLE * rounding * max(float(y.abs().max()) for y in before):
        return False

    def changed(size: float) -> int | None:
        """Return the number of outputs that change by a step; None if they are not comparable."""
        moved = subject.mapped(lambda a: x + size * step if a is argument else a.value)
        graph = attempted(lambda: moved.probed(moved.leaves()))
        if isinstance(graph, UserCodeError):
            return None
        after = [y.detach().to_dense() for y in graph.outputs if _differentiable(y)]
        if [y.shape for y in after] != [y.shape for y in before]:
            return None
        return sum(int((y != z).sum()) for y, z in zip(before, after, strict=True))

    most = min(sum(y.numel() for y in before), int((gradient != 0).sum()))
    few = changed(SMALL)
    return few is not None and few < most * FEW and bool(changed(LARGE))
