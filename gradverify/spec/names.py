"""What `function`, `reference` and the other import keys can name, told apart by form alone; nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from gradverify.model.paths import is_file, is_folder, resolved
from gradverify.spec.fault import allowed, nearest_file

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
REGISTERED = "torch.ops."
FORMS = "write a built-in's name, module:attribute, module.attribute or file.py:attribute"
OWN_FORMS = "write module:attribute, module.attribute or file.py:attribute"


def resolve(text: str, folder: Path, builtins: Collection[str] = ()) -> tuple[str, str | None]:
    """(the name as it is looked up, a complaint or None). Files become absolute, relative to `folder`, the spec's own."""
    if ":" in text:
        place, _, attribute = text.rpartition(":")
        return _in_file(text, place, attribute, folder) if _is_file(place) else (text, _module_complaint(place, attribute))
    if _is_file(text):
        return text, f"no attribute named in {text!r}: write {text}:Name"
    if "." in text:
        return text, _dotted_complaint(text)
    return text, _builtin_complaint(text, builtins)


def _dotted_complaint(text: str) -> str | None:
    if not DOTTED.fullmatch(text):
        return f"{text!r} is no name; {FORMS}"
    if (text + ".").startswith(REGISTERED) and len(text.split(".")) not in (4, 5):
        return f"{text!r} is no registered operator's name; write torch.ops.library.operator"
    return None


def called(text: str, target: str, cwd: Path) -> str:
    """How a person is shown the `target` that was written as `text`: a file below `cwd` relative to it, anything else as written."""
    place, _, attribute = target.rpartition(":")
    path = Path(place)
    return f"{path.relative_to(cwd).as_posix()}:{attribute}" if path.is_absolute() and path.is_relative_to(cwd) else text


def own_name(target: str) -> str:
    """The function's own name: what a check is called where it has no name; of a registered operator without its overload."""
    if target.startswith(REGISTERED):
        return target.split(".")[3]
    return re.split(r"[:./\\]", target)[-1]


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


def _in_file(text: str, place: str, attribute: str, folder: Path) -> tuple[str, str | None]:
    path = resolved(folder / place)
    if not DOTTED.fullmatch(attribute):
        return text, f"{attribute!r} is no attribute's name; write {place}:Name"
    if path.suffix != ".py":
        return text, f"{place!r} is no Python file (.py)"
    if not is_file(path):
        return text, missing(place, folder)
    return f"{path}:{attribute}", None


def missing(place: str, folder: Path) -> str:
    """The complaint about a file that is not there, with its nearest neighbour."""
    path = resolved(folder / place)
    if is_folder(path):
        return f"{place!r} is a folder, not a file"
    if not is_folder(path.parent):
        return f"no file {place!r}: the folder {path.parent} does not exist"
    near = nearest_file(path.name, [item.name for item in path.parent.iterdir()])
    return f"no file {place!r} (looked for {path})" + (f"; did you mean {near!r}?" if near else "")


def _module_complaint(module: str, attribute: str) -> str | None:
    if DOTTED.fullmatch(module) and DOTTED.fullmatch(attribute):
        return None
    text = f"{module}:{attribute}"
    meant = text.replace("::", ":")
    near = f"did you mean {meant!r}?" if meant != text and re.fullmatch(r"[\w./\\]+:\w+", meant) else OWN_FORMS
    return f"{text!r} is no name; {near}"


def _builtin_complaint(text: str, builtins: Collection[str]) -> str | None:
    if text in builtins:
        return None
    if not builtins:
        return f"{text!r} names no module; {OWN_FORMS}"
    return f"unknown built-in {text!r}; {allowed(text, tuple(builtins), 'built-ins')} (an own function: module:attribute or file.py:attribute)"
