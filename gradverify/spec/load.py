"""Spec files to cases: all problems of all files at once, never an exception for what a person wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

from gradverify.model.case import Case, Json, Search
from gradverify.model.paths import is_folder, resolved
from gradverify.model.problem import Problem
from gradverify.spec.build import Built, World, build
from gradverify.spec.check_sense import Builtins, name_faults
from gradverify.spec.document import Document, read
from gradverify.spec.fault import Fault, Path, dotted
from gradverify.spec.names import DOTTED, called
from gradverify.spec.schema import FORMAT_VERSION, RunSettings, Settings, Spec
from gradverify.spec.settings import Layer, as_written, layer_of
from gradverify.spec.walk import folder_of
from gradverify.spec.wording import Arguments, in_python, is_a_call, validated

NOBODY = Layer("")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Every sound case, in the order written, and every problem. `layers`: by case id, where its settings come from (`settings.origins`).
    `names`: functions in files, as cases name them (with absolute paths) → as a person is shown them."""

    cases: tuple[Case, ...] = ()
    problems: tuple[Problem, ...] = ()
    layers: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def load(
    files: Sequence[FilePath], *, builtins: Builtins, codes: Collection[str], project: Layer = NOBODY, options: Layer = NOBODY,
    cwd: FilePath | None = None, required: Mapping[str, int] | None = None,
) -> Loaded:
    """All cases of `files`, which are shown as given and read relative to `cwd` (default: the current folder).

    `builtins`: each built-in's parameter names; `required`: how many of them, the first ones, have no default; `codes`: the rule codes there are;
    `project`, `options`: the layers below and above the specs'.
    """
    project, project_problems = vetted(project, codes)
    options, option_problems = vetted(options, codes)
    folder = cwd or FilePath.cwd()
    parts = [_file(file, folder, World("", folder, builtins, codes, project, options, required=required or {})) for file in files]
    problems = [problem for part in parts for problem in part.problems]
    return Loaded(
        tuple(case for part in parts for case in part.cases), (*project_problems, *option_problems, *problems),
        {name: layers for part in parts for name, layers in part.layers.items()},
        {target: name for part in parts for target, name in part.names.items()})


def vetted(layer: Layer, codes: Collection[str]) -> tuple[Layer, tuple[Problem, ...]]:
    """The layer, and what is wrong with it; a faulty one is emptied, so that its faults are reported once and not by every case."""
    called = is_a_call(layer.origin)
    checked = validated(Arguments if called else RunSettings, as_written(layer), ())
    faults = checked if isinstance(checked, tuple) else tuple(name_faults(checked, (), codes))
    if faults or isinstance(checked, tuple):
        told = [in_python(fault) if called else fault for fault in faults]
        return Layer(layer.origin), tuple(Problem(fault.message, layer.origin, path=dotted(fault.path)) for fault in told)
    return replace(layer_of(checked, layer.origin), places=layer.places), ()


def _file(file: FilePath, cwd: FilePath, world: World) -> Loaded:
    document = read(file.as_posix(), cwd / file)
    if isinstance(document, tuple):
        return Loaded(problems=document)
    data = document.data
    if not isinstance(data, dict):
        return Loaded(problems=(document.problem(Fault((), "a spec is a mapping that begins with `gradverify: 1`")),))
    folder = resolved(cwd / file).parent
    world, faults = _spec(data, replace(world, file=file.as_posix(), folder=folder))
    built, check_faults = _checks(document, world)
    problems = _in_order(document.problem(fault) for fault in (*faults, *check_faults))
    names = {target: called(text, target, cwd.resolve()) for item in built for target, text in item.written.items()}
    return Loaded(tuple(item.case for item in built), problems, {item.case.id: item.layers for item in built}, names)


def _in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """By place; one that an alias or a variable repeats stands once."""
    first: dict[tuple[int, int, str], Problem] = {}
    for problem in problems:
        first.setdefault((problem.line or 0, problem.column or 0, problem.message), problem)
    return tuple(first[place] for place in sorted(first, key=lambda place: place[:2]))


