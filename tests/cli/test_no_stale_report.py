"""No report says more than this run saw: one of an earlier run does not survive a run that is refused or does not end, and none takes
the place of a file that is no report."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import jsonschema
import pytest
from factories import ENVIRONMENT, passing

from gradverify.model.event import CheckFinished, CheckStarted, RunFinished, RunStarted
from gradverify.report.json import report_schema

GREEN = '{"schema_version": 1, "checks": [], "exit_code": 0}\n'


@pytest.mark.parametrize("name", ["s.yaml", "linked.json", "odd.txt", "ops.py", "pyproject.toml", "other.YML"])
def test_a_report_in_place_of_what_is_read_is_refused_and_the_file_is_left(gradverify, engine, spec, folder, name):
    engine(passing())
    (folder / "odd.txt").write_text(spec.read_text())
    (folder / "ops.py").write_text("x = 1\n")
    (folder / "other.YML").write_text(spec.read_text())
    (folder / "pyproject.toml").write_text("[tool.gradverify]\n")
    (folder / "linked.json").symlink_to(spec)
    before = (folder / name).read_bytes()
    code, out, err = gradverify("check", "s.yaml", "odd.txt", "--report", f"json:{name}")
    assert (code, out) == (2, "") and err.startswith("--report: a report ") and err.count("\n") == 1
    assert (folder / name).read_bytes() == before


REFUSED = [("check", "s.yaml", "--eps", "much"), ("check", "s.yaml", "--no-such-option"), ("check", "bad.yaml"), ("check", "nowhere.yaml"),
           ("check", "s.yaml", "-k", "and and"), ("check", "s.yaml", "--baseline", "nowhere.json"), ("hook", "bad.yaml"),
           ("merge", "nowhere.json"), ("show", "nowhere.json")]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_run_that_is_refused_leaves_no_report_of_an_earlier_one(gradverify, spec, folder, arguments):
    (folder / "bad.yaml").write_text("gradverify: 1\nchecks: 3\n")
    for name in ("r.json", "r.xml"):
        (folder / name).write_text(GREEN)
    code, _, _ = gradverify(*arguments, "--report", "json:r.json", "--report=junit:r.xml")
    assert code == 2 and not (folder / "r.json").exists() and not (folder / "r.xml").exists()


def test_one_that_pyproject_names_neither(gradverify, spec, folder):
    (folder / "pyproject.toml").write_text('[tool.gradverify]\nreport = ["json:r.json"]\n')
    (folder / "r.json").write_text(GREEN)
    assert gradverify("check", "s.yaml", "--eps", "much")[0] == 2 and not (folder / "r.json").exists()


def test_what_a_refused_command_names_otherwise_is_left(gradverify, spec, folder):
    (folder / "known.json").write_text("{}")
    (folder / "shard.json").write_text(GREEN)
    assert gradverify("check", "s.yaml", "--baseline", "known.json", "--report", "json:known.json")[0] == 2
    assert gradverify("merge", "shard.json", "--report", "json:shard.json")[0] == 2
    assert (folder / "known.json").exists() and (folder / "shard.json").exists()


def test_until_the_run_ends_the_report_says_that_it_did_not(gradverify, spec, folder, monkeypatch):
    """What is left where the process ends at any moment, with whatever status."""
    seen = {}

    def fake(cases, *, argv, selection, **options):
        yield RunStarted("2026-01-02T03:04:05+00:00", argv, selection, ENVIRONMENT, 2)
        yield CheckStarted("a", "a")
        seen.update(json=json.loads((folder / "r.json").read_text()), junit=ElementTree.parse(folder / "r.xml").getroot())
        for case in cases:
            yield CheckFinished(passing(id=case.id))
        yield RunFinished(1.0)

    monkeypatch.setattr("gradverify.running.schedule.run", fake)
    (folder / "r.json").write_text(GREEN)
    code, _, err = gradverify("check", "s.yaml", "--report", "json:r.json", "--report", "r.xml", "--report", "json:/dev/stdout")
    report = seen["json"]
    jsonschema.validate(report, report_schema())
    assert [(check["verdict"], check["reason"], check["ok"]) for check in report["checks"]] == [("not_run", "the run did not finish", False)] * 2
    assert report["exit_code"] == 3 and report["interrupted"] and report["summary"]["not_run"] == 2
    assert seen["junit"].get("errors") == "2" and seen["junit"].get("skipped") == "0"
    assert (code, err) == (0, "") and json.loads((folder / "r.json").read_text())["exit_code"] == 0
    assert gradverify("show", "r.json")[0] == 0


ENDS = {"native": "import ctypes; ctypes.CDLL(None)._exit(0)", "exec": "import posix, sys; posix.execv(sys.executable, [sys.executable, '-c', ''])"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ENDS)
def test_code_that_ends_the_process_of_the_whole_run_leaves_no_green_report(process, folder, how):
    (folder / "op.py").write_text(f"def f(x):\n    {ENDS[how]}\n")
    (folder / "s.yaml").write_text("gradverify: 1\nchecks:\n  - {function: 'op.py:f', inputs: {x: {shape: [2]}}}\n")
    (folder / "r.json").write_text(GREEN)
    done = process("check", "s.yaml", "--no-isolate", "--report", "json:r.json", timeout=500)
    report = json.loads((folder / "r.json").read_text())
    assert done.returncode == 0     # which nothing can change any more
    assert report["exit_code"] == 3 and report["interrupted"] and report["checks"][0]["verdict"] == "not_run"
