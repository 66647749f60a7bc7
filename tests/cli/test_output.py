import io

import pytest

from gradverify.cli.output import NotWritten, Output, keep, promise
from gradverify.model.problem import ProblemsError


def test_a_promise_leaves_nothing_behind_and_spoils_nothing(tmp_path):
    target = tmp_path / "new" / "r.json"
    promise(target)
    assert list(target.parent.iterdir()) == []
    target.write_text("old")
    promise(target)
    assert target.read_text() == "old"


def test_a_report_replaces_the_old_one_whole(tmp_path):
    target = tmp_path / "r.json"
    target.write_text("old")
    keep(target, "new σ")
    assert target.read_text(encoding="utf-8") == "new σ" and list(tmp_path.iterdir()) == [target]


def test_devices_are_written_to_not_replaced(tmp_path):
    from pathlib import Path

    promise(Path("/dev/null"))
    keep(Path("/dev/null"), "text")
    assert Path("/dev/null").is_char_device()


def test_a_folder_is_no_report(tmp_path):
    with pytest.raises(ProblemsError, match="is a folder"):
        promise(tmp_path)


def test_what_can_be_no_file_is_refused_before_a_run(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    for name in ("circle", "a\0b", "n" * 300):
        with pytest.raises(ProblemsError, match="cannot be written"):
            promise(tmp_path / name)


def test_a_report_that_fails_to_be_written_leaves_no_half(tmp_path):
    with pytest.raises(NotWritten, match="could not be written"):
        keep(tmp_path / "gone" / "r.json", "text")
    assert list(tmp_path.iterdir()) == []


def test_what_an_encoding_lacks_is_replaced():
    raw = io.BytesIO()
    out = Output((), io.TextIOWrapper(raw, encoding="ascii"), io.StringIO())
    out.write("a ± b 🔥\n")
    assert raw.getvalue() == b"a ? b ?\n"


def test_a_closed_stderr_is_no_reason_to_fail():
    stderr = io.StringIO()
    stderr.close()
    Output((), io.StringIO(), stderr).say("anything")
    assert stderr.closed
