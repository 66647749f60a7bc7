"""results/bugs-found.md, results/packages-tried.md and shown/README.md from what was measured and
what was confirmed without gradverify."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from package import KINDS, Finding, Package

Json = Mapping[str, Any]
Known = Sequence[tuple[Package, Json]]

MADE = (
    "<!-- Written by `python benchmarks/wild/run.py`; edit `benchmarks/wild/packages/` and run "
    "that. -->"
)
TOP = f"""# Bugs in released packages

{MADE}

Each package is installed from PyPI on top of the pinned torch, and specs made with `gradverify init` are checked under all rules, on the CPU.
A finding is listed where a script of a few lines shows it with torch and the package alone: it prints what the package returns beside what is right,
and fails once the two agree. `python benchmarks/wild/run.py PACKAGE` repeats all of this for one package; specs, scripts and what was measured are in
`benchmarks/wild/`. The versions are the ones named here; a later one may be repaired. All packages: [packages that were tried](packages-tried.md)."""
MEANING = {
    "wrong gradient": "backward returns a number that is not the derivative of forward, or none at all",
    "contract": "backward changes what it was given, depends on what it must not, or ignores which inputs "
    "need a gradient",
    "second order": "the gradient is right, and its own derivative is silently wrong",
    "forward mode": "the tangent of forward mode is wrong",
    "layout": "the gradient is right, unless a tensor lies in memory in another way than it mostly does",
    "crash": "forward runs, and backward raises an error",
}


TRIED = f"""# Released packages that were tried

{MADE}

What was found in them: [bugs in released packages](bugs-found.md)."""
PRINTED = f"""# What the scripts of the findings print

{MADE}

