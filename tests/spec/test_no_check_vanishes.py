"""Generated and damaged specs: where nothing is wrong with a file, every check in it has all its
cases.

Some hundreds in the suite, 20,000 of each kind where whole populations run.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gradverify.spec.load import Loaded, load
from spec.marked import BUILTINS, CODES

NUMBER = 20_000 if os.environ.get("GRADVERIFY_POPULATION") == "all" else 200
WORDS = [
    "$n",
    "$m",
    "$$n",
    "$$m",
    "$",
    "$$",
    "n",
    "$n$",
    "${n}",
    "float32",
    "cpu",
    "",
    "$dtype",
    "1",
    "a\u2028b",
]
VALUES: list[Any] = [
    0,
    1,
    2,
    3,
    -1,
    0.5,
    1e-3,
    True,
    None,
    float("inf"),
    *WORDS,
    [],
    [2],
    [2, 3],
    ["$n", 2],
    ["$$n", "$n"],
    {},
    {"shape": [2]},
]
SHAPES: list[Any] = [[2], [2, 3], ["$n"], ["$n", "$$n"], ["$$n"], [], "$n", "$$n", [0], ["$m", 2]]
AXES: dict[str, list[Any]] = {
    "n": [1, 2, 3],
    "m": [2, 4],
    "dtype": ["float64", "float32"],
    "seed": [0, 1],
    "layout": ["contiguous", "transposed"],
    "mode": ["entries", "rows"],
    "device": ["cpu"],
    "rtol": [1e-4, 1e-5],
    "exclude": [{"n": 1}, {"seed": 0}],
}
ODD = 0.1  # how often a value is one of VALUES


def check_of(draw: random.Random, number: int) -> dict[str, Any]:
    """Of a hundred values ten are one of VALUES, whatever is wanted there."""

    def odd(usual: Any) -> Any:
        return draw.choice(VALUES) if draw.random() < ODD else usual

    check: dict[str, Any] = {
        "name": odd(f"c{number}"),
        "function": "relu",
        "inputs": {"input": {"shape": odd(draw.choice(SHAPES))}},
    }
    axes = [
        axis for axis in ("n", "m") if f'"${axis}"' in json.dumps(check) or draw.random() < ODD
    ] + draw.sample(list(AXES)[2:], draw.randint(0, 2))
    if axes:
        check["matrix"] = {
            axis: [
                odd(value) for value in draw.sample(AXES[axis], draw.randint(1, len(AXES[axis])))
            ]
            for axis in axes
        }
    if draw.random() < 2 * ODD:
        check[
            draw.choice(["rtol", "atol", "seed", "tags", "kwargs", "expect", "skip", "requires"])
        ] = draw.choice(VALUES)
    return check


def specs() -> Iterator[str]:
    for seed in range(NUMBER):
        draw = random.Random(seed)
        document: dict[str, Any] = {
            "gradverify": 1,
            "checks": [check_of(draw, number) for number in range(draw.randint(1, 3))],
        }
        if draw.random() < 0.2:
            document["defaults"] = {
                draw.choice(["matrix", "rtol", "tags"]): draw.choice(
                    [*VALUES, {"n": [1, 2]}, {"n": ["$m"]}]
                )
            }
        yield json.dumps(document, indent=draw.choice([None, 1]))


def loaded(folder: Any, text: bytes) -> Loaded:
    (folder / "s.yaml").write_bytes(text)
    return load([folder / "s.yaml"], builtins=BUILTINS, codes=CODES, cwd=folder)


def expected(document: dict[str, Any]) -> int:
    """Of how many cases its checks are, excludes apart."""
    total = 0
    for check in document["checks"]:
        matrix = check.get("matrix", document.get("defaults", {}).get("matrix"))
        count = 1
        for name, values in (matrix or {}).items():
            count *= 1 if name == "exclude" else len(values)
        total += count
    return total


@pytest.mark.population
def test_without_a_problem_every_check_has_its_cases(tmp_path):
    sound = 0
    for text in specs():
        found = loaded(tmp_path, text.encode())
        if not found.problems:
            document = json.loads(text)
            cases = expected(document)
            excludes = any("exclude" in (check.get("matrix") or {}) for check in document["checks"])
            assert len(found.cases) == cases or (excludes and 0 < len(found.cases) < cases), text
            sound += 1
    assert NUMBER / 20 < sound < NUMBER


@pytest.mark.population
def test_damaged_bytes_are_a_problem_or_a_spec(tmp_path):
    """One to three bytes of a sound file replaced, added or removed."""
    whole = (
        b"gradverify: 1\ndefaults: {rtol: 1e-5}\nchecks:\n  - {name: a, function: relu, inputs: "
        b"{input: {shape: [$n]}}, matrix: {n: [2, 3]}}\n"
        b"  - name: b\n    function: mul\n    inputs: [1, 2]\n    tags: [fast]\n"
    )
    damaged = 0
    for seed in range(NUMBER):
        draw, text = random.Random(seed), bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            place, kind = draw.randrange(len(text)), draw.randrange(3)
            text[place : place + (kind != 1)] = bytes([draw.randrange(256)]) if kind != 2 else b""
        found = loaded(tmp_path, bytes(text))
        damaged += bool(found.problems)
        assert found.problems or found.cases, bytes(text)
    assert damaged > NUMBER / 2


@pytest.mark.parametrize("matrix", ['{n: ["$m"]}', '{n: ["$n"]}', '{n: [2], m: ["$$n"]}'])
def test_what_a_variable_brings_in_is_no_variable(tmp_path, matrix):
    check = f"{{name: a, function: relu, inputs: {{input: {{shape: [$n]}}}}, matrix: {matrix}}}"
    found = loaded(tmp_path, f"gradverify: 1\nchecks:\n  - {check}\n".encode())
    assert found.problems and not found.cases
