"""`gradverify hook` and `check --changed-from` on the command line: what is handed to the run, what
is said, which code is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from factories import failing, passing

SPEC = """gradverify: 1
checks:
  - {name: one, function: mod:f, inputs: [1], tags: [fast]}
  - {name: two, function: other:f, inputs: [1]}
"""


@pytest.fixture
def repository(folder, monkeypatch):
    """An empty repository, of which git knows nothing but what stands in it."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture
def project(repository):
    """Two checks of two modules, of which one imports a helper."""
    folder = repository
    (folder / "specs").mkdir()
    (folder / "specs" / "s.yaml").write_text(SPEC)
    for name, text in (
        ("mod.py", "import helper\n"),
        ("other.py", ""),
        ("helper.py", ""),
        ("unrelated.py", ""),
    ):
        (folder / name).write_text(text)
    return folder


def ran(asked):
    return [case.id for case in asked["cases"]]


def test_only_what_is_affected_runs(gradverify, project, engine):
    asked = engine(passing())
    code, out, err = gradverify("hook", "helper.py")
    assert (code, ran(asked)) == (0, ["specs/s.yaml::one"])
    assert err == "1 check is affected by 1 changed file\n" and "linear" in out
    assert gradverify("hook", "helper.py", "other.py")[0] == 0 and ran(asked) == [
        "specs/s.yaml::one",
        "specs/s.yaml::two",
    ]
    assert gradverify("hook", "specs/s.yaml")[0] == 0 and len(ran(asked)) == 2


def test_a_wrong_gradient_stops_the_commit(gradverify, project, engine):
    engine(failing())
    assert gradverify("hook", "mod.py")[0] == 1


@pytest.mark.parametrize("options", [(), ("-q",), ("-j", "2", "--timeout", "5")])
def test_nothing_affected_is_0_and_nothing_runs(options, gradverify, project, engine):
    asked = engine(failing())
    code, out, err = gradverify("hook", *options, "unrelated.py", "notes.md")
    assert (code, out, asked) == (0, "", {})
    assert err == "no check is affected by 2 changed files (1 spec looked at)\n"


def test_without_files_and_without_specs_it_is_0(gradverify, repository):
    assert gradverify("hook") == (
        0,
        "",
        "no check is affected by 0 changed files (0 specs looked at)\n",
    )
    assert gradverify("hook", "a.py") == (
        0,
        "",
        "no check is affected by 1 changed file (0 specs looked at)\n",
    )


def test_affected_and_all_deselected_is_5_as_check_says(gradverify, project, engine):
    engine()
    assert (
        gradverify("hook", "-m", "fast", "other.py")[0]
        == gradverify("check", "-k", "nothing")[0]
        == 5
    )
    assert gradverify("hook", "-m", "fast", "unrelated.py")[0] == 0


OPTIONS = ["-kzzz", "-mzzz", "--help", "-h", "--report=json:x", "-q", "--no-such"]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_that_is_named_like_an_option_is_a_file_or_refused(
    name, gradverify, project, engine
):
    (project / name).touch()
    engine(failing())
    assert (
        gradverify("hook", "--", name, "mod.py")[0]
        == gradverify("hook", "-j", "1", "--", "mod.py", name)[0]
        == 1
    )
    for words in ([name, "mod.py"], ["mod.py", name], ["-j", "1", name, "mod.py"]):
        code, out, err = gradverify("hook", *words)
        assert (code, out) == (2, "") and repr(name) in err and "`--`" in err


@pytest.mark.parametrize(
    "command",
    [["check"], ["validate"], ["list"], ["check", "specs"], ["coverage"], ["show"], []],
    ids=" ".join,
)
def test_where_an_option_is_a_file_as_well_every_command_refuses_it(
    command, gradverify, project, engine
):
    (project / "--help").touch()
    engine(passing())
    code, out, err = gradverify(*command, "--help")
    assert (code, out) == (2, "") and "'--help' is an option, and a file here" in err


@pytest.mark.parametrize("word", OPTIONS)
def test_behind_the_first_file_there_are_no_options(word, gradverify, project, engine):
    engine(passing())
    code, out, err = gradverify("hook", "unrelated.py", word)
    assert (code, out) == (2, "") and f"{word!r} follows a file" in err
    assert gradverify("hook", "--", "unrelated.py", word)[0] == 0  # a file that is gone


