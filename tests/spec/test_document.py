"""Bad files: each is one clear problem with its place, never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.model.problem import Problem
from gradverify.spec.document import MAX_BYTES, Document, parse, read
from gradverify.spec.fault import Fault
from spec.marked import unmarked

BOMB = "\n".join(["a0: &a0 [1,1,1,1,1,1,1,1,1,1]", *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 7))])
DEEP = "\n".join(["a0: &a0 " + "[" * 40 + "]" * 40, "a1: " + "[" * 40 + "*a0" + "]" * 40])


def problems(text: str) -> tuple[Problem, ...]:
    result = parse("s.yaml", text)
    assert isinstance(result, tuple), result
    return result


@pytest.mark.parametrize(("text", "words"), [
    ("a: 1\n«a: 2", "duplicate key 'a': first on line 1, again on line 2"),
    ("a: {b: 1, «b: 2}", "duplicate key 'b'"),
    ("d: &d {x: 1}\na: {<<: *d, «<<: *d}", "duplicate key '<<'"),
    ("a:\n«\tb: 1", "tab spaces"),
    ("a: 1\n«---\nb: 2", "second document"),
    ("a: «@x", "quotes"),
    ('a: [b, «"x\\0.py"]', "NUL"),
    ('{«"\\0": 1}', "NUL"),
    ("a: «`x`", "quotes"),
    ("a: b«: c", "quotes"),
    ("a: «[1, 2", "begun on line 1"),
    ("a: «'x", "begun on line 1"),
    ("«1: 2", "key 1 is no string quotes"),
    ("a: {«true: 2}", "key true is no string"),
    ("? «[1, 2]\n: 3", "cannot be a key"),
    ("a: «!!python/object/apply:os.system ['true']", "tag !!python/object/apply:os.system not allowed"),
    ("a: «!mine 1", "tag !mine"),
    ("a: «!!timestamp 2024-01-01", "tag !!timestamp"),
    ("a: «!!int x", "'x' is no int"),
    ("a: «1e400", "does not fit"),
    ("a: «" + "9" * 401, "401 characters"),
    ("a: «*zz", "undefined alias"),
    ("a: &x [«*x]", "loop"),
    ("a: {<<: «3}", "mapping"),
    ("a: " + "[" * 63 + "«[" + "]" * 64, "64 levels deep"),
    ("a: 1\nb: «\x07", "U+0007"),
    ("«" + BOMB, "values once its aliases are expanded"),
    ("«" + DEEP, "64 levels deep once its aliases are expanded"),
])
def test_bad_yaml_is_a_problem_at_its_place(text: str, words: str) -> None:
    text, places = unmarked(text)
    found = problems(text)
    assert [(problem.line, problem.column) for problem in found] == places
    assert all(word in found[0].message for word in words.split()), found[0].message


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n"])
def test_an_empty_file_says_how_a_spec_begins(text: str) -> None:
    assert [str(problem) for problem in problems(text)] == ["s.yaml:1:1: the file is empty; a spec begins with `gradverify: 1`"]


def test_all_duplicates_are_found_not_only_the_first() -> None:
    assert len(problems("a: 1\na: 2\nb: {c: 1, c: 2}")) == 2


@pytest.mark.parametrize(("raw", "words"), [
    (b"\x89PNG\0\0", "binary"), ("a: 1".encode("utf-16"), "UTF-16"), (b"a: 1\nb: \xff", "not UTF-8 0xff"), (b"# " + b"x" * MAX_BYTES, "1 MiB"),
])
def test_a_file_that_is_no_text_is_a_problem(raw: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes(raw)
    found = read("s.yaml", tmp_path / "s.yaml")
    assert isinstance(found, tuple) and len(found) == 1
    assert found[0].file == "s.yaml" and all(word in found[0].message for word in words.split()), found[0].message


def test_a_missing_file_and_a_folder_are_problems(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.yaml", tmp_path):
        found = read("s.yaml", path)
        assert isinstance(found, tuple) and "cannot be read" in found[0].message


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbfa: 1\nb: x\n", b"a: 1\r\nb: x\r\n", b"---\na: 1\nb: x\n...\n", b"a: 1\nb: x"])
def test_byte_order_mark_crlf_and_document_markers_are_fine(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes(raw)
    document = read("s.yaml", tmp_path / "s.yaml")
    assert isinstance(document, Document) and document.data == {"a": 1, "b": "x"}
    assert document.problem(Fault(("b",), "x")).column == 4


def test_anchors_and_merge_keys_work_and_own_keys_win() -> None:
    document = parse("s.yaml", "d: &d {x: 1, y: 2}\na: {<<: *d, y: 3}\n")
    assert isinstance(document, Document) and document.data["a"] == {"x": 1, "y": 3}
    assert document.problem(Fault(("a", "y"), "x")).line == 2
    assert document.problem(Fault(("a", "x"), "x")).line == 1


def test_a_place_that_does_not_exist_is_reported_at_the_last_one_that_does() -> None:
    document = parse("s.yaml", "a:\n  b: 1\n")
    assert isinstance(document, Document)
    problem = document.problem(Fault(("a", "c", 0), "x"))
    assert (problem.line, problem.column, problem.path) == (2, 3, "a.c[0]")


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in str(problems("a: 1 \x1b[31m")[0])
