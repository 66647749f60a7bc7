"""One of N parts of a selection. Which part a check belongs to follows from its id alone: a new check moves no other."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from gradverify.model.case import Case, Json
from gradverify.model.codec import to_json
from gradverify.model.event import Shard
from gradverify.running.affected import needs_of
from gradverify.source.globs import files_of
from gradverify.source.graph import Graph

COMPILED = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".pyc", ".o")
OURS = f"{Path(__file__).resolve().parent.parent}{os.sep}"


def sharded(cases: Sequence[Case], index: int, count: int, *ruling: object) -> tuple[tuple[Case, ...], Shard]:
    """The cases of part `index` (from 1) of `count`, in their order, and what a report says of it. `ruling`: what else the verdicts depend on."""
    places = tuple(place for place, case in enumerate(cases) if part(case.id, count) == index)
    return tuple(cases[place] for place in places), Shard(index, count, fingerprint(cases, *ruling), len(cases), places)


def part(id: str, count: int) -> int:
    """From 1 to `count`; as even as drawing lots: of n checks a part gets n / count, give or take the square root of that."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) % count + 1


def fingerprint(cases: Sequence[Case], *ruling: object) -> str:
    """SHA-256 of what is selected, of the sources that it names or imports, and of how it is judged: the same in every part and on every machine
    (folders are left out, and what is compiled, which each machine may have built for itself)."""
    data = [{**to_json(case, exact=True), "search": case.search.imports, "save": None} for case in cases]
    checks = sorted(json.dumps(_portable(each), sort_keys=True) for each in data)
    graph, needs = Graph(), dict.fromkeys(replace(needs_of(case, Path.cwd()), spec="") for case in cases)
    files = {file for each in needs for file in (*graph.of(each.targets, each.modules, each.folders).files, *each.files)}
    files |= {str(file) for each in needs for glob in each.globs for file in files_of(glob, each.folder)}
    sources = sorted({_digest(file) for file in files if not file.endswith(COMPILED) and not file.startswith(OURS)})
    said: Json = [checks, sources, [to_json(each) for each in ruling]]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _portable(data: Json) -> Json:
    """Plain data in which files stand by their names."""
    if isinstance(data, dict):
        return {name: _portable(each) for name, each in data.items()}
    if isinstance(data, (list, tuple)):
        return [_portable(each) for each in data]
    return os.path.basename(data) if isinstance(data, str) and os.path.isabs(data) else data  # noqa: PTH117, PTH119 - text


def _digest(file: str) -> str:
    try:
        with open(file, "rb") as stream:  # noqa: PTH123
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""
