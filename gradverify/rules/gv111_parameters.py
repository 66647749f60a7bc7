"""GV111 parameters: the gradient of a module's parameter differs from the finite difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.meant import meant
from gradverify.rules.shown import against, comparison, differs, fixed_step, pairs, unfinished, unjudged
from gradverify.subject.modules import Hooks, after_accumulation, hooks_of


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if not any(argument.parameter for argument in evidence.inputs):
        return "the function has no parameters"
    return unjudged(found)


def check(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    module = evidence.subject.target.subject
    hooks, later = hooks_of(module), after_accumulation(module)
    if later:
        yield f"the post-accumulate-grad hooks of {', '.join(later)} did not run: they see `.grad`, which is not written here"
    yield from unfinished(evidence, [pair for *_, pair in pairs(evidence, parameters=True)])
    for argument, output, y, pair in pairs(evidence, parameters=True):
        yield comparison("GV111", argument, output, y, pair)
        if pair.count(Outcome.MISMATCH):
            hint = meant(evidence, output, pair) or fixed_step(evidence)
            finding = differs("GV111", argument, output, y, pair, against(evidence, pair), hint, "numeric", evidence.name_of(output))
            yield replace(finding, message=finding.message + _hooked(hooks.get(argument.name, ())))


def _hooked(hooks: Hooks) -> str:
    """Name the hooks that take part in a parameter's gradient."""
    shown = ", ".join(getattr(hook, "__qualname__", type(hook).__name__) for hook in hooks)
    return f"; the hook on it took part, as in training: {shown}" if hooks else ""