Each script of this folder shows one of the [bugs in released packages](../../results/bugs-found.md) with torch and the package alone."""


def page(known: Known) -> str:
    """What was found. Raises ValueError for a finding that its script, or its check, does not
    show."""
    mistakes = _mistakes(known)
    return _joined(TOP, [*_summary(known, mistakes), *_findings(mistakes), *_by_design(known)])


def tried(known: Known) -> str:
    """The packages, their Functions without a check, and what could not be tried."""
    return _joined(TRIED, [*_packages(known), *_lacking(known)])


def printed(known: Known) -> str:
    """What each script printed."""
    return _joined(PRINTED, _scripts(_mistakes(known)))


def _mistakes(known: Known) -> list[tuple[Package, Json, Finding]]:
    mistakes = [
        (package, result, finding)
        for package, result in known
        for finding in package.findings
        if result["lack"] is None
    ]
    for package, result, finding in mistakes:
        _shown(package, result, finding)
    return mistakes


def _joined(top: str, parts: Iterable[str]) -> str:
    return "\n\n".join([top, *map(_wrapped, parts)]) + "\n"


def _shown(package: Package, result: Json, finding: Finding) -> None:
    script = result["scripts"].get(finding.script)
    if script is None or script["status"] != 0:
        raise ValueError(
            f"{package.name}: its script {finding.script} does not show the finding: {script}"
        )
    if finding.rule not in _check(result, finding)["codes"]:
        raise ValueError(
            f"{package.name}: {finding.rule} does not see {finding.script} in the check "
            f"{finding.check!r}"
        )


def _check(result: Json, finding: Finding) -> Json:
    """The check in which a finding is seen. Raises ValueError where there is none of that name."""
    for check in result["checks"]:
        if check["id"] == finding.check:
            return dict(check)
    raise ValueError(
        f"there is no check {finding.check!r}; there are "
        f"{', '.join(check['id'] for check in result['checks'])}"
    )


def _summary(known: Known, mistakes: Sequence[tuple[Package, Json, Finding]]) -> Iterator[str]:
    installed = [result for _, result in known if result["lack"] is None]
    operators = sum(len({check["operator"] for check in result["checks"]}) for result in installed)
    found = sum(result["functions"]["found"] for result in installed)
    unchecked = sum(len(result["functions"]["unchecked"]) for result in installed)
    elsewhere = sum(
        _elsewhere(package, result) for package, result in known if result["lack"] is None
    )
    unseen = [
        finding
        for _, result, finding in mistakes
        if _check(result, finding)["gradcheck"] == "passes"
    ]
    hurt = {package.name for package, _, _ in mistakes}
    yield "## What to take from it"
    yield (
        f"{len(known)} packages were tried and {len(installed)} installed. Their sources have "
        f"{found} autograd Functions and operators with a backward of their own, of which "
        f"{found - unchecked} have a check here; {operators} operators were checked. Of the others "
        f"{elsewhere} cannot run here, as they need a device, or a module or package that is not "
        f"there, or have no backward that does: of the {found - elsewhere} that can, "
        f"{100 * (found - unchecked) // (found - elsewhere)} % have a check. {len(mistakes)} "
        f"findings in {len(hurt)} packages follow; of them `torch.autograd.gradcheck` with its "
        f"defaults, at the same inputs, lets {len(unseen)} pass."
    )
    counts = Counter(finding.kind for _, _, finding in mistakes)
    passed = Counter(finding.kind for finding in unseen)
    rows = (
        (kind, MEANING[kind], counts[kind], passed[kind])
        for kind in sorted(KINDS, key=lambda kind: -counts[kind])
        if counts[kind]
    )
    yield _table(("kind", "what it means", "findings", "of them gradcheck lets pass"), rows)


def _elsewhere(package: Package, result: Json) -> int:
    """Raises ValueError where more are said to be out of reach than have no check."""
    if package.elsewhere > len(result["functions"]["unchecked"]):
        raise ValueError(
            f"{package.name}: {package.elsewhere} Functions cannot run here, but "
            f"{len(result['functions']['unchecked'])} have no check"
        )
    return package.elsewhere


def _findings(mistakes: Sequence[tuple[Package, Json, Finding]]) -> Iterator[str]:
    yield (
        "What `gradcheck` lets pass are mostly second derivatives: backward computes with a tensor "
        "that forward saved, of which autograd does not know that it depends on the input, or runs "
        "without autograd, so that a Hessian or a gradient penalty is silently 0 there. Next comes "
        "what only a second use shows: an output that is kept past `save_for_backward`, or that "
        "has the memory of an input, and is written in place; and a `view` of what is not "
        "contiguous. `gradcheck` asks for the first derivative only: second ones are what "
        "`gradgradcheck` is for. A mistake counts once for each operator that has it: reversible "
        "layers in each package that has a copy of them, and one convention for the gradient of "
        "group elements fifteen times in pypose."
    )
    yield (
        "The backwards that raise name an attribute that does not exist, index with fewer numbers "
        "than they assign, or return too few gradients: one call shows it. Where a gradient is a "
        "wrong number, forward and backward come from different formulas or approximations, "
        "gradients are in the wrong order, or a sum is taken over the wrong dimension."
    )
    yield "## Findings"
    yield (
        "*gradcheck* is what `torch.autograd.gradcheck` with its defaults says of the operator at "
        "the inputs of the check. Each script is "
        "`benchmarks/wild/shown/PACKAGE__SCRIPT.py`; [what they print](../wild/shown/README.md)."
    )
    rows = (
        (
            f"{package.name} {package.version}",
            f"`{finding.operator}`",
            finding.rule,
            finding.kind,
            finding.returns,
            finding.right,
            _check(result, finding)["gradcheck"],
        )
        for package, result, finding in mistakes
    )
    yield _table(
        ("package", "operator", "rule", "kind", "what it does", "what is right", "gradcheck"), rows
    )


def _scripts(mistakes: Sequence[tuple[Package, Json, Finding]]) -> Iterator[str]:
    for package, result, finding in mistakes:
        yield (
            f"`{package.script(finding).name}`, seen by `gradverify check "
            f"benchmarks/wild/specs/{package.name}.yaml::{finding.check}`:"
        )
        yield f"```text\n{result['scripts'][finding.script]['prints'].rstrip()}\n```"


def _by_design(known: Known) -> Iterator[str]:
    rows = [
        (f"{package.name} {package.version}", f"`{operator}`", what)
        for package, _ in known
        for operator, what in package.by_design.items()
    ]
    if rows:
        yield "## By design"
        yield (
            "Gradients that are not the derivative of forward, and not meant to be. They are no "
            "findings and not counted as such."
        )
        yield _table(("package", "operator", "what its gradient is"), rows)


def _packages(known: Known) -> Iterator[str]:
    yield "## Packages"
    yield (
        "*Functions* are those in the package's source, *without a check* those that need a "
        "device, a compiled extension, or inputs that nobody "
        "wrote down yet; *passed*, *failed* and *undecided* count checks. Minutes are those of the "
        "last run with one worker, which installs the "
        "package where it is not there yet; megabytes are those of the environment on top of torch."
    )
    rows = (_row(package, result) for package, result in known if result["lack"] is None)
    yield _table(
        (
            "package",
            "version",
            "area",
            "Functions",
            "without a check",
            "passed",
            "failed",
            "undecided",
            "minutes",
            "MB",
        ),
        rows,
    )
    rest = [
        (package.name, f"`{name}`", why)
        for package, _ in known
        for name, why in package.unreached.items()
    ]
    if rest:
        yield "Why some have none:"
        yield _table(("package", "Function", "why"), rest)


def _row(package: Package, result: Json) -> tuple[object, ...]:
    verdicts = Counter(check["verdict"] for check in result["checks"])
    other = sum(verdicts.values()) - verdicts["pass"] - verdicts["fail"]
    return (
        package.name,
        package.version,
        package.area,
        result["functions"]["found"],
        len(result["functions"]["unchecked"]),
        verdicts["pass"],
        verdicts["fail"],
        other,
        result["minutes"],
        result["megabytes"],
    )


def _lacking(known: Known) -> Iterator[str]:
    rows = [
        (package.name, package.version, package.area, result["lack"])
        for package, result in known
        if result["lack"] is not None
    ]
    if rows:
        yield "## Packages that could not be tried"
        yield _table(("package", "version", "area", "why"), rows)


def _wrapped(part: str) -> str:
    """A paragraph on lines of the width that documents have; tables, code and headings as they
    are."""
    return (
        part
        if part.startswith(("|", "```", "#"))
        else textwrap.fill(part, 150, break_long_words=False, break_on_hyphens=False)
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )
