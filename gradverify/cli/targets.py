"""What a person names for `init`, as functions to find inputs for: where they stand, how a spec names them, and in which file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradverify.cli.coverage import found_in, searched, unread
from gradverify.model.case import Search
from gradverify.model.paths import is_file, resolved
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.proposal import Sought
from gradverify.source.functions import OPERATOR, Function
from gradverify.source.modules import MODULE, Library, module_place, place_of, python_path, root_of, shown
from gradverify.spec.fault import nearest
from gradverify.spec.walk import folder_of

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
        yield _named(named["place"], named["name"], folder, imports)
    elif place_of(text, searched()) is None and (split := _split(text)) is not None:
        yield _named(*split, folder, imports)
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


def _named(place: str, name: str, folder: Path, imports: tuple[str, ...]) -> Goal:
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
