"""Hook of mkdocs.yml. README.md is the site's first page, and a link to a file that is no page
leads to the repository."""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
# What stands in code, in brackets and parentheses, stays: no such file is there
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")
LOG = logging.getLogger("mkdocs.hooks.pages")  # a warning fails a strict build


def on_files(files: Any, config: Any) -> Any:
    files.append(
        File.generated(config, "index.md", content=(ROOT / "README.md").read_text(encoding="utf-8"))
    )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    folder = "" if page.file.src_uri == "index.md" else "docs"
    return LINK.sub(
        lambda found: led(found[1], folder, page.file.src_uri, config.repo_url), markdown
    )


def led(target: str, folder: str, page: str, repository: str) -> str:
    """The site's target for a link from a file in that folder of the repository."""
    path = posixpath.normpath(posixpath.join(folder, target))
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if not (ROOT / path).exists():
        LOG.warning("%s links to %s, which is not in the repository", page, target)
    return f"{repository}/blob/HEAD/{path}"