def _spec(data: Mapping[str, Json], world: World) -> tuple[World, tuple[Fault, ...]]:
    """The world with the file's own defaults and search path, and the faults of everything but its checks."""
    top = {**data, "checks": []} if isinstance(data.get("checks"), list) else data
    checked = validated(Spec, top, ())
    faults = [_version(fault, data) for fault in (checked if isinstance(checked, tuple) else ())]
    written = data["defaults"] if isinstance(data.get("defaults"), dict) else {}
    settings = validated(Settings, written, ("defaults",))
    if isinstance(settings, Settings):
        faults += name_faults(settings, ("defaults",), world.codes)
        world = replace(world, defaults=settings)
    faults += (*_folder_faults(data.get("path"), world.folder), *_import_faults(data.get("import")))
    return replace(world, matrix=written.get("matrix"), search=_search(data, world.folder)), tuple(faults)


def _version(fault: Fault, data: Mapping[str, Json]) -> Fault:
    """The two sentences about `gradverify: 1` that a newcomer is likely to meet."""
    if fault.path == () and "gradverify" not in data and "'gradverify'" in fault.message:
        return Fault((), f"the key `gradverify: {FORMAT_VERSION}` (the format's version) is missing")
    if fault.path == ("checks",) and isinstance(data["checks"], dict):
        return Fault(fault.path, "expected a list of checks: begin each one with `- `, as in `- function: relu`")
    version = data.get("gradverify")
    if fault.path == ("gradverify",) and isinstance(version, int) and not isinstance(version, bool):
        return Fault(fault.path, f"format version {version} is unknown: this gradverify reads version {FORMAT_VERSION}")
    return fault


def _listed(value: Json) -> list[str]:
    return [value] if isinstance(value, str) else [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _folder_faults(value: Json, folder: FilePath) -> Iterator[Fault]:
    for index, place in enumerate(_listed(value)):
        if place and not is_folder(folder / place):
            yield Fault(_member(value, "path", index), f"no folder {place!r} (looked for {(folder / place).resolve()})")


def _import_faults(value: Json) -> Iterator[Fault]:
    for index, name in enumerate(_listed(value)):
        if name and not DOTTED.fullmatch(name):
            yield Fault(_member(value, "import", index), f"{name!r} is no module's name")


def _member(value: Json, key: str, index: int) -> Path:
    return (key, index) if isinstance(value, list) else (key,)


def _search(data: Mapping[str, Json], folder: FilePath) -> Search:
    """`path:` entries, then the spec's folder, then the project's: a console script does not put the root of a repository on sys.path."""
    project = folder_of(folder)
    path = [str((folder / place).resolve()) for place in _listed(data.get("path"))]
    path += [str(folder), str(project)] if project not in (None, folder) else []
    return Search(str(folder), tuple(dict.fromkeys(path)), tuple(_listed(data.get("import"))))


def _checks(document: Document, world: World) -> tuple[tuple[Built, ...], tuple[Fault, ...]]:
    """The cases of all checks; a name that two of them share is a fault of the second."""
    raw = document.data.get("checks")
    built: list[Built] = []
    faults: list[Fault] = []
    lines: dict[str, int] = {}
    for index, check in enumerate(raw if isinstance(raw, list) else ()):
        base: Path = ("checks", index)
        line = document.line(base)
        cases, own = build(check, base, line, world)
        faults += own
        taken = next((item.case.name for item in cases if item.case.name in lines), None)
        if taken is not None:
            faults.append(Fault((*base, "name" if "name" in check else "function"), f"the name {taken!r} is taken by the check on line {lines[taken]}"
                                + ("" if "name" in check else ": give this one a `name`")))
            continue
        lines |= {item.case.name: line for item in cases}
        built += cases
    return tuple(built), tuple(faults)
