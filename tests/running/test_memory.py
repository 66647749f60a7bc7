"""What is remembered of a check does not depend on where the project lies."""

from __future__ import annotations

from gradverify.running.memory import memory_at


def test_a_key_does_not_tell_where_the_project_lies(tmp_path):
    (tmp_path / "a" / "specs").mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("")
    project = memory_at(tmp_path / "a" / "specs")
    assert project.root == (tmp_path / "a").resolve()
    ids = (
        "x.yaml::op[a=b::c]",
        "../specs/x.yaml::op[a=b::c]",
        f"{tmp_path}/a/specs/x.yaml::op[a=b::c]",
    )
    assert {project.key(id) for id in ids} == {"specs/x.yaml::op[a=b::c]"}
