"""Rules about memory and returned values: what a call writes, saves, shares and keeps alive, and
the number, kind and metadata of the gradients that backward returns."""

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
from gradverify.rules.at_line import at_forward, at_forward_of
from gradverify.rules.differ import Difference, equal, on_another_graph, other_gradient, seldom
from gradverify.rules.engine import NotApplicable
from gradverify.rules.shown import Findings, changed, element_name
from gradverify.subject.ambient import generator_name
from gradverify.subject.another import elsewhere, other_points
from gradverify.subject.base_call import arguments, freed_arguments, saved_tensors
from gradverify.subject.differentiable import Graph
from gradverify.subject.draw import signed
from gradverify.subject.failure import shown, tried, type_name
from gradverify.subject.forms import dtype_name, is_jagged, of_type
from gradverify.subject.graph import Edge, RawReturn, function_nodes, wrong_number
from gradverify.subject.lifetime import still_alive
from gradverify.subject.snapshot import alike, attributes, overlaps
from gradverify.subject.subject import Argument
from gradverify.torch_private import is_view, version_preserved


# ---- GV202 grad-output-modified: backward writes into grad_output
def gv202(evidence: Evidence) -> Findings:
    for output, change in evidence.worked.damaged:
        name = evidence.name_of(output)
        detail = changed(f"grad_{name}", evidence.forward.outputs[output], change)
        yield Finding(
            "GV202",
            f"backward writes into grad_output of {name}{detail}",
            output=output,
            hint="work on a copy: grad_output.clone(), torch.where, or a product with a mask",
        )


# ---- GV203 input-modified: forward or backward writes into an input
COPY = "write into a copy"
HINTS = {
    "forward": "write into a copy; if it is meant to work in place, ctx.mark_dirty(x) and return x "
    "itself",
    "backward": "backward must leave what forward was given as it is: write into a copy",
}
LOST = (
    ", and backward does not rebuild it: the caller's tensor is lost",
    "leave the caller's tensors alone, or rebuild them in backward",
)
REBUILT = (
    " until backward rebuilds it: whatever reads it in between reads nothing, or memory that is "
    "not its own",
    "right inside a chain of reversible layers; the first one's input must be kept",
)


def gv203(evidence: Evidence) -> Findings:
    is_function = evidence.subject.target.kind == "autograd.Function"
    lost = (
        freed_arguments(evidence.subject, evidence.base)
        if evidence.forward.freed and evidence.worked.direct
        else ()
    )
    # Inputs whose memory forward gave back; they are lost if backward does not rebuild them
    for name in evidence.forward.freed:
        what, hint = LOST if name in lost else REBUILT
        found = Finding(
            "GV203",
            f"forward gives the memory of {name} back{what}",
            severity="error" if name in lost else "warning",
            input=name,
            hint=hint,
        )
        yield at_forward(found, evidence, name)
    seen = set[str]()
    for who, written in (
        ("forward", evidence.forward.written),
        ("backward", evidence.worked.written),
    ):
        for held, change in written:
            if held.kind != "argument" or held.name in seen:
                continue
            seen.add(held.name)
            hint = COPY
            severity = _severity(any(argument.name == held.name for argument in evidence.inputs))
            if severity == "warning":
                hint = "write into a copy, unless it is state that is meant to be updated"
            # Only a Function has a ctx, by which it can mark an input that it writes into
            elif who == "backward" or is_function:
                hint = HINTS[who]
            found = Finding(
                "GV203",
                f"{who} writes into {held.name}{changed(held.name, held.tensor, change)}",
                input=held.name,
                severity=severity,
                hint=hint,
            )
            yield at_forward(found, evidence, held.name) if who == "forward" else found
    for inner in (
        () if seen else {(each.cls, each.place): each for each in evidence.inner_writes}.values()
    ):
        detail = (
            ""
            if inner.change is None
            else f": an element was {inner.change[1]:.6g} before, {inner.change[2]:.6g} after"
        )
        found = Finding(
            "GV203",
            f"forward of {inner.cls.__name__} writes into its argument {inner.place}{detail}",
            severity=_severity(inner.differentiable),
            hint=HINTS["forward"],
        )
        yield at_forward_of(found, inner.cls, inner.place)


def _severity(differentiable: bool) -> Severity:
    """Return the severity of a write into an input: one that is not differentiated may be state,
    such as running statistics."""
    return "error" if differentiable else "warning"


# ---- GV204 saved-modified: backward writes into what forward saved or returned
def gv204(evidence: Evidence) -> Findings:
    for each in evidence.worked.written:
        if each.held.kind != "argument":
            name = f"the {each.held.name}" if each.held.kind == "saved" else each.held.name
            label = "" if each.held.kind == "saved" else each.held.name
            yield Finding(
                "GV204",
                f"backward writes into {name}{changed(label, each.held.tensor, each.change)}",
                output=each.held.place,
                hint="work out of place or on a clone: what forward saved or returned is read "
                "again by others",
            )


