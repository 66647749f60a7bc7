"""Where specs and projects lie on the disk. Light: whoever only asks which files there are does not wait for the models of the format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gradverify.model.folders import files_below
from gradverify.spec.text import decode

PROJECT_FILE = "pyproject.toml"
SUFFIXES = (".yaml", ".yml")
OWN_SUFFIXES = (".gradverify.yaml", ".gradverify.yml")
SPEC_FOLDER = "specs"
HAS_KEY = re.compile(r"""^(?:---[ \t]+)?(?:\{[ \t]*)?["']?gradverify["']?[ \t]*:""", re.MULTILINE)
LOOKS_LIKE_ONE = re.compile(r"""^checks[ \t]*:(?=.*^[ \t]+(?:-[ \t]+)?function[ \t]*:)""", re.MULTILINE | re.DOTALL)
HEAD = 1 << 20  # bytes of a file that are looked at; the loader reads no larger ones


def folder_of(start: Path) -> Path | None:
    """The folder of the nearest pyproject.toml at or above `start`."""
    return next((folder for folder in (start, *start.parents) if (folder / PROJECT_FILE).is_file()), None)


def walk(folder: Path) -> Iterator[Path]:
    """All YAML files below a folder, sorted; hidden folders, virtual environments and build output left out."""
    return files_below(folder, SUFFIXES)


def is_spec(file: Path) -> bool:
    """Whether a YAML file in a folder is meant as a spec: it has the key `gradverify` at its top level, or the name, or the shape of one.

    A file that looks like a spec but lacks the key is taken, so that the loader says what is missing; one that cannot be read too.
    """
    if file.name.endswith(OWN_SUFFIXES):
        return True
    try:
        with file.open("rb") as stream:
            text = decode(stream.read(HEAD))
    except OSError:
        return True
    return isinstance(text, str) and bool(HAS_KEY.search(text) or LOOKS_LIKE_ONE.search(text))
