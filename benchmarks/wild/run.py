"""gradverify on released packages: installs each on top of this Python's torch, runs its specs under all rules, and writes what it found.

    python benchmarks/wild/run.py [PACKAGE ...] [--work DIR] [--jobs N] [--page FILE]

Without names, all of packages.yaml. What was measured of other packages is kept in results.json, from which the page is made.
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

import yaml
from environments import ROOT, Environment, environment
from page import page

HERE = Path(__file__).resolve().parent
RESULTS, SPECS, SHOWN = HERE / "results.json", HERE / "specs", HERE / "shown"
LIMIT_S = 120     # of a check
SCRIPT_S = 300

Json = dict[str, Any]


def measured(package: Json, work: Path, jobs: str) -> Json:
    """What one package is found to be: how it installs, its Functions, its checks, and what the scripts of its findings print."""
    begun = time.monotonic()
    made = environment(work / package["name"], package.get("requirements", [f"{package['name']}=={package['version']}"]))
    result = {"name": package["name"], "version": package["version"], "area": package["area"], "lack": made.lack}
    if made.lack is None:
        specs = sorted(SPECS.glob(f"{package['name']}*.yaml"))
        result |= {"megabytes": round(made.size / 1e6), **_functions(made, package), "checks": list(_checks(made, specs, jobs)),
                   "scripts": {script.stem: _printed(made, script) for script in sorted(SHOWN.glob(f"{package['name'].replace('-', '_')}__*.py"))}}
    return {**result, "minutes": round((time.monotonic() - begun) / 60, 1)}


def _checks(made: Environment, specs: Sequence[Path], jobs: str) -> Iterator[Json]:
    if not specs:
        return
    paths = [str(spec.relative_to(ROOT)) for spec in specs]
    report = made.python.parents[1] / "report.json"
    _run(made, ["-m", "gradverify", "check", *paths, "-j", jobs, "--timeout", str(LIMIT_S), "--format", "plain", "--report", f"json:{report}"])
    beside = json.loads(_run(made, [str(HERE / "beside.py"), *paths]).splitlines()[-1])
    for check in json.loads(report.read_text())["checks"]:
        errors = [each for each in check["findings"] if each["severity"] == "error"]
        warned = [each["code"] for each in check["findings"] if each["severity"] == "warning"]
        yield {"id": check["id"], "operator": check["function"]["target"], "verdict": check["verdict"], "expect": check["expect"], "ok": check["ok"],
               "codes": list(dict.fromkeys(each["code"] for each in errors)), "warnings": list(dict.fromkeys(warned)),
               "message": errors[0]["message"] if errors else check.get("reason"), "gradcheck": beside.get(check["id"], "not run")}


def _functions(made: Environment, package: Json) -> Json:
    """How many autograd Functions the package has, and the names of those that no check covers."""
    module = package.get("module", package["name"].replace("-", "_"))
    specs = sorted(SPECS.glob(f"{package['name']}*.yaml"))
    told = _run(made, ["-m", "gradverify", "coverage", module, *(word for spec in specs for word in ("--specs", str(spec))), "--format", "json"])
    try:
        return {"coverage": json.loads(told)}
    except json.JSONDecodeError:
        return {"coverage": None}


def _printed(made: Environment, script: Path) -> Json:
    """What a script prints, without gradverify; `status` is not 0 where it does not show what it says."""
    done = subprocess.run([made.python, script], capture_output=True, text=True, timeout=SCRIPT_S, check=False, cwd=made.python.parents[1])
    return {"status": done.returncode, "prints": done.stdout, "raises": done.stderr.strip().splitlines()[-1:]}


def _run(made: Environment, arguments: Sequence[str]) -> str:
    return subprocess.run([made.python, *arguments], capture_output=True, text=True, check=False, cwd=ROOT).stdout


def chosen(names: Sequence[str]) -> Iterator[Json]:
    """Packages by name; all where none is named. Raises SystemExit for a name that is none."""
    known = {package["name"]: package for package in yaml.safe_load((HERE / "packages.yaml").read_text())["packages"]}
    for name in names or known:
        if name not in known:
            raise SystemExit(f"there is no package {name!r}; there are {', '.join(known)}")
        yield known[name]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    parser.add_argument("--work", type=Path, help="where the environments are made and kept; else in a temporary folder")
    parser.add_argument("--jobs", default="1", help="worker processes of each run")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "bugs-found.md", help="the page to write")
    options = parser.parse_args(arguments)
    packages = list(chosen(options.packages))
    with tempfile.TemporaryDirectory() as scratch:
        for package in packages:
            found = measured(package, (options.work or Path(scratch)).absolute(), options.jobs)
            results = {**json.loads(RESULTS.read_text()), package["name"]: found} if RESULTS.is_file() else {package["name"]: found}
            RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
            print(f"{package['name']} {package['version']}: " + (found["lack"] or f"{len(found['checks'])} checks in {found['minutes']} minutes"))
    options.page.write_text(page(json.loads(RESULTS.read_text()), yaml.safe_load((HERE / "findings.yaml").read_text())["findings"]))


if __name__ == "__main__":
    main(sys.argv[1:])
