"""What runs of what the paths name, and what the report says of it: shards, --lf. Exit codes and
sentences, as a shell sees them.

For --lf: what a person finds after a run, whatever it was a part of, is what that run told of the
checks it ran, and of no others.
"""

import json
import subprocess
from dataclasses import replace

import jsonschema
import pytest
from factories import passing, result

from gradverify.model.event import CheckFinished, CheckStarted
from gradverify.report.json import report_schema
from gradverify.running.inline import Devices
from gradverify.running.select import part

NAMES = ("one", "two", "three", "four", "five", "six")


@pytest.fixture
def spec(folder):
    path = folder / "s.yaml"
    checks = "".join(
        f"  - {{name: {name}, function: add, inputs: {{x: {{shape: [2]}}, y: {{shape: [2]}}}}}}\n"
        for name in NAMES
    )
    path.write_text(f"gradverify: 1\nchecks:\n{checks}")
    return path


@pytest.fixture
def outcomes(monkeypatch):
    """The real run, without torch: `outcomes[name]` is the verdict of that check, pass where there
    is none; `outcomes["ran"]` lists what ran. The check named in `outcomes["stop"]` is
    interrupted."""
    said = {"ran": []}

    class Crew:
        def machine(self):
            return Devices((), 1)

        def run(self, cases):
            for case in cases:
                if case.name == said.get("stop"):
                    raise KeyboardInterrupt
                yield CheckStarted(case.id, case.name)
                said["ran"].append(case.name)
                yield CheckFinished(
                    replace(result(case.name, said.get(case.name, "pass"), reason="r"), id=case.id)
                )

        def close(self):
            pass

    monkeypatch.setattr("gradverify.cli.check._crew", lambda *arguments: Crew())
    return said


@pytest.fixture
def ran(gradverify, outcomes):
    """`ran(*arguments)`: the names of the checks that ran, in their order."""

    def call(*arguments):
        outcomes["ran"].clear()
        call.code, call.out, call.err = gradverify("check", "s.yaml", *arguments)
        return list(outcomes["ran"])

    return call


def names(asked):
    return [case.name for case in asked["cases"]]


def test_the_shards_of_a_run_hold_each_check_once(gradverify, engine, spec):
    asked, seen = engine(passing()), []
    for index in (1, 2, 3):
        gradverify("check", "s.yaml", "--shard", f"{index}/3")
        assert all(part(case.id, 3) == index for case in asked["cases"])
        shard = asked["selection"].shard
        assert (shard.index, shard.count, shard.total) == (index, 3, 6) and asked[
            "selection"
        ].deselected == 0
        seen += names(asked)
    assert sorted(seen) == sorted(NAMES)


def test_what_is_selected_is_divided(gradverify, engine, spec):
    asked = engine(passing())
    gradverify("check", "s.yaml", "-k", "o", "--shard", "1/1")
    assert (
        names(asked) == ["one", "two", "four"]
        and asked["selection"].shard.total == 3
        and asked["selection"].deselected == 3
    )


def test_the_report_says_which_shard_it_is_of(gradverify, engine, spec, folder):
    engine(passing())
    _, out, _ = gradverify("check", "s.yaml", "--shard", "1/2", "--report", "json:r.json")
    data = json.loads((folder / "r.json").read_text())
    jsonschema.validate(data, report_schema())
    assert data["selection"]["shard"] == {"index": 1, "count": 2, "total": 6}
    assert ", shard 1/2 of 6 checks in" in out.splitlines()[-1]


def test_a_shard_without_a_check_is_as_it_should_be(gradverify, spec):
    """With fewer checks than shards some are empty; a job of CI must not be red for it. An empty
    selection still is."""
    empty = next(
        index
        for index in range(1, 100)
        if index not in {part(f"s.yaml::{name}", 99) for name in NAMES}
    )
    code, out, _ = gradverify("check", "s.yaml", "--shard", f"{empty}/99")
    assert code == 0 and out.startswith(f"none of 6 checks falls to shard {empty}/99 in")
    code, out, _ = gradverify("check", "s.yaml", "-k", "nothing", "--shard", "1/2")
    assert code == 5 and out.startswith("nothing was checked, 6 deselected")