@pytest.mark.parametrize("how", ["no git", "no repository", "a damaged repository"])
@pytest.mark.parametrize(
    "words", [(), ("mod.py",), ("unrelated.py",), ("-q", "unrelated.py")], ids=" ".join
)
def test_where_git_does_not_answer_the_hook_ends_with_2(
    words, how, gradverify, project, engine, monkeypatch
):
    engine(passing())
    if how == "no git":
        monkeypatch.setenv("PATH", str(project))
    elif how == "no repository":
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.parent))
        shutil.rmtree(project / ".git")
    else:
        (project / ".git" / "HEAD").write_text("nothing\n")
    code, out, err = gradverify("hook", *words)
    assert (code, out) == (2, "") and err.startswith("git cannot tell what changed: ")


def test_why_is_told_with_v(gradverify, project, engine):
    engine(passing())
    err = gradverify("hook", "-v", "helper.py", "specs/t.cu")[2]
    assert (
        "affected: specs/s.yaml::one: imports helper.py by way of mod.py\n" in err
        and "::two" not in err
    )


def test_a_spec_with_problems_is_2_where_it_may_be_affected_and_nothing_where_not(
    gradverify, project
):
    (project / "specs" / "s.yaml").write_text(SPEC.replace("inputs: [1]}", "inptus: [1]}"))
    code, _, err = gradverify("hook", "helper.py")
    assert code == 2 and "did you mean 'inputs'" in err
    assert gradverify("hook", "unrelated.py")[0] == 0


def test_options_reach_the_run(gradverify, project, engine):
    asked = engine(passing())
    gradverify("hook", "-j", "2", "--timeout", "7", "--maxfail", "3", "helper.py")
    assert (asked["crew"].jobs, asked["crew"].timeout, asked["maxfail"]) == (2, 7.0, 3)


@pytest.mark.parametrize("file", ["unrelated.py", "mod.py"])
@pytest.mark.parametrize(
    ("option", "value"), [("--report", "nonsense:x"), ("--format", "junit"), ("--timeout", "soon")]
)
def test_a_wrong_value_is_2_whether_a_check_is_affected_or_not(
    option, value, file, gradverify, project, engine
):
    engine(passing())
    code, _, err = gradverify("hook", option, value, file)
    assert code == 2 and option in err and value in err


