"""The files of benchmarks/wild are as they should be, and benchmarks/results/bugs-found.md is what
they and the results say; nothing is installed."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gradverify.cli.gather import gather

ROOT = Path(__file__).parents[2]
WILD = ROOT / "benchmarks" / "wild"


@pytest.fixture(scope="module")
def wild() -> tuple[ModuleType, ModuleType]:
    sys.path.insert(0, str(WILD))
    try:
        import package
        import page
    finally:
        sys.path.remove(str(WILD))
    return package, page


def test_every_package_is_pinned_and_every_finding_has_a_script_and_a_check(
    wild: tuple[ModuleType, ModuleType],
) -> None:
    for each in wild[0].packages():
        assert re.fullmatch(r"\d[\w.]*", each.version), each.name
        assert each.lack or each.result.is_file(), f"run.py was not run on {each.name}"
        names = (
            {case.id.rpartition("::")[2] for case in gather([str(each.spec)]).cases}
            if each.spec
            else set()
        )
        for finding in each.findings:
            assert finding.check in names, (each.name, finding.check)
            assert each.script(finding).is_file()


def test_every_spec_and_every_script_belongs_to_a_package(
    wild: tuple[ModuleType, ModuleType],
) -> None:
    known = wild[0].packages()
    assert {spec.stem for spec in (WILD / "specs").glob("*.yaml")} <= {each.name for each in known}
    assert {result.stem for result in (WILD / "results").glob("*.json")} <= {
        each.name for each in known
    }
    listed = {each.script(finding) for each in known for finding in each.findings}
    assert set((WILD / "shown").glob("*.py")) == listed


def test_a_script_needs_torch_and_the_package_only(wild: tuple[ModuleType, ModuleType]) -> None:
    for script in (WILD / "shown").glob("*.py"):
        tree = ast.parse(script.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), script.name
        assert "gradverify" not in script.read_text(encoding="utf-8"), script.name


def test_the_pages_are_what_the_files_say(wild: tuple[ModuleType, ModuleType]) -> None:
    known = [
        (each, json.loads(each.result.read_text(encoding="utf-8")))
        for each in wild[0].packages()
        if each.result.is_file()
    ]
    pages = {
        "results/bugs-found.md": wild[1].page,
        "results/packages-tried.md": wild[1].tried,
        "wild/shown/README.md": wild[1].printed,
    }
    for file, write in pages.items():
        assert (WILD.parent / file).read_text(encoding="utf-8") == write(known)


def test_the_page_refuses_a_finding_that_its_script_does_not_show(
    wild: tuple[ModuleType, ModuleType],
) -> None:
    each = next(each for each in wild[0].packages() if each.findings)
    result = json.loads(each.result.read_text(encoding="utf-8"))
    result["scripts"][each.findings[0].script]["status"] = 1
    with pytest.raises(ValueError, match="does not show the finding"):
        wild[1].page([(each, result)])


def test_no_more_functions_are_out_of_reach_than_have_no_check(
    wild: tuple[ModuleType, ModuleType],
) -> None:
    each = next(each for each in wild[0].packages() if each.elsewhere)
    result = json.loads(each.result.read_text(encoding="utf-8"))
    result["functions"]["unchecked"] = result["functions"]["unchecked"][: each.elsewhere - 1]
    with pytest.raises(ValueError, match="cannot run here"):
        wild[1].page([(each, result)])


def test_a_finding_of_another_kind_is_refused(
    wild: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(
        "version: '1'\narea: x\nfindings: [{script: a, operator: b, check: c, rule: GV101, kind: "
        "odd, returns: d, right: e}]\n"
    )
    with pytest.raises(ValueError, match="its kind is one of"):
        wild[0].read(file)
