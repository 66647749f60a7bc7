"""Specs whose faults are marked where they stand: `eps: «-1` says that a problem is expected at the
line and column of the mark."""

from __future__ import annotations

from pathlib import Path

from gradverify.spec.load import Loaded, load
from gradverify.spec.settings import Layer

MARK = "«"
BUILTINS = {"linear": ("input", "weight", "bias"), "mul": ("x", "y"), "relu": ("input",)}
CODES = ("GV101", "GV102", "GV201", "GV202")
HEAD = "gradverify: 1\nchecks:\n"


def unmarked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without marks, and where they stood (line and column from 1, in order)."""
    places = []
    for number, line in enumerate(text.split("\n"), 1):
        for _ in range(line.count(MARK)):
            places.append((number, line.index(MARK) + 1))
            line = line.replace(MARK, "", 1)
    return text.replace(MARK, ""), places


def check(*lines: str) -> str:
    """A spec of one check of `mul` with these lines; inputs are given unless a line gives them."""
    given = (
        ()
        if any(line.lstrip(MARK).startswith("inputs:") for line in lines)
        else ("inputs: {x: {shape: [2]}, y: {shape: [2]}}",)
    )
    return HEAD + "  - function: mul\n" + "".join(f"    {line}\n" for line in (*given, *lines))


def loaded(
    text: str, folder: Path, project: Layer | None = None, options: Layer | None = None
) -> Loaded:
    """What comes of a spec `s.yaml` with this text in `folder`."""
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    project, options = project or Layer("pyproject.toml"), options or Layer("command line")
    return load(
        [Path("s.yaml")],
        builtins=BUILTINS,
        codes=CODES,
        project=project,
        options=options,
        cwd=folder,
    )
