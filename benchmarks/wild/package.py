"""The files of a package: `packages/NAME.yaml`, `specs/NAME.yaml`, `results/NAME.json`,
`shown/NAME__FINDING.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
KINDS = ("wrong gradient", "contract", "second order", "forward mode", "layout", "crash")
KEYS = {
    "version",
    "area",
    "pip",
    "extra",
    "modules",
    "lack",
    "elsewhere",
    "unreached",
    "findings",
    "by_design",
}
FINDING_KEYS = {"script", "operator", "check", "rule", "kind", "returns", "right"}


@dataclass(frozen=True)
class Finding:
    """A mistake in a gradient, which the script `shown/NAME__SCRIPT.py` shows with torch and the
    package alone."""

    script: str
    operator: str
    check: str  # the check of specs/NAME.yaml in which the rule sees it
    rule: str
    kind: str
    returns: str
    right: str


@dataclass(frozen=True)
class Package:
    """A released package. `pip`: arguments beside its name; `extra`: what pip installs afterwards;
    `lack`: why it is not tried."""

    name: str
    version: str
    area: str
    pip: tuple[str, ...]
    extra: tuple[str, ...]
    modules: tuple[str, ...]
    lack: str | None
    # How many Functions cannot run here: they need a device, or what is not there, or have no
    # backward
    elsewhere: int
    unreached: dict[str, str]  # Functions without a check, and why
    findings: tuple[Finding, ...]
    # Functions whose gradient is meant to differ from that of forward, and what it is
    by_design: dict[str, str]

    @property
    def spec(self) -> Path | None:
        file = HERE / "specs" / f"{self.name}.yaml"
        return file if file.is_file() else None

    @property
    def result(self) -> Path:
        return HERE / "results" / f"{self.name}.json"

    def script(self, finding: Finding) -> Path:
        return HERE / "shown" / f"{self.name.replace('-', '_')}__{finding.script}.py"


def packages(names: Sequence[str] = ()) -> list[Package]:
    """Those of these names, all where none is named. Raises ValueError for a name that is none, or
    a file that is not as it should be."""
    known = {file.stem: file for file in sorted((HERE / "packages").glob("*.yaml"))}
    for name in names:
        if name not in known:
            raise ValueError(f"there is no package {name!r}; there are {', '.join(known)}")
    return [read(known[name]) for name in names or known]


def read(file: Path) -> Package:
    held: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    if unknown := held.keys() - KEYS:
        raise ValueError(f"{file.name}: no such key: {', '.join(sorted(unknown))}")
    module = file.stem.replace("-", "_")
    return Package(
        file.stem,
        held["version"],
        held["area"],
        tuple(held.get("pip", ())),
        tuple(held.get("extra", ())),
        tuple(held.get("modules", (module,))),
        held.get("lack"),
        held.get("elsewhere", 0),
        held.get("unreached", {}),
        tuple(_finding(file, each) for each in held.get("findings", ())),
        held.get("by_design", {}),
    )


def _finding(file: Path, held: dict[str, str]) -> Finding:
    if held.keys() != FINDING_KEYS:
        raise ValueError(
            f"{file.name}: a finding has the keys {', '.join(sorted(FINDING_KEYS))}, not "
            f"{', '.join(sorted(held))}"
        )
    if held["kind"] not in KINDS:
        raise ValueError(
            f"{file.name}: {held['script']}: its kind is one of {', '.join(KINDS)}, not "
            f"{held['kind']!r}"
        )
    return Finding(**held)
