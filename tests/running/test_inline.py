from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from live import case, codes, tensor
from own_fault import raising

from gradverify.model.case import Search
from gradverify.running.inline import run_case

HERE = Path(__file__).parent


def ran(name, **changes):
    return run_case(case(f"{HERE}/prints.py:{name}", (tensor(2),), **changes))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("by_python", ["by python", "to stderr"]),
        ("by_descriptor", ["by descriptor", "by error descriptor"]),
        ("and_raises", ["before it raised"]),
    ],
)
def test_what_a_check_prints_is_kept_with_it_and_reaches_nobody(name, said, capfd):
    result = ran(name)
    assert all(text in (result.captured or "") for text in said)
    assert capfd.readouterr() == ("", "")


def test_nothing_reaches_the_real_stdout_not_even_late_from_a_buffer(tmp_path):
    """In a process of its own, because stdout must be a file to be buffered by C, as in `gradverify
    check --format json > report`."""
    script = (
        f"import sys; sys.path[:0] = {[str(HERE.parent)]!r}\n"
        "from live import case, tensor\nfrom gradverify.running.inline import run_case\n"
        "for name in ('by_c', 'by_the_original_stream', 'by_descriptor', 'by_python'):\n"
        f"    result = run_case(case(f'{HERE}/prints.py:{{name}}', (tensor(2),)))\n"
        "    print('the report', result.verdict, result.captured is not None)"
    )
    with (tmp_path / "out").open("w") as out:
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        subprocess.run(
            [sys.executable, "-c", script], stdout=out, timeout=120, check=True, env=buffered
        )
    assert (tmp_path / "out").read_text() == "the report pass True\n" * 4


def test_global_state_is_afterwards_what_it_was():
    def state():
        return (
            torch.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),
            random.getstate(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            list(sys.path),
            Path.cwd(),
        )

    before = state()
    result = ran("disturbs")
    assert result.verdict == "pass"
    assert state() == before


def test_a_check_that_cannot_be_prepared_is_a_result_not_an_exception():
    assert codes(ran("nowhere")) == {"GV001"}
    result = run_case(
        case("torch:sin", (tensor(2),), search=Search(imports=("no_such_extension",)))
    )
    assert (result.verdict, codes(result)) == ("error", {"GV001"})
    assert sys.path[0] != "no_such_extension"


def test_a_fault_of_our_own_is_a_result_and_the_streams_are_put_back(monkeypatch, capfd):
    monkeypatch.setattr("gradverify.verify.specific", raising(ZeroDivisionError("ours")))
    result = ran("by_python")
    assert (
        result.verdict == "error"
        and [fault.what for fault in result.faults] == ["ZeroDivisionError: ours"]
        and result.captured
    )
    print("mine")
    assert capfd.readouterr().out == "mine\n"


def test_ctrl_c_comes_out(monkeypatch):
    def interrupted(subject, planned, so_far):
        raise KeyboardInterrupt

    monkeypatch.setattr("gradverify.verify.verify", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ran("silently")


def test_a_comparison_is_announced_with_what_it_is_predicted_to_cost():
    told = []
    result = run_case(case("sigmoid", (tensor(4, 5),)), told.append)
    (plan,) = told
    assert plan.mode == "entries"
    assert plan.forward >= 6 and plan.backward >= 1 and plan.seconds > 0 and plan.memory > 0
    assert plan.forward + plan.backward <= result.calls.forward + result.calls.backward