# ---- GV230 global-state: a call leaves torch's global state changed
PUT_BACK = (
    "put it back before the call ends (a `with` statement, or `finally`), or set it once where the "
    "program starts"
)
OWN_GENERATOR = (
    "seed inside `with torch.random.fork_rng(devices=[]):`, or draw from a generator of its own "
    "(torch.Generator, numpy.random.Generator)"
)


def gv230(evidence: Evidence) -> Findings:
    by_forward = evidence.fixed_by_forward
    for who, seen, fixed in (
        ("forward", evidence.forward.left, by_forward),
        (
            "backward",
            evidence.worked.left,
            [n for n in evidence.fixed_by_backward if n not in by_forward],
        ),
    ):
        found = [
            (f"leaves {left.what} changed: {left.before} before, {left.after} after", PUT_BACK)
            for left in seen
        ]
        found += [
            (
                f"seeds {generator_name(place)}: what is drawn after it is the same after every "
                "call",
                OWN_GENERATOR,
            )
            for place in fixed
        ]
        for message, hint in found:
            finding = Finding("GV230", f"{who} {message}", severity="warning", hint=hint)
            yield at_forward(finding, evidence) if who == "forward" else finding


# ---- GV231 unwritten-memory: a result depends on memory that nobody wrote
WRITE_FIRST = (
    "write every element of what `torch.empty`, `empty_like`, `new_empty` or `resize_` returns "
    "before it is read, or use `torch.zeros`"
)
WITHIN = "read within the tensors only"


def gv231(evidence: Evidence) -> Findings:
    what, hint = (
        ("unwritten memory", WRITE_FIRST)
        if evidence.memory.allocated
        else ("memory beside its tensors", WITHIN)
    )
    for found in evidence.memory.depends:
        if found.raised is not None:
            yield Finding(
                "GV231",
                f"what {what} holds decides whether {found.raised.message}",
                hint=hint,
                frames=found.raised.frames,
            )
            continue
        argument = None if found.input is None else evidence.inputs[found.input]
        name = argument.name if argument else evidence.name_of(found.output or 0)
        tensor = argument.value if argument else found.tensor
        loud, quiet = found.numbers
        yield Finding(
            "GV231",
            f"{'the gradient of ' if argument else ''}{name} depends on {what}: {found.count} of "
            f"{found.size} numbers do; {element_name(name, tensor, found.first)} is {loud:.6g} "
            f"where it holds NaN, {quiet:.6g} where it holds large numbers",
            input=name if argument else None,
            output=found.output,
            hint=hint,
        )


# ---- GV232 written-beside: a call writes beside its tensor
def gv232(evidence: Evidence) -> Findings:
    written = evidence.memory.out_of_bounds
    if written is not None:
        who = "backward" if evidence.memory.backward else "forward"
        found = written.raised(who).finding
        yield found if evidence.memory.backward else at_forward(found, evidence)


# ---- GV214 kept-alive: memory lives on after its last use
def gv214(evidence: Evidence) -> Findings:
    if evidence.interpreter:
        raise NotApplicable(
            "Triton's interpreter keeps what kernels got until the garbage collector runs"
        )
    own = evidence.subject.target.kind == "autograd.Function"
    v = evidence.worked.cotangents
    alive = tried(still_alive, evidence.subject, evidence.function, v, own)
    if alive is None:  # the function refuses inputs that are not leaves
        return
    if alive.gradients and all(map(equal, alive.values, evidence.outputs)):
        yield from on_another_graph(
            evidence,
            evidence.worked.gradients,
            alive.gradients,
            v,
            "whose inputs are results (x * 1)",
        )
    if alive.outputs or alive.nodes:
        what = " and ".join(
            [*alive.outputs, *(f"the node of {name}" for name in dict.fromkeys(alive.nodes))]
        )
        stay = "stays" if len(alive.outputs + alive.nodes) == 1 else "stay"
        yield Finding(
            "GV214",
            f"{what} {stay} in memory after backward when everything was dropped, until the "
            "garbage collector runs",
            hint="something refers to it in a circle, as an output does that is an attribute of "
            "ctx; "
            "ctx.save_for_backward holds outputs without one",
        )
    for name in alive.inputs:
        yield Finding(
            "GV214",
            f"{name} stays in memory as long as the output, although backward is over",
            input=name,
            hint="ctx.save_for_backward frees what it holds after backward, an attribute of ctx or "
            "a closure does not",
        )


