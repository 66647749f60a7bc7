"""What backward returns: how many gradients, of which kind, in whose memory; and for whom there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.numerics.function.coordinates import flat_real
from gradverify.rules.protocol import NotApplicable
from gradverify.subject.alias import Shared
from gradverify.subject.another import other_points
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError, shown, type_name
from gradverify.subject.forms import is_jagged, of_type
from gradverify.subject.graph import Edge, RawReturn, wrong_number
from gradverify.subject.snapshot import alike
from gradverify.subject.subject import Argument


# ---- Which argument a gradient belongs to that a backward returned: of the checked function, where it can be told
def edges_by_place(raw: RawReturn) -> dict[int, Edge]:
    """What the engine expects at each place of the returned gradients that needs one."""
    places = (place for place, needed in enumerate(raw.needs) if needed)
    return dict(zip(places, (edge for edge in raw.edges if edge is not None), strict=False))


def input_at(evidence: Evidence, raw: RawReturn, place: int) -> str | None:
    """The argument of the checked function at that place: by its position, or because it is the very leaf. None: something inside the function."""
    positions = evidence.subject.positions
    if raw.cls is evidence.subject.target.subject and place < len(positions) == len(raw.needs):
        return positions[place][0].whole
    edge = edges_by_place(raw).get(place)
    leaves = zip(evidence.forward.leaves, evidence.inputs, strict=True)
    return next((argument.name for leaf, argument in leaves if edge is not None and edge.leaf == id(leaf)), None)


# ---- GV212 gradient-metadata: backward returns the wrong number, dtype, device or shape of gradients
OWN = "return a gradient of the input's own shape, dtype and device"


def gv212(evidence: Evidence) -> Iterator[Finding]:
    refused = wrong_number(evidence.backward.error.message) if evidence.backward.error else None
    if refused is not None:
        yield _counted(*refused)
    for raw in _first_of_each(evidence.backward.raw):
        if _is_one_list(evidence, raw):
            yield _listed(raw.name, len(raw.returned[0]))
            continue
        yield from _number(raw)
        for name, edge, gradient in _aligned(raw, evidence):
            if not (isinstance(gradient, Tensor) and is_jagged(gradient) and evidence.odd is not None):     # its input is nested too
                yield from _metadata(raw.name, name, edge, gradient)


def _first_of_each(raws: tuple[RawReturn, ...]) -> list[RawReturn]:
    """One return per class is enough: the others would repeat the sentence."""
    return list({raw.cls: raw for raw in reversed(raws)}.values())


def _number(raw: RawReturn) -> Iterator[Finding]:
    """Trailing Nones are allowed by autograd."""
    expected, got = len(raw.needs), len(raw.returned)
    if got < expected or any(gradient is not None for gradient in raw.returned[expected:]):
        yield _counted(raw.name, expected, got)


def _is_one_list(evidence: Evidence, raw: RawReturn) -> bool:
    """Did backward return a list in place of a tuple? One in the place of an argument that is a list is GV217's."""
    own = evidence.subject.positions if raw.cls is evidence.subject.target.subject else ()
    return len(raw.returned) == 1 and isinstance(raw.returned[0], list) and not (own and own[0][0].of)


def _listed(name: str, got: int) -> Finding:
    return Finding("GV212", f"backward of {name} returns a list of {got}, which autograd takes for one gradient that is no tensor",
                   hint="return a tuple: `return a, b`")


def _counted(name: str, expected: int, got: int) -> Finding:
    return Finding("GV212", f"backward of {name} returns {got} gradient{'s' if got != 1 else ''}, but forward has {expected} "
                   f"argument{'s' if expected != 1 else ''}", hint="return one value per argument of forward, None where there is no gradient")


def _aligned(raw: RawReturn, evidence: Evidence) -> Iterator[tuple[str, Edge, object]]:
    """(argument, what autograd expects, what was returned) for the tensor arguments that need a gradient."""
    for place, edge in edges_by_place(raw).items():
        if place < len(raw.returned) and raw.returned[place] is not None:
            yield input_at(evidence, raw, place) or f"argument {place}", edge, raw.returned[place]


