"""`show` and `merge` as a shell sees them: reports of earlier runs, shown and joined; everything that is no such report refused before anything is
written. What a merge has to refuse is tested in tests/model/test_merge.py."""

import json
import os
import re
from dataclasses import replace

import pytest
from factories import everything, failing, passing, report

from gradverify.model.event import Selection, Shard
from gradverify.model.report import written
from gradverify.report.formats import NAMES
from gradverify.report.look import Look
from gradverify.report.plain import render

MERGED = report(failing(), replace(passing(), id="s.yaml::other"), selection=Selection(("specs",)))


@pytest.fixture
def left(folder):
    """A report of everything, and two shards."""
    (folder / "r.json").write_text(written(report(*everything())))
    for index in (1, 2):
        selection = Selection(("specs",), shard=Shard(index, 2, "a1", 2, (index - 1,)))
        part = replace(report(MERGED.checks[index - 1], selection=selection), argv=("check", "specs", "--shard", f"{index}/2"))
        (folder / f"s{index}.json").write_text(written(part))
    return folder


def test_a_report_is_shown_as_the_run_showed_it(gradverify, left):
    shown = render(report(*everything()), Look(wrap=False))
    assert gradverify("show", "r.json") == (0, shown, "")
    code, out, _ = gradverify("show", "r.json", "--format", "table", "--width", "90", "-q")
    assert code == 0 and "╭─ FAIL  swish[rows=7,act=:fire:]" in out and "\nPASS " not in out


@pytest.mark.parametrize("kind", NAMES)
def test_a_report_is_shown_as_any_kind_of_report(gradverify, left, kind):
    from gradverify.report.formats import renderer
    from gradverify.rules.catalogue import rules

    wanted = renderer(kind, rules)(report(*everything()))
    assert gradverify("show", "r.json", "--format", kind) == (0, wanted, "")
    code, _, _ = gradverify("show", "r.json", "--report", f"{kind}:deep/out.txt")
    assert code == 0 and (left / "deep" / "out.txt").read_text(encoding="utf-8") == wanted


def test_a_merge_shows_the_whole_run_and_exits_as_it(gradverify, left):
    code, out, err = gradverify("merge", "s2.json", "s1.json", "--report", "json:all.json")
    assert (code, err) == (1, "")
    whole = replace(MERGED, argv=("check", "specs"))
    assert out == render(whole, Look(wrap=False)) and len(re.findall("^(FAIL|PASS) ", out, re.MULTILINE)) == 2
    quiet = gradverify("merge", "s2.json", "s1.json", "-q")[1]
    assert quiet == render(whole, Look(wrap=False, verbosity=-1)) and "PASS" not in quiet and "1 failed, 1 passed" in quiet
    assert json.loads((left / "all.json").read_text()) == json.loads(written(whole))
    assert gradverify("show", "all.json", "--format", "json")[1] == (left / "all.json").read_text()


def test_where_github_reads_a_merge_annotates_and_leaves_its_summary(gradverify, left, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(left / "summary.md"))
    code, out, _ = gradverify("merge", "s1.json", "s2.json")
    assert code == 1 and "\n::error " in out and "swish" in (left / "summary.md").read_text()
    (left / "summary.md").unlink()
    assert "\n::error " not in gradverify("show", "r.json")[1] and not (left / "summary.md").exists()
    assert "\n::error " in gradverify("show", "r.json", "--format", "github")[1]


def test_a_merge_may_replace_one_of_its_shards(gradverify, left):
    assert gradverify("merge", "s1.json", "s2.json", "--report", "json:s1.json")[0] == 1
    assert json.loads((left / "s1.json").read_text())["summary"]["total"] == 2


def test_different_machines_are_told_on_stderr(gradverify, left):
    text = (left / "s2.json").read_text()
    (left / "s2.json").write_text(text.replace('"torch": "2.13.0"', '"torch": "2.4.0"'))
    code, _, err = gradverify("merge", "s1.json", "s2.json")
    assert (code, err) == (1, "the shards ran with different versions of torch: 2.13.0, 2.4.0\n")


def test_a_byte_order_mark_is_no_fault(gradverify, left):
    (left / "r.json").write_bytes(b"\xef\xbb\xbf" + (left / "r.json").read_bytes())
    assert gradverify("show", "r.json")[0] == 0


def test_neither_imports_torch(process, left):
    probe = {"PYTHONSTARTUP": "", "PYTHONPATH": str(left)}
    (left / "sitecustomize.py").write_text("import atexit, sys\natexit.register(lambda: open('seen', 'w').write(str('torch' in sys.modules)))\n")
    for arguments in (["merge", "s1.json", "s2.json"], ["show", "r.json"]):
        process(*arguments, env={**probe, "PYTHONPATH": os.pathsep.join([str(left), os.environ.get("PYTHONPATH", "")])})
        assert (left / "seen").read_text() == "False"
        (left / "seen").unlink()
