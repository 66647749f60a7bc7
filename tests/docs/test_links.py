"""Links inside the repository lead somewhere: files exist, and anchors name a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.snippets import DOCUMENTS, RESULTS, ROOT

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (?P<title>.+)$", re.MULTILINE)


def links(text: str) -> list[str]:
    """The targets outside of code."""
    return [match["target"] for match in LINK.finditer(CODE.sub("", FENCE.sub("", text)))]


def anchors(text: str) -> set[str]:
    """The anchor of every heading, as GitHub makes them: lower case, blanks to hyphens, other
    punctuation dropped."""
    titles = (match["title"] for match in HEADING.finditer(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(document: Path) -> list[str]:
    return [
        target
        for target in links(document.read_text(encoding="utf-8"))
        if not _leads_somewhere(target, document)
    ]


def _leads_somewhere(target: str, document: Path) -> bool:
    if re.match(r"\w+:", target):
        return target.startswith("https://")
    path, _, anchor = target.partition("#")
    file = document.parent / path if path else document
    return file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading(document):
    assert broken(document) == []


def test_readme_leads_to_every_page_and_one_page_to_every_result():
    for page, led_to in (
        (DOCUMENTS[0], set(DOCUMENTS[1:]) - set(RESULTS)),
        (ROOT / "docs/measured.md", set(RESULTS)),
    ):
        linked = {
            (page.parent / target.partition("#")[0]).resolve()
            for target in links(page.read_text(encoding="utf-8"))
        }
        assert led_to - linked == set()


def test_a_link_into_nothing_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# GV1 a: *b*\n[right](page.md#gv1-a-b) [here](#gv1-a-b) [file](no.md) [anchor](#no) "
        "`[code](no.md)`\n```\n[code](no.md)\n```\n"
    )
    assert broken(page) == ["no.md", "#no"]
