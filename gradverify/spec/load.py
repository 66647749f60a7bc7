"""Load spec files as cases, with all problems of all files together; a mistake of the user never
raises."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

from gradverify.model.case import Case, Json, Search
from gradverify.model.paths import is_folder, resolved
from gradverify.model.problem import Problem
from gradverify.spec.build import Built, Builtins, World, build, leaves, name_faults
from gradverify.spec.document import parse, read
from gradverify.spec.fault import Fault, dotted
from gradverify.spec.names import DOTTED
from gradverify.spec.schema import FORMAT_VERSION, RunSettings, Settings, Spec
from gradverify.spec.settings import Layer, as_written, layer_of
from gradverify.spec.walk import folder_of
from gradverify.spec.wording import in_python, is_a_call, validated

NO_LAYER = Layer("")


@dataclass(frozen=True, slots=True)
class Loaded:
    """All valid cases, in the order of the files, and all problems. `layers`: case id → the layers
    of its settings (for `settings.origins`)."""

    cases: tuple[Case, ...] = ()
    problems: tuple[Problem, ...] = ()
    layers: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)


def load(
    files: Sequence[FilePath],
    *,
    builtins: Builtins,
    codes: Collection[str],
    project: Layer | Mapping[FilePath, Layer] = NO_LAYER,
    options: Layer = NO_LAYER,
    cwd: FilePath | None = None,
    required: Mapping[str, int] | None = None,
    texts: Mapping[FilePath, str] | None = None,
) -> Loaded:
    """Return all cases of `files`, which are shown as given and read relative to `cwd` (default:
    the current folder). `texts`: those of `files` that are not on the disk, as if they were in
    `cwd`.

    `builtins`: each built-in's parameter names; `required`: how many of them, the first ones, have
    no default; `codes`: all rule codes; `project`, `options`: the layers below and above those of
    the specs, the first one for each file if they differ.
    """
    layers = {None: project} if isinstance(project, Layer) else project
    sound: dict[str, Layer] = {}
    project_problems: list[Problem] = []
    for each in {layer.origin: layer for layer in layers.values()}.values():
        sound[each.origin], found = vetted(each, codes)
        project_problems += found
    options, option_problems = vetted(options, codes)
    folder = cwd or FilePath.cwd()
    parts = [
        _file(
            file,
            folder,
            World(
                "",
                folder,
                builtins,
                codes,
                sound[(project if isinstance(project, Layer) else project[file]).origin],
                options,
                required=required or {},
            ),
            (texts or {}).get(file),
        )
        for file in files
    ]
    problems = [problem for part in parts for problem in part.problems]
    return Loaded(
        tuple(case for part in parts for case in part.cases),
        (*project_problems, *option_problems, *problems),
        {name: layers for part in parts for name, layers in part.layers.items()},
    )


def vetted(layer: Layer, codes: Collection[str]) -> tuple[Layer, tuple[Problem, ...]]:
    """Return the layer and its problems. A faulty layer is returned empty, so that its faults are
    reported once, not for every case."""
    called = is_a_call(layer.origin)
    checked = validated(RunSettings, as_written(layer), ())
    faults = checked if isinstance(checked, tuple) else tuple(name_faults(checked, (), codes))
    if faults or isinstance(checked, tuple):
        worded = [in_python(fault) if called else fault for fault in faults]
        return Layer(layer.origin), tuple(
            Problem(fault.message, layer.origin, path=dotted(fault.path)) for fault in worded
        )
    return replace(layer_of(checked, layer.origin), places=layer.places), ()


def _file(file: FilePath, cwd: FilePath, world: World, text: str | None) -> Loaded:
    name = file.as_posix()
    document = read(name, cwd / file) if text is None else parse(name, text)
    if isinstance(document, tuple):
        return Loaded(problems=document)
    data = document.data
    if not isinstance(data, dict):
        return Loaded(
            problems=(
                document.problem(Fault((), "a spec is a mapping that begins with `gradverify: 1`")),
            )
        )
    checks = data["checks"] if isinstance(data.get("checks"), list) else None
    checked = validated(Spec, data if checks is None else {**data, "checks": []}, ())
    faults = [_version(fault, data) for fault in (checked if isinstance(checked, tuple) else ())]

    written = data["defaults"] if isinstance(data.get("defaults"), dict) else {}
    defaults = validated(Settings, written, ("defaults",))
    if isinstance(defaults, Settings):
        faults += name_faults(defaults, ("defaults",), world.codes)
        world = replace(world, defaults=defaults)

    folder = resolved(cwd / file).parent if text is None else cwd
    paths, imports = (
        [
            (place, text)
            for place, text in leaves(data.get(key), (key,))
            if text and isinstance(text, str)
        ]
        for key in ("path", "import")
    )
    faults += [
        Fault(place, f"no folder {text!r} (looked for {(folder / text).resolve()})")
        for place, text in paths
        if not is_folder(folder / text)
    ]
    faults += [
        Fault(place, f"{text!r} is no module's name")
        for place, text in imports
        if not DOTTED.fullmatch(text)
    ]
    # A console script does not put the root of a repository on sys.path: the project's folder is
    # searched after the spec's own
    project = folder_of(folder)
    path = [
        *(str((folder / text).resolve()) for _, text in paths),
        *([str(folder), str(project)] if project not in (None, folder) else []),
    ]
    search = Search(str(folder), tuple(dict.fromkeys(path)), tuple(text for _, text in imports))
    world = replace(
        world, file=file.as_posix(), folder=folder, matrix=written.get("matrix"), search=search
    )

    built: list[Built] = []
    lines: dict[str, int] = {}
    for index, check in enumerate(checks or ()):
        line = document.line(("checks", index))
        cases, own = build(check, ("checks", index), line, world)
        faults += own
        taken = next((item.case.name for item in cases if item.case.name in lines), None)
        if taken is not None:
            key, advice = (
                ("name", "") if "name" in check else ("function", ": give this one a `name`")
            )
            faults.append(
                Fault(
                    ("checks", index, key),
                    f"the name {taken!r} is taken by the check on line {lines[taken]}{advice}",
                )
            )
            continue
        lines |= {item.case.name: line for item in cases}
        built += cases

    # Sorted by place; a problem that an alias or a variable repeats is listed once
    first: dict[tuple[int, int, str], Problem] = {}
    for problem in map(document.problem, faults):
        first.setdefault((problem.line or 0, problem.column or 0, problem.message), problem)
    problems = tuple(first[place] for place in sorted(first, key=lambda place: place[:2]))
    return Loaded(
        tuple(item.case for item in built), problems, {item.case.id: item.layers for item in built}
    )


def _version(fault: Fault, data: Mapping[str, Json]) -> Fault:
    """Return the fault with a clearer message for the usual mistakes of a first spec."""
    version = data.get("gradverify")
    if fault.path == () and "gradverify" not in data and "'gradverify'" in fault.message:
        return Fault(
            (), f"the key `gradverify: {FORMAT_VERSION}` (the format's version) is missing"
        )
    if fault.path == ("checks",) and isinstance(data["checks"], dict):
        return Fault(
            fault.path,
            "expected a list of checks: begin each one with `- `, as in `- function: relu`",
        )
    if fault.path == ("gradverify",) and isinstance(version, int) and not isinstance(version, bool):
        return Fault(
            fault.path,
            f"format version {version} is unknown: this gradverify reads version {FORMAT_VERSION}",
        )
    return fault
