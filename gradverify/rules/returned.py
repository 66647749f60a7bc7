"""What backward returns: how many gradients, of which kind, in whose memory; and for whom there is
none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.numerics.function.coordinates import flat_real
from gradverify.rules.shown import Findings, NotApplicable
from gradverify.subject.another import other_points
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError, shown, type_name
from gradverify.subject.forms import is_jagged, of_type
from gradverify.subject.graph import Edge, RawReturn, wrong_number
from gradverify.subject.snapshot import alike
from gradverify.subject.subject import Argument


# ---- Which argument a gradient belongs to that a backward returned: of the checked function, where
# it can be told
def edges_by_place(raw: RawReturn) -> dict[int, Edge]:
    """What the engine expects at each place of the returned gradients that needs one."""
    places = (place for place, needed in enumerate(raw.needs) if needed)
    return dict(zip(places, (edge for edge in raw.edges if edge is not None), strict=False))


def input_at(evidence: Evidence, raw: RawReturn, place: int) -> str | None:
    """The argument of the checked function at that place: by its position, or because it is the
    very leaf. None: something inside the function."""
    positions = evidence.subject.positions
    if raw.cls is evidence.subject.target.subject and place < len(positions) == len(raw.needs):
        return positions[place][0].whole
    edge = edges_by_place(raw).get(place)
    leaves = zip(evidence.forward.leaves, evidence.inputs, strict=True)
    return next(
        (argument.name for leaf, argument in leaves if edge is not None and edge.leaf == id(leaf)),
        None,
    )


# ---- GV212 gradient-metadata: backward returns the wrong number, dtype, device or shape of
# gradients
OWN = "return a gradient of the input's own shape, dtype and device"


def gv212(evidence: Evidence) -> Findings:
    def counted(name: str, expected: int, got: int) -> Finding:
        return Finding(
            "GV212",
            f"backward of {name} returns {got} gradient{'s' if got != 1 else ''}, but forward has "
            f"{expected} argument{'s' if expected != 1 else ''}",
            hint="return one value per argument of forward, None where there is no gradient",
        )

    refused = wrong_number(evidence.backward.error.message) if evidence.backward.error else None
    if refused is not None:
        yield counted(*refused)
    # The others of a class would repeat the sentence
    for raw in {raw.cls: raw for raw in reversed(evidence.backward.raw)}.values():
        expected, got = len(raw.needs), len(raw.returned)
        own = evidence.subject.positions if raw.cls is evidence.subject.target.subject else ()
        # In the place of a list it is GV217's
        if got == 1 and isinstance(raw.returned[0], list) and not (own and own[0][0].of):
            yield Finding(
                "GV212",
                f"backward of {raw.name} returns a list of {len(raw.returned[0])}, which autograd "
                "takes for one gradient that is no tensor",
                hint="return a tuple: `return a, b`",
            )
            continue
        # Autograd allows trailing Nones
        if got < expected or any(gradient is not None for gradient in raw.returned[expected:]):
            yield counted(raw.name, expected, got)
        for place, edge in edges_by_place(raw).items():
            gradient = raw.returned[place] if place < got else None
            # Its input is nested too
            jagged = (
                isinstance(gradient, Tensor) and is_jagged(gradient) and evidence.odd is not None
            )
            if gradient is not None and not jagged:
                yield from _metadata(
                    raw.name, input_at(evidence, raw, place) or f"argument {place}", edge, gradient
                )


def _metadata(cls: str, name: str, edge: Edge, gradient: object) -> Findings:
    if not isinstance(gradient, Tensor):
        yield Finding(
            "GV212",
            f"backward of {cls} returns {shown(gradient):.40} for {name}, which is no tensor",
            input=name,
        )
        return
    odd = of_type(gradient)
    if odd is not None:
        yield Finding(
            "GV212",
            f"backward of {cls} returns {odd[0]} for {name}, which is a dense one",
            input=name,
            hint=f"return a plain tensor: {odd[1]}",
        )
        return
    given, wanted = (str(each.dtype).removeprefix("torch.") for each in (gradient, edge))
    shape, own = tuple(gradient.shape), tuple(edge.shape)
    # as of a broadcast argument, which autograd sums down
    sums = len(shape) >= len(own) and all(
        want in (1, have) for have, want in zip(shape[len(shape) - len(own) :], own, strict=True)
    )
    wrong = [
        words
        for words, is_wrong in (
            (f"a {given} gradient for {name}, which is {wanted}", gradient.dtype != edge.dtype),
            (
                f"a gradient on {gradient.device} for {name}, which is on {edge.device}",
                gradient.device != edge.device,
            ),
            (
                f"a gradient of shape {list(shape)} for {name}, which has {list(own)}",
                shape != own and not sums,
            ),
        )
        if is_wrong
    ]
    if wrong:
        yield Finding(
            "GV212", f"backward of {cls} returns {' and '.join(wrong)}", input=name, hint=OWN
        )
    elif shape != own:
        yield Finding(
            "GV212",
            f"backward of {cls} returns a gradient of shape {list(shape)} for {name}, which has "
            f"{list(own)}: autograd sums it down",
            severity="warning",
            input=name,
            hint=OWN,
        )


# ---- GV213 gradient-alias: backward returns memory that somebody else goes on using
def gv213(evidence: Evidence) -> Findings:
    # What adds up in a buffer returns that
    if (
        evidence.settings.looks_for("GV207")
        and evidence.repeats is not None
        and not evidence.reusable
    ):
        raise NotApplicable("backward of one graph gives another gradient each time")
    returns = [(raw, "") for raw in evidence.worked.raw]
    with suppress(UserCodeError):  # that backward raises for ones is another rule's
        returns += [(raw, " for a grad_output of ones") for raw in evidence.for_ones[0]]
    reported = set[tuple[type | str, int]]()
    for (raw, when), share in ((each, share) for each in returns for share in each[0].shares):
        if (raw.cls, share.place) in reported:
            continue
        reported.add((raw.cls, share.place))
        own, twin = input_at(evidence, raw, share.place), share.twin
        other = (
            share.name
            if twin is None
            else f"the gradient for {input_at(evidence, raw, twin) or f'argument {twin}'}"
        )
        yield Finding(
            "GV213",
            f"the gradient that backward of {raw.name} returns for "
            f"{own or f'argument {share.place}'} shares memory with {other}{when}",
            input=own,
            severity="warning" if twin is not None else "error",
            hint="return a tensor of its own: .clone() where nothing is computed",
        )


# ---- GV216 unused-backward: the Function's own backward is not in the graph
def gv216(evidence: Evidence) -> Findings:
    cls = evidence.subject.target.subject
    if evidence.forward.checked and cls not in evidence.forward.classes:
        nodes = [
            output.grad_fn.name() for output in evidence.returned if output.grad_fn is not None
        ]
        instead = f"they were computed by {nodes[0]}" if nodes else "an input is returned as it is"
        yield Finding(
            "GV216",
            f"{cls.__name__} is not in the graph of its outputs: {instead}, and backward never "
            "runs",
        )


# ---- GV217 integer-gradient: backward returns a gradient for an argument that has none
def gv217(evidence: Evidence) -> Findings:
    cls, every = evidence.subject.target.subject, evidence.subject.arguments
    # those that have none by their nature: a floating tensor that does not require one may be given
    # one
    without = [
        a
        for a in every
        if a.of is not None
        or not a.is_tensor
        or not (a.value.is_floating_point() or a.value.is_complex())
    ]
    if not without:
        raise NotApplicable("every argument is a floating tensor")
    raw = next((raw for raw in evidence.backward.raw if raw.cls is cls), None)
    for (argument, *_), gradient in zip(
        evidence.subject.positions, raw.returned if raw else (), strict=False
    ):
        if not any(argument is each for each in without) or gradient is None:
            continue
        name, of = argument.whole, argument.of
        kind = (
            "list"
            if of
            else f"{str(argument.value.dtype).removeprefix('torch.')} tensor"
            if argument.is_tensor
            else type_name(argument.value)
        )
        hint = f"return None in the place of {name}"
        if of and any(each.differentiable for each in every if each.of == of):
            hint = (
                f"autograd does not look into lists: give each tensor of {name} as an argument of "
                f"its own, `apply(*{name}, …)`"
            )
        # The engine refuses anything else
        severity: Severity = "warning" if argument.is_tensor and not of else "error"
        yield Finding(
            "GV217",
            f"backward returns a gradient for {name}, which is a {kind} and has none",
            severity=severity,
            input=name,
            hint=hint,
        )


# ---- GV221 empty: backward fails on the empty tensor that the spec gives
def gv221(evidence: Evidence) -> Findings:
    if not evidence.empty:
        raise NotApplicable("the spec gives no zero size")
    error = evidence.backward.error
    if error is not None:
        shapes = ", ".join(
            f"{a.name} {list(a.value.shape)}" for a in evidence.subject.arguments if a.is_tensor
        )
        yield Finding(
            "GV221",
            f"on an empty tensor ({shapes}) {error.message}",
            frames=error.frames,
            hint="gradients have the inputs' shapes there too, and are zero where the sum is over "
            "nothing",
        )
        return
    if any(y.numel() for y in evidence.outputs):
        return
    for argument, gradient in zip(evidence.inputs, evidence.backward.gradients, strict=True):
        if gradient is not None and bool((flat_real(gradient) != 0).any()):
            yield Finding(
                "GV221",
                f"the output is empty, so the gradient of {argument.name} must be zero, but it "
                f"holds {float(flat_real(gradient).abs().max()):.6g}",
                input=argument.name,
                hint="a sum over nothing is zero",
            )


# ---- GV229 inert-input: an input moves no output, and gets zeros as its gradient
# Times the input: across every sign, threshold and bound of its own size
WIDE = (-1.0, 1e3, -1e3)


def gv229(evidence: Evidence) -> Findings:
    own, seed = evidence.subject.arguments, (evidence.settings.seed, evidence.subject.case.check)
    silent = [
        gradient is not None and bool(gradient.numel()) and not bool(gradient.any())
        for gradient in evidence.worked.gradients
    ]
    if not any(silent) or all(
        zero or gradient is None
        for zero, gradient in zip(silent, evidence.worked.gradients, strict=True)
    ):
        return
    source = generator(*seed, "dense")
    dense = [
        replace(a, value=torch.where(a.value == 0, signed(a.value, source), a.value))
        if a.differentiable
        else a
        for a in own
    ]
    points = [list(own), *islice(other_points(evidence.subject), 1), dense]
    for argument in (
        argument for argument, zero in zip(evidence.inputs, silent, strict=True) if zero
    ):
        place = next(i for i, each in enumerate(own) if each is argument)
        if not any(_moves(evidence, point, place, points) for point in points) and not _moves(
            evidence, _widened(points), place, []
        ):
            yield Finding(
                "GV229",
                f"{argument.name} moves no output at any point looked at, and backward returns "
                "zeros for it",
                input=argument.name,
                hint="if it is not meant to be differentiated, return None for it",
            )


def _widened(points: Sequence[Sequence[Argument]]) -> list[Argument]:
    """The first point with two elements along every axis that has one: a softmax over one element
    is 1, whatever that is."""

    def doubled(x: Tensor, other: Tensor) -> Tensor:
        for axis in (axis for axis, size in enumerate(x.shape) if size == 1):
            x, other = torch.cat([x, other], axis), torch.cat([other, x], axis)
        return x

    return [
        replace(here, value=doubled(here.value, there.value))
        if here.differentiable and here.form is None
        else here
        for here, there in zip(points[0], points[1], strict=True)
    ]


def _moves(
    evidence: Evidence, point: Sequence[Argument], place: int, points: Sequence[Sequence[Argument]]
) -> bool:
    """Does an output differ when this argument alone is another one? A forward that refuses it says
    that it reads it."""

    def outputs(value: Tensor) -> list[Tensor] | None:
        twin = evidence.subject.twin(
            [replace(a, value=value) if i == place else a for i, a in enumerate(point)]
        )
        try:
            return [
                y.detach()
                for y in twin.called(twin.leaves()).outputs
                if isinstance(y, torch.Tensor)
            ]
        except UserCodeError:
            return None

    x: Tensor = point[place].value
    source = generator(evidence.settings.seed, evidence.subject.case.check, "inert")
    others = (
        [other[place].value for other in points if other is not point]
        + [x * factor for factor in WIDE]
        + [x + signed(x, source)]
    )
    here = outputs(x)
    return here is not None and any(
        (there := outputs(other)) is None or not alike(here, there) for other in others
    )
