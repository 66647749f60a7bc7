"""Markdown taken apart: its fenced blocks, and the commands of a console block with what stands
below them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = tuple(sorted((ROOT / "benchmarks" / "results").glob("*.md")))
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *RESULTS)
FILE_NAME = re.compile(r"# file: (\S+)")
PROMPT = "$ "


@dataclass(frozen=True)
class Block:
    """A fenced block: the word after its fence, its text, and the number of its first line (from
    1)."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The NAME of a first line `# file: NAME`."""
        match = FILE_NAME.match(self.text)
        return match[1] if match else None


@dataclass(frozen=True)
class Command:
    """A line `$ command` of a console block, and the output that the document shows."""

    line: str
    shown: str


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block. Raises ValueError for a fence that is indented or never closed."""
    opened: tuple[str, int] | None = None
    held: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.lstrip().startswith("```"):
            held.append(line)
        elif line != line.lstrip():
            raise ValueError(f"line {number}: an indented fence")
        elif opened is None:
            opened, held = (line[3:].strip(), number + 1), []
        else:
            yield Block(opened[0], "".join(f"{kept}\n" for kept in held), opened[1])
            opened = None
    if opened:
        raise ValueError(f"line {opened[1] - 1}: a fence that is never closed")


def indented_code(text: str) -> list[str]:
    """Lines of indented code blocks: four spaces, outside of fences and of lists."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line.strip() for line in outside.splitlines() if line.startswith("    ")]


def commands(block: Block) -> list[Command]:
    """Raises ValueError where a console block does not begin with a prompt."""
    if not block.text.startswith(PROMPT):
        raise ValueError(f"line {block.line}: a console block begins with `{PROMPT}command`")
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Command(*part.split("\n", 1)) for part in parts]
