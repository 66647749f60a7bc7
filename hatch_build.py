"""README.md as an index of packages shows it: its links lead into the repository, or name the file where the project has no address yet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>(?!\w+:|#)[^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """Hatchling's name for it."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": elsewhere(text, metadata.get("urls", {}).get("Repository"))}


def elsewhere(text: str, repository: str | None) -> str:
    """The text for readers without the files. `repository`: its address on GitHub or GitLab."""
    def led(link: re.Match[str]) -> str:
        if repository is None:
            return link["text"] if link["image"] else f"{link['text']} (`{link['path']}`)"
        return f"{link['image']}[{link['text']}]({repository.rstrip('/')}/{'raw' if link['image'] else 'blob'}/HEAD/{link['path']})"

    return RELATIVE.sub(led, text)
