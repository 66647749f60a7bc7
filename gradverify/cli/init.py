"""`gradverify init`: a first spec for a function, a file, a folder or a package, with inputs that a
call was made with."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

from gradverify.cli import values
from gradverify.cli.bug import bug_report
from gradverify.cli.coverage import found_in, searched, unread
from gradverify.cli.gather import gather, torch_is_here
from gradverify.cli.options import Options, command
from gradverify.cli.output import Output, is_watched, keep, promise, terminal
from gradverify.model.case import Search
from gradverify.model.paths import is_file, resolved
from gradverify.model.problem import (
    INTERNAL,
    INTERRUPTED,
    NOT_JUDGED,
    NOTHING_CHECKED,
    OK,
    SIGNALLED,
    Problem,
    ProblemsError,
)
from gradverify.model.proposal import Proposal, Sought
from gradverify.source.functions import OPERATOR, Function
from gradverify.source.modules import (
    MODULE,
    Library,
    module_place,
    place_of,
    python_path,
    root_of,
    shown,
)
from gradverify.spec.fault import nearest
from gradverify.spec.walk import SCHEMA_FILE, YAML, folder_of

NAMED = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
MAY_MAKE = re.compile(
    r"import \*|\b(globals|exec|vars|setattr|__getattr__|__dict__|import_module)\b"
)  # names that the source does not write


@dataclass(frozen=True, slots=True)
class Goal:
    """One function. `stem`: the name of its spec, without suffix; `function`: as a spec in the
    folder names it; `where`: for comments; `path`, `imports`: what that spec needs; `missing`: why
    it is not tried at all."""

    stem: str
    function: str
    target: str
    where: str = ""
    path: tuple[Path, ...] = ()
    imports: tuple[str, ...] = ()
    missing: str | None = None


def goals(
    targets: Sequence[str], folder: Path, imports: tuple[str, ...], say: Callable[[str], None]
) -> list[Goal]:
    """All functions that the targets name, for specs in `folder`. Raises ProblemsError for what is
    not there, or is no Python; `say` is told of files that could not be read, where others had
    functions."""
    found: list[Goal] = []
    problems: list[Problem] = []
    for text in targets:
        try:
            found += _goals(text, folder, imports, say)
        except ProblemsError as error:
            problems += error.problems
    if problems:
        raise ProblemsError(problems)
    return list(dict.fromkeys(found))


def _goals(
    text: str, folder: Path, imports: tuple[str, ...], say: Callable[[str], None]
) -> Iterator[Goal]:
    if text.startswith(OPERATOR):
        library, _, operator = text.removeprefix(OPERATOR).partition(".")
        if not library or not operator:
            raise ProblemsError(
                [
                    Problem(
                        f"{text!r} is no registered operator's name; write "
                        f"torch.ops.library.operator"
                    )
                ]
            )
        yield Goal(f"{library}.{operator.partition('.')[0]}", text, text, imports=imports)
        return
    named = NAMED.fullmatch(text)
    parts = (
        text.split(".")
        if named is None and MODULE.fullmatch(text) and place_of(text, searched()) is None
        else []
    )
    split = next(
        (
            at
            for at in range(len(parts) - 1, 0, -1)
            if module_place(".".join(parts[:at]), searched()) is not None
        ),
        0,
    )
    if named is not None:
        yield _named(named["place"], named["name"], folder, imports)
    elif split:  # package.module.Name
        yield _named(".".join(parts[:split]), ".".join(parts[split:]), folder, imports)
    else:
        read, functions = found_in([text])
        problems = _unread(read)
        if problems and not functions:
            raise ProblemsError(problems)
        for problem in problems:
            say(str(problem))
        yield from (_of(function, folder, imports) for function in functions)


def _unread(library: Library) -> list[Problem]:
    return unread(
        (shown(file, Path.cwd()), why) for file, why in sorted(library.unreadable.items())
    )


def _named(place: str, name: str, folder: Path, imports: tuple[str, ...]) -> Goal:
    """A function that is named itself: anything that a spec can name. Raises ProblemsError where
    its source is no Python, or lacks the name."""
    is_path = place.endswith(".py")
    file = (
        resolved(Path(place))
        if is_path
        else module_place(place, searched())
        if MODULE.fullmatch(place)
        else None
    )
    if is_path and not is_file(file or Path(place)):
        raise ProblemsError([Problem("no such file", place)])
    if file is not None and file.is_file():
        library = Library()
        module, head = library.read(file), name.partition(".")[0]
        if library.unreadable:
            raise ProblemsError(_unread(library))
        text = file.read_text(encoding="utf-8", errors="replace")
        if (
            module is not None
            and not MAY_MAKE.search(text)
            and head not in re.findall(r"\w+", text)
        ):
            near = nearest(name, [defined for defined in module.definitions if "." not in defined])
            raise ProblemsError(
                [Problem(f"no {name!r} in it{f', did you mean {near!r}?' if near else ''}", place)]
            )
    if is_path and file is not None:
        return _placed(file, name, folder, shown(file, Path.cwd()), imports)
    return Goal(place, f"{place}:{name}", f"{place}:{name}", imports=imports)


def _of(function: Function, folder: Path, imports: tuple[str, ...]) -> Goal:
    where = f"{shown(function.file, Path.cwd())}:{function.line}"
    goal = _placed(function.file, function.name, folder, where, imports)
    if function.kind == "operator":
        module = goal.function.rpartition(f":{function.name}")[0]
        is_path = module.endswith(".py")
        return Goal(
            goal.stem,
            function.name,
            function.name,
            where,
            (function.file.parent,) if is_path else goal.path,
            (*imports, function.file.stem if is_path else module),
        )
    if function.inside is not None:
        name = function.name.rpartition(".")[2]
        missing = f"it is defined inside {function.inside}, where no spec can name it: give `gradverify init` a callable that uses it"
        return Goal(goal.stem, name, name, where, missing=missing)
    return goal


def _placed(file: Path, name: str, folder: Path, where: str, imports: tuple[str, ...]) -> Goal:
    """By its module where that can be imported from the spec, with `path:` where a folder has to be
    added; else by its file."""
    here, root = Path.cwd(), root_of(file)
    reachable = {here, *(Path(entry).resolve() for entry in python_path() if entry)} | {
        found for found in [folder_of(folder)] if found
    }
    above = [
        entry
        for entry in reachable - {here, folder_of(folder)}
        if file.is_relative_to(entry)
        and (entry.is_relative_to(here) or not file.is_relative_to(here))
    ]
    start: Path | None = root
    if (
        root not in reachable and not (file.parent / "__init__.py").is_file()
    ):  # a package without __init__.py that is installed, or a script
        start = max(above, key=lambda entry: len(entry.parts), default=None)
    if start is not None:
        parts = file.relative_to(start).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if MODULE.fullmatch(module):
            return Goal(
                module,
                f"{module}:{name}",
                f"{module}:{name}",
                where,
                () if start in reachable else (start,),
                imports,
            )
    stem = (
        ".".join(file.relative_to(here).with_suffix("").parts)
        if file.is_relative_to(here)
        else file.stem
    )
    return Goal(
        stem,
        f"{Path(os.path.relpath(file, folder)).as_posix()}:{name}",
        f"{file}:{name}",
        where,
        imports=imports,
    )


@command("target", "output", "imports", "force", "dry_run", "jobs")
def init_command(asked: Options, out: Output) -> int:
    """Write a spec for functions, or for every autograd Function of a file, folder or package, with
    inputs that a call was made with."""
    from gradverify.model.codec import as_text
    from gradverify.spec.scaffold import Entry, scaffold
    from gradverify.spec.schema import json_schema

    jobs = values.settled([("--jobs", asked.jobs, values.jobs)]).get("--jobs", 1)
    output, files = Path(asked.output), dict[Path, list[Goal]]()
    is_spec = output.suffix in YAML
    folder = (output.parent if is_spec else output).absolute()
    for goal in goals(asked.target, folder, tuple(asked.imports or ()), out.say):
        files.setdefault(output if is_spec else output / f"{goal.stem}.yaml", []).append(goal)
    if not files:
        out.say(
            f"no autograd Function, and no operator with a backward of its own, in "
            f"{', '.join(asked.target)}; name a callable or a module as "
            "module:name"
        )
        return NOTHING_CHECKED
    if not asked.force and not asked.dry_run:
        files = dict(_beside_others(file, own, out) for file, own in files.items())
    files = {file: own for file, own in files.items() if own}
    for file in files if not asked.dry_run else ():
        promise(file, "-o")
    found = (
        _tried([goal for own in files.values() for goal in own], folder, jobs, out) if files else {}
    )
    if isinstance(found, int) or not files:
        return found if isinstance(found, int) else OK
    schema = folder / SCHEMA_FILE
    for file, own in files.items():
        about = ", ".join(
            dict.fromkeys(
                goal.where.rpartition(":")[0] or goal.where or goal.function for goal in own
            )
        )
        path = dict.fromkeys(
            Path(os.path.relpath(each, file.absolute().parent)).as_posix()
            for goal in own
            for each in goal.path
        )
        text = scaffold(
            about,
            os.path.relpath(schema, file.absolute().parent),
            [Entry(goal.function, goal.where, found[goal]) for goal in own],
            list(path),
            list(dict.fromkeys(name for goal in own for name in goal.imports)),
        )
        if asked.dry_run:
            out.write(f"# {file.as_posix()}\n{text}" if len(files) > 1 else text)
            continue
        keep(promise(file), text)
        problems = gather([str(file)]).problems
        if problems:
            raise RuntimeError(f"init wrote a spec that is not valid: {problems[0]}")
        out.write(f"wrote {file.as_posix()}\n")
        for goal in own:
            missing, note = found[goal].missing, found[goal].note
            out.write(
                f"  {goal.function.rpartition(':')[2]}: "
                f"{f'TODO: {missing}' if missing else f'forward runs. {note}' if note else 'runs'}\n"
            )
    runs = any(proposal.missing is None for proposal in found.values())
    if not asked.dry_run:
        if not schema.exists():
            keep(promise(schema), as_text(json_schema()))
            out.write(
                f"wrote {os.path.relpath(schema)}, which editors with a YAML language server "
                f"complete and check specs by\n"
            )
        places = next(iter(files)).as_posix() if len(files) == 1 else output.as_posix()
        out.write(
            f"next: {'' if runs else f'fill in what is missing in {places}, then '}gradverify "
            f"check {places}\n"
        )
    faults = {
        proposal.fault.trace: proposal.target
        for proposal in found.values()
        if proposal.fault is not None
    }
    for trace, target in faults.items():
        out.say(bug_report(f"  in trying calls of {target}\n{trace}", out.arguments))
    return INTERNAL if faults else OK if runs else NOT_JUDGED


def _beside_others(file: Path, own: Sequence[Goal], out: Output) -> tuple[Path, list[Goal]]:
    """A spec that is there stays as it is: the first free of `ops.yaml`, `ops-2.yaml`, …, and the
    functions that those before neither check nor have a TODO of."""
    names = (
        file if number == 1 else file.with_stem(f"{file.stem}-{number}") for number in count(1)
    )
    there = list(takewhile(is_file, names))
    known = (
        {case.target.replace(":", ".") for case in gather(list(map(str, there))).cases}
        if there
        else set()
    )
    known |= {
        name.replace(":", ".")
        for each in there
        for name in re.findall(r"# - function: (\S+)", each.read_text("utf-8", errors="replace"))
    }
    left = [
        goal
        for goal in own
        if not {goal.target.replace(":", "."), goal.function.replace(":", ".")} & known
    ]
    if not left:
        out.say(f"{file.as_posix()} has a check of each of them already: nothing to add")
    return file.with_stem(f"{file.stem}-{len(there) + 1}") if there else file, left


def _tried(
    wanted: Sequence[Goal], folder: Path, jobs: int, out: Output
) -> Mapping[Goal, Proposal] | int:
    """Try each goal and return what was found, or the exit code after Ctrl-C or SIGTERM."""
    from gradverify.cli.progress import Progress
    from gradverify.running.proposing import proposals
    from gradverify.running.signals import Stopped

    torch_is_here()
    found = {goal: Proposal(goal.target, missing=goal.missing) for goal in wanted}
    trying = [goal for goal in wanted if goal.missing is None]
    project = folder_of(folder)
    around = (str(folder), str(project)) if project not in (None, folder) else ()
    sought = [
        Sought(goal.target, Search(str(folder), (*map(str, goal.path), *around), goal.imports))
        for goal in trying
    ]
    progress = Progress(
        out.beside_stderr() if is_watched(terminal(out.stderr), os.environ) else None
    )
    progress.begin(len(trying))
    try:
        progress.wait("starting torch")
        for place, proposal in (
            proposals(sought, jobs, lambda each: progress.show(each.target.rpartition(":")[2]))
            if sought
            else ()
        ):
            found[trying[place]] = proposal
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped as stopped:
        return SIGNALLED + stopped.number
    finally:
        progress.clear()
    return found
