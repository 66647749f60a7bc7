"""`gradverify init`: a first spec for a function, a file, a folder or a package, with inputs that were found by trying."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gradverify.cli import options as o
from gradverify.cli import values
from gradverify.cli.bug import bug_report
from gradverify.cli.environment import torch_is_here
from gradverify.cli.output import Output, keep, promise
from gradverify.cli.terminal import is_watched, terminal
from gradverify.model.paths import is_file
from gradverify.model.problem import INTERNAL, INTERRUPTED, NOT_JUDGED, NOTHING_CHECKED, OK, SIGNALLED, USAGE, Problem, ProblemsError
from gradverify.model.proposal import Proposal, Sought
from gradverify.spec.walk import SCHEMA_FILE, YAML

if TYPE_CHECKING:
    from gradverify.cli.existing import Existing
    from gradverify.cli.targets import Goal
    from gradverify.spec.scaffold import Entry


@dataclass(frozen=True)
class Asked:
    """The options, typed. `output`: a spec, or a folder for specs."""

    targets: Sequence[str]
    output: Path
    example: str | None
    imports: tuple[str, ...]
    force: bool
    dry: bool
    jobs: int

    @property
    def folder(self) -> Path:
        return (self.output.parent if self.output.suffix in YAML else self.output).absolute()

    def file(self, stem: str) -> Path:
        return self.output if self.output.suffix in YAML else self.output / f"{stem}.yaml"


def init(ctx: typer.Context, target: o.Targets, output: o.SpecOutput = "specs", example: o.Example = None, imports: o.Imports = None,
         force: o.Force = False, dry_run: o.DryRun = False, jobs: o.Jobs = None) -> int:
    """Write a spec for functions, or for every autograd Function of a file, folder or package, with inputs found by trying."""
    count = values.settled([("--jobs", jobs, values.jobs)]).get("--jobs", 1)
    asked = Asked(target, Path(output), example, tuple(imports or ()), force, dry_run, count)
    if asked.example is not None and len(target) > 1:
        raise ProblemsError([Problem("--example is a call of one function: name one target")])
    if asked.example is not None:
        _refuse_no_call(asked.example)
    return run_init(asked, ctx.obj)


def _refuse_no_call(example: str) -> None:
    """Raises ProblemsError for what is no call in Python, before anything is imported."""
    from gradverify.source.functions import call_in

    try:
        call_in(example)
    except ValueError as error:
        raise ProblemsError([Problem(f"--example {error}")]) from None


def run_init(asked: Asked, out: Output) -> int:
    """Write specs for the targets. Sources are read, not imported; calls are tried in worker processes."""
    from gradverify.cli.targets import goals

    files: dict[Path, list[Goal]] = {}
    for goal in goals(asked.targets, asked.folder, asked.imports, out.say):
        files.setdefault(asked.file(goal.stem), []).append(goal)
    if not files:
        out.say(f"no autograd Function, and no operator with a backward of its own, in {', '.join(asked.targets)}; name a callable or a module as "
                "module:name")
        return NOTHING_CHECKED
    there, refused = ({}, False) if asked.force or asked.dry else _kept(files, out)
    if not files:
        return USAGE if refused else OK
    if not asked.dry:
        for file in files:
            promise(file, "-o")
    found = _tried([goal for own in files.values() for goal in own], asked, out)
    return found if isinstance(found, int) else _written(files, there, found, asked, out)


def _kept(files: dict[Path, list[Goal]], out: Output) -> tuple[Mapping[Path, Existing], bool]:
    """The specs that are there and get more checks; whether one takes none. Leaves in `files` what is to be tried."""
    from gradverify.cli.existing import existing

    there: dict[Path, Existing] = {}
    refused = False
    for file in [file for file in files if is_file(file)]:
        try:
            there[file] = existing(file, files[file])
            files[file] = list(there[file].open)
            if not files[file]:
                out.say(f"{file.as_posix()} has a check of each of them already: nothing to add")
        except ProblemsError as error:
            refused = True
            out.problems(error.problems)
            del files[file]
    for file in [file for file, own in files.items() if not own]:
        del files[file]
    return there, refused


def _tried(wanted: Sequence[Goal], asked: Asked, out: Output) -> Mapping[Goal, Proposal] | int:
    """Try each goal and return what was found, or the exit code after Ctrl-C or SIGTERM."""
    from gradverify.cli.progress import Progress
    from gradverify.running.proposing import proposals
    from gradverify.running.signals import Stopped

    torch_is_here()
    found = {goal: Proposal(goal.target, missing=goal.missing) for goal in wanted if goal.missing is not None}
    trying = [goal for goal in wanted if goal.missing is None]
    progress = Progress(out.beside_stderr() if is_watched(terminal(out.stderr), os.environ) else None)
    progress.begin(len(trying))

    def began(sought: Sought) -> None:
        progress.show(sought.target.rpartition(":")[2])

    try:
        progress.wait("starting torch")
        if trying:
            for place, proposal in proposals([goal.sought(asked.example) for goal in trying], asked.jobs, began):
                found[trying[place]] = proposal
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped as stopped:
        return SIGNALLED + stopped.number
    finally:
        progress.clear()
    return found


def _written(files: Mapping[Path, Sequence[Goal]], there: Mapping[Path, Existing], found: Mapping[Goal, Proposal], asked: Asked, out: Output) -> int:
    """The specs, the schema beside them, and what is said of each function."""
    for file, own in files.items():
        text = _more(there[file], own, found) if file in there else _text(file, own, found, asked)
        if asked.dry:
            out.write(f"# {file.as_posix()}\n{text}" if len(files) > 1 else text)
            continue
        keep(promise(file), text)
        _refuse_invalid(file, there.get(file))
        out.write(f"{'added to' if file in there else 'wrote'} {file.as_posix()}\n")
        for goal in own:
            out.write(f"  {goal.function.rpartition(':')[2]}: {_in_words(found[goal])}\n")
    runs = sum(found[goal].missing is None for own in files.values() for goal in own)
    if not asked.dry:
        _schema(asked.folder / SCHEMA_FILE, out)
        places = " ".join(file.as_posix() for file in files) if len(files) == 1 else asked.output.as_posix()
        out.write(f"next: gradverify check {places}\n" if runs else f"next: fill in what is missing in {places}, then gradverify check {places}\n")
    faults = {proposal.fault.trace: proposal.target for proposal in found.values() if proposal.fault is not None}
    for trace, target in faults.items():
        out.say(bug_report(f"  in trying calls of {target}\n{trace}", out.arguments))
    return INTERNAL if faults else OK if runs else NOT_JUDGED


def _in_words(proposal: Proposal) -> str:
    if proposal.missing is not None:
        return f"no check yet: {proposal.missing}"
    return "runs" if proposal.note is None else f"forward runs. {proposal.note}"


def _text(file: Path, own: Sequence[Goal], found: Mapping[Goal, Proposal], asked: Asked) -> str:
    from gradverify.spec.scaffold import Draft, scaffold

    path = dict.fromkeys(folder for goal in own for folder in goal.path_from(file))
    imports = dict.fromkeys(name for goal in own for name in goal.imports)
    about = ", ".join(dict.fromkeys(goal.where.rpartition(":")[0] or goal.where or goal.function for goal in own))
    return scaffold(Draft(
        about, os.path.relpath(asked.folder / SCHEMA_FILE, file.absolute().parent), _entries(own, found), list(path), tuple(imports)))


def _more(spec: Existing, own: Sequence[Goal], found: Mapping[Goal, Proposal]) -> str:
    from gradverify.spec.scaffold import appended

    return appended(spec.document, spec.text, _entries(own, found), spec.names)


def _entries(own: Sequence[Goal], found: Mapping[Goal, Proposal]) -> list[Entry]:
    from gradverify.spec.scaffold import Entry

    return [Entry(goal.function, goal.where, found[goal]) for goal in own]


def _refuse_invalid(file: Path, before: Existing | None) -> None:
    """A spec of ours that is not valid is a fault of ours; one that was there is put back."""
    from gradverify.cli.gather import gather

    problems = gather([str(file)]).problems
    if problems and before is not None:
        keep(promise(file), before.text)
    if problems:
        raise RuntimeError(f"init wrote a spec that is not valid: {problems[0]}")


def _schema(file: Path, out: Output) -> None:
    """Write the JSON Schema for editors next to the specs, unless there is one."""
    from gradverify.model.codec import as_text
    from gradverify.spec.schema import json_schema

    if not file.exists():
        keep(promise(file), as_text(json_schema()))
        out.write(f"wrote {os.path.relpath(file)}, which editors with a YAML language server complete and check specs by\n")
