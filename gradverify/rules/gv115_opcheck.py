"""GV115 opcheck: a registered operator is not what its registration says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.fault import legible
from gradverify.model.result import Finding, Frame, Severity
from gradverify.rules.protocol import NotApplicable
from gradverify.subject.failure import describe, user_frames
from gradverify.subject.opchecked import Operator, operator_of

SCHEMA = (
    (re.compile(r"Argument (?P<x>\w+) is not defined as mutable"), "it writes into its argument `{x}`, and its schema does not say so",
     'declare it (`mutates_args=("{x}",)`, or `Tensor(a!) {x}` in the schema), or write into a clone'),
    (re.compile(r"Argument (?P<x>\w+) is not defined to alias output"), "it returns memory of its argument `{x}`, and its schema does not say so",
     "return a clone, or declare a view (`Tensor(a) {x}) -> Tensor(a)` in the schema)"),
    (re.compile(r"Outputs (?P<x>\d+ and \d+) alias unexpectedly"), "its outputs {x} share memory, and its schema does not say so", "return clones"),
    (re.compile(r"outputs\[(?P<y>\d+)\] is (?P<x>\w+)"), "its output {y} is its argument `{x}`, and its schema does not say so", "return a clone"),
    (re.compile(r"must not also be an input to this custom operator"), "it returns memory of an argument or of another output", "return clones"))
METADATA = re.compile(r"found mismatche?d? ?(?:tensor metadata:|in)\s*(?P<text>.*)", re.DOTALL)
SIZES = re.compile(r"(?P<what>Shape|Dtype)s (?P<real>.+) and (?P<fake>.+) are not equal")
STRIDES = re.compile(r"Strides are (?P<real>\(.*?\)) and (?P<fake>\(.*?\))")
NO_FAKE = re.compile(r"no fake impl|no .*[Mm]eta kernel|'Meta' backend|UnsupportedOperatorException")
TOLD = 300      # characters of what torch says


def gv115(evidence: Evidence) -> Iterator[Finding | str]:
    operator = operator_of(evidence.subject)
    if not isinstance(operator, Operator):
        raise NotApplicable(operator)
    must, clean = evidence.settings.opcheck is True, True
    try:
        for test in (_schema, _registration, _fake):
            if (told := test(operator, must)) is not None:
                clean = False
                yield told
        if clean and evidence.draws:
            yield "AOT dispatch was not tested: the operator draws random numbers"
        elif clean:
            yield from _aot(operator, must)
    except ImportError as missing:
        yield f"opcheck was not run: torch's compiler cannot be imported ({describe(missing)})"


def _schema(operator: Operator, must: bool) -> Finding | str | None:
    error = operator.fails("test_schema")
    if error is None:
        return None
    text = str(error)
    for pattern, what, hint in SCHEMA:
        if match := pattern.search(text):
            return _finding(operator, "test_schema", what.format(**match.groupdict()), error, must, hint.format(**match.groupdict()))
    return f"opcheck's test_schema could not be run: {_told(error)}"


def _registration(operator: Operator, must: bool) -> Finding | str | None:
    error = operator.fails("test_autograd_registration")
    if error is None:
        return None
    if not isinstance(error, AssertionError):
        return f"opcheck's test_autograd_registration could not be run: {_told(error)}"
    what = "it returns tensors with a graph, and has no kernel at an autograd key"
    return _finding(operator, "test_autograd_registration", what, error, must,
                    'register the backward with `torch.library.register_autograd`, or the Function at the key "Autograd", not at a backend\'s')


def _fake(operator: Operator, must: bool) -> Finding | str | None:
    error = operator.fails("test_faketensor")
    if error is None:
        return None
    text, where = describe(error), operator.fake_kernel
    if NO_FAKE.search(text):
        if not must:
            return f"{operator.name} has no fake kernel, so that torch.compile refuses it; `opcheck: true` makes that a finding"
        return _finding(operator, "test_faketensor", "it has no fake kernel, so that torch.compile refuses it", error, must,
                        "`register_fake` gives it one: a function that returns empty tensors of the right shape and dtype")
    if (match := METADATA.search(text)) is None:
        if not (frames := user_frames(error) or ((where,) if where else ())):
            return f"opcheck's test_faketensor could not be run: {_told(error)}"
        finding = _finding(operator, "test_faketensor", "its fake kernel raises where the operator does not", error, must,
                           "a fake kernel gets shapes, dtypes and strides, and no values")
        return _at(finding, frames)
    if "requires_grad" in match["text"] or "outputs_alias_inputs" in match["text"]:
        return None     # what the registration, or the schema, was found wrong for already
    wrong, told = SIZES.search(match["text"]), STRIDES.search(match["text"]) or SIZES.search(match["text"])
    what = (f"it returns {_kind(told['what'] if wrong else 'Stride')} {_plain(told['real'])}, its fake kernel says {_plain(told['fake'])}" if told
            else "what it returns is not what its fake kernel says")
    finding = _finding(operator, "test_faketensor", what, error, must or wrong is not None,
                       "let `register_fake` compute shape, dtype and strides as the operator does")
    return _at(finding, (where,) if where else ())


def _aot(operator: Operator, must: bool) -> Iterator[Finding | str]:
    error = operator.fails("test_aot_dispatch_dynamic")
    if error is not None:
        different = str(error).startswith(("Outputs of the operator", "Gradients of the operator"))
        what = (f"under AOT dispatch its {'outputs' if str(error).startswith('O') else 'gradients'} are other numbers than without" if different
                else "AOT dispatch raises where the operator does not")
        yield _finding(operator, "test_aot_dispatch_dynamic", what, error, must or different,
                       "torch.compile meets the same")


def _finding(operator: Operator, test: str, what: str, error: BaseException, must: bool, hint: str) -> Finding:
    severity: Severity = "error" if must else "warning"
    return _at(Finding("GV115", f"{operator.name} fails opcheck's {test}: {what} (torch: {_told(error)})", severity=severity, hint=hint),
               user_frames(error))


def _at(finding: Finding, frames: tuple[Frame, ...]) -> Finding:
    """At the last of these frames."""
    last = frames[-1] if frames else None
    return finding if last is None else replace(finding, frames=frames, file=last.file, line=last.line, source=last.text)


def _kind(what: str) -> str:
    return {"Shape": "shape", "Dtype": "dtype"}.get(what, "strides")


def _plain(text: str) -> str:
    return text.removeprefix("torch.Size(").removesuffix(")") if text.startswith("torch.Size(") else text.removeprefix("torch.")


def _told(error: BaseException) -> str:
    """Return the first sentence of torch's message."""
    first = " ".join(str(error).partition("\n\n")[0].split()) or type(error).__name__
    return legible(first if len(first) <= TOLD else f"{first[:TOLD]}…")
