import io

import pytest

from gradverify.cli.output import Output, promise
from gradverify.model.problem import ProblemsError


def test_a_promise_leaves_nothing_behind_and_spoils_nothing(tmp_path):
    target = tmp_path / "new" / "r.json"
    promise(target)
    assert list(target.parent.iterdir()) == []
    target.write_text("old")
    promise(target)
    assert target.read_text() == "old"


def test_what_can_be_no_file_is_refused_before_a_run(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    for name in ("circle", "a\0b", "n" * 300):
        with pytest.raises(ProblemsError, match="cannot be written"):
            promise(tmp_path / name)


def test_what_an_encoding_lacks_is_replaced():
    raw = io.BytesIO()
    out = Output((), io.TextIOWrapper(raw, encoding="ascii"), io.StringIO())
    out.write("a ± b 🔥\n")
    assert raw.getvalue() == b"a ? b ?\n"
