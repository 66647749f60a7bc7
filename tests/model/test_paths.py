"""Where a file is named from: the class of faults is a path that another person, or a build server,
cannot find in the same repository."""

import pytest

from gradverify.model.paths import repository_folder, resolved, shown_path


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository, seen from its folder `packages/ops`."""
    folder = tmp_path / "repository" / "packages" / "ops"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return tmp_path / "repository"


@pytest.mark.parametrize("is_worktree", [False, True])
def test_the_nearest_git_is_the_root(repository, is_worktree):
    (repository / ".git").write_text("gitdir: elsewhere") if is_worktree else (
        repository / ".git"
    ).mkdir()
    assert (
        repository_folder(repository / "packages" / "ops") == "packages/ops"
        and repository_folder(repository) == ""
    )
    (repository / "packages" / ".git").mkdir()
    assert repository_folder(repository / "packages" / "ops") == "ops"


def test_files_of_the_repository_are_named_relative_to_the_folder_and_others_are_absolute(
    repository,
):
    (repository / ".git").mkdir()
    assert shown_path(str(repository / "packages/ops/a/b.py")) == "a/b.py"
    assert shown_path(str(repository / "lib/c.py")) == "../../lib/c.py"
    assert shown_path(str(repository.parent / "d.py")) == str(repository.parent / "d.py")


def test_a_report_names_files_from_the_folder_of_its_run_wherever_the_process_is(
    repository, monkeypatch
):
    (repository / ".git").mkdir()
    run = str(repository / "packages/ops")
    monkeypatch.chdir(repository.parent)
    assert [
        shown_path(file, run) for file in (f"{run}/a.py", "a.py", str(repository / "lib/c.py"))
    ] == ["a.py", "a.py", "../../lib/c.py"]
    assert shown_path(str(repository.parent / "d.py"), run) == str(repository.parent / "d.py")


def test_without_a_repository_only_what_lies_below_is_relative(repository):
    assert repository_folder(repository / "packages" / "ops") == "" and shown_path(
        str(repository / "lib/c.py")
    ) == str(repository / "lib/c.py")


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "a")
    assert (
        resolved(tmp_path / "a" / ".." / "b").name == "b" and resolved(tmp_path / "a").name == "a"
    )
