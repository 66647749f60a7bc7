"""Memory that a call writes, reads or leaves changed though it is not its own."""

from __future__ import annotations

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.rules.at_line import at_forward, at_forward_of
from gradverify.rules.shown import Findings, changed, element_name
from gradverify.subject.ambient import generator_name
from gradverify.subject.base_call import Depends, given_back


# ---- GV202 grad-output-modified: backward writes into grad_output
def gv202(evidence: Evidence) -> Findings:
    for output, change in evidence.worked.damaged:
        y = evidence.forward.outputs[output]
        detail = ""
        if change is not None:
            index, before, after = change
            detail = (
                f": {element_name(f'grad_{evidence.name_of(output)}', y, index)} was {before:.6g} "
                f"before, {after:.6g} after"
            )
        yield Finding(
            "GV202",
            f"backward writes into grad_output of {evidence.name_of(output)}{detail}",
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


def gv203(evidence: Evidence) -> Findings:
    is_function = evidence.subject.target.kind == "autograd.Function"
    lost = (
        given_back(evidence.subject, evidence.base)
        if evidence.forward.freed and evidence.worked.direct
        else ()
    )
    # Inputs without memory after forward; those that have none after backward either are lost
    for name in evidence.forward.freed:
        if name in lost:
            found = Finding(
                "GV203",
                f"forward gives the memory of {name} back, and backward does not rebuild it: the "
                "caller's tensor is lost",
                input=name,
                hint="leave the caller's tensors alone, or rebuild them in backward",
            )
        else:
            found = Finding(
                "GV203",
                f"forward gives the memory of {name} back until backward rebuilds it: whatever "
                "reads it in between reads nothing, or memory that is not its own",
                severity="warning",
                input=name,
                hint="right inside a chain of reversible layers; the first one's input must be "
                "kept",
            )
        yield at_forward(found, evidence, name)
    seen = set[str]()
    for who, written in (
        ("forward", evidence.forward.written),
        ("backward", evidence.worked.written),
    ):
        for held, change in (
            (each.held, each.change)
            for each in written
            if each.held.kind == "argument" and each.held.name not in seen
        ):
            seen.add(held.name)
            hint, severity = (
                COPY,
                _severity(any(argument.name == held.name for argument in evidence.inputs)),
            )
            if severity == "warning":
                hint = "write into a copy, unless it is state that is meant to be updated"
            # Only a Function has a ctx to mark what it writes into
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
    """What is not differentiated may be state, as running statistics are."""
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
BESIDE = "read within the tensors only"


def gv231(evidence: Evidence) -> Findings:
    for each in evidence.memory.depends:
        yield _finding(
            evidence,
            each,
            "unwritten memory" if evidence.memory.allocated else "memory beside its tensors",
        )


def _finding(evidence: Evidence, found: Depends, what: str) -> Finding:
    hint = WRITE_FIRST if evidence.memory.allocated else BESIDE
    if found.raised is not None:
        return Finding(
            "GV231",
            f"what {what} holds decides whether {found.raised.message}",
            hint=hint,
            frames=found.raised.frames,
        )
    loud, quiet = found.numbers
    if found.input is not None:
        argument = evidence.inputs[found.input]
        name, first = (
            f"the gradient of {argument.name}",
            element_name(argument.name, argument.value, found.first),
        )
    else:
        name = evidence.name_of(found.output or 0)
        first = element_name(name, found.tensor, found.first)
    message = (
        f"{name} depends on {what}: {found.count} of {found.size} numbers do; {first} is "
        f"{loud:.6g} where it holds NaN, {quiet:.6g} where it holds large numbers"
    )
    return Finding(
        "GV231",
        message,
        input=None if found.input is None else evidence.inputs[found.input].name,
        output=found.output,
        hint=hint,
    )


# ---- GV232 written-beside: a call writes beside its tensor
def gv232(evidence: Evidence) -> Findings:
    beside = evidence.memory.beside
    if beside is not None:
        who = "backward" if evidence.memory.backward else "forward"
        count = abs(beside.element)
        where = "before the first" if beside.element < 0 else "behind the last"
        found = Finding(
            "GV232",
            f"{who} writes beside its tensor: {count} element{'s' * (count > 1)} {where} of "
            f"{beside.tensor} there is another number after the call",
            hint="look at the first and the last index that is written",
        )
        yield found if evidence.memory.backward else at_forward(found, evidence)
