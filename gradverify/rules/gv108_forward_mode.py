"""GV108 forward-mode: jvp differs from backward

What. The tangents that forward mode gives (`jvp` of a Function) are not the derivative that backward is the transpose of; or `jvp` raises,
or writes into the tangents it was given.

Why it matters. `torch.func.jvp`, `jacfwd`, `hessian`, Hessian-vector products and `torch.autograd.forward_ad` use jvp and never backward: a
formula that no training step runs is wrong unseen. `torch.autograd.gradcheck` looks at it only with `check_forward_ad=True`.

How it is measured. For a random direction u and cotangent v, ⟨v, jvp(u)⟩ must be ⟨backward(v), u⟩: two exact ways to one number, no step size. With
`make_dual` on all inputs, then on each alone (the others have no tangent: a zero), with v that makes small outputs count as much as large
ones. Where they part by more than either rounds away (then their difference jumps when the inputs move a little), the element is named, and
the finite difference there says which of the two is right; at a kink both may be.
Runs where every Function in the graph declares `jvp`, and on torch's operators; `forward_ad: true` makes a missing one a finding.

How to repair. Derive jvp from forward: the sum over all inputs of (derivative with respect to it) · (its tangent). Save what it needs with
`ctx.save_for_forward`. A tangent that is None is a zero.

Example.
    @staticmethod
    def jvp(ctx, x_t, y_t):             # of x * y
        x, y = ctx.saved_tensors
        return x_t * y                  # must be x_t * y + x * y_t
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import flat_all
from gradverify.numerics.rungs import Array
from gradverify.oracles.along import moduli
from gradverify.rules.push import Parted, Trial, pull
from gradverify.rules.shown import apart, coordinate_name
from gradverify.rules.sound import unasked
from gradverify.subject.declared import lacking
from gradverify.subject.failure import UserCodeError
from gradverify.subject.forward_mode import Pushed

CATCHES = "jvp_forgets_a_tangent"
ORDER = 370
METHOD = "jvp"
PRICE, WORTH = (2, 2), 80
APART = True
FACTOR = -3.0           # of u where an input moves alone: another sign and size, which a jvp that is not linear would show
SMALL = 1e-6            # of an output's value: tangents below that are not weighed up, they are mostly rounding
NESTED = "Nested forward mode AD is not supported"    # torch's own limit: the function uses forward mode itself (jvp, jacfwd, hessian)
HINT = "jvp returns, for each output, the sum over all inputs of (derivative with respect to it) · (its tangent); a tangent that is None is a zero"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    reason = unasked(evidence, "forward_ad", found)
    return reason if reason or evidence.settings.forward_ad is True else _unsupported(evidence)


def check(evidence: Evidence) -> Iterator[Finding]:
    reason, pushed = _unsupported(evidence), evidence.modes.forward_mode
    if reason is not None:
        yield Finding("GV108", f"the spec says `forward_ad: true`, but {reason}", hint="add a `jvp` staticmethod, or leave out `forward_ad: true`")
    elif isinstance(pushed, UserCodeError):
        yield Finding("GV108", f"jvp is declared, but {pushed.message}", frames=pushed.frames)
    elif pushed.damaged:
        name = evidence.inputs[pushed.damaged[0]].name
        yield Finding("GV108", f"jvp writes into the tangent of {name}", input=name, hint="work on a copy: the caller's tensor is damaged")
    else:
        yield from _compared(evidence, pushed)


def _unsupported(evidence: Evidence) -> str | None:
    """Why there is no forward mode; None where there is, or where it is declared and fails."""
    cls = lacking(evidence.forward.classes, "jvp")
    if cls is not None:
        return f"{cls} declares no jvp"
    raised = evidence.modes.forward_mode
    if not isinstance(raised, UserCodeError):
        return None
    if NESTED in raised.message or isinstance(raised.__cause__, NotImplementedError) or not evidence.forward.classes:
        return raised.message.partition(" Please file")[0]
    return None


def _compared(evidence: Evidence, pushed: Pushed) -> Iterator[Finding]:
    """Every input alone, then all together: a fault that one input shows is that input's."""
    moved = evidence.modes.direction("forward mode")
    joint = Trial(evidence, moved, None, pushed)
    cotangents = [flat_all(evidence.modes.weights("forward mode")).numpy(), _by_rows(evidence, joint)]
    pulled = [(v, pull(evidence, v)) for v in cotangents]
    found = False
    for place, argument in enumerate(evidence.inputs):
        own = np.where(evidence.modes.columns.tensor == place, FACTOR * moved, 0.0)
        try:
            sentence = _parts(Trial(evidence, own, place), pulled) if own.any() else None
        except UserCodeError as error:
            yield Finding("GV108", f"with a tangent for {argument.name} alone, {error.message}", input=argument.name, frames=error.frames)
            return
        if sentence:
            found = True
            yield Finding("GV108", sentence, input=argument.name, hint=HINT)
    sentence = None if found else _parts(joint, pulled)
    if sentence:
        yield Finding("GV108", sentence, hint=HINT)


def _by_rows(evidence: Evidence, joint: Trial) -> Array:
    """A cotangent in which every output that moves counts alike, however small its tangent."""
    signs = flat_all(evidence.cotangents("forward mode by rows")).numpy()
    size = np.maximum(moduli(joint.pushed.tangents), SMALL * moduli(evidence.outputs))
    usable = np.isfinite(size) & (size > 0)
    with np.errstate(over="ignore"):        # of a denormal size
        return np.where(usable, signs / np.where(usable, size, 1.0), 0.0)


def _parts(trial: Trial, pulled: list[tuple[Array, Array]]) -> str | None:
    """Describe where the tangents of a trial disagree with backward; None where they agree."""
    for v, gradient in pulled:
        if trial.agrees(v, gradient):
            continue
        parted = trial.parted(v, gradient)
        if parted is not None:
            return _sentence(trial, parted)
        if trial.refuted(v):
            return (f"with {_moving(trial)}, jvp gives other tangents than backward and the finite difference, though no element alone shows it: "
                    "jvp is not linear")
    return None


def _moving(trial: Trial) -> str:
    return "tangents for all inputs" if trial.alone is None else f"a tangent for {trial.evidence.inputs[trial.alone].name}"


def _sentence(trial: Trial, parted: Parted) -> str:
    evidence = trial.evidence
    y = coordinate_name([evidence.name_of(place) for place in evidence.forward.checked], evidence.outputs, parted.row)
    coordinate = int(evidence.modes.columns.coordinate[parted.column])
    x = coordinate_name([argument.name for argument in evidence.inputs], evidence.subject.inputs, coordinate)
    mine, theirs = apart(parted.forward, parted.backward)
    numeric = f", {parted.numeric + 0.0:.6g} by the finite difference" if np.isfinite(parted.numeric) else ""
    alone = "" if trial.alone is None or len(evidence.inputs) == 1 else ", its input alone having a tangent"
    return f"d {y} / d {x} is {mine} by jvp{alone}, but {theirs} by backward{numeric}"
