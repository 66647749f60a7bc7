"""A check has its time from its own start; what it names has a time of its own to be imported in."""

from __future__ import annotations

import pytest

from rules.test_gv004_crashed import verified


@pytest.mark.parametrize(("name", "lines"), [("loops", ("while True:", "pass")), ("sleeps_in_c", ("LIBC.sleep(1000)",)),
                                             ("HangsInBackward", ("time.sleep(1000)",))])
def test_a_check_that_does_not_end_is_ended_and_shows_where_it_was(name, lines):
    hung, after = verified(name, "right", timeout=8.0)
    assert (hung.verdict, [finding.code for finding in hung.findings]) == ("error", ["GV005"])
    assert hung.reason == "the check did not end within 8 s" and after.verdict != "error"
    assert hung.findings[0].frames[-1].text in lines


def test_time_to_import_is_not_the_checks(tmp_path):
    from live import case, tensor

    from gradverify.model.event import CheckFinished
    from gradverify.running.crew import Workers

    (tmp_path / "slow.py").write_text("import time\ntime.sleep(10)\ndef f(x): return 2 * x\n")
    (tmp_path / "never.py").write_text("import time\ntime.sleep(1000)\n")
    crew = Workers(timeout=8.0, loading=60.0)
    slow, never = (case(f"{tmp_path}/{name}.py:f", (tensor(2),), id=name) for name in ("slow", "never"))
    try:
        results = {event.result.id: event.result for event in crew.run([slow]) if isinstance(event, CheckFinished)}
        crew.loading = 8.0
        results |= {event.result.id: event.result for event in crew.run([never]) if isinstance(event, CheckFinished)}
    finally:
        crew.close()
    assert results["slow"].verdict != "error"
    assert results["never"].reason == "importing and building what the check names did not end within 8 s"