def test_lf_runs_what_was_not_as_expected_until_it_is(ran, outcomes, spec):
    outcomes.update(two="fail", five="error", six="undecided")
    assert ran("--undecided", "fail") == list(NAMES) and ran.code == 1
    assert (
        ran("--lf", "--undecided", "fail") == ["two", "five", "six"]
        and ran.err == ""
        and "3 deselected" in ran.out.splitlines()[-3]
    )
    del outcomes["two"]
    assert ran("--lf") == ["two", "five", "six"] and ran.code == 3
    assert ran("--lf") == ["five"]  # an undecided check is as expected without --undecided fail
    del outcomes["five"]
    assert ran("--lf") == ["five"] and ran.code == 0


def test_lf_with_nothing_remembered_runs_all_and_says_so(ran, outcomes, spec, folder):
    assert (
        ran("--lf") == list(NAMES)
        and ran.err
        == "--lf: none of the selected checks is remembered as failed, so all of them run\n"
    )
    assert (
        ran("--lf", "-k", "one") == ["one"]
        and ran.err
        == "--lf: none of the selected checks is remembered as failed, so all of them run\n"
    )
    # A project whose checks all pass gets no folder
    assert not (folder / ".gradverify_cache").exists()


def test_lf_where_none_of_the_selected_failed_runs_them_all_and_says_so(ran, outcomes, spec):
    outcomes.update(two="fail", three="fail")
    ran()
    assert ran("--lf", "-k", "f") == ["four", "five"]
    assert (
        ran.err == "--lf: none of the selected checks is remembered as failed, so all of them run\n"
    )
    assert ran("--lf", "-k", "t") == ["two", "three"]


def test_lf_does_not_hide_that_nothing_was_selected(ran, outcomes, spec):
    outcomes.update(two="fail")
    ran()
    assert (
        ran("--lf", "-k", "sevn") == []
        and ran.code == 5
        and "-k 'sevn' fits none" in ran.err
        and "--lf" not in ran.err
    )


@pytest.mark.parametrize(
    "part_of",
    [
        ["-k", "two or three"],
        ["-m", "t"],
        ["--shard", "1/1", "-k", "three"],
        ["-x"],
        ["--lf", "-x"],
    ],
)
def test_part_of_a_run_tells_of_what_it_ran_only(ran, outcomes, spec, part_of):
    spec.write_text(spec.read_text().replace("name: t", "tags: [t], name: t"))
    outcomes.update(one="fail", three="fail", five="fail")
    ran()
    del outcomes["three"]
    seen = set(ran(*part_of))
    assert ran("--lf") == [
        name for name in ("one", "three", "five") if name != "three" or "three" not in seen
    ]


def test_one_check_by_its_name_tells_of_itself(gradverify, ran, outcomes, spec):
    outcomes.update(one="fail", three="fail")
    ran()
    del outcomes["three"]
    gradverify("check", "s.yaml::three")
    assert ran("--lf") == ["one"]


def test_what_an_interrupt_left_out_stays_what_it_was(ran, outcomes, spec):
    outcomes.update(one="fail", four="fail")
    ran()
    del outcomes["one"], outcomes["four"]
    outcomes.update(stop="three", two="fail")
    assert ran() == ["one", "two"] and ran.code == 130
    del outcomes["stop"]
    assert ran("--lf") == ["two", "four"]


def test_what_a_machine_cannot_run_stays_what_it_was(ran, outcomes, spec):
    """A check that failed on a GPU is not forgotten by a run without one; one that its spec skips
    is."""
    outcomes.update(one="fail", two="fail")
    ran()
    text = spec.read_text()
    spec.write_text(
        text.replace("{name: one,", "{name: one, device: cuda,").replace(
            "{name: two,", "{name: two, skip: slow,"
        )
    )
    assert ran() == ["three", "four", "five", "six"]
    spec.write_text(text)
    assert ran("--lf") == ["one"]


def test_checks_and_specs_that_are_gone_are_forgotten(gradverify, ran, outcomes, spec, folder):
    other = folder / "other.yaml"
    other.write_text(spec.read_text())
    outcomes.update(one="fail", two="fail")
    gradverify("check", "s.yaml", "other.yaml")
    spec.write_text(spec.read_text().replace("name: one", "name: eins"))
    assert ran("--lf") == ["two"]
    other.unlink()
    assert ran("--lf", "-k", "three") == ["three"] and "so all of them run" in ran.err


