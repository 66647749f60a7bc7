"""GV207 reentrant: a call changes what an earlier call returned or will return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import differing, differing_output
from gradverify.rules.at_forward import at_forward
from gradverify.rules.difference import Difference
from gradverify.rules.repeats import ANOTHER
from gradverify.rules.shown import RANDOM, apart, changed
from gradverify.subject.alias import overlaps
from gradverify.subject.differentiable import Gradients, Graph, Returned
from gradverify.subject.elsewhere import leaf_elsewhere
from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import change, same

HINT = "what belongs to one call must not be kept where other calls reach it: on the class, in a module, in a shared buffer"
AGAIN = "backward must leave what it reads as it is (ctx, the class, buffers), so that the next call of it finds the same"
FRESH = "return fresh tensors: what was handed out is the caller's"
REMEMBERED = ("compute it from the tensor in every call, or let what is remembered depend on its `_version`, which every write in place raises: "
              "a tensor's address, `id` and shape stay as they are")


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return RANDOM if "GV205" in found else None


def check(evidence: Evidence) -> Iterator[Finding]:
    found = next(_seen(evidence), None)
    if found is not None:
        yield found


def _seen(evidence: Evidence) -> Iterator[Finding]:
    """What each step of the sequence shows."""
    for again in evidence.repeats or ():
        yield from _gradients(evidence, again.values, "backward of one graph gives another gradient when it is called again", AGAIN)
    first = evidence.usable()
    earlier = _Earlier(evidence, first)
    leaves = _call_elsewhere(evidence, earlier)
    yield from _again(evidence, first)
    if leaves is not None and _can_be_updated(evidence, leaves):
        earlier.leave_out(leaves)
        yield from _updated(evidence, leaves)
    yield from _outputs(evidence)
    yield from earlier.changed()


class _Earlier:
    """Outputs and gradients that were handed out, remembered by name and value."""

    def __init__(self, evidence: Evidence, first: Graph) -> None:
        self._evidence, self._watched = evidence, list[tuple[str, Tensor, Tensor]]()
        self.outputs(first)
        for returned in evidence.repeats or ():
            self.gradients(returned)

    def outputs(self, graph: Graph) -> None:
        named = zip(map(self._evidence.name_of, self._evidence.forward.checked), self._evidence.function.of(graph), strict=True)
        self._watch((name, y, y.detach().clone()) for name, y in named)

    def gradients(self, returned: Returned) -> None:
        triples = zip(self._evidence.inputs, returned.handed_out, returned.values, strict=True)
        self._watch((f"the gradient of {argument.name}", tensor, value) for argument, tensor, value in triples
                    if tensor is not None and value is not None)

    def _watch(self, tensors: Iterator[tuple[str, Tensor, Tensor]]) -> None:
        self._watched += [(name, tensor, value) for name, tensor, value in tensors if tensor.layout == torch.strided]

    def leave_out(self, leaves: Sequence[Tensor]) -> None:
        """What lies in their memory, and is written with them by right."""
        self._watched = [each for each in self._watched if not any(overlaps(each[1], leaf) for leaf in leaves)]

    def changed(self) -> Iterator[Finding]:
        for name, now, then in self._watched:
            if not same(then, now):
                yield _finding(f"{name}, returned by an earlier call, is overwritten by a later one{changed('', now, change(then, now))}", FRESH)


def _call_elsewhere(evidence: Evidence, earlier: _Earlier) -> list[Tensor] | None:
    """A forward and a backward at another point, of which the leaves are left; a function that is not defined there says so, and is left alone."""
    leaves = [leaf_elsewhere(argument, leaf) for argument, leaf in zip(evidence.inputs, evidence.forward.leaves, strict=True)]
    try:
        graph = evidence.function.graph(leaves)
        earlier.outputs(graph)
        earlier.gradients(Returned.now(evidence.function.gradients(graph, evidence.worked.cotangents)))
    except UserCodeError:
        return None
    return leaves


def _again(evidence: Evidence, first: Graph) -> Iterator[Finding]:
    """Backward of the earlier call."""
    try:
        again = _backward(evidence, first)
    except UserCodeError as error:
        yield Finding("GV207", f"a forward and backward with other inputs breaks the backward of an earlier call, which works without them: "
                      f"{error.message}", hint=HINT, frames=error.frames)
        return
    yield from _gradients(evidence, again, "a forward and backward with other inputs changes the gradient of an earlier call")


def _backward(evidence: Evidence, graph: Graph) -> Gradients:
    return evidence.function.gradients(graph, evidence.worked.cotangents, retain=evidence.repeats is not None)


def _gradients(evidence: Evidence, again: Gradients, what: str, hint: str = HINT) -> Iterator[Finding]:
    difference = _other_gradient(evidence, again)
    if difference is not None:
        yield _finding(f"{what}: {_first_and_then(difference)}", hint)


def _outputs(evidence: Evidence) -> Iterator[Finding]:
    difference = _other_values(evidence, evidence.later)
    if difference is not None:
        yield at_forward(_finding(f"forward gives other values after a call with other inputs: {_first_and_then(difference)}"), evidence)


def _other_values(evidence: Evidence, graph: Graph) -> Difference | None:
    """Where a forward with the numbers of the base call has other outputs."""
    places = zip(evidence.forward.checked, evidence.outputs, evidence.function.of(graph), strict=True)
    found = (differing_output(evidence, place, first, now) for place, first, now in places if first.shape == now.shape)
    return next((difference for difference in found if difference is not None), None)


def _other_gradient(evidence: Evidence, again: Gradients) -> Difference | None:
    triples = zip(evidence.inputs, evidence.worked.gradients, again, strict=True)
    found = (differing(evidence, argument, first, now) for argument, first, now in triples)
    return next((difference for difference in found if difference is not None), None)


def _first_and_then(difference: Difference) -> str:
    expected, seen = apart(difference.expected, difference.seen)
    return f"{expected} at {difference.where} was first, {seen} then"


def _finding(message: str, hint: str = HINT) -> Finding:
    return Finding("GV207", message, hint=hint)


# ---- an update in place
def _can_be_updated(evidence: Evidence, leaves: Sequence[Tensor]) -> bool:
    """Do the leaves lie in memory as those of the base call do, and is it still theirs? A function that writes into its inputs gets clones."""
    alike = all(leaf.stride() == first.stride() for leaf, first in zip(leaves, evidence.forward.leaves, strict=True))
    return alike and not evidence.subject.writes and not evidence.forward.freed


def _updated(evidence: Evidence, leaves: Sequence[Tensor]) -> Iterator[Finding]:
    """A call with tensors that held other numbers in an earlier call, and hold now those of the base call; a forward that refuses them says so."""
    with torch.no_grad():
        for leaf, x in zip(leaves, evidence.subject.inputs, strict=True):
            leaf.copy_(x)
    with suppress(UserCodeError):
        graph, seen = _called(evidence, leaves)
        if seen is not None:
            yield _told(evidence, leaves, seen)
        elif evidence.repeats is not None:
            evidence.later = graph


def _called(evidence: Evidence, leaves: Sequence[Tensor]) -> tuple[Graph, Difference | UserCodeError | None]:
    """A forward and a backward with the numbers of the base call: where they differ from it, or what backward raises. Raises UserCodeError."""
    graph = evidence.function.graph(leaves)
    difference = _other_values(evidence, graph)
    if difference is not None:
        return graph, difference
    try:
        return graph, _other_gradient(evidence, _backward(evidence, graph))
    except UserCodeError as error:
        return graph, error


def _told(evidence: Evidence, leaves: Sequence[Tensor], seen: Difference | UserCodeError) -> Finding:
    """Of a call after an update, which was not as the base call. It is the update if new tensors do not show it, and if it is there again."""
    others = _called(evidence, evidence.subject.leaves())[1]
    if others is not None:
        return _after_other_inputs(others)
    if _called(evidence, leaves)[1] is None:
        return _now_and_then(seen)
    told = "after the inputs were updated in place, as an optimizer does,"
    if isinstance(seen, UserCodeError):
        return Finding("GV207", f"{told} {seen.message}", hint=REMEMBERED, frames=seen.frames)
    who = "backward" if seen.output is None else "forward"
    found = _finding(f"{told} {seen.text}, which it is with new tensors of the same numbers: {who} goes on with what was kept of the old ones",
                     REMEMBERED)
    return found if seen.output is None else at_forward(found, evidence)


def _after_other_inputs(seen: Difference | UserCodeError) -> Finding:
    """Of a call with new tensors that hold the numbers of the base call."""
    if isinstance(seen, UserCodeError):
        return Finding("GV207", f"after a call with other inputs {seen.message}", hint=HINT, frames=seen.frames)
    what = "backward gives another gradient" if seen.output is None else "forward gives other values"
    return _finding(f"{what} after a call with other inputs: {_first_and_then(seen)}")


def _now_and_then(seen: Difference | UserCodeError) -> Finding:
    code, who = ("GV206", "backward") if isinstance(seen, UserCodeError) or seen.output is None else ("GV205", "forward")
    what = seen.message if isinstance(seen, UserCodeError) else seen.text
    return Finding(code, f"{who} is not deterministic: {what}; the same call again is as the first one", hint=ANOTHER)