# ---- GV215 stale-saved: an input or output that is changed after forward spoils the gradient
# silently
VERSIONS = (
    "ctx.save_for_backward keeps the version of a tensor, an attribute of ctx and `.data` do not"
)
OUTPUTS = (
    "save the output with ctx.save_for_backward, which keeps its version; `y.detach()` on ctx and "
    "`y.data` do not"
)

READ_AGAIN = (
    "what recomputes forward in backward, as activation checkpointing does, reads the tensor as it "
    "is then: leave it alone until backward is over"
)


def gv215(evidence: Evidence) -> Findings:
    own, checked = evidence.inputs, evidence.forward.checked

    def made() -> tuple[Graph, list[Tensor]]:
        """A graph, and what may be overwritten in it: the inputs, which are no leaves, and the
        outputs."""
        leaves = evidence.subject.leaves()
        graph = evidence.function.graph(leaves, [leaf * 1 for leaf in leaves])
        given = [
            x
            for argument, x in zip(evidence.subject.arguments, graph.arguments, strict=True)
            if argument.differentiable
        ]
        return graph, [*given, *(graph.outputs[place] for place in checked)]

    first = tried(made)
    if first is None:  # it refuses inputs that are no leaves
        return
    (graph, tensors), used = first, False
    # A module that recomputes its forward reads all of them in backward
    of_parameters = list[Finding]()
    for n, place in enumerate([*(None for _ in own), *checked]):
        if place is not None and not _is_asked(evidence, graph, tensors[n]):
            continue
        if used and not evidence.reusable:
            graph, tensors = made()
        argument = (
            own[n] if place is None else Argument(evidence.name_of(place), tensors[n].detach())
        )
        difference, used = _stale(evidence, graph, argument, tensors[n]), True
        if difference is None:
            continue
        given, wanted = difference.numbers
        when = (
            "between forward and backward"
            if place is None
            else "after forward, as an in-place activation does"
        )
        finding = Finding(
            "GV215",
            f"when {argument.name} is written in place {when}, backward does not raise but gives "
            f"another gradient: {given} at {difference.where} instead of {wanted}",
            input=argument.name if place is None else None,
            output=place,
            hint=(VERSIONS if place is None else OUTPUTS) if evidence.forward.nodes else READ_AGAIN,
        )
        again, tensors_again = made()
        if _stale(evidence, again, argument, tensors_again[n]) is None:
            yield seldom(replace(finding, output=None))
        elif argument.parameter:
            of_parameters.append(finding)
        else:
            yield finding
    yield from of_parameters[:1]


def _is_asked(evidence: Evidence, graph: Graph, y: Tensor) -> bool:
    """Return whether this output is to be overwritten: not an output that is an argument, or an
    attribute of its own ctx (GV214 reports that circle, and its repair repairs this too); nor,
    where each backward needs a forward of its own, an output that shares memory with nothing on
    ctx."""
    nodes = function_nodes(evidence.function.of(graph))
    kept = [tensor for node in nodes for _, tensor in attributes(node)]
    if (
        y.layout != torch.strided
        or any(y is x for x in graph.arguments)
        or (evidence.settings.looks_for("GV214") and any(tensor is y for tensor in kept))
    ):
        return False
    saved = [tensor for tensors in saved_tensors(nodes).values() for tensor in tensors]
    return evidence.reusable or any(overlaps(tensor, y) for tensor in (*kept, *saved))


def _stale(
    evidence: Evidence, graph: Graph, argument: Argument, written: Tensor
) -> Difference | None:
    """Return how a gradient differs while a tensor holds other numbers, None where it does not or
    backward raises. The tensor and its version are restored."""
    before, v = written.detach().clone(), evidence.worked.cotangents
    with version_preserved(written):
        try:
            written.detach().copy_(elsewhere(replace(argument, value=before)))
            seen = tried(evidence.function.gradients, graph, v, retain=evidence.reusable)
        except RuntimeError:  # the elements share memory and take no copy
            return None
        finally:
            with suppress(RuntimeError):
                written.detach().copy_(before)
    # seen is None: backward noticed the change, and raised
    return None if seen is None else other_gradient(evidence, seen)


# ---- GV219 output-alias: an output shares memory with an input, and autograd does not know
def gv219(evidence: Evidence) -> Findings:
    given = arguments(evidence.subject, evidence.base)
    for place, y in zip(evidence.forward.checked, evidence.returned, strict=True):
        # An output that is an argument itself is no alias
        known = is_view(y) or any(y is x for _, x in given)
        name = None if known else next((name for name, x in given if overlaps(y, x)), None)
        if name is not None:
            yield Finding(
                "GV219",
                f"{evidence.name_of(place)} shares memory with {name}, and autograd does not know "
                "it as a view: writing into one changes the other",
                input=name,
                output=place,
                hint="return a view that autograd tracks (x.view_as(x)), or a clone",
            )


