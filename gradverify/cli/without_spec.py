"""A check without a spec: the text of one for each function named on the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.arguments import arguments
from gradverify.cli.bug import bug_report
from gradverify.cli.gather import torch_is_here
from gradverify.cli.options import Options, Settled
from gradverify.cli.output import Output, is_watched, terminal
from gradverify.model.case import Search
from gradverify.model.problem import INTERNAL, INTERRUPTED, SIGNALLED, Problem, ProblemsError
from gradverify.model.proposal import Proposal, Sought
from gradverify.source.modules import MODULE
from gradverify.spec.walk import OWN_SUFFIXES, SUFFIXES, folder_of

if TYPE_CHECKING:
    from gradverify.running.signals import Signals

TARGET = re.compile(rf"([^:]+\.py|{MODULE.pattern}):{MODULE.pattern}|torch\.ops(\.\w+){{2,3}}")
OF_TARGETS = ("input", "kwarg", "init", "reference")


@dataclass(frozen=True)
class Unwritten:
    """Specs that are not on the disk, by the name of their function. `kept`: the lines to save, the
    overrides of the command line among them."""

    texts: Mapping[Path, str] = field(default_factory=dict)
    kept: str = ""


def is_target(path: str) -> bool:
    """Return whether an argument of `check` names a function, and no file of specs."""
    place = path.partition("::")[0]
    return (
        bool(TARGET.fullmatch(place))
        and not place.partition(":")[0].endswith(SUFFIXES)
        and not os.path.lexists(place)
    )


def unwritten(settled: Settled, signals: Signals | None, out: Output) -> Unwritten | int:
    """Return a spec for each function that the paths name; the exit code if the search for inputs
    was interrupted, or failed by a fault of gradverify."""
    from gradverify.spec.scaffold import Entry, spec_of
    from gradverify.spec.settings import Layer, as_written

    options = settled.options
    targets = dict.fromkeys(
        path.partition("::")[0] for path in options.paths or () if is_target(path)
    )
    if not targets:
        given = [f"--{name}" for name in OF_TARGETS if getattr(options, name) is not None]
        if given:
            raise ProblemsError(
                f"{given[0]} is for a function named without a spec: FILE.py:Name, module:Name or "
                "torch.ops.library.operator"
            )
        return Unwritten()
    proposals = _given(options, tuple(targets)) or _sought(settled, tuple(targets), signals, out)
    if isinstance(proposals, int):
        return proposals
    if any(proposal.fault is not None for proposal in proposals):
        return INTERNAL
    overrides = as_written(Layer("", settled.settings))
    keys = {"reference": options.reference} if options.reference is not None else {}
    texts, kept = dict[Path, str](), list[str]()
    for target, proposal in zip(targets, proposals, strict=True):
        if proposal.missing is not None:
            advice = "; give them, as --input x=2x3" if proposal.attempts else ""
            out.say(f"{target}: no inputs found: {proposal.missing}{advice}")
        # What the command line sets is not written twice
        own = replace(
            proposal,
            missing=None,
            dtype="float64" if "dtype" in overrides else proposal.dtype,
            device="cpu" if "device" in overrides else proposal.device,
        )
        texts[Path(target)] = spec_of([Entry(target, "", own, keys)])
        if proposal.missing is None:
            name = re.split(r"[:.]", target)[-1].lower()
            kept.append(
                f"# to keep this check, save these lines here, as in {name}{OWN_SUFFIXES[0]}\n"
                + spec_of([Entry(target, "", own, {**keys, **overrides})])
            )
    return Unwritten(texts, "\n".join(kept))


def _given(options: Options, targets: Sequence[str]) -> list[Proposal] | None:
    """Return the inputs that the options give, the same for every target; None where they give
    none."""
    inputs = arguments("--input", options.input)
    keywords = arguments("--kwarg", options.kwarg)
    init = arguments("--init", options.init, tensors=False)
    if inputs or keywords:
        built = {str(each.name): each.value for each in init} if init else None
        return [Proposal(each, tuple(inputs), tuple(keywords), built) for each in targets]
    if init:
        raise ProblemsError("--init needs the inputs too: --input x=2x3")
    return None


def _sought(
    settled: Settled, targets: Sequence[str], signals: Signals | None, out: Output
) -> list[Proposal] | int:
    """Return inputs found by trial, in worker processes."""
    from gradverify.spec.names import resolve

    cwd = Path.cwd()
    names = [resolve(target, cwd) for target in targets]
    problems = [Problem(complaint) for _, complaint in names if complaint]
    if problems:
        raise ProblemsError(problems)
    project = folder_of(cwd)
    search = Search(str(cwd), (str(project),) if project not in (None, cwd) else ())
    return tried([Sought(name, search) for name, _ in names], 1, out, signals, settled.watched)


def tried(
    sought: Sequence[Sought],
    jobs: int,
    out: Output,
    signals: Signals | None = None,
    watched: bool | None = None,
) -> list[Proposal] | int:
    """Return what was found for each function; the exit code after Ctrl-C or SIGTERM, or, with a
    report of the bug, after a fault of gradverify."""
    from gradverify.cli.progress import Progress
    from gradverify.running.schedule import proposals
    from gradverify.running.signals import Stopped

    torch_is_here()
    found = dict[int, Proposal]()
    shown = is_watched(terminal(out.stderr), os.environ) if watched is None else watched
    progress = Progress(out.stderr_copy() if shown else None)
    progress.begin(len(sought))
    try:
        progress.wait("starting torch")
        for place, proposal in proposals(
            sought, jobs, lambda each: progress.show(each.target.rpartition(":")[2]), signals
        ):
            found[place] = proposal
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped as stopped:
        return SIGNALLED + stopped.number
    finally:
        progress.clear()
    faults = {
        proposal.fault.trace: proposal.target
        for proposal in found.values()
        if proposal.fault is not None
    }
    for trace, target in faults.items():
        out.say(bug_report(f"  in trying calls of {target}\n{trace}", out.arguments))
    return [found[place] for place in range(len(sought))]
