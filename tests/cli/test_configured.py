"""`[tool.gradverify]`: each layer counts over the one below it and under the one above it, by every
command that reads specs; what is wrong is told at its line before anything runs. Both ways: an
option is obeyed where the command line says nothing, and given up where it speaks."""

from __future__ import annotations

import json

import pytest
from factories import failing, passing, skipped

SPEC = """gradverify: 1
checks:
  - {name: op, function: mul, inputs: {x: {shape: [2]}, y: {shape: [2]}}}
"""


@pytest.fixture
def project(folder):
    """`project(text)` writes pyproject.toml beside a spec."""
    (folder / "specs").mkdir()
    (folder / "specs" / "s.yaml").write_text(SPEC)

    def write(text):
        (folder / "pyproject.toml").write_text(text)
        return folder

    return write


def test_running_and_gate_are_obeyed(gradverify, project, engine):
    project(
        "[tool.gradverify]\njobs = 3\nmaxfail = 4\nundecided = 'fail'\nfail-on-skip = true\n"
        "require-device = ['cuda']\nmax-rows = 2\ndurations = 1\n"
    )
    asked = engine(failing(rows=5), skipped())
    code, out, err = gradverify("check")
    crew, gate = asked["crew"], asked["gate"]
    assert (crew.jobs, asked["maxfail"]) == (3, 4)
    assert (gate.undecided, gate.fail_on_skip, gate.require_device) == ("fail", True, ("cuda",))
    assert "62 more of 96" in out and "how long each check took:" in out
    assert (code, err) == (1, "")


def test_the_command_line_counts_over_the_project(gradverify, project, engine):
    project(
        "[tool.gradverify]\njobs = 3\nmaxfail = 4\nundecided = 'fail'\nfail-on-skip = true\n"
        "max-rows = 2\nrequire-device = ['cuda']\n"
    )
    asked = engine(failing(rows=5))
    out = gradverify(
        "check",
        "-j",
        "2",
        "-x",
        "--undecided",
        "warn",
        "--no-fail-on-skip",
        "--max-rows",
        "3",
        "--require-device",
        "cuda:1",
    )[1]
    assert (asked["crew"].jobs, asked["maxfail"]) == (2, 1)
    assert (asked["gate"].undecided, asked["gate"].fail_on_skip, asked["gate"].require_device) == (
        "warn",
        False,
        ("cuda:1",),
    )
    assert "61 more of 96" in out


def test_an_environment_counts_under_the_project(gradverify, project, engine, monkeypatch):
    monkeypatch.setenv("CI", "true")
    project("")
    asked = engine(passing())
    gradverify("check")
    assert asked["gate"].undecided == "fail"
    project("[tool.gradverify]\nundecided = 'warn'\n")
    gradverify("check")
    assert asked["gate"].undecided == "warn"


def test_what_is_for_workers_does_not_stand_in_the_way_of_a_debugger(gradverify, project, engine):
    project("[tool.gradverify]\njobs = 3\n")
    engine(passing())
    assert gradverify("check", "--no-isolate")[0] == 0
    assert gradverify("check", "--no-isolate", "-j", "2")[0] == 2