# ---- GV224 saved-unused: forward saves tensors that backward never reads
def gv224(evidence: Evidence) -> Findings:
    floating = [
        a
        for a in evidence.subject.arguments
        if a.is_tensor and (a.value.is_floating_point() or a.value.is_complex())
    ]
    if not all(a.differentiable for a in floating):
        raise NotApplicable("a floating input needs no gradient here")
    packed = evidence.forward.packed
    if packed is None:
        raise NotApplicable(
            "what forward saves cannot be counted: it calls torch.func, which refuses the hooks "
            "that would"
        )
    if packed and not evidence.worked.unpacked:
        yield Finding(
            "GV224",
            f"forward saves {packed} tensor{'s' if packed > 1 else ''} for backward, which never "
            "reads ctx.saved_tensors",
            hint="what save_for_backward holds stays in memory until backward; what backward does "
            "not need can be left out",
        )


# ---- Which argument a gradient that backward returned belongs to: one of the checked function,
# where that is known
def edges_by_place(raw: RawReturn) -> dict[int, Edge]:
    """Return the edges for which the engine expects a gradient, by place among the returned
    ones."""
    places = (place for place, needed in enumerate(raw.needs) if needed)
    return dict(zip(places, (edge for edge in raw.edges if edge is not None), strict=False))


def input_at(evidence: Evidence, raw: RawReturn, place: int) -> str | None:
    """Return the argument of the checked function that a returned gradient belongs to: by its
    position, or by its leaf. None for a tensor inside the function."""
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
    # One return per class: others of the same class would repeat the message
    for raw in {raw.cls: raw for raw in reversed(evidence.backward.raw)}.values():
        expected, got = len(raw.needs), len(raw.returned)
        own = evidence.subject.positions if raw.cls is evidence.subject.target.subject else ()
        # A list returned for an argument that is a list is GV217's
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
            # A jagged gradient of a nested input is right
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
    given, wanted = dtype_name(gradient), dtype_name(edge.dtype)
    shape, own = tuple(gradient.shape), tuple(edge.shape)
    # The shape of a broadcast argument's gradient, which autograd sums down
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


# ---- GV213 gradient-alias: backward returns memory that is still in use elsewhere
def gv213(evidence: Evidence) -> Findings:
    # A backward that accumulates in a buffer returns the buffer: GV207 reports it
    if (
        evidence.settings.looks_for("GV207")
        and evidence.repeats is not None
        and not evidence.reusable
    ):
        raise NotApplicable("backward of one graph gives another gradient each time")
    returns = [(raw, "") for raw in evidence.worked.raw]
    # A backward that raises for ones is another rule's
    for raw in tried(lambda: evidence.for_ones[0]) or ():
        returns.append((raw, " for a grad_output of ones"))
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
    # Arguments that cannot have a gradient; a floating tensor that requires none may be given one
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
            else f"{dtype_name(argument.value)} tensor"
            if argument.is_tensor
            else type_name(argument.value)
        )
        hint = f"return None in the place of {name}"
        if of and any(each.differentiable for each in every if each.of == of):
            hint = (
                f"autograd does not look into lists: give each tensor of {name} as an argument of "
                f"its own, `apply(*{name}, …)`"
            )
        # The engine discards the gradient of an integer tensor, and refuses the others
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
# Factors of the input, which take it across signs, thresholds and bounds of its own size
WIDE = (-1.0, 1e3, -1e3)


def gv229(evidence: Evidence) -> Findings:
    own = evidence.subject.arguments
    silent = [
        gradient is not None and bool(gradient.numel()) and not bool(gradient.any())
        for gradient in evidence.worked.gradients
    ]
    if not any(silent) or all(
        zero or gradient is None
        for zero, gradient in zip(silent, evidence.worked.gradients, strict=True)
    ):
        return
    source = evidence.subject.generator("dense")
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
    """Return the first point with every axis of size 1 widened to 2: a softmax over one element is
    1, whatever the element."""

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
    """Return whether an output changes when only this argument changes. A forward that refuses the
    changed argument reads it, too."""

    def outputs(value: Tensor) -> list[Tensor] | None:
        twin = evidence.subject.twin(
            [replace(a, value=value) if i == place else a for i, a in enumerate(point)]
        )
        seen = tried(twin.called, twin.leaves())
        if seen is None:
            return None
        return [y.detach() for y in seen.outputs if isinstance(y, Tensor)]

    x: Tensor = point[place].value
    source = evidence.subject.generator("inert")
    others = (
        [other[place].value for other in points if other is not point]
        + [x * factor for factor in WIDE]
        + [x + signed(x, source)]
    )
    here = outputs(x)
    return here is not None and any(
        (there := outputs(other)) is None or not alike(here, there) for other in others
    )
