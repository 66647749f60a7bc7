"""GV115 opcheck: a registered operator does not do what its registration declares."""

from __future__ import annotations

import re
from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.fault import legible
from gradverify.model.result import Finding
from gradverify.rules.engine import NotApplicable
from gradverify.rules.shown import RuleResults
from gradverify.subject.failure import describe, user_frames
from gradverify.subject.on_device import Operator, Test, operator_of

SCHEMA: Test = "test_schema"
FAKE: Test = "test_faketensor"
AOT: Test = "test_aot_dispatch_dynamic"
REGISTRATION: Test = "test_autograd_registration"
SILENT, CLONES = ", and its schema does not say so", "return clones"
AS_IT_DOES = "let `register_fake` compute shape, dtype and strides as the operator does"
NO_FAKE = "it has no fake kernel, so that torch.compile refuses it"
RAISES = "its fake kernel raises where the operator does not"
FAILURES = (
    (
        SCHEMA,
        r"Argument (?P<x>\w+) is not defined as mutable",
        "it writes into its argument `{x}`" + SILENT,
        'declare it (`mutates_args=("{x}",)`, or `Tensor(a!) {x}` in the schema), or write into a '
        "clone",
    ),
    (
        SCHEMA,
        r"Argument (?P<x>\w+) is not defined to alias output",
        "it returns memory of its argument `{x}`" + SILENT,
        "return a clone, or declare a view (`Tensor(a) {x}) -> Tensor(a)` in the schema)",
    ),
    (
        SCHEMA,
        r"Outputs (?P<x>\d+ and \d+) alias unexpectedly",
        "its outputs {x} share memory" + SILENT,
        CLONES,
    ),
    (
        SCHEMA,
        r"outputs\[(?P<y>\d+)\] is (?P<x>\w+)",
        "its output {y} is its argument `{x}`" + SILENT,
        "return a clone",
    ),
    (
        SCHEMA,
        r"must not also be an input to this custom operator",
        "it returns memory of an argument or of another output",
        CLONES,
    ),
    (
        REGISTRATION,
        r"AssertionError$",
        "it returns tensors with a graph, and has no kernel at an autograd key",
        "register the backward with `torch.library.register_autograd`, or the Function at the key "
        '"Autograd", not at a backend\'s',
    ),
    (
        FAKE,
        r"no fake impl|no .*[Mm]eta kernel|'Meta' backend|UnsupportedOperatorException",
        NO_FAKE,
        "`register_fake` gives it one: a function that returns empty tensors of the right shape "
        "and dtype",
    ),
    # Reported by the tests of the registration or the schema
    (FAKE, r"found mismatche?d?.*(requires_grad|outputs_alias_inputs)", "", ""),
    (
        FAKE,
        r"Shapes torch\.Size\((?P<x>.+)\) and torch\.Size\((?P<y>.+)\) are not equal",
        "it returns shape {x}, its fake kernel says {y}",
        AS_IT_DOES,
    ),
    (
        FAKE,
        r"Dtypes torch\.(?P<x>\S+) and torch\.(?P<y>\S+) are not equal",
        "it returns dtype {x}, its fake kernel says {y}",
        AS_IT_DOES,
    ),
    (
        FAKE,
        r"Strides are (?P<x>\(.*?\)) and (?P<y>\(.*?\))",
        "it returns strides {x}, its fake kernel says {y}",
        AS_IT_DOES,
    ),
    (FAKE, r"found mismatche?d?", "what it returns is not what its fake kernel says", AS_IT_DOES),
    (FAKE, "", RAISES, "a fake kernel gets shapes, dtypes and strides, and no values"),
    (
        AOT,
        r"^(?P<x>Outputs|Gradients) of the operator",
        "under AOT dispatch its {x} are other numbers than without",
        "torch.compile meets the same",
    ),
    (AOT, "", "AOT dispatch raises where the operator does not", "torch.compile meets the same"),
)
"""The test, a pattern in torch's message, what the failure means, and a hint; the first entry that
matches counts. One without a meaning is another rule's."""

WRONG = re.compile(r"shape|dtype|numbers")  # what is compiled computes something else
LONGEST = 300  # characters of torch's message


def gv115(evidence: Evidence) -> RuleResults:
    operator = operator_of(evidence.subject)
    if not isinstance(operator, Operator):
        raise NotApplicable(operator)
    must, clean = evidence.settings.opcheck is True, True
    try:
        for test in (SCHEMA, REGISTRATION, FAKE):
            for finding in _failed(operator, test, must):
                clean = False
                yield finding
        if clean and evidence.draws:
            yield "AOT dispatch was not tested: the operator draws random numbers"
        elif clean:
            yield from _failed(operator, AOT, must)
    except ImportError as missing:
        yield f"opcheck was not run: torch's compiler cannot be imported ({describe(missing)})"


def _failed(operator: Operator, test: Test, must: bool) -> RuleResults:
    """Yield the finding of one test of opcheck, at the line of the user's code that raised, or
    where the fake kernel begins."""
    error = operator.fails(test)
    if error is None:
        return
    text = f"{error}\n{type(error).__name__}"
    first = " ".join(str(error).partition("\n\n")[0].split()) or type(error).__name__
    message = legible(first if len(first) <= LONGEST else f"{first[:LONGEST]}…")
    frames = user_frames(error)
    if not frames and test == FAKE and (kernel := operator.fake_kernel) is not None:
        frames = (kernel,)
    for own, pattern, what, hint in FAILURES:
        if (
            own != test
            or (match := re.search(pattern, text, re.DOTALL)) is None
            or (what == RAISES and not frames)
        ):
            continue
        names = {
            name: value.lower() if test == AOT else value
            for name, value in match.groupdict().items()
        }
        if what == NO_FAKE and not must:
            yield (
                f"{operator.name} has no fake kernel, so that torch.compile refuses it; `opcheck: "
                "true` makes that a finding"
            )
        elif what:
            found = Finding(
                "GV115",
                f"{operator.name} fails opcheck's {test}: {what.format(**names)} "
                f"(torch: {message})",
                frames=frames,
                severity="error" if must or (test != SCHEMA and WRONG.search(what)) else "warning",
                hint=hint.format(**names),
            )
            at = frames[-1] if frames else None
            yield (
                found if at is None else replace(found, file=at.file, line=at.line, source=at.text)
            )
        return
    yield f"opcheck's {test} could not be run: {message}"
