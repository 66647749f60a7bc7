"""`gradverify env --show-config`: where each option and setting comes from. Nothing is imported that specs name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.asked import shown_as
from gradverify.cli.configured import project_here
from gradverify.cli.gather import gather, sound
from gradverify.cli.output import Output
from gradverify.cli.terminal import is_set
from gradverify.model.case import Json, Settings
from gradverify.model.codec import to_json
from gradverify.model.problem import NOTHING_CHECKED, OK, ProblemsError
from gradverify.report.listing import DEFAULT, Said, Word, checks_text, configuration_json, project_text
from gradverify.report.look import ROWS

if TYPE_CHECKING:
    from gradverify.spec.project import Project
    from gradverify.spec.settings import Layer

IN_RULES = ("select", "ignore")


def show(paths: Sequence[str], format: str | None, out: Output) -> int:
    """Show the configuration of the project, or of each check that the paths name."""
    shown = shown_as(out, format, "auto", None)
    project = project_here()
    if project.problems:
        raise ProblemsError(project.problems)
    checks = _checks(paths, project, out) if paths else {}
    if format == "json":
        out.write(configuration_json(project.file if project.folder else None, _project(project, os.environ), checks))
    elif paths:
        out.write(checks_text(checks, shown))
    else:
        _tell_where(project, out)
        out.write(project_text(_project(project, os.environ), shown))
    return OK if checks or not paths else NOTHING_CHECKED


def _tell_where(project: Project, out: Output) -> None:
    if project.folder is None:
        out.say(f"there is no {project.file} in this folder or above it")
    elif not project.options and not project.paths and not project.layer.said:
        out.say(f"{project.file} says nothing in [tool.gradverify]")


def _project(project: Project, environ: Mapping[str, str]) -> list[Said]:
    """Under the names that `[tool.gradverify]` has for them."""
    defaults = _unsaid(environ)
    return [_paths(project), *(_option(name, project, word) for name, word in defaults.items()),
            *(_renamed(each, "defaults.") for each in _settings((project.layer,)))]


def _paths(project: Project) -> Said:
    from gradverify.spec.walk import OWN_SUFFIXES, SPEC_FOLDER

    if project.paths:
        return Said("paths", list(project.paths), project.origin("paths"))
    return Said("paths", [SPEC_FOLDER if Path(SPEC_FOLDER).is_dir() else f"*{OWN_SUFFIXES[0]}"], DEFAULT)


def _option(name: str, project: Project, unsaid: Word) -> Said:
    """Return the value in force and where it comes from: the project, else the default."""
    if name not in project.options:
        return Said(name, unsaid.value, unsaid.origin)
    return Said(name, project.options[name], project.origin(name), () if unsaid.origin == DEFAULT else (unsaid,))


def _unsaid(environ: Mapping[str, str]) -> dict[str, Word]:
    """The defaults of options that the project does not set, by name."""
    from gradverify.running.crew import LOADING
    from gradverify.spec.project import OPTIONS

    known: dict[str, Json] = {"jobs": 1, "import-timeout": LOADING, "fail-on-skip": False, "max-rows": ROWS, "require-device": [], "report": []}
    words = {name: Word(known.get(name), DEFAULT) for name in OPTIONS}
    undecided = Word("fail", "CI in the environment") if is_set(environ, "CI") else Word("warn", DEFAULT)
    return words | {"undecided": undecided}


def _checks(paths: Sequence[str], project: Project, out: Output) -> dict[str, list[Said]]:
    gathered = sound(gather(paths, project=project))
    if gathered.message:
        out.say(gathered.message)
    return {case.id: [_renamed(each) for each in _settings(gathered.layers[case.id])] for case in gathered.cases}


def _settings(layers: Sequence[Layer]) -> list[Said]:
    """Every setting of a check, by its name in `model.case.Settings`; tolerances that nobody names as they follow from `eps` and `dtype`."""
    from gradverify.spec.settings import settle

    settings = settle(*layers)
    count = to_json(settings) | dict(zip(("atol", "rtol"), settings.tolerances(), strict=True))
    return [_said(name, layers, count[name]) for name in to_json(Settings())]


def _said(name: str, layers: Sequence[Layer], value: Json) -> Said:
    words = [Word(to_json(layer.said[name]), layer.place(name)) for layer in reversed(layers) if name in layer.said]
    return Said(name, value, words[0].origin if words else DEFAULT, tuple(words[1:]))


def _renamed(said: Said, prefix: str = "") -> Said:
    return Said(f"{prefix}{'rules.' if said.name in IN_RULES else ''}{said.name}", said.value, said.origin, said.over)