def _metadata(cls: str, name: str, edge: Edge, gradient: object) -> Iterator[Finding]:
    if not isinstance(gradient, Tensor):
        yield Finding("GV212", f"backward of {cls} returns {shown(gradient):.40} for {name}, which is no tensor", input=name)
        return
    odd = of_type(gradient)
    if odd is not None:
        yield Finding("GV212", f"backward of {cls} returns {odd[0]} for {name}, which is a dense one", input=name,
                      hint=f"return a plain tensor: {odd[1]}")
        return
    wrong = []
    if gradient.dtype != edge.dtype:
        wrong.append(f"a {_short(gradient.dtype)} gradient for {name}, which is {_short(edge.dtype)}")
    if gradient.device != edge.device:
        wrong.append(f"a gradient on {gradient.device} for {name}, which is on {edge.device}")
    if tuple(gradient.shape) != edge.shape and not _sums_to(gradient.shape, edge.shape):
        wrong.append(f"a gradient of shape {list(gradient.shape)} for {name}, which has {list(edge.shape)}")
    if wrong:
        yield Finding("GV212", f"backward of {cls} returns {' and '.join(wrong)}", input=name,
                      hint=OWN)
    elif tuple(gradient.shape) != edge.shape:
        yield Finding("GV212", f"backward of {cls} returns a gradient of shape {list(gradient.shape)} for {name}, which has {list(edge.shape)}: "
                      "autograd sums it down", severity="warning", input=name, hint=OWN)


def _sums_to(shape: torch.Size, wanted: tuple[int, ...]) -> bool:
    """Can a gradient of this shape be summed to the wanted one, as for a broadcast argument?"""
    if len(shape) < len(wanted):
        return False
    return all(want in (1, have) for have, want in zip(shape[len(shape) - len(wanted):], wanted, strict=True))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- GV213 gradient-alias: backward returns memory that somebody else goes on using
def gv213(evidence: Evidence) -> Iterator[Finding]:
    if evidence.settings.looks_for("GV207") and evidence.repeats is not None and not evidence.reusable:     # what adds up in a buffer returns that
        raise NotApplicable("backward of one graph gives another gradient each time")
    told = set[tuple[type | str, int]]()
    returns = [(raw, "") for raw in evidence.worked.raw] + [(raw, " for a grad_output of ones") for raw in _for_ones(evidence)]
    for (raw, when), share in ((each, share) for each in returns for share in each[0].shares):
        if (raw.cls, share.place) not in told:
            told.add((raw.cls, share.place))
            yield _finding(evidence, raw, share, when)


def _for_ones(evidence: Evidence) -> tuple[RawReturn, ...]:
    """Nothing where backward raises for ones, which is another rule's."""
    try:
        return evidence.for_ones[0]
    except UserCodeError:
        return ()


def _finding(evidence: Evidence, raw: RawReturn, share: Shared, when: str) -> Finding:
    own, twin = input_at(evidence, raw, share.place), share.twin
    name = own or f"argument {share.place}"
    other = share.name if twin is None else f"the gradient for {input_at(evidence, raw, twin) or f'argument {twin}'}"
    return Finding("GV213", f"the gradient that backward of {raw.name} returns for {name} shares memory with {other}{when}", input=own,
                   severity="warning" if twin is not None else "error", hint="return a tensor of its own: .clone() where nothing is computed")


# ---- GV216 unused-backward: the Function's own backward is not in the graph
def gv216(evidence: Evidence) -> Iterator[Finding]:
    cls = evidence.subject.target.subject
    if evidence.forward.checked and cls not in evidence.forward.classes:
        nodes = [output.grad_fn.name() for output in evidence.returned if output.grad_fn is not None]
        instead = f"they were computed by {nodes[0]}" if nodes else "an input is returned as it is"
        yield Finding("GV216", f"{cls.__name__} is not in the graph of its outputs: {instead}, and backward never runs")


# ---- GV217 integer-gradient: backward returns a gradient for an argument that has none
def gv217(evidence: Evidence) -> Iterator[Finding]:
    if not any(map(_has_none, evidence.subject.arguments)):
        raise NotApplicable("every argument is a floating tensor")
    cls = evidence.subject.target.subject
    raw = next((raw for raw in evidence.backward.raw if raw.cls is cls), None)
    if raw is None:
        return
    for (argument, *_), gradient in zip(evidence.subject.positions, raw.returned, strict=False):
        if _has_none(argument) and gradient is not None:
            name = argument.whole
            severity: Severity = "warning" if argument.is_tensor and not argument.of else "error"      # the engine refuses anything else
            yield Finding("GV217", f"backward returns a gradient for {name}, which is a {_kind(argument)} and has none", severity=severity,
                          input=name, hint=_in_its_place(argument, evidence))


def _in_its_place(argument: Argument, evidence: Evidence) -> str:
    """Autograd does not look into a list: its tensors get no gradients through it, whatever is returned in its place."""
    members = [each for each in evidence.subject.arguments if each.of == argument.of]
    if argument.of and any(each.differentiable for each in members):
        return f"autograd does not look into lists: give each tensor of {argument.whole} as an argument of its own, `apply(*{argument.whole}, …)`"
    return f"return None in the place of {argument.whole}"


