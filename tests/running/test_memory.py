"""Two runs that end at once: neither forgets what the other learned, and a reader never sees half a memory."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from gradverify.running.memory import memory_at

RUN = """
import sys
from pathlib import Path
from types import SimpleNamespace
from gradverify.running.memory import memory_at, remember
project = memory_at(Path.cwd())
mine = sys.argv[1]
for number in range(50):
    id = f"s.yaml::{mine}{number}"
    remember(project, [], [], [SimpleNamespace(id=id, ok=False, verdict="fail")], [])
"""


def test_runs_that_end_at_once_lose_nothing(tmp_path):
    (tmp_path / "s.yaml").write_text("")
    project = memory_at(tmp_path)
    runs = [subprocess.Popen([sys.executable, "-c", RUN, name], cwd=tmp_path) for name in "abcd"]
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(lambda: [len(project.read()) for _ in iter(lambda: any(run.poll() is None for run in runs), False)]).result(120)
    assert [run.wait() for run in runs] == [0, 0, 0, 0]
    assert seen == sorted(seen)         # it only ever grows: nobody read an empty or a half-written one in between
    assert project.read() == {f"s.yaml::{name}{number}" for name in "abcd" for number in range(50)}
    assert json.loads((tmp_path / ".gradverify_cache" / "failed.json").read_text())["version"] == 1


def test_a_key_does_not_tell_where_the_project_lies(tmp_path):
    (tmp_path / "a" / "specs").mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("")
    project = memory_at(tmp_path / "a" / "specs")
    assert project.root == (tmp_path / "a").resolve()
    ids = ("x.yaml::op[a=b::c]", "../specs/x.yaml::op[a=b::c]", f"{tmp_path}/a/specs/x.yaml::op[a=b::c]")
    assert {project.key(id) for id in ids} == {"specs/x.yaml::op[a=b::c]"}
