"""`gradverify init`: a first spec for a function, a file, a folder or a package, with inputs that were found by trying."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli import values
from gradverify.cli.bug import bug_report
from gradverify.cli.coverage import found_in, searched, unread
from gradverify.cli.gather import gather, torch_is_here
from gradverify.cli.options import Options, command
from gradverify.cli.output import Output, is_watched, keep, promise, terminal
from gradverify.model.case import Search
from gradverify.model.paths import is_file, resolved
from gradverify.model.problem import INTERNAL, INTERRUPTED, NOT_JUDGED, NOTHING_CHECKED, OK, SIGNALLED, USAGE, Problem, ProblemsError
from gradverify.model.proposal import Proposal, Sought
from gradverify.source.functions import OPERATOR, Function
from gradverify.source.modules import MODULE, Library, module_place, place_of, python_path, root_of, shown
from gradverify.spec.document import Document, read
from gradverify.spec.fault import nearest
from gradverify.spec.scaffold import takes_more
from gradverify.spec.text import decode
from gradverify.spec.walk import SCHEMA_FILE, YAML, folder_of

if TYPE_CHECKING:
    from gradverify.spec.scaffold import Entry


OTHERWISE = "it stays as it is: --force writes it anew, -o another file"


@dataclass(frozen=True, slots=True)
class Existing:
    """`names`: of its checks; `open`: the goals that it neither checks nor mentions in a comment, as `init` leaves one where nothing runs yet."""

    document: Document
    text: str
    names: frozenset[str]
    open: tuple[Goal, ...]


def existing(file: Path, goals: Sequence[Goal]) -> Existing:
    """Raises ProblemsError where checks cannot be added."""
    gathered = gather([str(file)])
    document, text = read(file.as_posix(), file), "" if gathered.problems else decode(file.read_bytes())
    if not isinstance(document, Document) or not isinstance(text, str) or gathered.problems:
        first = next(iter(gathered.problems), Problem("it cannot be read"))
        raise _refused_file(file, f"and no spec that checks can be added to ({f'line {first.line}: ' if first.line else ''}{first.message})")
    if not takes_more(document):
        raise _refused_file(file, "and its `checks` are no list with a check in each line")
    checked = {case.target.replace(":", ".") for case in gathered.cases}
    mentioned = {words[-1] for line in document.lines if (words := line.split())[:3] == ["#", "-", "function:"]}
    missing = tuple(goal for goal in goals if goal.target.replace(":", ".") not in checked and goal.function not in mentioned)
    lacks = _lacking(document, "path", (goal.path_from(file) for goal in missing))
    lacks += _lacking(document, "import", (goal.imports for goal in missing))
    if lacks:
        raise _refused_file(file, f"and would need {' and '.join(lacks)} at its top")
    return Existing(document, text, frozenset(case.check for case in gathered.cases), missing)


def _lacking(document: Document, key: str, wanted: Iterable[Sequence[str]]) -> list[str]:
    """What the document does not say at its top, as it would be written there."""
    data = document.data if isinstance(document.data, dict) else {}
    said = data.get(key, [])
    said = said if isinstance(said, list) else [said]
    missing = [name for name in dict.fromkeys(name for names in wanted for name in names) if name not in said]
    return [f"`{key}: [{', '.join(map(str, said + missing))}]`"] if missing else []


def _refused_file(file: Path, why: str) -> ProblemsError:
    return ProblemsError([Problem(f"{file.as_posix()} is there already {why}; {OTHERWISE}")])


MAKES_NAMES = frozenset({"globals", "exec", "vars", "setattr", "__getattr__", "__dict__", "import_module", "load", "load_inline"})
MOST_NAMED = 8      # names of a file in a message
NAMED = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")


@dataclass(frozen=True, slots=True)
class Goal:
    """One function. `stem`: the name of its spec, without suffix; `function`: as a spec in `folder` names it; `where`: for comments; `path`,
    `imports`: what that spec needs; `missing`: why it is not tried at all."""

    stem: str
    folder: Path
    function: str
    where: str
    target: str
    path: tuple[Path, ...] = ()
    imports: tuple[str, ...] = ()
    missing: str | None = None

    def path_from(self, file: Path) -> tuple[str, ...]:
        """`path` as a spec at `file` writes it."""
        return tuple(Path(os.path.relpath(folder, file.absolute().parent)).as_posix() for folder in self.path)

    def sought(self, example: str | None) -> Sought:
        """With the folders that a spec in this place is looked up in."""
        project = folder_of(self.folder)
        path = [str(folder) for folder in self.path] + ([str(self.folder), str(project)] if project not in (None, self.folder) else [])
        return Sought(self.target, Search(str(self.folder), tuple(dict.fromkeys(path)), self.imports), example)


def goals(targets: Sequence[str], folder: Path, imports: tuple[str, ...], say: Callable[[str], None]) -> list[Goal]:
    """All functions that the targets name, for specs in `folder`. Raises ProblemsError for what is not there, or is no Python; `say` is told of
    files that could not be read, where others had functions."""
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


def _goals(text: str, folder: Path, imports: tuple[str, ...], say: Callable[[str], None]) -> Iterator[Goal]:
    if text.startswith(OPERATOR):
        library, _, operator = text.removeprefix(OPERATOR).partition(".")
        if not library or not operator:
            raise ProblemsError([Problem(f"{text!r} is no registered operator's name; write torch.ops.library.operator")])
        yield Goal(f"{library}.{operator.partition('.')[0]}", folder, text, "", text, imports=imports)
        return
    named = NAMED.fullmatch(text)
    if named is not None:
        yield _named_goal(named["place"], named["name"], folder, imports)
    elif place_of(text, searched()) is None and (split := _split(text)) is not None:
        yield _named_goal(*split, folder, imports)
    else:
        read, functions = found_in([text])
        problems = _unread(read)
        if problems and not functions:
            raise ProblemsError(problems)
        for problem in problems:
            say(str(problem))
        yield from (_of(function, folder, imports) for function in functions)


def _unread(library: Library) -> list[Problem]:
    return unread((shown(file, Path.cwd()), why) for file, why in sorted(library.unreadable.items()))


def _split(text: str) -> tuple[str, str] | None:
    """`package.module.Name` as a module that is there and a name in it."""
    parts = text.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        if MODULE.fullmatch(text) and module_place(module, searched()) is not None:
            return module, ".".join(parts[end:])
    return None


def _named_goal(place: str, name: str, folder: Path, imports: tuple[str, ...]) -> Goal:
    """A function that is named itself: anything that a spec can name."""
    if not place.endswith(".py"):
        module = module_place(place, searched()) if MODULE.fullmatch(place) else None
        if module is not None:
            _refuse_unknown(module / "__init__.py" if module.is_dir() else module, name, place)
        return Goal(place, folder, f"{place}:{name}", "", f"{place}:{name}", imports=imports)
    file = resolved(Path(place))
    if not is_file(file):
        raise ProblemsError([Problem("no such file", place)])
    _refuse_unknown(file, name, place)
    return _placed(file, name, folder, shown(file, Path.cwd()), imports)


def _refuse_unknown(file: Path, name: str, place: str) -> None:
    """Raises ProblemsError for a file that is no Python, and for a name whose first word occurs nowhere in the source, unless the source may make
    names without writing them."""
    head = name.partition(".")[0]
    library = Library()
    module = library.read(file) if file.is_file() else None
    if library.unreadable:
        raise ProblemsError(_unread(library))
    if module is None or module.stars or {head, *MAKES_NAMES} & set(re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace"))):
        return
    if file.name == "__init__.py" and (file.with_name(head).exists() or any(file.parent.glob(f"{head}.*"))):
        return
    own = [defined for defined in module.definitions if "." not in defined]
    near = nearest(name, own)
    holds = f"; it holds {', '.join(own[:MOST_NAMED])}{' and more' if len(own) > MOST_NAMED else ''}" if own else ""
    raise ProblemsError([Problem(f"no {name!r} in it{f', did you mean {near!r}?' if near else ''}{holds}", place)])


def _of(function: Function, folder: Path, imports: tuple[str, ...]) -> Goal:
    where = f"{shown(function.file, Path.cwd())}:{function.line}"
    if function.kind == "operator":
        goal = _placed(function.file, "any", folder, where, imports)
        module = goal.function.rpartition(":")[0]
        importing = () if module.endswith(".py") else (module,)
        path = goal.path if importing else (function.file.parent,)
        return Goal(goal.stem, folder, function.name, where, function.name, path, (*imports, *(importing or (function.file.stem,))))
    if function.inside is not None:
        name = function.name.rpartition(".")[2]
        missing = f"it is defined inside {function.inside}, where no spec can name it: give `gradverify init` a callable that uses it"
        return Goal(_placed(function.file, name, folder, where, imports).stem, folder, name, where, name, missing=missing)
    return _placed(function.file, function.name, folder, where, imports)


def _placed(file: Path, name: str, folder: Path, where: str, imports: tuple[str, ...]) -> Goal:
    """By its module where that can be imported from the spec, with `path:` where a folder has to be added; else by its file."""
    root = root_of(file)
    parts = file.relative_to(root).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    reachable = {Path.cwd(), folder_of(folder), *(Path(entry).resolve() for entry in python_path() if entry)}
    if MODULE.fullmatch(module) and (root in reachable or (file.parent / "__init__.py").is_file()):
        path = () if root in reachable else (root,)
        return Goal(module, folder, f"{module}:{name}", where, f"{module}:{name}", path, imports)
    elsewhere = [entry for entry in reachable - {Path.cwd(), folder_of(folder)} if entry is not None and file.is_relative_to(entry)
                 and (entry.is_relative_to(Path.cwd()) or not file.is_relative_to(Path.cwd()))]
    if elsewhere:       # a package without __init__.py, installed, maybe in an environment below this folder
        module = ".".join(file.relative_to(max(elsewhere, key=lambda entry: len(entry.parts))).with_suffix("").parts)
        if MODULE.fullmatch(module):
            return Goal(module, folder, f"{module}:{name}", where, f"{module}:{name}", (), imports)
    stem = ".".join(file.relative_to(Path.cwd()).with_suffix("").parts) if file.is_relative_to(Path.cwd()) else file.stem
    return Goal(stem, folder, f"{Path(os.path.relpath(file, folder)).as_posix()}:{name}", where, f"{file}:{name}", imports=imports)


@dataclass(frozen=True)
class Wanted:
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


@command("target", "output", "example", "imports", "force", "dry_run", "jobs")
def init_command(asked: Options, out: Output) -> int:
    """Write a spec for functions, or for every autograd Function of a file, folder or package, with inputs found by trying."""
    count = values.settled([("--jobs", asked.jobs, values.jobs)]).get("--jobs", 1)
    if asked.example is not None and len(asked.target) > 1:
        raise ProblemsError([Problem("--example is a call of one function: name one target")])
    if asked.example is not None:
        _refuse_no_call(asked.example)
    return run_init(Wanted(asked.target, Path(asked.output), asked.example, tuple(asked.imports or ()), asked.force, asked.dry_run, count), out)


def _refuse_no_call(example: str) -> None:
    """Raises ProblemsError for what is no call in Python, before anything is imported."""
    from gradverify.source.functions import call_in

    try:
        call_in(example)
    except ValueError as error:
        raise ProblemsError([Problem(f"--example {error}")]) from None


def run_init(asked: Wanted, out: Output) -> int:
    """Write specs for the targets. Sources are read, not imported; calls are tried in worker processes."""
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


def _tried(wanted: Sequence[Goal], asked: Wanted, out: Output) -> Mapping[Goal, Proposal] | int:
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


def _written(files: Mapping[Path, Sequence[Goal]], there: Mapping[Path, Existing], found: Mapping[Goal, Proposal], asked: Wanted, out: Output) -> int:
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


def _text(file: Path, own: Sequence[Goal], found: Mapping[Goal, Proposal], asked: Wanted) -> str:
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
