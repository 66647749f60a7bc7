"""Functions that try to pass a check that they should fail: none passes, and no right function of the
same form is accused. benchmarks/cheats.py prints what each ends with."""

from __future__ import annotations

import pytest
from commands import SQUARES, checks, here, spec

from hostile.cheats import CHEATS, REFERENCE, entry

TOGETHER = 10
GROUPS = [list(CHEATS)[place : place + TOGETHER] for place in range(0, len(CHEATS), TOGETHER)]
SAMPLE = [
    "patched_verdict",
    "patched_severity",
    "patched_write",
    "profiled",
    "one_hot",
    "reference_replaced",
    "tiny_moves",
    "fake_report",
    "subclass",
]


def judged(folder, names):
    """The verdicts of these cheats and of their twins."""
    lines = []
    for name in names:
        for kind, text in (("cheat", CHEATS[name].cheat), ("twin", CHEATS[name].twin)):
            (folder / f"{kind}_{name}.py").write_text(SQUARES + text)
            lines.append(entry(f"{kind} {name}", f"{kind}_{name}.py", CHEATS[name].check))
    (folder / "ref.py").write_text(REFERENCE)
    (folder / "s.yaml").write_text(spec(*lines))
    exit_code, *_ = here("check", "s.yaml", "-q", "--report", "json:r.json")
    assert exit_code in (1, 3, 4)
    found = checks(folder / "r.json")
    assert len(found) == 2 * len(names)
    return {name: check["verdict"] for name, check in found.items()}


def ends_well(found):
    wrong = {name for name, verdict in found.items() if (verdict == "pass") != ("twin" in name)}
    assert wrong == set()


def test_a_sample_of_cheats_does_not_pass_and_their_twins_do(folder):
    ends_well(judged(folder, SAMPLE))


@pytest.mark.timeout(600)
@pytest.mark.population(most=1)
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_no_cheat_passes_and_every_twin_does(folder, names):
    ends_well(judged(folder, names))


def test_a_reference_that_is_a_method_is_the_same_at_each_look(folder):
    (folder / "op.py").write_text(SQUARES)
    (folder / "ref.py").write_text(
        "class Maths:\n    def squared(self, x):\n        return x * x\n\n\nmaths = Maths()\n"
    )
    line = entry("a", "op.py", "").replace(":f'", ":Square'")
    (folder / "s.yaml").write_text(spec(f"{line}, reference: 'ref.py:maths.squared'"))
    assert here("check", "s.yaml")[0] == 0
