"""Where specs and projects lie on the disk, and what a spec names, read from its YAML alone. Light:
without the models of the format."""

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
    """The text of a UTF-8 file (a byte order mark is dropped)."""
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
    """The problem with the line and column of a byte, columns counted in characters."""
    before = raw[:offset].decode("utf-8-sig", errors="replace")
    line = before.replace("\r\n", "\n").replace("\r", "\n").rpartition("\n")
    return Problem(message, line=line[0].count("\n") + len(line[1]) + 1, column=len(line[2]) + 1)


# ---- Where specs and projects lie on the disk, and what a spec names, read from its YAML alone.
# Light: without the models of the format.
PROJECT_FILE = "pyproject.toml"
YAML = (".yaml", ".yml")
SUFFIXES = (*YAML, ".json")  # in lower case
OWN_SUFFIXES = tuple(f".gradverify{suffix}" for suffix in YAML)  # as pytest collects them
SPEC_FOLDER = "specs"
SCHEMA_FILE = "gradverify.schema.json"  # which `init` writes beside specs
KEY = "gradverify"
# Without any of these in a text it has none of a spec's keys, well or badly spelt
HINTS = ("grad", "verif", "checks")
OTHER_KEYS = frozenset({"path", "import", "defaults", "checks"})  # a report of ours has others
ALIKE = 0.8  # of `difflib`: a slip of one or two letters
NAMES_FUNCTIONS = re.compile(r"""["']?function["']?[ \t]*:""")
WRITTEN = rf"""(?:---[ \t]+)?(?:\{{[ \t]*)?["']?{KEY}["']?[ \t]*:"""
# The second of what is no YAML
AT_TOP = re.compile(f"^{WRITTEN}", re.MULTILINE)
ANYWHERE = re.compile(rf"^[ \t]*{WRITTEN}", re.MULTILINE)
HEAD = 1 << 20  # bytes of a file that are looked at; the loader reads no larger ones


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder below a folder of specs that is not read, and why."""

    path: Path
    why: str


def folder_of(start: Path) -> Path | None:
    """The folder of the nearest pyproject.toml at or above `start`."""
    return next(
        (folder for folder in (start, *start.parents) if is_file(folder / PROJECT_FILE)), None
    )


def specs_below(folder: Path, left_out: list[LeftOut] | None = None) -> Iterator[Path]:
    """The specs below a folder, sorted, among them files that cannot be read or decoded: the loader
    says what is wrong with these. `left_out` receives everything else."""
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
    """The files below a folder that have the name of a spec."""
    return files_below(folder, OWN_SUFFIXES)


def is_spec(file: Path) -> bool:
    """Is a YAML or JSON file outside of the folders of specs meant as one? What cannot be decoded
    is one where it has the key."""
    return no_spec(file, decoded=False) is None


def no_spec(file: Path, decoded: bool = True) -> str | None:
    """Why a YAML or JSON file is no spec; None for one, and for a file that cannot be read, or not
    be `decoded`.

    A spec has the key `gradverify` at its top level, or the name or the shape of a spec, or a slip
    in the key.
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


# The same tree, five times faster where PyYAML was built with it
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Mentions:
    """`path`, `imports`: the file's own keys; `checks`: by their lines (0: not to be told apart)
    every text that holds for them."""

    path: tuple[str, ...]
    imports: tuple[str, ...]
    checks: Mapping[int, tuple[str, ...]]


def mentions(file: Path) -> Mentions | None:
    """None where the file cannot be read so: then it may name anything."""
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
    """Every value, in the order of the file, none twice for an alias."""
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