def _kind(argument: Argument) -> str:
    if argument.of:
        return "list"
    return str(argument.value.dtype).removeprefix("torch.") + " tensor" if argument.is_tensor else type_name(argument.value)


def _has_none(argument: Argument) -> bool:
    """Has this argument no gradient by its nature? (A floating tensor that does not require one may be given one.)"""
    return argument.of is not None or not argument.is_tensor or not (argument.value.is_floating_point() or argument.value.is_complex())


# ---- GV221 empty: backward fails on the empty tensor that the spec gives
def gv221(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.empty:
        raise NotApplicable("the spec gives no zero size")
    error = evidence.backward.error
    if error is not None:
        shapes = ", ".join(f"{a.name} {list(a.value.shape)}" for a in evidence.subject.arguments if a.is_tensor)
        yield Finding("GV221", f"on an empty tensor ({shapes}) {error.message}", frames=error.frames,
                      hint="gradients have the inputs' shapes there too, and are zero where the sum is over nothing")
        return
    if any(y.numel() for y in evidence.outputs):
        return
    for argument, gradient in zip(evidence.inputs, evidence.backward.gradients, strict=True):
        if gradient is not None and bool((flat_real(gradient) != 0).any()):
            yield Finding("GV221", f"the output is empty, so the gradient of {argument.name} must be zero, but it holds "
                          f"{float(flat_real(gradient).abs().max()):.6g}", input=argument.name,
                          hint="a sum over nothing is zero")


# ---- GV229 inert-input: an input moves no output, and gets zeros as its gradient
WIDE = (-1.0, 1e3, -1e3)    # times the input: across every sign, threshold and bound of its own size


def gv229(evidence: Evidence) -> Iterator[Finding]:
    silent = [_is_zero(gradient) for gradient in evidence.worked.gradients]
    if not any(silent) or all(zero or gradient is None for zero, gradient in zip(silent, evidence.worked.gradients, strict=True)):
        return
    points = [list(evidence.subject.arguments), *islice(other_points(evidence.subject), 1), _dense(evidence)]
    for argument in (argument for argument, zero in zip(evidence.inputs, silent, strict=True) if zero):
        place = next(i for i, each in enumerate(evidence.subject.arguments) if each is argument)
        if not any(_moves(evidence, point, place, points) for point in points) and not _moves(evidence, _widened(points), place, []):
            yield Finding("GV229", f"{argument.name} moves no output at any point looked at, and backward returns zeros for it",
                          input=argument.name, hint="if it is not meant to be differentiated, return None for it")


def _is_zero(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.numel()) and not bool(gradient.any())


def _dense(evidence: Evidence) -> list[Argument]:
    """A point without zeros."""
    source = generator(evidence.settings.seed, evidence.subject.case.check, "dense")
    own = evidence.subject.arguments
    return [replace(a, value=torch.where(a.value == 0, signed(a.value, source), a.value)) if a.differentiable else a for a in own]


def _widened(points: Sequence[Sequence[Argument]]) -> list[Argument]:
    """The first point with two elements along every axis that has one: a softmax over one element is 1, whatever that is."""
    return [replace(here, value=_doubled(here.value, there.value)) if here.differentiable and here.form is None else here
            for here, there in zip(points[0], points[1], strict=True)]


def _doubled(x: Tensor, other: Tensor) -> Tensor:
    for axis in (axis for axis, size in enumerate(x.shape) if size == 1):
        x, other = torch.cat([x, other], axis), torch.cat([other, x], axis)
    return x


def _moves(evidence: Evidence, point: Sequence[Argument], place: int, points: Sequence[Sequence[Argument]]) -> bool:
    """Does an output differ when this argument alone is another one? A forward that refuses it says that it reads it."""
    x: Tensor = point[place].value
    source = generator(evidence.settings.seed, evidence.subject.case.check, "inert")
    others = [other[place].value for other in points if other is not point] + [x * factor for factor in WIDE] + [x + signed(x, source)]
    here = _outputs(evidence, point)
    if here is None:
        return False
    for other in others:
        there = _outputs(evidence, [replace(a, value=other) if i == place else a for i, a in enumerate(point)])
        if there is None or not alike(here, there):
            return True
    return False


def _outputs(evidence: Evidence, arguments: Sequence[Argument]) -> list[Tensor] | None:
    """All tensors that forward returns there; None where it refuses."""
    twin = evidence.subject.twin(arguments)
    try:
        return [y.detach() for y in twin.forward(twin.leaves()) if isinstance(y, torch.Tensor)]
    except UserCodeError:
        return None
