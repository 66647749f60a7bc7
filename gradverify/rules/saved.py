"""What forward saves and shares: tensors that live on, that go stale, that nobody reads, and
outputs in the memory of inputs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.differ import Difference, equal, on_another_graph, other_gradient
from gradverify.rules.shown import Findings, NotApplicable
from gradverify.subject.another import elsewhere
from gradverify.subject.base_call import arguments, saved_tensors
from gradverify.subject.differentiable import Graph
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import function_nodes
from gradverify.subject.lifetime import Alive, still_alive
from gradverify.subject.snapshot import attributes, overlaps
from gradverify.subject.subject import Argument
from gradverify.torch_private import is_view, version_preserved


# ---- GV214 kept-alive: memory lives on after its last use
def gv214(evidence: Evidence) -> Findings:
    if evidence.interpreter:
        raise NotApplicable(
            "Triton's interpreter keeps what kernels got until the garbage collector runs"
        )
    alive = Alive((), (), ())
    with suppress(UserCodeError):  # it may refuse inputs that are no leaves
        own = evidence.subject.target.kind == "autograd.Function"
        alive = still_alive(evidence.subject, evidence.function, evidence.worked.cotangents, own)
    if alive.gradients and all(map(equal, alive.values, evidence.outputs)):
        v, expected = evidence.worked.cotangents, evidence.worked.gradients
        yield from on_another_graph(
            evidence, expected, alive.gradients, v, "whose inputs are results (x * 1)"
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

    try:
        graph, tensors = made()
    except UserCodeError:
        return  # it refuses inputs that are no leaves
    used = False
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
            hint=VERSIONS if place is None else OUTPUTS,
        )
        if argument.parameter:
            of_parameters.append(finding)
        else:
            yield finding
    yield from of_parameters[:1]


def _is_asked(evidence: Evidence, graph: Graph, y: Tensor) -> bool:
    """Not an output that is an argument, or an attribute of its own ctx: that circle is told by
    GV214, and repaired in the same way. Nor, where each backward takes a forward of its own, one
    that nothing on ctx is seen to share memory with."""
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
    """How a gradient differs when a tensor holds other numbers; it and its version are put back."""
    before = written.detach().clone()
    with version_preserved(written):
        try:
            written.detach().copy_(elsewhere(replace(argument, value=before)))
            seen = evidence.function.gradients(
                graph, evidence.worked.cotangents, retain=evidence.reusable
            )
        # Backward noticed, or the elements share memory and take no copy
        except (UserCodeError, RuntimeError):
            return None
        finally:
            with suppress(RuntimeError):
                written.detach().copy_(before)
    return other_gradient(evidence, seen)


# ---- GV219 output-alias: an output shares memory with an input, and autograd does not know
def gv219(evidence: Evidence) -> Findings:
    given = arguments(evidence.subject, evidence.base)
    for place, y in zip(evidence.forward.checked, evidence.returned, strict=True):
        # not an output that is an argument itself
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
