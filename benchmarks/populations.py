"""Every case of the populations of which the test suite runs a sample (the marker `population`),
with what it cost.

    python benchmarks/populations.py [TESTS ...] [--out benchmarks/populations.md]

TESTS are files or folders of tests/. Hours on two cores for all of them. Writes a row for each
test: its cases, those that the suite keeps, failures, seconds. Exits with pytest's code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
HEAD = (
    "# Populations\n\n| test | cases | in the suite | failed | s |\n| --- | ---: | ---: | ---: | "
    "---: |\n"
)


def names(tests: list[str], **environ: str) -> list[str]:
    """The cases that pytest collects."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-m",
            "population",
            "--collect-only",
            *tests,
        ],
        cwd=ROOT,
        text=True,
        capture_output=True,
        env={**os.environ, **environ},
        check=False,
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def rows(report: Path, kept: list[str]) -> Iterator[str]:
    """A line of the table for each test of a JUnit report."""
    of_test: dict[str, list[ElementTree.Element]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        of_test.setdefault(
            f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}",
            [],
        ).append(case)
    for name, cases in sorted(of_test.items()):
        failed = sum(
            case.find("failure") is not None or case.find("error") is not None for case in cases
        )
        in_suite = sum(each.partition("[")[0] == name for each in kept)
        yield (
            f"| {name} | {len(cases)} | {in_suite} | {failed} | "
            f"{sum(float(case.get('time', 0)) for case in cases):.0f} |\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", default=["tests"])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/populations.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-m",
                "population",
                "--junitxml",
                report,
                *asked.tests,
            ],
            cwd=ROOT,
            env={**os.environ, "GRADVERIFY_POPULATION": "all"},
            check=False,
        )
        asked.out.write_text(HEAD + "".join(rows(report, names(asked.tests))), encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
