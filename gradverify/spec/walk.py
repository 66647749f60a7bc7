"""Find specs and projects on the disk, and the texts in a spec, from its YAML alone. Quick to
import: without the models of the format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gradverify.model.paths import files_below, is_file
from gradverify.model.problem import Problem


def decode(raw: bytes) -> str | Problem:
    """Return the text of a UTF-8 file (without its byte order mark), or a problem."""
    if b"\0" in raw:
        return _at_byte(
            raw, raw.index(b"\0"), "not UTF-8 text: a NUL byte (a binary file, or UTF-16)"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _at_byte(
            raw, error.start, f"not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}"
        )


def _at_byte(raw: bytes, offset: int, message: str) -> Problem:
    """Return a problem with the line and column of a byte, columns counted in characters."""
    before = raw[:offset].decode("utf-8-sig", errors="replace")
    line = before.replace("\r\n", "\n").replace("\r", "\n").rpartition("\n")
    return Problem(message, line=line[0].count("\n") + len(line[1]) + 1, column=len(line[2]) + 1)


# ---- Files of specs and projects
PROJECT_FILE = "pyproject.toml"
YAML = (".yaml", ".yml")
SUFFIXES = (*YAML, ".json")  # in lower case
OWN_SUFFIXES = tuple(f".gradverify{suffix}" for suffix in YAML)  # as pytest collects them
SPEC_FOLDER = "specs"
SCHEMA_FILE = "gradverify.schema.json"  # written by `init` next to specs
KEY = "gradverify"
# A text without any of these has no key of a spec, even misspelt
HINTS = ("grad", "verif", "checks")
OTHER_KEYS = frozenset({"path", "import", "defaults", "checks"})  # reports have others
ALIKE = 0.8  # similarity by `difflib`: one or two wrong letters
NAMES_FUNCTIONS = re.compile(r"""["']?function["']?[ \t]*:""")
WRITTEN = rf"""(?:---[ \t]+)?(?:\{{[ \t]*)?["']?{KEY}["']?[ \t]*:"""
# ANYWHERE is for files that are no valid YAML
AT_TOP = re.compile(f"^{WRITTEN}", re.MULTILINE)
ANYWHERE = re.compile(rf"^[ \t]*{WRITTEN}", re.MULTILINE)
HEAD = 1 << 20  # bytes of a file that are examined; the loader reads no larger files


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder below a folder of specs that is not read, and why."""

    path: Path
    why: str


def folder_of(start: Path) -> Path | None:
    """Return the folder of the nearest pyproject.toml at or above `start`."""
    return next(
        (folder for folder in (start, *start.parents) if is_file(folder / PROJECT_FILE)), None
    )


def specs_below(folder: Path, left_out: list[LeftOut] | None = None) -> Iterator[Path]:
    """Yield the specs below a folder, sorted, with files that cannot be read or decoded, which the
    loader reports. `left_out` receives all other files."""
    unsearched: list[tuple[Path, str]] = []
    for file in files_below(folder, SUFFIXES, unsearched):
        why = no_spec(file)
        if why is None:
            yield file
        elif left_out is not None and file.name != SCHEMA_FILE:
            left_out.append(LeftOut(file, why))
    if left_out is not None:
        left_out += [LeftOut(*each) for each in unsearched]


def own_specs(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that are specs by name."""
    return files_below(folder, OWN_SUFFIXES)


def is_spec(file: Path) -> bool:
    """Return whether a YAML or JSON file outside the folders of specs is a spec. A file that cannot
    be decoded is one if it has the key."""
    return no_spec(file, decoded=False) is None


def no_spec(file: Path, decoded: bool = True) -> str | None:
    """Return why a YAML or JSON file is no spec; None for a spec, and for a file that cannot be
    read, or not be `decoded`.

    A spec has the key `gradverify`, possibly misspelt, at its top level, or the name or the
    structure of a spec.
    """
    if file.name.lower().endswith(OWN_SUFFIXES):
        return None
    try:
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            raw = stream.read(HEAD)
    except OSError:
        return None
    text = decode(raw[: raw.rfind(b"\n") + 1] if len(raw) == HEAD else raw)
    if not isinstance(text, str):
        if decoded:
            return None
        text = raw.replace(b"\0", b"").decode("utf-8", errors="replace")
    if AT_TOP.search(text):
        return None
    lower, why = text.lower(), f"it has no key `{KEY}` at its top level"
    if not any(hint in lower for hint in HINTS):
        return why
    names_functions = "checks" in lower and bool(NAMES_FUNCTIONS.search(text))
    try:
        roots = [root for root in yaml.compose_all(text, LOADER) if isinstance(root, MappingNode)]
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return None if names_functions or ANYWHERE.search(text) else why
    from difflib import get_close_matches

    keys = [key.value for root in roots for key, _ in root.value if isinstance(key, ScalarNode)]
    near = get_close_matches(KEY, [re.sub("[^a-z]", "", key.lower()) for key in keys], 1, ALIKE)
    if near or ("checks" in keys and OTHER_KEYS.issuperset(keys) and names_functions):
        return None
    return why


# Gives the same tree, five times faster, if PyYAML was built with libyaml
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Mentions:
    """The texts of a spec. `path`, `imports`: the keys of the file; `checks`: line of each check
    (0: all together) → all texts that apply to it."""

    path: tuple[str, ...]
    imports: tuple[str, ...]
    checks: Mapping[int, tuple[str, ...]]


def mentions(file: Path) -> Mentions | None:
    """Return the texts of a spec; None if they cannot be found, and it may name anything."""
    try:
        text = decode(file.read_bytes()) if file.is_file() else None
        root = yaml.compose(text, Loader=LOADER) if isinstance(text, str) else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    if not isinstance(root, MappingNode) or any(key.value == "<<" for key, _ in root.value):
        return None
    top: dict[str, Node] = {
        key.value: value for key, value in root.value if isinstance(key, ScalarNode)
    }
    path, imports = (tuple(_texts(top[key])) if key in top else () for key in ("path", "import"))
    checks = top.get("checks")
    around = [text for key, value in top.items() if key != "checks" for text in _texts(value)]
    if not isinstance(checks, SequenceNode):
        return Mentions(path, imports, {0: tuple(_texts(root))})
    return Mentions(
        path,
        imports,
        {
            item.start_mark.line + 1: tuple(dict.fromkeys((*_texts(item), *around)))
            for item in checks.value
        },
    )


def _texts(root: Node) -> Iterator[str]:
    """Yield every scalar value, in the order of the file, each once even with aliases."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            waiting += [value for _, value in reversed(node.value)]
        elif isinstance(node, SequenceNode):
            waiting += reversed(node.value)
        elif isinstance(node, ScalarNode):
            yield node.value
