"""Of what a check prints the end is kept, whoever writes it; the report says so."""

from __future__ import annotations

import os

import pytest

from gradverify.running.inline import captured
from gradverify.running.process import KEPT_BYTES, end_of, opened, tail

LINE = "x" * 99 + "\n"


@pytest.mark.parametrize("named", [True, False])
def test_the_end_of_what_python_and_the_system_print_is_kept(tmp_path, named):
    path = tmp_path / "printed" if named else None
    with captured(path) as printed:
        for _ in range(2_000):
            print(LINE, end="")
        os.write(1, b"by the system\n")
        print("the end")
    assert printed.text.startswith("… cut to the end of 2000") and printed.text.endswith("by the system\nthe end")
    assert len(printed.text) < KEPT_BYTES and (path is None or tail(path) == printed.text)


@pytest.mark.parametrize(("text", "shown"), [("", None), ("a\nb\n", "a\nb"), ("a\n" * 300, "… cut to the end of 600 bytes\n" + "a\n" * 199 + "a")])
def test_little_is_shown_as_it_is(tmp_path, text, shown):
    with opened(tmp_path / "printed") as file:
        file.write(text.encode())
        assert end_of(file) == shown
