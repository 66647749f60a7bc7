"""What a check prints is kept to its end, however much it is and whoever writes it; the report says
so."""

from __future__ import annotations

import os

import pytest

from gradverify.running.inline import captured
from gradverify.running.supervisor import KEPT_BYTES, cut_at, end_of, opened, tail
from gradverify.running.supervisor import MOST_PRINTED as MOST

LINE = "x" * 99 + "\n"
ROOM = MOST + KEPT_BYTES


@pytest.mark.parametrize(
    ("named", "text"), [(True, LINE), (False, LINE * 100_000)], ids=["lines", "one text of 10 MB"]
)
def test_python_prints_into_a_file_that_stays_small(tmp_path, named, text):
    path = tmp_path / "printed" if named else None
    with captured(path) as printed:
        for _ in range(4_000_000 // len(text) + 1):
            print(text, end="")
            assert len(text) == len(LINE) or os.fstat(printed.file.fileno()).st_size <= ROOM
        largest = os.fstat(printed.file.fileno()).st_size
        os.write(1, b"by the system\n")
        print("the end")
    assert largest <= ROOM and printed.text.endswith("by the system\nthe end")
    assert printed.text.startswith(
        f"… cut to the end of more than {MOST} bytes, of which the rest was not kept\nxxx"
    )
    assert len(printed.text) < KEPT_BYTES


def test_what_goes_past_python_is_cut_from_outside_while_it_is_written(tmp_path):
    path = tmp_path / "printed"
    with captured(path) as printed:
        for _ in range(5):
            for _ in range(3):
                os.write(1, LINE.encode() * 10_000)
            cut_at(path)  # what the supervisor does every second
            assert path.stat().st_size < 2 * KEPT_BYTES
        os.write(2, b"the end\n")
    assert (
        printed.text.endswith("x\nthe end")
        and "of which the rest was not kept" in printed.text
        and "\0" not in printed.text
    )
    assert tail(path) == printed.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", None),
        ("a\nb\n", "a\nb"),
        ("a\n" * 300, "… cut to the end of 600 bytes\n" + "a\n" * 199 + "a"),
    ],
)
def test_little_is_shown_as_it_is(tmp_path, text, shown):
    with opened(tmp_path / "printed") as file:
        file.write(text.encode())
        assert end_of(file) == shown
