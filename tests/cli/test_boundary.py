from io import StringIO

import pytest
from factories import passing

from gradverify.cli.boundary import CLOSED_PIPE, run
from gradverify.cli.output import Output


class ClosedPipe(StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_closed_pipe_is_silent(engine, spec):
    engine(passing(), passing())
    out = Output(["check", "s.yaml"], ClosedPipe(), StringIO())
    assert run(out) == CLOSED_PIPE and out.stderr.getvalue() == ""


def test_a_closed_pipe_costs_no_report(engine, spec, folder):
    engine(passing())
    out = Output(["check", "s.yaml", "--report", "json:r.json"], ClosedPipe(), StringIO())
    assert run(out) == 0 and '"pass": 1' in (folder / "r.json").read_text()


@pytest.mark.parametrize(
    "error, code, said",
    [
        (KeyboardInterrupt(), 130, ""),
        (ValueError("odd"), 4, "ValueError: odd"),
        (SystemExit(1), CLOSED_PIPE, ""),
        (RecursionError("deep"), 4, "deep"),
        (MemoryError(), 2, "gradverify cannot run here: "),
    ],
)
def test_every_way_out_has_its_code(monkeypatch, spec, error, code, said):
    def fail(*arguments, **settings):
        raise error

    monkeypatch.setattr("gradverify.running.schedule.run", fail)
    out = Output(["check", "s.yaml"], StringIO(), StringIO())
    assert run(out) == code
    assert said in out.stderr.getvalue() and ("Traceback" in out.stderr.getvalue()) == (code == 4)


def test_a_bug_report_shows_no_locals(monkeypatch, spec):
    def fail(*arguments, **settings):
        secret = "password" + "123"
        raise ValueError(len(secret))

    monkeypatch.setattr("gradverify.running.schedule.run", fail)
    out = Output(["check", "s.yaml", "-k", "op other or op"], StringIO(), StringIO())
    monkeypatch.setattr("gradverify.running.select.select", fail)
    assert run(out) == 4
    text = out.stderr.getvalue()
    assert (
        "password123" not in text
        and "command: gradverify check s.yaml -k 'op other or op'" in text
        and "torch" in text
    )