UNTOUCHED = """
import sys
sys.argv = ["gradverify", *{arguments!r}]
from gradverify.__main__ import main
try:
    main()
except SystemExit as leaving:
    assert leaving.code in (0, None), leaving.code
print(*(name for name in ("torch", "numpy", "pydantic", "typer", "rich", "mod", "helper") if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [(["hook", "unrelated.py"], ""), (["hook", "-q", "unrelated.py"], "pydantic typer")],
)
def test_where_nothing_is_affected_nothing_heavy_is_imported(arguments, imported, project):
    done = subprocess.run(
        [sys.executable, "-c", UNTOUCHED.format(arguments=arguments)],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) <= set(imported.split())


# ---- --changed-from


@pytest.fixture
def tracked(project):
    for command in (
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", *command], cwd=project, check=True)
    return project


def test_changed_from_runs_what_differs_from_a_commit(gradverify, tracked, engine):
    asked = engine(passing())
    (tracked / "helper.py").write_text("x = 1\n")
    code, _, err = gradverify("check", "--changed-from", "HEAD")
    assert (code, ran(asked)) == (0, ["specs/s.yaml::one"])
    assert err == "1 of 2 checks is affected by 1 changed file\n"
    assert asked["selection"].deselected == 1


def test_changed_from_selects_from_the_paths_that_are_given(gradverify, tracked, engine):
    asked = engine(passing())
    (tracked / "helper.py").unlink()
    (tracked / "other.py").write_text("x = 1\n")
    gradverify("check", "specs/s.yaml::two", "--changed-from", "HEAD")
    assert ran(asked) == ["specs/s.yaml::two"]
    gradverify("check", "--changed-from", "HEAD", "-m", "fast")
    assert ran(asked) == ["specs/s.yaml::one"]


def test_nothing_changed_is_5(gradverify, tracked, engine):
    engine()
    code, _, err = gradverify("check", "--changed-from", "HEAD")
    assert code == 5 and "none of 2 checks is affected by 0 changed files\n" in err
    (tracked / "unrelated.py").write_text("x = 1\n")
    assert gradverify("check", "--changed-from", "HEAD")[0] == 5


def test_what_git_cannot_tell_is_2(gradverify, tracked):
    code, out, err = gradverify("check", "--changed-from", "nowhere")
    assert (code, out) == (2, "") and err.startswith(
        "--changed-from nowhere: there is no commit 'nowhere'"
    )


def test_no_torch_is_told_before_anything_runs(gradverify, project, engine, monkeypatch):
    asked = engine(passing())
    monkeypatch.setattr("gradverify.cli.gather._is_installed", lambda package: False)
    for command in (("hook", "helper.py"), ("check",)):
        code, out, err = gradverify(*command)
        assert (code, out, asked) == (2, "", {})
        assert "torch is not in this environment" in err and sys.prefix in err


def test_a_name_that_no_file_can_have_is_none_that_a_check_is_about(gradverify, project):
    code, _, err = gradverify("hook", "n" * 300)
    assert code == 0 and "no check is affected by 1 changed file" in err


FUNCTION = """
import torch
class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
"""


def test_changed_functions_and_kernels_without_a_check_are_named(gradverify, project, engine):
    engine(passing())
    (project / "ops.py").write_text(
        FUNCTION.format(name="Covered")
        + FUNCTION.format(name="Inner")
        + FUNCTION.format(name="New")
        + "def outer(x): return Inner.apply(x)\n"
    )
    (project / "csrc").mkdir()
    for name in ("listed.cu", "new.cu", "notes.cuh"):
        (project / "csrc" / name).write_text("")
    (project / "specs" / "t.yaml").write_text(
        "gradverify: 1\nchecks:\n"
        "  - {function: ops:Covered, inputs: [1], sources: [../csrc/l*.cu]}\n"
        "  - {function: ops:outer, inputs: [1]}\n"
    )
    new = "ops.py:21: no check covers ops.New\n"
    kernel = "csrc/new.cu: no spec lists it under `sources`\n"
    code, _, err = gradverify("hook", "-q", "ops.py")
    assert code == 0 and err.startswith(new + "2 checks are affected")
    files = ("csrc/new.cu", "csrc/notes.cuh", "mod.py")
    assert gradverify("hook", *files)[2].startswith(kernel + "1 check is affected")
    assert gradverify("hook", "csrc/new.cu")[2].endswith("looked at)\n" + kernel)
    assert "csrc" not in gradverify("hook", "csrc/listed.cu", "unrelated.py")[2]
    (project / "ops.py").unlink()
    assert "New" not in gradverify("hook", "ops.py")[2]


def test_a_changed_baseline_affects_the_checks_of_its_project(gradverify, project, engine):
    asked = engine(passing())
    (project / "known.json").write_text('{"gradverify_baseline": 1, "known": []}')
    gradverify("hook", "known.json")
    assert asked == {}
    (project / "pyproject.toml").write_text('[tool.gradverify]\nbaseline = "known.json"\n')
    gradverify("hook", "known.json")
    assert len(ran(asked)) == 2


def test_verbose_names_the_files_between(gradverify, repository, engine):
    engine(passing())
    (repository / "specs").mkdir()
    (repository / "specs" / "s.yaml").write_text(
        "gradverify: 1\nchecks:\n  - {function: ops:f, inputs: [1]}\n"
    )
    (repository / "ops").mkdir()
    for name, text in (
        ("__init__.py", "from .act import f\nfrom .norm import g\n"),
        ("act.py", "from . import tools\n"),
        ("norm.py", ""),
        ("tools.py", ""),
    ):
        (repository / "ops" / name).write_text(text)
    assert "no check is affected" in gradverify("hook", "ops/norm.py")[2]
    assert (
        "imports ops/tools.py by way of ops/__init__.py, ops/act.py\n"
        in (gradverify("hook", "-v", "ops/tools.py")[2])
    )
