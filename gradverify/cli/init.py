"""`gradverify init`: write a first spec for a function, a file, a folder or a package, with inputs
of a call that ran."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.cli import values
from gradverify.cli.coverage import found_in, unread
from gradverify.cli.gather import gather
from gradverify.cli.options import Options, command
from gradverify.cli.output import Output, keep, promise
from gradverify.cli.without_spec import tried
from gradverify.model.case import Search
from gradverify.model.paths import is_file, resolved
from gradverify.model.problem import (
    INTERNAL,
    NOT_JUDGED,
    NOTHING_CHECKED,
    OK,
    Problem,
    ProblemsError,
)
from gradverify.model.proposal import Proposal, Sought
from gradverify.source.functions import OPERATOR, Function
from gradverify.source.modules import (
    MODULE,
    python_path,
    root_of,
    shown,
)
from gradverify.spec.walk import SCHEMA_FILE, YAML, folder_of

NAMED = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")


@dataclass(frozen=True, slots=True)
class Goal:
    """One function. `stem`: the name of its spec, without suffix; `function`: its name in a spec of
    the folder; `target`: its name in a case; `where`: its place, for a comment; `path`, `imports`:
    the keys that the spec needs; `missing`: why no call is tried; `call`: see Sought."""

    stem: str
    function: str
    target: str
    where: str = ""
    path: tuple[Path, ...] = ()
    imports: tuple[str, ...] = ()
    missing: str | None = None
    call: str | None = None


def goals(targets: Sequence[str], folder: Path, say: Callable[[str], None]) -> list[Goal]:
    """Return all functions that the targets name, for specs in `folder`. Raises ProblemsError for a
    target that does not exist or is no Python; `say` is called for unreadable files, if others
    have functions."""
    found, problems = list[Goal](), list[Problem]()
    for text in targets:
        named = NAMED.fullmatch(text)
        library, _, operator = text.removeprefix(OPERATOR).partition(".")
        if text.startswith(OPERATOR):
            if not library or not operator:
                problems.append(
                    Problem(
                        f"{text!r} is no registered operator's name; write "
                        "torch.ops.library.operator"
                    )
                )
            found.append(Goal(f"{library}.{operator.partition('.')[0]}", text, text))
        elif named is None:
            try:
                read, functions = found_in([text])
            except ProblemsError as error:
                problems += error.problems
                continue
            unreadable = unread(
                (shown(file, Path.cwd()), why) for file, why in sorted(read.unreadable.items())
            )
            problems += () if functions else unreadable
            for problem in unreadable if functions else ():
                say(str(problem))
            found += [_of(function, folder) for function in functions]
        elif not named["place"].endswith(".py"):
            found.append(Goal(named["place"], text, text))
        elif is_file(file := resolved(Path(named["place"]))):
            found.append(_placed(file, named["name"], folder, shown(file, Path.cwd())))
        else:
            problems.append(Problem("no such file", named["place"]))
    if problems:
        raise ProblemsError(problems)
    return list(dict.fromkeys(found))


def goal_of(kind: str, name: str, file: Path, line: int, folder: Path) -> Goal:
    """Return the goal of a Function or an operator in a file."""
    goal = _placed(file, name, folder, f"{shown(file, Path.cwd())}:{line}")
    module = goal.function.rpartition(f":{name}")[0]
    if kind == "operator" and module.endswith(".py"):
        return replace(goal, function=name, target=name, path=(file.parent,), imports=(file.stem,))
    if kind == "operator":
        return replace(goal, function=name, target=name, imports=(module,))
    return goal


def _of(function: Function, folder: Path) -> Goal:
    name = function.name
    goal = goal_of(function.kind, name, function.file, function.line, folder)
    if function.kind == "operator" or function.inside is None:
        return goal
    name = name.rpartition(".")[2]
    missing = (
        f"it is defined inside {function.inside}, where no spec can name it: give `gradverify "
        "init` a callable that uses it"
    )
    return Goal(goal.stem, name, name, goal.where, missing=missing)


def _placed(file: Path, name: str, folder: Path, where: str) -> Goal:
    """Return the goal of a function, named by its module if that can be imported from the spec
    (with `path:` if a folder has to be added), else by its file."""
    here, project, root = Path.cwd(), folder_of(folder), root_of(file)
    installed = {Path(entry).resolve() for entry in python_path() if entry} - {here, project}
    reachable, start = installed | {here, project}, [root]
    # An installed package without __init__.py, or a script
    if root not in reachable and not (file.parent / "__init__.py").is_file():
        above = [
            entry
            for entry in installed
            if file.is_relative_to(entry)
            and (entry.is_relative_to(here) or not file.is_relative_to(here))
        ]
        start = sorted(above, key=lambda entry: len(entry.parts))[-1:]
    for entry in start:
        parts = file.relative_to(entry).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if MODULE.fullmatch(module):
            return Goal(
                module,
                f"{module}:{name}",
                f"{module}:{name}",
                where,
                () if entry in reachable else (entry,),
            )
    stem = (
        ".".join(file.relative_to(here).with_suffix("").parts)
        if file.is_relative_to(here)
        else file.stem
    )
    return Goal(
        stem, f"{Path(os.path.relpath(file, folder)).as_posix()}:{name}", f"{file}:{name}", where
    )


@command("target", "output", "imports", "force", "dry_run", "jobs")
def init_command(options: Options, out: Output) -> int:
    """Write a spec for functions, or for every autograd Function of a file, folder or package, with
    inputs that a call was made with."""
    jobs = dict(values.settled([("--jobs", options.jobs, values.jobs)])).get("--jobs", 1)
    output = Path(options.output)
    files = dict[Path, list[Goal]]()
    imports = tuple(options.imports or ())
    is_spec = output.suffix in YAML
    folder = (output.parent if is_spec else output).absolute()
    for goal in goals(options.target, folder, out.say):
        own = replace(goal, imports=(*imports, *goal.imports))
        files.setdefault(output if is_spec else output / f"{goal.stem}.yaml", []).append(own)
    if not files:
        out.say(
            "no autograd Function, and no operator with a backward of its own, in "
            f"{', '.join(options.target)}; name a callable or a module as module:name"
        )
        return NOTHING_CHECKED
    if not options.dry_run:
        leave_existing(files, options.force, out)
    found = (
        by_trial([goal for several in files.values() for goal in several], folder, jobs, out)
        if files
        else {}
    )
    if isinstance(found, int) or not files:
        return found if isinstance(found, int) else OK
    schema = folder / SCHEMA_FILE
    for file, several in files.items():
        text = spec_of(file, several, found)
        if options.dry_run:
            out.write(f"# {file.as_posix()}\n{text}" if len(files) > 1 else text)
            continue
        keep_spec(file, text)
        out.write(f"wrote {file.as_posix()}\n")
        for goal in several:
            missing, note = found[goal].missing, found[goal].note
            outcome = f"TODO: {missing}" if missing else f"forward runs. {note}" if note else "runs"
            out.write(f"  {goal.function.rpartition(':')[2]}: {outcome}\n")
    faulty = any(proposal.fault is not None for proposal in found.values())
    runs = any(proposal.missing is None for proposal in found.values())
    if not options.dry_run:
        if keep_schema(schema):
            out.write(
                f"wrote {os.path.relpath(schema)}, which editors with a YAML language server "
                "complete and check specs by\n"
            )
        places = next(iter(files)).as_posix() if len(files) == 1 else output.as_posix()
        out.write(
            f"next: {'' if runs else f'fill in what is missing in {places}, then '}gradverify "
            f"check {places}\n"
        )
    return INTERNAL if faulty else OK if runs else NOT_JUDGED


def leave_existing(files: dict[Path, list[Goal]], force: bool, out: Output) -> None:
    """Remove the specs that exist, unless forced, and say so; check that the others can be
    written."""
    for file in [file for file in files if is_file(file) and not force]:
        out.say(
            f"{file.as_posix()} is there already and stays as it is: --force overwrites it, -o "
            "names another file"
        )
        del files[file]
    for file in files:
        promise(file, "-o")


def spec_of(
    file: Path, several: Sequence[Goal], found: Mapping[Goal, Proposal], recorded: bool = False
) -> str:
    """Return the text of a spec, next to whose folder the schema is."""
    from gradverify.spec.scaffold import Entry, scaffold

    above = file.absolute().parent
    about = ", ".join(
        dict.fromkeys(
            goal.where.rpartition(":")[0] or goal.where or goal.function for goal in several
        )
    )
    path = dict.fromkeys(
        Path(os.path.relpath(each, above)).as_posix() for goal in several for each in goal.path
    )
    return scaffold(
        about,
        SCHEMA_FILE,
        [Entry(goal.function, goal.where, found[goal]) for goal in several],
        list(path),
        list(dict.fromkeys(name for goal in several for name in goal.imports)),
        recorded,
    )


def keep_spec(file: Path, text: str) -> None:
    """Write a spec. Raises RuntimeError if it is not valid."""
    keep(promise(file), text)
    problems = gather([str(file)]).problems
    if problems:
        raise RuntimeError(f"wrote a spec that is not valid: {problems[0]}")


def keep_schema(file: Path) -> bool:
    """Write the schema of specs, if it is not there; return whether it was not."""
    from gradverify.model.codec import as_text
    from gradverify.spec.schema import json_schema

    missing = not file.exists()
    if missing:
        keep(promise(file), as_text(json_schema()))
    return missing


def by_trial(
    wanted: Sequence[Goal], folder: Path, jobs: int, out: Output
) -> Mapping[Goal, Proposal] | int:
    """Try each goal and return what was found, or the exit code after Ctrl-C or SIGTERM."""
    found = {goal: Proposal(goal.target, missing=goal.missing) for goal in wanted}
    trying = [goal for goal in wanted if goal.missing is None]
    project = folder_of(folder)
    around = (str(folder), str(project)) if project not in (None, folder) else ()
    sought = [
        Sought(
            goal.target,
            Search(str(folder), (*map(str, goal.path), *around), goal.imports),
            goal.call,
        )
        for goal in trying
    ]
    proposals = tried(sought, jobs, out) if sought else []
    if isinstance(proposals, int):
        return proposals
    return found | dict(zip(trying, proposals, strict=True))
