"""Which checks a change affects: by their spec, by what their functions import, by the files they name. Nothing of anybody's is imported."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.paths import resolved
from gradverify.running.git import TABLE, Changes, tracked
from gradverify.source.globs import matches
from gradverify.source.graph import Graph, Imported
from gradverify.spec.walk import PROJECT_FILE, SPEC_FOLDER, SUFFIXES, Mentions, folder_of, is_spec, mentions, own_specs, specs_below

if TYPE_CHECKING:
    from gradverify.model.case import Case


# ---- Which checks a change affects: by their spec, by what their functions import, by the files
# they name
@dataclass(frozen=True, slots=True)
class Needs:
    """What a check is made of. `folders` come first on the path while it runs; `targets` are names of functions, `modules` of modules; `files` are
    absolute; `globs` are relative to `folder`, the spec's."""

    spec: str
    folder: str
    folders: tuple[str, ...]
    targets: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()


@dataclass
class Effects:
    """What the changes do to one check after the other."""

    changes: Changes
    graph: Graph = field(default_factory=Graph)

    def on(self, needs: Needs) -> str | None:
        """Why a check is affected, in words; None where it is not."""
        if not self.changes.files:
            return None
        if self.changes.project:
            return f"[tool.gradverify] of {self.changes.project} changed"
        if self.changes.hit([needs.spec]):
            return "its spec changed"
        named = self.changes.hit(needs.files) or self._by_globs(needs)
        return f"names {named}" if named else self._by_imports(needs)

    def _by_globs(self, needs: Needs) -> str | None:
        return next((shown for file, shown in self.changes.files.items() for glob in needs.globs if matches(glob, needs.folder, file)), None)

    def _by_imports(self, needs: Needs) -> str | None:
        reach = self.graph.of(needs.targets, needs.modules, needs.folders)
        hit = self.changes.hit(sorted(reach.files)) or next(self._named(reach), None)
        if hit:
            return f"imports {hit}"
        return next((f"imports {Path(file).name}, and what that loads cannot be told" for file in sorted(reach.unread)), None)

    def _named(self, reach: Imported) -> Iterator[str]:
        """Changed files with the name of a module that is imported and found nowhere: the code may put their folder on the path, or had it. Deleted
        ones with the name of any."""
        for file, shown in self.changes.files.items():
            path = Path(file).with_suffix("").as_posix().removesuffix("/__init__")
            asked = reach.names if file in self.changes.gone else reach.missing
            if file.endswith(".py") and any(path.endswith(f"/{name.replace('.', '/')}") for name in asked):
                yield shown


def reasons(cases: Sequence[Case], changes: Changes, cwd: Path) -> Mapping[str, str]:
    """Ids of the affected cases, in their order, each with the reason."""
    effects = Effects(changes)
    found = ((case.id, effects.on(needs_of(case, cwd))) for case in cases)
    return {name: why for name, why in found if why is not None}


def needs_of(case: Case, cwd: Path) -> Needs:
    oracles, builtin = case.oracles, {name: f"{known.module}:{known.attribute}" for name, known in BUILTINS.items()}
    recipes = [recipe for argument in (*case.inputs, *case.keywords) for recipe in argument.recipes]
    made = [str(recipe.arguments) for recipe in recipes if recipe.draw == "make"]
    targets = [target for target in (case.target, case.inputs_from, oracles.reference, oracles.gradient, oracles.surrogate, *made) if target]
    files = tuple(str(recipe.arguments).rpartition("#")[0] or str(recipe.arguments) for recipe in recipes if recipe.draw == "file")
    return Needs(str(cwd / case.spec.path), case.search.folder, (*case.search.path, case.search.folder, str(cwd)),
                 tuple(builtin.get(target, target) for target in targets), case.search.imports, files, case.sources)


# ---- Which specs may hold checks that a change affects, from what their texts mention: what
# `gradverify hook` asks before it reads any spec whole
FILE_TARGET = ".py"


@dataclass(frozen=True, slots=True)
class Sieved:
    """`specs`: those that may be affected, as they are shown; `total`: how many were looked at."""

    specs: tuple[str, ...]
    total: int


def sieved(changes: Changes, cwd: Path) -> Sieved:
    """Every spec of the project, and every changed one, asked what it mentions."""
    effects = Effects(changes)
    specs = tuple(dict.fromkeys((*project_specs(cwd), *_changed(changes))))
    return Sieved(tuple(spec for spec in specs if _may_be_affected(spec, cwd, effects)), len(specs))


def _may_be_affected(spec: str, cwd: Path, effects: Effects) -> bool:
    """One that cannot be read, or names what no file can be called, may be affected by anything."""
    if not effects.changes.files:
        return False
    said = mentions(cwd / spec)
    try:
        return said is None or effects.on(_needs(spec, said, cwd)) is not None
    except (OSError, ValueError, RuntimeError):     # a NUL, a name that is too long, links in a circle
        return True


def _needs(spec: str, said: Mentions, cwd: Path) -> Needs:
    """Whatever may be a function, a module or a file is taken for one."""
    folder = resolved(cwd / spec).parent
    project = folder_of(folder)
    folders = [*(str(resolved(folder / place)) for place in said.path), str(folder), *([str(project)] if project else []), str(cwd)]
    targets = (_target(text, folder) for text in said.targets)
    modules = {BUILTINS[text].module for text in said.others if text in BUILTINS}
    files = tuple(os.path.realpath(folder / text.partition("#")[0]) for text in said.others if text and "\0" not in text)
    return Needs(str(cwd / spec), str(folder), tuple(dict.fromkeys(folders)), tuple(targets), (*said.imports, *sorted(modules)), files, said.others)


def _target(text: str, folder: Path) -> str:
    place, _, attribute = text.rpartition(":")
    return f"{resolved(folder / place)}:{attribute}" if place.endswith(FILE_TARGET) else text


def _changed(changes: Changes) -> Iterator[str]:
    """Changed files that are specs, wherever they lie."""
    for file, shown in changes.files.items():
        if file.lower().endswith(SUFFIXES) and file not in changes.gone and is_spec(Path(file)):
            yield shown


def project_specs(cwd: Path) -> tuple[str, ...]:
    """The specs that `check` runs without paths; where the project names no `paths`, all that git tracks below `cwd` as well."""
    listed = _listed(cwd)
    if listed is not None:
        return _shown((file for place in listed for file in _members(place)), cwd)
    folder = cwd / SPEC_FOLDER
    found = _members(folder) if folder.is_dir() else own_specs(cwd)
    others = (cwd / file for file in tracked(cwd, *(f":(icase)*{suffix}" for suffix in SUFFIXES)))
    return _shown((*found, *(file for file in others if file.is_file() and is_spec(file))), cwd)


def _listed(cwd: Path) -> list[Path] | None:
    """`paths` of the project's `[tool.gradverify]`; none where it has none, or is no TOML, which whoever reads it whole will say."""
    folder = folder_of(cwd)
    if folder is None:
        return None
    try:
        table: Any = tomllib.loads((folder / PROJECT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for name in (*TABLE, "paths"):
        table = table.get(name) if isinstance(table, dict) else None
    return [folder / place for place in table if isinstance(place, str)] or None if isinstance(table, list) else None


def _members(place: Path) -> list[Path]:
    if place.is_dir():
        return list(specs_below(place))
    return [place] if place.exists() else []


def _shown(files: Iterable[Path], cwd: Path) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for file in files:
        first.setdefault(os.path.realpath(file), Path(os.path.relpath(file, cwd)).as_posix())
    return tuple(first.values())
