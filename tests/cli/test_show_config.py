"""`env --show-config`: every key that a project can say, with the value that a run gets and the place that named it; `check` is given the same."""

from __future__ import annotations

import json

import pytest
from factories import passing

from gradverify.spec.project import OPTIONS
from gradverify.spec.schema import RunSettings

TEXT = """[tool.gradverify]
paths = ["specs"]
jobs = 2
undecided = "warn"
report = ["json:out/r.json"]
baseline = "b.json"

[tool.gradverify.defaults]
seed = 7
rules = {ignore = ["GV224"]}
"""
SPEC = """gradverify: 1
defaults: {seed: 3, rtol: 1e-5}
checks:
  - {name: m, function: mul, inputs: [1, 2], matrix: {seed: [1], dtype: [float32]}, budget: {calls: 30}}
  - {name: n, function: mul, inputs: [1, 2], eps: 1e-6}
"""


@pytest.fixture
def shown(gradverify, folder):
    """`shown(*arguments)`: key → (value, origin, overridden) of the project, or of the one check that is named."""
    (folder / "specs").mkdir()
    (folder / "specs" / "s.yaml").write_text(SPEC)

    def call(*arguments):
        code, out, err = gradverify("env", "--show-config", *arguments, "--format", "json")
        assert (code, err) == (0, "")
        data = json.loads(out)
        said = data["checks"][0]["settings"] if arguments else data["project"]
        return {each["name"]: (each["value"], each["origin"], [(word["value"], word["origin"]) for word in each["over"]]) for each in said}

    return call


def test_every_key_is_there_with_its_line_or_as_the_default(shown, folder):
    (folder / "pyproject.toml").write_text(TEXT)
    found = shown()
    assert found["jobs"] == (2, "pyproject.toml:3", []) and found["report"] == (["json:out/r.json"], "pyproject.toml:5", [])
    assert found["defaults.seed"] == (7, "pyproject.toml:9", []) and found["defaults.rules.ignore"] == (["GV224"], "pyproject.toml:10", [])
    assert found["max-rows"] == (10, "default", []) and found["defaults.rtol"] == (1e-6, "default", [])
    settings = {f"defaults.{name}" for name in RunSettings.model_fields} - {"defaults.rules"}
    assert set(found) == {"paths", *OPTIONS, *settings, "defaults.rules.select", "defaults.rules.ignore"}


def test_an_environment_variable_is_an_origin_and_is_overridden(shown, folder, monkeypatch):
    monkeypatch.setenv("CI", "1")
    (folder / "pyproject.toml").write_text("")
    assert shown()["undecided"] == ("fail", "CI in the environment", [])
    (folder / "pyproject.toml").write_text(TEXT)
    assert shown()["undecided"] == ("warn", "pyproject.toml:4", [("fail", "CI in the environment")])


def test_the_layers_of_a_check_stand_in_their_order(shown, folder):
    (folder / "pyproject.toml").write_text(TEXT)
    found = shown("specs/s.yaml::m")
    assert found["seed"] == (1, "specs/s.yaml:4: matrix", [(3, "specs/s.yaml: defaults"), (7, "pyproject.toml:9")])
    assert found["dtype"] == ("float32", "specs/s.yaml:4: matrix", []) and found["atol"] == (0.0, "default", [])
    assert found["budget"] == ({"calls": 30, "seconds": 10.0}, "specs/s.yaml:4", [])
    assert found["rules.ignore"] == (["GV224"], "pyproject.toml:10", [])
    assert shown("specs/s.yaml::n")["atol"] == (1e-5, "default", []), "a fixed eps has other tolerances"


def test_what_is_shown_is_what_a_check_gets(shown, folder, gradverify, engine):
    (folder / "pyproject.toml").write_text(TEXT.replace("baseline", "# baseline"))
    asked = engine(passing())
    gradverify("check")
    for case in asked["cases"]:
        found = shown(case.id)
        for name in ("seed", "dtype", "eps", "timeout", "mode", "strict"):
            assert found[name][0] == getattr(case.settings, name)
        assert tuple(found["rules.ignore"][0]) == case.settings.ignore
    assert asked["crew"].jobs == shown()["jobs"][0]


def test_as_text_the_whole_project_and_of_several_checks_what_somebody_named(gradverify, shown, folder):
    (folder / "pyproject.toml").write_text(TEXT)
    lines = gradverify("env", "--show-config")[1].splitlines()
    assert "defaults.seed\t7\tpyproject.toml:9" in lines and "defaults.outputs\tall\tdefault" in lines and "memory\tnone\tdefault" in lines
    lines = gradverify("env", "--show-config", "specs")[1].splitlines()
    assert "specs/s.yaml::m[seed=1,dtype=float32]\tseed\t1\tspecs/s.yaml:4: matrix\t3 (specs/s.yaml: defaults), 7 (pyproject.toml:9)" in lines
    assert not any(line.split("\t")[3] == "default" for line in lines)
    boxed = gradverify("env", "--show-config", "specs", "--format", "table")[1]
    assert boxed.startswith("specs/s.yaml::m[seed=1,dtype=float32]\nkey")


def test_that_nothing_is_configured_is_said(gradverify, folder):
    assert gradverify("env", "--show-config")[2] in ("there is no pyproject.toml in this folder or above it\n", "")
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert gradverify("env", "--show-config")[2] == "pyproject.toml says nothing in [tool.gradverify]\n"


def test_problems_of_the_file_come_first(gradverify, folder):
    (folder / "pyproject.toml").write_text("[tool.gradverify]\njobs = 0\nwidth = 3\n")
    code, out, err = gradverify("env", "--show-config")
    assert (code, out) == (2, "") and [line.split(": ")[0] for line in err.splitlines() if "tool.gradverify." in line] == [
        "pyproject.toml:2:1", "pyproject.toml:3:1"]
