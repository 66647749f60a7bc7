"""GV120 streams: on another CUDA stream than the default one outputs or gradients are others

What. Called where another stream is the current one, the function gives other outputs, or other gradients for the same `grad_output`, or raises.

Why it matters. A kernel that is launched without a stream (`kernel<<<grid, block>>>(…)`) runs on the default one, which does not wait for torch's
other streams, nor do they for it. Everything is right until somebody calls it under `torch.cuda.stream`, in a data-parallel wrapper or a CUDA graph;
then it computes from what was in its memory before, now and then. So does a backward on a stream of its own that waits for nobody.

How it is measured. Under `streams: true`, on one CUDA device. On a new stream forward and backward run at other inputs, so that these fill the memory
that the next call gets. Then the stream is kept busy by a kernel that does nothing, for eight times as long as that call took (ten milliseconds at
least, one second at most); behind it the inputs are written over the others, and forward and backward are called, which nobody waits for. The same
once more with the default stream busy in its place, which shows work there that is not waited for. Outputs and gradients must be those of the default
stream, as far as calls that may round differently are (in 16 bits: within the native errors, GV112). What differs is told where it differs again, and
does not on the default stream after a call at other inputs. A function that waits for its stream inside (`.item()`, a synchronisation) is judged only
up to there: `-v` says so.

How to repair. Launch on `at::cuda::getCurrentCUDAStream()`. A stream of one's own waits for the current one before (`wait_stream`), and the current
one for it afterwards.

Example.
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        square.launch(x.data_ptr(), y.data_ptr(), x.numel(), stream=0)      # torch.cuda.current_stream().cuda_stream
        return y
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import gradients_apart, outputs_apart, unsteady
from gradverify.rules.gv118_devices import beyond_native
from gradverify.rules.protocol import NotApplicable
from gradverify.subject.another import other_points
from gradverify.subject.failure import UserCodeError
from gradverify.subject.streams import Beside, Busy

CATCHES = "squares_on_the_default_stream"
ORDER = 452
PRICE, WORTH = (5, 5), 56
APART = True
WORDS: Mapping[Busy | None, str] = {
    "own": "on another stream, which is busy,", "default": "on another stream, while the default one is busy,", None: ""}
HERE = "on the default stream"
HINT = ("launch kernels on the current stream, at::cuda::getCurrentCUDAStream(); a stream of its own waits for the current one before, and the "
        "current one for it afterwards")


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if not evidence.settings.streams:
        return "the spec does not say `streams: true`"
    if len(evidence.subject.on) != 1:
        return "its tensors lie on several CUDA devices" if evidence.subject.on else "no tensor of it lies on a CUDA device"
    return evidence.odd or unsteady(found)


def check(evidence: Evidence) -> Iterator[Finding | str]:
    others = _others(evidence)
    for busy in ("own", "default"):
        found, rested = _apart(evidence, others, busy)
        if found and _apart(evidence, others, None)[0]:
            raise NotApplicable("after a call at other inputs it gives other numbers on the default stream too")
        if found and _apart(evidence, others, busy)[0]:
            yield from found
            return
        if rested:
            yield f"{' and '.join(rested)} waited for the {busy} stream: what came after that is not seen"
    yield "compared with another stream"


def _others(evidence: Evidence) -> Sequence[Tensor]:
    """The inputs at another point, where forward and backward accept them and what is returned has the same shapes."""
    for arguments in other_points(evidence.subject):
        inputs = [argument.value for argument in arguments if argument.differentiable]
        try:
            evidence.function.vjp_at(inputs, evidence.cotangents("base"))
            return inputs
        except UserCodeError:
            continue
    raise NotApplicable("it refuses other inputs of these shapes")


def _apart(evidence: Evidence, others: Sequence[Tensor], busy: Busy | None) -> tuple[list[Finding], list[str]]:
    """What is not as on the default stream; and where in a call the busy stream had come to rest."""
    beside = Beside(evidence.subject.own, others, busy)
    try:
        found = list(_compared(evidence, beside, WORDS[busy]))
    except UserCodeError as error:
        return [Finding("GV120", f"{WORDS[busy]} {error.message}", frames=error.frames, hint=HINT)], []
    if beside.blocking:
        raise NotApplicable("every launch is waited for here (CUDA_LAUNCH_BLOCKING), so that no stream is ever busy")
    return found, sorted(beside.rested, reverse=True)


def _compared(evidence: Evidence, beside: Beside, words: str) -> Iterator[Finding]:
    if evidence.kernel is not None:
        yield from beyond_native(evidence, "GV120", evidence.kernel.apart(evidence.kernel, once=beside.once), words, HERE, HINT)
        return
    v = evidence.cotangents("base")
    outputs, gradients = beside.once(evidence.function, v)
    for each in chain(outputs_apart(evidence, outputs), gradients_apart(evidence, evidence.worked.gradients, gradients, v)):
        yield Finding("GV120", f"{words} {each.text} as {HERE}", input=each.input, output=each.output, hint=HINT)
