"""`gradverify env`: what a bug report needs to say about a machine, and where each setting comes from; `gradverify schema`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.asked import CONFIG_FORMAT, CONFIG_OF, Asked, command, shown_as
from gradverify.cli.bug import version_of
from gradverify.cli.gather import gather, project_here, sound
from gradverify.cli.output import Output, is_set
from gradverify.model.case import Json, Settings
from gradverify.model.codec import as_text, to_json
from gradverify.model.problem import NOTHING_CHECKED, OK, Problem, ProblemsError
from gradverify.report.listing import DEFAULT, Said, Word, checks_text, configuration_json, project_text
from gradverify.report.look import ROWS, Look

if TYPE_CHECKING:
    from gradverify.spec.project import Project
    from gradverify.spec.settings import Layer


PACKAGES = ("gradverify", "torch", "numpy", "typer", "rich", "PyYAML", "pydantic", "Jinja2")
VARIABLES = ("CI", "PRE_COMMIT", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")

ASK_TORCH = """
import torch
print("cuda build:", torch.version.cuda or torch.version.hip or "none")
print("cuda devices:", ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none")
print("threads:", torch.get_num_threads())
"""
TORCH_MAY_TAKE = 120
"""Seconds: a first import from a slow disk takes tens of them."""


@command("paths", "show_config", "format", paths=CONFIG_OF, format=CONFIG_FORMAT)
def env_command(asked: Asked, out: Output) -> int:
    """Print versions, platform and devices, for bug reports; with --show-config, each option and setting, and where it comes from."""
    if asked.show_config:
        return show(asked.paths or (), shown_as(out, asked), asked.format == "json", out)
    if asked.paths or asked.format:
        raise ProblemsError([Problem(f"{'PATH' if asked.paths else '--format'} is for --show-config")])
    out.write("".join(f"{line}\n" for line in _lines()))
    return OK


def _lines() -> Iterator[str]:
    yield f"python: {platform.python_version()} ({sys.executable})"
    yield f"platform: {platform.platform()}, {os.cpu_count()} CPUs"
    for package in PACKAGES:
        yield f"{package}: {version_of(package) or 'not installed'}"
    yield from _torch_says()
    yield from (f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ)


def _torch_says() -> list[str]:
    """From a process of its own, because this one does not import torch."""
    try:
        told = subprocess.run([sys.executable, "-c", ASK_TORCH], capture_output=True, text=True, timeout=TORCH_MAY_TAKE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"torch does not answer: {error}"]
    if told.returncode:
        return [f"torch cannot be imported: {(told.stderr.strip().splitlines() or ['no message'])[-1]}"]
    return told.stdout.splitlines()


IN_RULES = ("select", "ignore")


def show(paths: Sequence[str], shown: Look, as_json: bool, out: Output) -> int:
    """Show the configuration of the project, or of each check that the paths name."""
    project = project_here()
    if project.problems:
        raise ProblemsError(project.problems)
    checks = _checks(paths, project, out) if paths else {}
    if as_json:
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


@command("report_schema")
def schema_command(asked: Asked, out: Output) -> int:
    """Print the JSON Schema of specs for editors; with --report, that of the JSON report."""
    from gradverify.report.json import report_schema
    from gradverify.spec.schema import json_schema

    out.write(as_text(report_schema() if asked.report_schema else json_schema()))
    return OK
