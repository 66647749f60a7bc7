"""The benchmark of constants: an altered value reaches the code that uses it, and what changed is told as it is.

The class of faults: a value that is altered in a copy nobody reads, so that every constant looks free; a range that is wider than what was tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
IN_PROCESSES = """
import json, multiprocessing, torch
import torch.fx.experimental.symbolic_shapes
from altered import Change, alter

def judge(pipe, name, by):
    alter(name, Change(by))
    from gradverify.numerics import rungs, tolerance
    from gradverify.numerics.estimate import romberg, samples
    from rough import Damage, Rough
    from user import differentiated, judged
    sine = Rough("sin", torch.sin, ([0.3, 1.1],))
    said = [judged("sin", sine.with_damage(damage), differentiated(sine.inputs()), "entries", 0).verdict for damage in (Damage.NONE, Damage.PERCENT)]
    pipe.send([said, rungs.Z, romberg.Z, samples.SECOND, tolerance.FLOOR])

context, found = multiprocessing.get_context("fork"), {}
torch.set_num_threads(1)
for name, by in (("rungs.Z", 2.0**40), ("tolerance.FLOOR", 2.0**60)):
    mine, theirs = context.Pipe(False)
    child = context.Process(target=judge, args=(theirs, name, by))
    child.start()
    found[name] = mine.recv()
    child.join()
print(json.dumps(found))
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import constants

    return constants


def test_an_absurd_value_reaches_the_code_and_turns_verdicts_as_it_must():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", IN_PROCESSES], capture_output=True, text=True, env=environment, check=True)
    found = json.loads(done.stdout)
    wide, deaf = found["rungs.Z"], found["tolerance.FLOOR"]
    assert wide[0] == ["undecided", "undecided"], "with bars of 10¹³ deviations nothing is decided"
    assert deaf[0] == ["pass", "pass"], "below a floor of 10²² roundings nothing is wrong; tests/benchmarks/test_parity.py: it is as the floor is"
    assert deaf[4] == 2.0**60 * wide[4]
    assert wide[1:4] == pytest.approx([2.0**40 * each for each in deaf[1:4]])  # also where it was imported by name, and computed from


def test_what_is_imported_already_is_not_altered(script):
    import gradverify  # noqa: F401

    with pytest.raises(RuntimeError, match="imported already"):
        script.alter("rungs.Z", script.Change(2.0))


@pytest.mark.parametrize(("by", "counted", "value", "new", "said"), [
    (0.5, False, 6.0, 3.0, "×½"), (4.0, False, (0.7, 1.4), (2.8, 5.6), "×4"), (0.25, False, 30, 7.5, "×¼"), (2.0, False, 1 << 14, 1 << 15, "×2"),
    (1, True, (4, 5, 6), (5, 6, 7), "+1"), (-2, True, range(4, 10), range(2, 8), "-2"),
])
def test_a_change_is_of_each_number(script, by, counted, value, new, said):
    change = script.Change(by, counted)
    assert change.of(value) == new and type(change.of(value)) is type(new) and str(change) == said


def test_what_became_of_each_check_is_told_apart(script):
    verdicts = {"accused": ("right", "pass", "fail"), "passed": ("wrong", "fail", "pass"), "undecided": ("right", "pass", "undecided"),
                "failed": ("right", "undecided", "error"), "better": ("wrong", "undecided", "fail"), "": ("right", "pass", "pass")}
    before = {kind: script.Check(truth, old, (), 10, ()) for kind, (truth, old, _) in verdicts.items()}
    after = {kind: script.Check(truth, new, (), 15, ()) for kind, (truth, _, new) in verdicts.items()}
    tried = script.compared(before, (after, 1.0))
    assert {kind: getattr(tried, kind) for kind in verdicts if kind} == {kind: (kind,) for kind in verdicts if kind}
    assert (tried.calls, tried.same, tried.worse) == (1.5, False, 4)
    assert script.compared(before, (before, 1.0)).same and not script.compared(before, (before, 1.0)).turned
    assert script.compared(before, "it crashed").worse == 1


def test_a_value_between_is_tried_only_where_the_end_turns_a_verdict(script, monkeypatch):
    base = {"a | none | entries | 0": script.Check("right", "pass", (), 10, ())}
    wrong = {name: script.Check("right", "fail", ("GV101",), 12, ()) for name in base}
    monkeypatch.setattr(script, "judged", lambda plan, name, change: (wrong if change.by == 4 else base, 1.0))
    found = script.measure(script.Constant("rungs.Z", "6.0", "", True), script.LISTED["rungs.Z"], script.Plan(("rough",), False, base))
    assert list(found.tried) == ["×¼", "×2", "×4"]
    assert script.table([found])[2] == "| `rungs.Z` | `6.0` | ×¼, ×2, ×4 | ×¼ to ×2 | ×4: 1 right accused (a, none, entries) | ×4: +20 % |"


def test_the_page_says_what_no_check_saw_what_is_better_and_what_was_not_measured(script, tmp_path):
    from constants_page import Measured, Tried, page

    check = "rough relu | right | rows | 0"
    some = [Measured("rungs.Z", "6.0", 9, {"×¼": Tried(accused=(check,)), "×½": Tried(better=(check,)), "×4": Tried(calls=1.1)}),
            Measured("rungs.CLIMB", "3", 9, {"-2": Tried(ends="it crashed"), "-1": Tried(undecided=(check, check)), "+2": Tried(calls=0.99)}),
            Measured("rungs.NEAR", "0.3", 9, {"×¼": Tried(same=True), "×4": Tried(same=True)})]
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(asdict(each)) + "\n" for each in some))
    assert script.read(results) == some and script.read(tmp_path / "none") == []
    text = page(script.read(results), "a command")
    assert f"3 of {len(script.LISTED)} constants" in text and "each judged by 9 checks" in text
    assert "| `rungs.CLIMB` | `3` | -2, -1, +2 | 1 to +2 | -1: 2 undecided that was not (relu, right, rows) | +2: -1 % |" in text
    assert "- `rungs.Z` ×½: 1 judged rightly that was not (relu, right, rows)" in text.partition("nothing worse")[2].partition("##")[0]
    unseen = text.partition("## Not exercised")[2]
    assert "`rungs.NEAR`" in unseen.partition("##")[0] and "| `rungs.NEAR`" not in text
    assert "`tolerance.FLOOR`" in unseen.partition("## Not measured yet")[2].partition("##")[0]


def test_a_name_that_is_none_is_one_sentence(script):
    assert script.chosen(["rungs.Z"]) == ["rungs.Z"] and set(script.chosen([])) == set(script.LISTED)
    with pytest.raises(SystemExit, match="has 'nothing' in its name"):
        script.chosen(["nothing"])
