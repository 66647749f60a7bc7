"""Which checks a change affects: by their spec, by what their functions import, by the files they
name. Nothing of anybody's is imported."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.paths import resolved
from gradverify.running.git import Changes, tracked
from gradverify.source.globs import matches
from gradverify.source.graph import Graph, Imported
from gradverify.spec.walk import (
    PROJECT_FILE,
    SPEC_FOLDER,
    SUFFIXES,
    Mentions,
    folder_of,
    is_spec,
    mentions,
    own_specs,
    specs_below,
)

FILE_TARGET = ".py"
TARGET = re.compile(r".+:[A-Za-z_][\w.]*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
WHOLE = 0  # in the place of a line: all checks of a spec


def affected(changes: Changes, cwd: Path, specs: Iterable[str]) -> Mapping[tuple[str, int], str]:
    """Why each check is affected: by its spec, as that is shown, and its line. A spec that cannot
    be read, or names what no file can be called, may be affected by anything."""
    graph, found = Graph(), dict[tuple[str, int], str]()

    def why(spec: str, said: Mentions, texts: Iterable[str]) -> str | None:
        try:
            return _why(spec, said, tuple(dict.fromkeys(texts)), changes, graph, cwd)
        except (OSError, ValueError, RuntimeError):  # a name that is too long, links in a circle
            return "names what can be no file"

    for spec in specs if changes.files else ():
        said = mentions(cwd / spec)
        if said is None:
            found[spec, WHOLE] = "its spec cannot be read"
        # Most often there is nothing to tell its checks apart for
        elif why(spec, said, chain.from_iterable(said.checks.values())):
            found |= {
                (spec, line): reason
                for line, texts in said.checks.items()
                if (reason := why(spec, said, texts))
            }
    return found


def _why(
    spec: str, said: Mentions, texts: tuple[str, ...], changes: Changes, graph: Graph, cwd: Path
) -> str | None:
    """Whatever may be a function, a module or a file is taken for one."""
    if changes.hit([str(cwd / spec)]):
        return "its spec changed"
    folder = resolved(cwd / spec).parent
    configured = changes.hit(str(above / PROJECT_FILE) for above in (folder, *folder.parents))
    if configured:
        return f"{configured} changed"
    named = changes.hit(
        os.path.realpath(folder / text.partition("#")[0])
        for text in texts
        if text and "\0" not in text
    )
    named = named or next(
        (
            shown
            for file, shown in changes.files.items()
            for text in texts
            if matches(text, str(folder), file)
        ),
        None,
    )
    if named:
        return f"names {named}"
    project = folder_of(folder)
    folders = (
        *(str(resolved(folder / place)) for place in said.path),
        str(folder),
        *([str(project)] if project else []),
        str(cwd),
    )
    targets = (
        f"{BUILTINS[text].module}:{BUILTINS[text].attribute}"
        if text in BUILTINS
        else _target(text, folder)
        for text in texts
    )
    reach = graph.of(tuple(filter(None, targets)), said.imports, tuple(dict.fromkeys(folders)))
    hit = changes.hit(sorted(reach.files)) or next(_by_name(reach, changes), None)
    if hit:
        return f"imports {hit}"
    return next(
        (
            f"imports {Path(file).name}, and what that loads cannot be told"
            for file in sorted(reach.unread)
        ),
        None,
    )


def _target(text: str, folder: Path) -> str | None:
    place, _, attribute = text.rpartition(":")
    return (
        None
        if not TARGET.fullmatch(text)
        else f"{resolved(folder / place)}:{attribute}"
        if place.endswith(FILE_TARGET)
        else text
    )


def _by_name(reach: Imported, changes: Changes) -> Iterator[str]:
    """Changed files with the name of a module that is imported and found nowhere: the code may put
    their folder on the path, or had it. Deleted ones with the name of any."""
    for file, shown in changes.files.items():
        path = Path(file).with_suffix("").as_posix().removesuffix("/__init__")
        asked = reach.names if file in changes.gone else reach.missing
        if file.endswith(".py") and any(
            path.endswith(f"/{name.replace('.', '/')}") for name in asked
        ):
            yield shown


def sieved(changes: Changes, cwd: Path) -> tuple[tuple[str, ...], int]:
    """The specs with affected checks among all of the project and all changed ones; how many those
    are."""
    changed = (
        shown
        for file, shown in changes.files.items()
        if file.lower().endswith(SUFFIXES) and file not in changes.gone and is_spec(Path(file))
    )
    specs = tuple(dict.fromkeys((*project_specs(cwd), *changed)))
    return tuple(dict.fromkeys(spec for spec, _ in affected(changes, cwd, specs))), len(specs)


def project_specs(cwd: Path) -> tuple[str, ...]:
    """The specs that `check` runs without paths; where the project names no `paths`, all that git
    tracks below `cwd` as well."""
    listed = _listed(cwd)
    if listed is not None:
        return _shown((file for place in listed for file in _members(place)), cwd)
    folder = cwd / SPEC_FOLDER
    found = _members(folder) if folder.is_dir() else own_specs(cwd)
    others = (cwd / file for file in tracked(cwd, *(f":(icase)*{suffix}" for suffix in SUFFIXES)))
    return _shown((*found, *(file for file in others if file.is_file() and is_spec(file))), cwd)


def _listed(cwd: Path) -> list[Path] | None:
    """`paths` of the project's `[tool.gradverify]`; none where it has none, or is no TOML, which
    whoever reads it whole will say."""
    folder = folder_of(cwd)
    if folder is None:
        return None
    try:
        table: Any = tomllib.loads((folder / PROJECT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for name in ("tool", "gradverify", "paths"):
        table = table.get(name) if isinstance(table, dict) else None
    return (
        [folder / place for place in table if isinstance(place, str)] or None
        if isinstance(table, list)
        else None
    )


def _members(place: Path) -> list[Path]:
    if place.is_dir():
        return list(specs_below(place))
    return [place] if place.exists() else []


def _shown(files: Iterable[Path], cwd: Path) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for file in files:
        first.setdefault(os.path.realpath(file), Path(os.path.relpath(file, cwd)).as_posix())
    return tuple(first.values())
