"""CONTRIBUTING.md and docs/architecture.md name files that exist, and every floor and folder that
there is.

What CONTRIBUTING.md shows is done, in a copy of the repository: the toy rule, oracle and format are
added by its blocks alone, touch the files that it names and no others, and then work.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from docs.snippets import ROOT, blocks

PAGES = (ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md")
PLACE = re.compile(
    r"`((?:gradverify|specs|tests|docs)/[\w/.-]+)`|\b((?:docs|tests)/[\w/]+\.(?:md|py))"
)
ADDED = re.compile(r"gv299|says_todo|brought|csv\.py")  # the toys
FILE = re.compile(r"# file: (\S+)\n")
GENERATED = "docs/rules.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_is_there(page):
    named = {one or other for one, other in PLACE.findall(page.read_text(encoding="utf-8"))}
    assert named
    there = [place for place in sorted(named) if not ADDED.search(place)]
    assert [place for place in there if not (ROOT / place.rstrip("/.")).exists()] == []


def test_every_floor_is_on_the_map():
    text = PAGES[1].read_text(encoding="utf-8")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    floors = re.findall(
        r"\w+", " ".join(next(one["layers"] for one in contracts if one["type"] == "layers"))
    )
    assert [
        floor for floor in floors if f"`{floor}/`" not in text and f"`{floor}.py`" not in text
    ] == []


# ---- the walks, walked
def taken(folder, steps):
    """The page's blocks in a folder: whole files, and lines of a diff that are put behind, or in
    the place of, those that stand there."""
    for block in steps:
        path, text = folder / FILE.match(block.text)[1], FILE.sub("", block.text, count=1)
        if block.language == "diff":
            path.write_text(
                patched(path.read_text(encoding="utf-8"), text.splitlines()), encoding="utf-8"
            )
        else:
            assert not path.exists(), f"{path} is there already: the page's example is none"
            path.write_text(text, encoding="utf-8")


def patched(whole, lines):
    before, gone = None, False
    for line in lines:
        mark, text = line[:1], line[1:]
        if mark == "+":
            whole = whole.replace(f"{before}\n", f"{text}\n" if gone else f"{before}\n{text}\n")
        else:
            assert whole.count(f"{text}\n") == 1, (
                f"the page shows {text!r}, which the file does not have once"
            )
            gone = mark == "-"
        before = text
    return whole


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A copy of the repository with all that the page shows, and how its files were before."""
    folder = tmp_path_factory.mktemp("walk")
    for name in (
        "gradverify",
        "docs",
        "specs",
        "tests",
        "pyproject.toml",
        "README.md",
        "CONTRIBUTING.md",
    ):
        source = ROOT / name
        if source.is_dir():
            # With what is compiled already; what another process is compiling has a name of its own
            # until it is whole.
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        else:
            shutil.copy(source, folder)
    before = contents(folder)
    taken(
        folder,
        [block for block in blocks(PAGES[0].read_text(encoding="utf-8")) if FILE.match(block.text)],
    )
    done(
        folder,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "tests/docs/test_rules_page.py",
        GRADVERIFY_UPDATE_GOLDEN="1",
    )
    return folder, before


def contents(folder):
    files = (
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def done(folder, *command, **variables):
    """Python in that folder, on its own package; what it printed. Fails where it does."""
    asked = {**os.environ, "PYTHONPATH": str(folder), **variables}
    seen = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=asked,
    )
    assert seen.returncode == 0, seen.stdout + seen.stderr
    return seen.stdout


def test_the_walks_touch_only_files_that_the_page_names(walked):
    folder, before = walked
    after = contents(folder)
    changed = {name for name, content in after.items() if before.get(name) != content} | (
        before.keys() - after.keys()
    )
    text = PAGES[0].read_text(encoding="utf-8")
    assert len(changed) > 8
    assert [name for name in sorted(changed) if name not in text] == []
    assert GENERATED in changed


OWN = (
    "tests/rules/test_gv299_unfinished.py",
    "tests/oracles/test_brought.py",
    "tests/report/test_csv.py",
)
LAWS = (
    "tests/laws/test_rule_book.py",
    "tests/gallery/test_twins.py",
    "tests/report/test_machine_formats.py",
    "tests/report/test_any_text.py",
)
OF_THEM = "gv299 or brought or csv or every_rule or catalogue or says_todo or every_file"


def test_what_was_added_passes_its_own_tests_and_the_laws(walked):
    assert " passed" in done(
        walked[0],
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *OWN,
        *LAWS,
        "-k",
        OF_THEM,
    )


def test_the_rule_is_found_told_and_explained(walked):
    folder, _ = walked
    done(
        folder,
        "-m",
        "gradverify",
        "check",
        "specs/gallery/gv299_unfinished.yaml",
        "--report",
        "report.csv",
        "--report",
        "json:report.json",
    )
    assert "is not finished: its docstring says TODO" in (folder / "report.json").read_text(
        encoding="utf-8"
    )
    table = (folder / "report.csv").read_text(encoding="utf-8").splitlines()
    assert table[0] == "check,verdict,forward,backward" and [
        line.split(",")[1] for line in table[1:]
    ] == ["pass", "pass"]
    assert "take the word out" in done(folder, "-m", "gradverify", "explain", "unfinished")
