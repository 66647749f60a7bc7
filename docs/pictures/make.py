"""Draws README's failing example as an SVG: `python docs/pictures/make.py`, after the example
itself has changed.

The files and the command are those of README.md, the colours those of a terminal. Rich's export,
without the fonts that it would load from a network.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs/pictures/failing.svg"
WIDTH = 100
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
NAMED = re.compile(r"```(?:python|yaml)\n(# file: (\S+)\n.*?)```", re.DOTALL)


def failing(folder: Path) -> str:
    """The coloured output of README's first two files under `gradverify check`."""
    for text, name in NAMED.findall((ROOT / "README.md").read_text(encoding="utf-8"))[:2]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "gradverify",
        "check",
        "--color",
        "always",
        "--width",
        str(WIDTH),
        "--no-progress",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def drawn(ansi: str) -> str:
    """The SVG of a terminal's text."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print(Text.from_ansi("$ gradverify check\n" + ansi.rstrip()))
    svg = FONT_FACE.sub("", console.export_svg(title="gradverify check", unique_id="gradverify"))
    return svg.replace(
        "Fira Code, monospace", "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        TARGET.write_text(drawn(failing(Path(folder))), encoding="utf-8")
