"""gradverify on released packages: installs each on top of this Python's torch, runs its specs
under all rules, and writes what it found.

    python benchmarks/wild/run.py [PACKAGE ...] [--work DIR] [--jobs N] [--page FILE]

Without names, all of packages/. What was measured of other packages is kept in results/, from which
the page is made; `--page-only` measures none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from environments import ROOT, Environment, environment
from package import HERE, Package, packages
from page import page, printed, tried

LIMIT_S = 120  # of a check
SCRIPT_S = 300  # of a script that shows a finding
RUN_S = 3600  # of all checks of a package

Json = dict[str, Any]


def measured(package: Package, work: Path, jobs: str) -> Json:
    """What one package is found to be: how it installs, its Functions, its checks, and what the
    scripts of its findings print."""
    begun = time.monotonic()
    result: Json = {"version": package.version, "lack": package.lack}
    if package.lack is None:
        made = environment(
            work / package.name, [*package.pip, f"{package.name}=={package.version}"], package.extra
        )
        result["lack"] = made.lack
        if made.lack is None:
            result |= {
                "megabytes": round(made.size / 1e6),
                "functions": _functions(made, package),
                "checks": list(_checks(made, package, jobs)),
                "scripts": {
                    each.script: _printed(made, package.script(each)) for each in package.findings
                },
            }
    return {**result, "minutes": round((time.monotonic() - begun) / 60, 1)}


def _checks(made: Environment, package: Package, jobs: str) -> Iterator[Json]:
    if package.spec is None:
        return
    path, report = str(package.spec.relative_to(ROOT)), made.python.parents[1] / "report.json"
    report.unlink(missing_ok=True)
    _run(
        made,
        [
            "-m",
            "gradverify",
            "check",
            path,
            "-j",
            jobs,
            "--timeout",
            str(LIMIT_S),
            "--format",
            "plain",
            "--report",
            f"json:{report}",
        ],
    )
    beside = json.loads(_run(made, [str(HERE / "beside.py"), path]).splitlines()[-1])
    for check in json.loads(report.read_text())["checks"]:
        found = [each for each in check["findings"] if each["severity"] in ("error", "warning")]
        yield {
            "id": check["id"].partition("::")[2],
            "operator": check["function"]["target"],
            "verdict": check["verdict"],
            "ok": check["ok"],
            "codes": list(dict.fromkeys(each["code"] for each in found)),
            "gradcheck": beside.get(check["id"], "not run"),
        }


def _functions(made: Environment, package: Package) -> Json:
    """How many autograd Functions and operators with a backward the package's source has, and the
    names of those that no check covers."""
    specs = ["--specs", str(package.spec)] if package.spec else []
    told = _run(
        made, ["-m", "gradverify", "coverage", *package.modules, *specs, "--format", "json"]
    )
    try:
        functions = json.loads(told)["functions"]
    except (json.JSONDecodeError, KeyError):
        return {"found": 0, "unchecked": []}
    return {
        "found": len(functions),
        "unchecked": [
            each["name"] for each in functions if not each["checks"] and not each["through"]
        ],
    }


def _printed(made: Environment, script: Path) -> Json:
    """What a script prints, without gradverify; `status` is not 0 where it does not show what it
    says."""
    done = subprocess.run(
        [made.python, "-W", "ignore", script],
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
        check=False,
        cwd=made.python.parents[1],
    )
    return {
        "status": done.returncode,
        "prints": done.stdout,
        "raises": done.stderr.strip().splitlines()[-1:],
    }


def _run(made: Environment, arguments: Sequence[str]) -> str:
    return subprocess.run(
        [made.python, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=RUN_S,
    ).stdout


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    parser.add_argument(
        "--work",
        type=Path,
        help="where the environments are made and kept; else in a temporary folder",
    )
    parser.add_argument("--jobs", default="1", help="worker processes of each run")
    parser.add_argument(
        "--page",
        type=Path,
        default=ROOT / "benchmarks/results/bugs-found.md",
        help="the page of findings, with that of packages",
    )
    parser.add_argument(
        "--page-only",
        action="store_true",
        help="measure nothing, write the page from what is known",
    )
    options = parser.parse_args(arguments)
    try:
        chosen = packages(options.packages)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    for package in () if options.page_only else chosen:
        with tempfile.TemporaryDirectory() as scratch:
            found = measured(package, (options.work or Path(scratch)).absolute(), options.jobs)
        package.result.parent.mkdir(exist_ok=True)
        package.result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(
            f"{package.name} {package.version}: "
            + (found["lack"] or f"{len(found['checks'])} checks in {found['minutes']} minutes"),
            flush=True,
        )
    known = [
        (each, json.loads(each.result.read_text(encoding="utf-8")))
        for each in packages()
        if each.result.is_file()
    ]
    options.page.write_text(page(known), encoding="utf-8")
    options.page.with_name("packages-tried.md").write_text(tried(known), encoding="utf-8")
    (HERE / "shown" / "README.md").write_text(printed(known), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
