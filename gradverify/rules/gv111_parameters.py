"""GV111 parameters: the gradient of a module's parameter differs from the finite difference

What. As GV101, for the parameters of a `torch.nn.Module`.

Why it matters. The gradient of the input is what tests usually look at; the gradient of a weight is what training uses.

How it is measured. The module is called with its parameters replaced by inputs under their own names, and its buffers by fresh copies; they
stay replaced while backward runs, which may call the module again (checkpoints, reversible blocks). Every element is compared as in GV101.
Where forward updates buffers that it reads (the power iteration of spectral norm), it is called until they are at rest, as training has
them. Hooks run as they do in training: those of the module, and those that `register_hook` put on a parameter, which may change its
gradient. Hooks that run after `.grad` is written do not: a note names them.

How to repair. As for GV101. A gradient averaged over the batch where it must be summed is the classic.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight, grad_output.T @ x / len(x)     # the mean of what must be a sum
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.meant import meant
from gradverify.rules.shown import against, comparison, differs, fixed_step, pairs, unfinished, unjudged
from gradverify.subject.modules import Hooks, after_accumulation, hooks_of

CATCHES = "averages_weight_gradient"
ORDER = 320
RANK = 150
LINE = True
CAUSES = "finite differences"
KILLS = "values"


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
