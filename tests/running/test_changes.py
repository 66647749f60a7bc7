"""What changed, by real git: one repository for each way in which a file can differ, and a sentence
for each way in which git cannot tell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gradverify.model.problem import ProblemsError
from gradverify.running.affected import of_hook, since

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
Git = Callable[..., str]
TABLE = "[tool.gradverify]\npaths = ['specs']\n"


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """`git(…)` in a repository with the branch `main`, which a branch `work` has left; nothing of
    the caller's configuration."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.org")
    folder = tmp_path / "repository"

    def call(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    folder.mkdir()
    call("init", "-q", "-b", "main")
    for name in (
        "kept.py",
        "edited.py",
        "deleted.py",
        "renamed.py",
        "staged.py",
        "committed.py",
        "sub/inner.py",
        "pyproject.toml",
        "odd ñ\n.py",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(TABLE if name == "pyproject.toml" else f"# {name!r}\n")
    (folder / ".gitignore").write_text("ignored.py\n")
    call("add", ".")
    call("commit", "-qm", "one")
    call("checkout", "-qb", "work")
    return call


@pytest.fixture
def repository(git: Git, tmp_path: Path) -> Path:
    return tmp_path / "repository"


def shown(changes: object) -> set[str]:
    return set(changes.files.values())  # type: ignore[attr-defined]


def test_commits_the_index_the_working_tree_and_untracked_files_count(
    git: Git, repository: Path
) -> None:
    (repository / "committed.py").write_text("new\n")
    git("commit", "-qam", "two")
    git("mv", "renamed.py", "new_name.py")
    (repository / "staged.py").write_text("new\n")
    git("add", "staged.py")
    (repository / "edited.py").write_text("new\n")
    (repository / "deleted.py").unlink()
    (repository / "odd ñ\n.py").write_text("new\n")
    for name in ("untracked.py", "ignored.py", "sub/untracked.py"):
        (repository / name).write_text("new\n")
    changes = since("main", repository)
    assert shown(changes) == {
        "committed.py",
        "renamed.py",
        "new_name.py",
        "staged.py",
        "edited.py",
        "deleted.py",
        "odd ñ\n.py",
        "untracked.py",
        "sub/untracked.py",
    }
    assert {Path(file).name for file in changes.gone} == {"deleted.py", "renamed.py"}
    assert changes.count == 9


def test_what_the_other_branch_did_meanwhile_does_not_count(git: Git, repository: Path) -> None:
    git("checkout", "-q", "main")
    (repository / "kept.py").write_text("new\n")
    git("commit", "-qam", "on main")
    git("checkout", "-q", "work")
    (repository / "edited.py").write_text("new\n")
    git("commit", "-qam", "on work")
    assert shown(since("main", repository)) == {"edited.py"}
    assert shown(since("HEAD", repository)) == set()


def test_a_repository_inside_stands_for_all_in_it(git: Git, repository: Path) -> None:
    (repository / "third").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=repository / "third", check=True)
    (repository / "third" / "lib.py").write_text("")
    assert since("main", repository).hit([str(repository / "third" / "lib.py")]) is not None
    assert since("main", repository).hit([str(repository / "thirdly.py")]) is None


@pytest.mark.parametrize("ref", ["mian", "--help", ""])
def test_an_unknown_ref_is_told(ref: str, git: Git, repository: Path) -> None:
    with pytest.raises(ProblemsError) as raised:
        since(ref, repository)
    assert f"there is no commit {ref!r}" in str(raised.value.problems[0])


def test_outside_of_a_repository_and_without_git_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ProblemsError) as raised:
        since("main", tmp_path)
    assert "git cannot tell what changed: fatal: not a git repository" in str(
        raised.value.problems[0]
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProblemsError) as raised:
        since("main", tmp_path)
    assert "there is no git on the PATH" in str(raised.value.problems[0])
    with pytest.raises(ProblemsError) as raised:
        of_hook(["a.py"], tmp_path, {})
    assert "git cannot tell what changed: there is no git on the PATH" in str(
        raised.value.problems[0]
    )


SETTINGS = [
    ("diff.relative", "true"),
    ("diff.ignoreSubmodules", "all"),
    ("submodule.third.ignore", "all"),
    ("diff.renames", "copies"),
    ("diff.external", "true"),
    ("diff.orderFile", "/dev/null"),
    ("core.quotePath", "true"),
    ("color.ui", "always"),
    ("status.showUntrackedFiles", "no"),
    ("diff.noPrefix", "true"),
]


@pytest.mark.parametrize(
    "variables", [{}, {"GIT_LITERAL_PATHSPECS": "1"}, {"GIT_EXTERNAL_DIFF": "true"}], ids=" ".join
)
def test_no_setting_of_git_hides_a_change(
    variables: dict[str, str], git: Git, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".gitmodules").write_text(
        '[submodule "third"]\n\tpath = third\n\turl = ./third\n\tignore = all\n'
    )
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},third")
    git("commit", "-qm", "a submodule")
    base = git("rev-parse", "HEAD").strip()
    for name, value in SETTINGS:
        git("config", name, value)
    git("update-index", "--cacheinfo", f"160000,{'2' * 40},third")
    git("rm", "-q", "deleted.py")
    (repository / "edited.py").write_text("new\n")
    (repository / "new.py").touch()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sub = repository / "sub"
    top = {str(repository / name) for name in ("third", "deleted.py")}
    assert set(of_hook([], sub, {}).files) == top
    assert set(since(base, sub).files) == {
        *top,
        *(str(repository / name) for name in ("edited.py", "new.py", ".gitmodules")),
    }


def test_a_hook_hears_of_staged_deletions_from_git(git: Git, repository: Path) -> None:
    git("rm", "-q", "deleted.py")
    (repository / "edited.py").unlink()  # not staged: no part of the commit
    assert shown(of_hook(["kept.py"], repository, {})) == {"kept.py", "deleted.py"}
    assert shown(of_hook([], repository, {})) == {"deleted.py"}


def test_a_hook_between_two_commits_hears_of_deletions_between_them(
    git: Git, repository: Path
) -> None:
    git("rm", "-q", "deleted.py")
    git("commit", "-qm", "two")
    environ = {"PRE_COMMIT_FROM_REF": "main", "PRE_COMMIT_TO_REF": "HEAD"}
    assert shown(of_hook([], repository, environ)) == {"deleted.py"}
    assert shown(of_hook([], repository, {})) == set()
