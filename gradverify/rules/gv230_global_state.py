"""GV230 global-state: a call leaves torch's global state changed

What. After forward or backward a setting of the whole process is another one than before (the default dtype or device, the gradient mode, autocast,
the precision of products), or a global random generator is in one fixed state, whatever it was before: the call seeds it.

Why it matters. The gradient is right, and what comes after it in the network is not: layers are made in another dtype, nothing is trained any more,
or every step draws the same dropout masks and the same batches. Drawing from a generator is no such change: only seeding it is. A warning.

How it is measured. By a look at torch's and NumPy's settings around the base forward and the base backward. Of a generator: what it would draw next
after the base call and after one that starts from another seed; where these are the same, the call seeds it. GV205 makes that second forward where
nothing is drawn; what draws is called once more. Not with `reseed: false`, for the generators.

How to repair. Put it back: `with torch.autocast(…):`, `with torch.no_grad():`, `try: … finally:`; draw inside of `torch.random.fork_rng()`, or from a
`torch.Generator` of its own. What the whole program is to have belongs into its first lines.

Example.
    @staticmethod
    def forward(ctx, x):
        torch.manual_seed(7)            # must be inside `with torch.random.fork_rng(devices=[]):`
        ctx.save_for_backward(torch.rand_like(x) < 0.5)
        return x * ctx.to_save[0] * 2
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.at_forward import at_forward
from gradverify.subject.left import Left, generator_name

CATCHES = "seeds_torch_for_its_mask"
SEVERITY = "warning"
ORDER = 205
APART = True
HINT = "put it back before the call ends (a `with` statement, or `finally`), or set it once where the program starts"
OWN_GENERATOR = "seed inside `with torch.random.fork_rng(devices=[]):`, or draw from a generator of its own (torch.Generator, numpy.random.Generator)"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    yield from (at_forward(_of_setting("forward", each), evidence) for each in evidence.forward.left)
    yield from (_of_setting("backward", each) for each in evidence.worked.left)
    by_forward = evidence.fixed_by_forward
    yield from (at_forward(_of_generator("forward", place), evidence) for place in by_forward)
    yield from (_of_generator("backward", place) for place in evidence.fixed_by_backward if place not in by_forward)


def _of_setting(who: str, left: Left) -> Finding:
    return Finding("GV230", f"{who} leaves {left.what} changed: {left.before} before, {left.after} after", severity="warning", hint=HINT)


def _of_generator(who: str, place: int) -> Finding:
    message = f"{who} seeds {generator_name(place)}: what is drawn after it is the same after every call"
    return Finding("GV230", message, severity="warning", hint=OWN_GENERATOR)
