"""Sections of docs/method.md that the code refers to are there, numbered, and keep their numbers;
no docstring counts the floors.

The class of faults: a reference by number that leads nowhere, or somewhere else, after a page or a
pyproject was rearranged."""

import ast
import re

import pytest

from docs.snippets import ROOT

SECTIONS = (
    "An element",
    "The finite difference",
    "float32 and complex64",
    "gradcheck's own rule",
    "Every element, in a few calls",
    "Less than every element",
    "What a pass does not say",
    "Measured",
)
"""In their order, which stays: new sections come after them."""
HEADING = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
REFERENCE = re.compile(
    r"method\.md[,)]?\s+(?:§\s*|sections?\s+)?([\d.]+(?:(?:,| and|,? §)\s*[\d.]+)*)"
)
SOURCES = sorted(
    path
    for folder in ("gradverify", "benchmarks", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


def sections(text: str) -> list[str]:
    """The numbers that a text refers to."""
    return [
        number.strip(".")
        for found in REFERENCE.findall(text)
        for number in re.findall(r"\d+(?:\.\d+)*", found)
    ]


def test_the_sections_are_numbered_and_keep_their_numbers():
    found = HEADING.findall((ROOT / "docs/method.md").read_text(encoding="utf-8"))
    assert found[: len(SECTIONS)] == [
        (str(number), title) for number, title in enumerate(SECTIONS, 1)
    ]
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))


def test_every_reference_leads_to_a_section():
    numbers = {
        number
        for number, _ in HEADING.findall((ROOT / "docs/method.md").read_text(encoding="utf-8"))
    }
    referring = {
        path: found
        for path in SOURCES
        if path.name != "test_sections.py" and (found := sections(path.read_text(encoding="utf-8")))
    }
    assert referring
    assert {str(path): found for path, found in referring.items() if set(found) - numbers} == {}


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("(method.md section 2)", ["2"]),
        ("(method.md sections 1, 2 and 11)", ["1", "2", "11"]),
        ("(method.md 3.5).", ["3.5"]),
        ("method.md, section 4", ["4"]),
        ("(method.md)", []),
        ("what method.md lets a screen miss", []),
    ],
)
def test_references_are_read(text, numbers):
    assert sections(text) == numbers


def test_no_docstring_counts_the_floors():
    first = {
        path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for path in (ROOT / "gradverify").rglob("__init__.py")
    }
    assert first
    assert [
        str(path) for path, text in first.items() if re.search(r"\bfloor \d", text, re.IGNORECASE)
    ] == []
