"""docs/bugs-found.md from what was measured and what was confirmed without gradverify."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
TOP = """# Bugs in released packages

Made by `python benchmarks/wild/run.py`: each package is installed from PyPI on top of the pinned torch, and specs made with `gradverify init` are
checked under all rules. A finding is listed where a script of a few lines shows it with torch and the package alone; the scripts are in
`benchmarks/wild/shown/`, and what they print is below. `python benchmarks/wild/run.py PACKAGE` repeats one package."""
BY_DESIGN = "by design"


def page(results: Mapping[str, Json], findings: Sequence[Json]) -> str:
    """The page. Raises ValueError for a finding whose script did not show it."""
    mistakes = [each for each in findings if each["kind"] != BY_DESIGN]
    for each in mistakes:
        script = results[each["package"]]["scripts"].get(each["script"])
        if script is None or script["status"] != 0:
            raise ValueError(f"{each['package']}: shown/{each['script']}.py does not show its finding: {script}")
    designed = [each for each in findings if each["kind"] == BY_DESIGN]
    parts = [TOP, _summary(results, mistakes), *_mistakes(results, mistakes), *_designed(designed), *_packages(results)]
    return "\n\n".join(parts) + "\n"


def _summary(results: Mapping[str, Json], mistakes: Sequence[Json]) -> str:
    installed = [each for each in results.values() if each["lack"] is None]
    operators = {check["operator"] for each in installed for check in each["checks"]}
    unseen = [each for each in mistakes if each["gradcheck"] == "passes"]
    kinds = Counter(each["kind"] for each in mistakes)
    return (f"{len(results)} packages, {len(installed)} of them installed; {len(operators)} operators checked; {len(mistakes)} findings, of which "
            f"`torch.autograd.gradcheck` with its defaults sees {len(mistakes) - len(unseen)}.\n\n"
            + _table(("kind", "findings"), ((kind, count) for kind, count in kinds.most_common())))


def _mistakes(results: Mapping[str, Json], mistakes: Sequence[Json]) -> Iterator[str]:
    yield "## Findings"
    rows = ((f"{each['package']} {results[each['package']]['version']}", f"`{each['operator']}`", each["code"], each["returns"], each["right"],
             each["gradcheck"]) for each in mistakes)
    yield _table(("package", "operator", "rule", "what it does", "what is right", "gradcheck"), rows)
    for each in mistakes:
        printed = results[each["package"]]["scripts"][each["script"]]["prints"].rstrip()
        yield f"`benchmarks/wild/shown/{each['script']}.py` prints:\n\n```text\n{printed}\n```"


def _designed(designed: Sequence[Json]) -> Iterator[str]:
    if designed:
        yield "## By design\n\nGradients that are not the derivative of forward, and not meant to be."
        yield _table(("package", "operator", "what it is"), ((each["package"], f"`{each['operator']}`", each["returns"]) for each in designed))


def _packages(results: Mapping[str, Json]) -> Iterator[str]:
    yield "## Packages"
    yield _table(("package", "version", "area", "checks", "as expected", "minutes", "MB", ""), (_package(each) for each in results.values()))


def _package(each: Json) -> tuple[object, ...]:
    if each["lack"] is not None:
        return each["name"], each["version"], each["area"], "", "", each["minutes"], "", f"not installed: {each['lack']}"
    checks = each["checks"]
    return each["name"], each["version"], each["area"], len(checks), sum(check["ok"] for check in checks), each["minutes"], each["megabytes"], ""


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