def test_paths_and_reports_count_from_the_file(gradverify, project, engine, monkeypatch):
    folder = project("[tool.gradverify]\npaths = ['specs/s.yaml']\nreport = ['json:out/r.json']\n")
    (folder / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(folder / "deep" / "er")
    asked = engine(passing())
    assert gradverify("check")[0] == 0
    assert [case.id for case in asked["cases"]] == ["../../specs/s.yaml::op"]
    assert json.loads((folder / "out" / "r.json").read_text())["exit_code"] == 0
    (folder / "out" / "r.json").unlink()
    gradverify("check", "--report", "json:here.json")
    assert [
        path.exists() for path in (folder / "out" / "r.json", folder / "deep" / "er" / "here.json")
    ] == [False, True]


# The seed: pyproject, defaults of the spec, the check, its matrix, the command line → what counts,
# and where it is from
LAYERS = [
    ((1, None, None, None, None), 1, "pyproject.toml:2"),
    ((1, 2, None, None, None), 2, "specs/s.yaml: defaults"),
    ((1, 2, 3, None, None), 3, "specs/s.yaml:4"),
    ((1, 2, 3, 4, None), 4, "specs/s.yaml:4: matrix"),
    ((1, 2, 3, 4, 5), 5, "command line"),
    ((1, None, None, None, 5), 5, "command line"),
    ((None, None, None, None, None), 0, None),
]


@pytest.mark.parametrize(("layers", "seed", "origin"), LAYERS)
def test_a_setting_is_that_of_the_last_layer_that_names_it(
    gradverify, project, engine, layers, seed, origin
):
    of_project, defaults, check, matrix, option = layers
    folder = project(
        f"[tool.gradverify.defaults]\nseed = {of_project}\n" if of_project is not None else ""
    )
    own = f", seed: {check}" if check is not None else ""
    own += f", matrix: {{seed: [{matrix}]}}" if matrix is not None else ""
    shared = f"{{seed: {defaults}}}" if defaults is not None else "{}"
    (folder / "specs" / "s.yaml").write_text(
        f"gradverify: 1\ndefaults: {shared}\nchecks:\n  - {{function: mul, inputs: [1, 2]{own}}}\n"
    )
    case_id = "specs/s.yaml::mul" + (f"[seed={matrix}]" if matrix is not None else "")
    asked = engine(passing(id=case_id, settings={"seed": seed}))
    out = gradverify("check", "-v", *(() if option is None else ("--seed", str(option))))[1]
    assert [case.settings.seed for case in asked["cases"]] == [seed]
    assert (
        f"settings: seed {seed} ({origin})" in " ".join(out.split())
        if origin
        else "settings:" not in out
    )


@pytest.mark.parametrize("command", ["check", "validate", "list", "mutate"])
def test_every_problem_of_file_and_specs_is_told_by_every_command_and_nothing_runs(
    gradverify, project, engine, command
):
    folder = project(
        "[tool.gradverify]\njobs = 0\nundecidde = 'warn'\n[tool.gradverify.defaults]\nsede = 1\n"
    )
    (folder / "specs" / "s.yaml").write_text(SPEC.replace("function", "functoin"))
    asked = engine(passing())
    code, out, err = gradverify(command)
    told = [line for line in (out + err).splitlines() if line.startswith(("pyproject", "specs/"))]
    assert code == 2 and not asked
    assert [line.split(": ")[0] for line in told[:4]] == [
        "pyproject.toml:2:1",
        "pyproject.toml:3:1",
        "pyproject.toml:5:1",
        "specs/s.yaml:3:5",
    ]
    assert "did you mean 'undecided'?" in told[1] and "did you mean 'seed'?" in told[2]


def test_words_that_only_the_option_knows_are_refused(gradverify, project, engine):
    project("[tool.gradverify]\nreport = ['jsn:a.json', 'json:b.json']\n")
    asked = engine(passing())
    code, _, err = gradverify("check")
    assert code == 2 and not asked
    assert (
        err.startswith("pyproject.toml: report 'jsn:a.json': must be KIND:PATH")
        and "did you mean json?" in err
    )


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (
            "[tool.gradverify\njobs = 1\n",
            "pyproject.toml:1:17: no TOML: expected ']' at the end of a table declaration",
        ),
        ("[project]\nname = gradverify\n", "pyproject.toml:2:8: no TOML: invalid value"),
        (
            "a = 1\n[tool]\ngradverify = 3\n",
            "pyproject.toml:3:1: tool.gradverify: expected a table, got 3",
        ),
        ("tool = 3\n", "pyproject.toml: tool: expected a table"),
    ],
)
def test_a_file_that_is_broken_is_told_with_line_and_column(
    gradverify, project, engine, text, start
):
    project(text)
    asked = engine(passing())
    code, out, err = gradverify("check")
    assert (code, out) == (2, "") and not asked
    assert err.startswith(start)


def test_the_settings_of_a_project_reach_a_real_check(gradverify, project):
    folder = project(
        "[tool.gradverify]\nreport = ['json:r.json']\n[tool.gradverify.defaults]\nseed = 11\nrules "
        "= {select = ['GV101']}\n"
    )
    assert gradverify("check", "-q")[0] == 0
    [check] = json.loads((folder / "r.json").read_text())["checks"]
    assert (check["seed"], check["settings"]["select"]) == (11, ["GV101"])


def test_defaults_are_those_of_the_project_nearest_to_the_spec(gradverify, project, engine):
    folder = project("[tool.gradverify.defaults]\nseed = 1\n")
    for name, text in (
        ("own", "[tool.gradverify.defaults]\nseed = 2\n"),
        ("plain", "[project]\nname = 'plain'\n"),
        ("wrong", "[tool.gradverify.defaults]\nsed = 2\n"),
    ):
        (folder / name / "specs").mkdir(parents=True)
        (folder / name / "specs/s.yaml").write_text(
            "gradverify: 1\nchecks:\n  - {function: relu, inputs: [{shape: [1]}]}\n"
        )
        (folder / name / "pyproject.toml").write_text(text)
    asked = engine(passing())
    assert gradverify("check", "own", "plain")[0] == 0
    assert [case.settings.seed for case in asked["cases"]] == [2, 1]
    code, _, err = gradverify("list", "own", "wrong")
    assert code == 2 and err.count("wrong/pyproject.toml:2:1: tool.gradverify.defaults.sed: ") == 1
