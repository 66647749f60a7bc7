"""The names that `function`, `reference` and the other import keys may hold, distinguished by form
alone; nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from gradverify.model.paths import is_file, is_folder, resolved
from gradverify.spec.fault import allowed, nearest

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
REGISTERED = "torch.ops."
FORMS = "write a built-in's name, module:attribute, module.attribute or file.py:attribute"
OWN_FORMS = "write module:attribute, module.attribute or file.py:attribute"


def resolve(text: str, folder: Path, builtins: Collection[str] = ()) -> tuple[str, str | None]:
    """Return (the name as it is looked up, a complaint or None). Files become absolute; relative
    ones are relative to `folder`, that of the spec."""
    place, colon, attribute = text.rpartition(":")
    where, complaint = place if colon else text, None
    if where.endswith(".py") or "/" in where or "\\" in where:
        path = resolved(folder / place)
        if not colon:
            complaint = f"no attribute named in {text!r}: write {text}:Name"
        elif not DOTTED.fullmatch(attribute):
            complaint = f"{attribute!r} is no attribute's name; write {place}:Name"
        elif path.suffix != ".py":
            complaint = f"{place!r} is no Python file (.py)"
        elif not is_file(path):
            complaint = missing(place, folder)
        return (text, complaint) if complaint else (f"{path}:{attribute}", None)
    if colon and not (DOTTED.fullmatch(place) and DOTTED.fullmatch(attribute)):
        meant = text.replace("::", ":")
        near = (
            f"did you mean {meant!r}?"
            if meant != text and re.fullmatch(r"[\w./\\]+:\w+", meant)
            else OWN_FORMS
        )
        complaint = f"{text!r} is no name; {near}"
    elif not colon and "." in text:
        if not DOTTED.fullmatch(text):
            complaint = f"{text!r} is no name; {FORMS}"
        elif (text + ".").startswith(REGISTERED) and len(text.split(".")) not in (4, 5):
            complaint = (
                f"{text!r} is no registered operator's name; write torch.ops.library.operator"
            )
    elif not colon and not builtins:
        complaint = f"{text!r} names no module; {OWN_FORMS}"
    elif not colon and text not in builtins:
        known = allowed(text, tuple(builtins), "built-ins")
        complaint = (
            f"unknown built-in {text!r}; {known} (an own function: module:attribute or "
            "file.py:attribute)"
        )
    return text, complaint


def own_name(target: str) -> str:
    """Return the function's own name, the default name of a check; for a registered operator
    without its overload."""
    if target.startswith(REGISTERED):
        return target.split(".")[3]
    return re.split(r"[:./\\]", target)[-1]


def missing(place: str, folder: Path) -> str:
    """Return the complaint about a missing file, with a file of a similar name if there is one."""
    path = resolved(folder / place)
    if is_folder(path):
        return f"{place!r} is a folder, not a file"
    if not is_folder(path.parent):
        return f"no file {place!r}: the folder {path.parent} does not exist"
    return f"no file {place!r} (looked for {path}){neighbour(path)}"


def neighbour(path: Path) -> str:
    """Return the end of a sentence about a missing file: a file of a similar name in its folder."""
    siblings = path.parent.iterdir() if is_folder(path.parent) else ()
    near = nearest(path.name, [item.name for item in siblings])
    return f"; did you mean {near!r}?" if near else ""
