"""A process that ends before there is a result is an error whatever its status, and the other checks run."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import case, tensor

from gradverify.model.event import CheckFinished
from gradverify.running.crew import Workers

HERE = Path(__file__).parents[1] / "hostile" / "planted.py"


def verified(*names, **options):
    crew = Workers(**options)
    cases = [case(f"{HERE}:{name}", (tensor(2),), id=f"s.yaml::{place}") for place, name in enumerate(names)]
    try:
        found = {event.result.id: event.result for event in crew.run(cases) if isinstance(event, CheckFinished)}
    finally:
        crew.close()
    return [found[each.id] for each in cases]


@pytest.mark.parametrize(("name", "said"), [("abort", "SIGABRT (signal 6)"), ("leaves_by_posix", "status 0"), ("exits_by_libc", "status 0")])
def test_a_process_that_ends_is_told_and_the_next_check_passes(name, said):
    ended, after = verified(name, "right")
    assert (ended.verdict, [finding.code for finding in ended.findings], after.verdict) == ("error", ["GV004"], "pass")
    assert said in str(ended.reason) and ended.function.target.endswith(name)


def test_a_check_that_ends_in_order_is_none():
    assert [result.verdict for result in verified("right", "right")] == ["pass", "pass"]


def test_the_stack_of_a_crash_is_shown_with_the_line_of_the_user():
    ended, = verified("segmentation_fault")
    assert any(frame.text == "ctypes.string_at(0)" and frame.file.endswith(HERE.name) for frame in ended.findings[0].frames)
    assert "index, a stride" in str(ended.findings[0].hint)