def test_a_check_is_the_same_from_every_folder_of_a_project(
    gradverify, ran, outcomes, spec, folder, monkeypatch
):
    (folder / "pyproject.toml").write_text("")
    outcomes.update(two="fail")
    ran()
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    outcomes["ran"].clear()
    gradverify("check", "../s.yaml", "--lf")
    gradverify("check", str(spec), "--lf")
    assert outcomes["ran"] == ["two", "two"] and list((folder / "deep").iterdir()) == []


def test_the_memory_is_of_the_nearest_project(gradverify, ran, outcomes, spec, folder, monkeypatch):
    (folder / "inner" / ".git").mkdir(parents=True)
    (folder / "inner" / "s.yaml").write_text(spec.read_text())
    outcomes.update(two="fail")
    monkeypatch.chdir(folder / "inner")
    ran()
    assert (folder / "inner" / ".gradverify_cache").is_dir() and not (
        folder / ".gradverify_cache"
    ).exists()


def test_git_does_not_see_the_memory(ran, outcomes, spec, folder):
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    outcomes.update(two="fail")
    ran()
    assert (
        (folder / ".gradverify_cache" / "CACHEDIR.TAG")
        .read_text()
        .startswith("Signature: 8a477f597d28d172789f06886806bc55")
    )
    assert (
        subprocess.run(
            ["git", "status", "--porcelain", "-uall"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        == "?? s.yaml\n"
    )


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '"x"',
        '{"version": 1}',
        '{"version": 2, "failed": ["s.yaml::two"]}',
        '{"version": 1, "failed": 7}',
        '{"version": 1, "failed": [7, null, {}, "no colons", "s.yaml::\\u0000", "\\ud800::x", "'
        + "x" * 5000
        + '::y"]}',
        "[" * 100_000,
        b"\xff\xfe\x00",
        '{"version": true, "failed": {}}',
    ],
)
def test_a_memory_that_cannot_be_read_is_none(ran, outcomes, spec, folder, content):
    place = folder / ".gradverify_cache"
    place.mkdir()
    (place / "failed.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    outcomes.update(two="fail")
    assert ran("--lf") == list(NAMES) and ran.code == 1
    assert (
        ran.err == "--lf: none of the selected checks is remembered as failed, so all of them run\n"
    )
    assert ran("--lf") == ["two"]


def test_a_memory_that_cannot_be_written_changes_nothing(ran, outcomes, spec, folder):
    """A file in its place stands for whatever forbids it: who may write everywhere runs these tests
    too."""
    (folder / ".gradverify_cache").write_text("mine")
    outcomes.update(two="fail")
    assert ran() == list(NAMES) and ran.code == 1 and ran.err == ""
    assert ran("--lf") == list(NAMES) and (folder / ".gradverify_cache").read_text() == "mine"
    (folder / ".gradverify_cache").unlink()
    (folder / ".gradverify_cache" / "failed.json").mkdir(parents=True)
    assert ran() == list(NAMES) and ran.code == 1 and ran.err == "" and ran("--lf") == list(NAMES)
    assert not list((folder / ".gradverify_cache").glob("*.tmp"))


def test_maxfail_counts_over_all_workers_and_lf_takes_up_what_they_told(gradverify, spec, folder):
    spec.write_text(
        spec.read_text()
        .replace("{name: two,", "{name: two, expect: fail,")
        .replace("{name: four,", "{name: four, expect: fail,")
        .replace("{name: five,", "{name: five, expect: fail,")
    )

    def verdicts(*options):
        code, _, _ = gradverify("check", "s.yaml", "-j", "2", "--report", "json:r.json", *options)
        checks = json.loads((folder / "r.json").read_text())["checks"]
        return code, {
            check["name"]: check["ok"] for check in checks if check["verdict"] != "not_run"
        }

    code, ran = verdicts("--maxfail", "2")
    bad = {name for name, ok in ran.items() if not ok}
    assert code == 1 and len(bad) == 2 and bad < {"two", "four", "five"} and len(ran) < 6
    code, ran = verdicts("--lf")
    assert code == 1 and set(ran) == bad
    assert verdicts("--maxfail", "4") == (
        1,
        dict.fromkeys(NAMES, True) | dict.fromkeys(("two", "four", "five"), False),
    )
