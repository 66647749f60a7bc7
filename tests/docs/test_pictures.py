"""README's picture shows what README's example prints, and loads nothing."""

import re
import xml.etree.ElementTree as ElementTree

from docs.playing import settled
from docs.snippets import ROOT, blocks

PICTURE = ROOT / "docs/pictures/failing.svg"


def words_of(text, tmp_path):
    return [word for word in re.split(r"[\s─│╭╮╰╯|#*(:)]+", settled(text, tmp_path)) if word]


def test_the_picture_shows_the_output_that_readme_shows(tmp_path):
    svg = ElementTree.parse(PICTURE)
    lines: dict[float, list[tuple[float, str]]] = {}
    for node in svg.iter("{http://www.w3.org/2000/svg}text"):
        if node.get("clip-path"):
            lines.setdefault(float(node.get("y")), []).append(
                (float(node.get("x")), (node.text or "").replace("\xa0", " "))
            )
    drawn = "\n".join(
        " ".join(text for _, text in sorted(line)) for _, line in sorted(lines.items())
    )
    shown = next(
        block.text
        for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"))
        if block.language == "console"
    )
    shown = shown.partition("$ echo $?")[0]
    # Styled pieces of a line are words of their own
    assert words_of(drawn, tmp_path) == words_of(shown, tmp_path)


def test_the_picture_loads_nothing_and_runs_nothing():
    text = PICTURE.read_text(encoding="utf-8")
    assert (
        "<script" not in text
        and "@font-face" not in text
        and "url(http" not in text
        and "href" not in text
    )
