"""`gradverify record`: run a command, note the calls of autograd Functions and operators in its
Python processes, and write specs that repeat them in small."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gradverify.cli.init import (
    Goal,
    by_trial,
    goal_of,
    keep_schema,
    keep_spec,
    leave_existing,
    spec_of,
)
from gradverify.cli.options import Options, command
from gradverify.cli.output import Output
from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.model.interrupt import handled
from gradverify.model.paths import resolved
from gradverify.model.problem import INTERNAL, OK, SIGNALLED, ProblemsError
from gradverify.model.proposal import Proposal
from gradverify.recording.start import PYTHON, UNABLE, environment
from gradverify.report.numbers import counted
from gradverify.source.modules import parsed
from gradverify.spec.walk import SCHEMA_FILE, YAML

NOT_ONCE_MORE = ast.For | ast.While | ast.With
"""Statements at the top of a script that importing it would run again."""


@dataclass
class Seen:
    """What was noted of one function. `calls`: goals, one for each signature; `reasons`: why other
    calls are not written; `todo`: the goal for a comment in the spec if there is no check."""

    name: str
    calls: list[Goal] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    todo: Goal | None = None


@command("command", "output", "force", "notes")
def record_command(options: Options, out: Output) -> int:
    """Run a command, and write a spec for each autograd Function and operator that was called in
    it. The exit code is that of the command."""
    if options.notes:
        return _write(Path(options.notes), options, out)
    if not options.command:
        raise ProblemsError("no command: gradverify record -o specs -- pytest tests")
    with tempfile.TemporaryDirectory(prefix="gradverify-", ignore_cleanup_errors=True) as folder:
        code = _run(options.command, folder)
        return _write(Path(folder), options, out) or code


def _run(arguments: Sequence[str], folder: str) -> int:
    """Run a command that records into a folder; return its exit code as a shell shows it. Raises
    ProblemsError if it cannot be started."""
    try:
        process = subprocess.Popen(arguments, env={**os.environ, **environment(folder)})
    except OSError as error:
        raise ProblemsError(f"{arguments[0]}: {error.strerror or error}") from None

    def pass_on(number: int, frame: object) -> None:
        if number != signal.SIGINT:  # on a terminal that reaches the process anyway
            process.send_signal(number)

    with handled(pass_on):
        code = process.wait()
    return code if code >= 0 else SIGNALLED - code


def _write(notes: Path, options: Options, out: Output) -> int:
    """Write the specs for what was noted in a folder, and list it on stderr. Return the exit code
    of a fault of gradverify, else 0."""
    output = Path(options.output)
    is_spec = output.suffix in YAML
    folder = (output.parent if is_spec else output).absolute()
    seen = noted(notes, folder)
    if not seen:
        out.say(f"gradverify record: {_nothing(notes)}")
        return OK
    files = dict[Path, list[Goal]]()
    for each in seen:
        for goal in each.calls or filter(None, [each.todo]):
            files.setdefault(output if is_spec else output / f"{goal.stem}.yaml", []).append(goal)
    files = {file: goals for file, goals in files.items() if any(goal.call for goal in goals)}
    leave_existing(files, options.force, out)
    found: Mapping[Goal, Proposal] | int = {}
    if files:
        found = by_trial([goal for several in files.values() for goal in several], folder, 1, out)
    if isinstance(found, int):
        out.say("gradverify record: interrupted, no spec was written")
        return OK
    for file, several in files.items():
        kept = {goal: _beside(file, found[goal]) for goal in several}
        keep_spec(file, spec_of(file, several, kept, recorded=True))
    if files:
        keep_schema(folder / SCHEMA_FILE)
    written = [goal for goal in found if found[goal].missing is None]
    counts = f"{counted(len(seen), 'function')}, {counted(len(written), 'check')}"
    out.say(f"gradverify record: {counts} written")
    width = max(len(each.name) for each in seen)
    for each in seen:
        outcome = "; ".join(_outcome(each, files, found))
        out.say(f"  {each.name:{width}}  {outcome}")
    if written:
        out.say(f"next: gradverify check {output.as_posix()}")
    return INTERNAL if any(each.fault is not None for each in found.values()) else OK


def _outcome(
    of: Seen, files: Mapping[Path, Sequence[Goal]], found: Mapping[Goal, Proposal]
) -> Iterator[str]:
    """Yield where the checks of a function are, and why it has none for some of its calls."""
    counts = {
        file: sum(goal in several and found[goal].missing is None for goal in of.calls)
        for file, several in files.items()
    }
    for file, count in counts.items():
        if count:
            yield f"{counted(count, 'check')} in {file.as_posix()}"
    if any(goal not in found for goal in of.calls):
        yield "not written: its spec is there already"
    missing = (found[goal].missing for goal in of.calls if goal in found)
    yield from (
        f"not written: {reason}" for reason in dict.fromkeys([*filter(None, missing), *of.reasons])
    )


def noted(notes: Path, folder: Path) -> list[Seen]:
    """Return the functions that the processes of a command noted, for specs in `folder`. A call
    without gradients is left out if the same one was made with gradients."""
    entries = [
        json.loads(line)
        for file in sorted(notes.glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    graded = {(each["name"], each["form"]) for each in entries if each.get("graded")}
    seen, signatures = dict[str, Seen](), set[tuple[str, str]]()
    for each in sorted(entries, key=lambda each: "hidden" in each):
        kind, name = each.get("kind"), each["name"]
        full = name if kind == "operator" else f"{each['module']}:{name}"
        if "hidden" in each and full in seen:
            continue
        of = seen.setdefault(full, Seen(full))
        goal = kind and goal_of(kind, name, resolved(Path(each["file"])), each["line"], folder)
        reason = each.get("why") or each.get("hidden") or _script(each)
        if reason is not None:
            of.todo = of.todo or (goal and replace(goal, missing=reason))
            of.reasons += [] if reason in of.reasons else [reason]
        elif (full, each["signature"]) not in signatures and (
            each["graded"] or (name, each["form"]) not in graded
        ):
            signatures.add((full, each["signature"]))
            of.calls.append(replace(goal, call=each["call"]))
    return list(seen.values())


def _script(entry: Mapping[str, Any]) -> str | None:
    """Return why a function of the program itself has no check; None where importing its file does
    not run it again."""
    tree = parsed(Path(entry["file"])) if entry["module"] == "__main__" else None
    runs = isinstance(tree, ast.Module) and any(
        isinstance(each, NOT_ONCE_MORE)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Call))
        for each in tree.body
    )
    return (
        "it is defined in the script, which would run again when it is imported" if runs else None
    )


def _nothing(notes: Path) -> str:
    unable = next(notes.glob(f"*.{UNABLE}"), None)
    if unable is not None:
        return f"{unable.read_text()} cannot import gradverify: install it there"
    if next(notes.glob(f"*.{PYTHON}"), None) is None:
        return "the command started no Python that reads PYTHONPATH"
    return "no autograd Function and no operator with a backward was called"


def _beside(file: Path, proposal: Proposal) -> Proposal:
    """Copy the files of numbers next to the spec; return the proposal with their names there."""

    def moved(recipe: TensorRecipe) -> TensorRecipe:
        if recipe.draw != "file":
            return recipe
        source = Path(recipe.arguments)
        target = file.with_name(f"{file.stem}.{source.name}")
        shutil.copyfile(source, target)
        return replace(recipe, arguments=target.name)

    def of(each: InputRecipe) -> InputRecipe:
        return replace(
            each,
            tensor=each.tensor and moved(each.tensor),
            tensors=tuple(map(moved, each.tensors)),
        )

    return replace(
        proposal, inputs=tuple(map(of, proposal.inputs)), keywords=tuple(map(of, proposal.keywords))
    )
