import os
import subprocess
import sys
from io import StringIO

import pytest
from factories import ENVIRONMENT

from gradverify.cli.boundary import run
from gradverify.cli.output import Output
from gradverify.model.event import CheckFinished, CheckStarted, RunFinished, RunStarted

SPEC = """gradverify: 1
checks:
  - {name: "op[a=1]", function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, tags: [fast]}
  - {name: other, function: mul, inputs: {x: {shape: [3]}, y: {shape: [3]}}}
"""
QUIET_VARIABLES = (
    "CI",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "PRE_COMMIT",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that is the current one, outside of any CI."""
    monkeypatch.chdir(tmp_path)
    for name in QUIET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def spec(folder):
    path = folder / "s.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def gradverify():
    """`gradverify(*arguments)` in this process: (exit code, stdout, stderr)."""

    def call(*arguments):
        out = Output(arguments, StringIO(), StringIO())
        return run(out), out.stdout.getvalue(), out.stderr.getvalue()

    return call


@pytest.fixture
def process(folder):
    """`process(*arguments)` as a real process in the folder, with `env` over its environment."""

    def call(*arguments, env=None, **changes):
        kept = {name: value for name, value in os.environ.items() if name not in QUIET_VARIABLES}
        settings = dict(capture_output=True, text=True, timeout=120, cwd=folder, check=False)
        return subprocess.run(
            [sys.executable, "-m", "gradverify", *arguments],
            env={**kept, **(env or {})},
            **{**settings, **changes},
        )

    return call


@pytest.fixture
def engine(monkeypatch):
    """`engine(*results)` puts a run that comes out so in place of the real one, and returns what it
    will be asked."""
    asked = {}

    def replace(*results, interrupted=None, crashed=None):
        def fake(request, crew, maxfail=None):
            asked.update(
                cases=request.cases,
                argv=request.argv,
                selection=request.selection,
                maxfail=maxfail,
                gate=request.gate,
                crew=crew,
            )
            yield RunStarted(
                "2026-01-02T03:04:05+00:00",
                request.argv,
                request.selection,
                ENVIRONMENT,
                len(results),
            )
            for result in results:
                yield CheckStarted(result.id, result.name)
                yield CheckFinished(result)
            yield RunFinished(1.0, interrupted, crashed)

        monkeypatch.setattr("gradverify.running.schedule.run", fake)
        return asked

    return replace
