"""Bad files: each is one clear problem with its place, never an exception."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gradverify.model.problem import Problem
from gradverify.spec.document import MAX_BYTES, Document, parse, read
from gradverify.spec.fault import Fault
from gradverify.spec.load import load
from spec.marked import loaded, unmarked

BOMB = "\n".join(
    [
        "a0: &a0 [1,1,1,1,1,1,1,1,1,1]",
        *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 7)),
    ]
)
DEEP = "\n".join(["a0: &a0 " + "[" * 40 + "]" * 40, "a1: " + "[" * 40 + "*a0" + "]" * 40])


def problems(text: str) -> tuple[Problem, ...]:
    result = parse("s.yaml", text)
    assert isinstance(result, tuple), result
    return result


@pytest.mark.parametrize(
    ("text", "words"),
    [
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
        ("a: [1, 2«", "begun on line 1"),
        ("a: «'x", "begun on line 1"),
        ("«1: 2", "key 1 is no string quotes"),
        ("a: {«true: 2}", "key true is no string"),
        ("? «[1, 2]\n: 3", "cannot be a key"),
        (
            "a: «!!python/object/apply:os.system ['true']",
            "tag !!python/object/apply:os.system not allowed",
        ),
        ("a: «!mine 1", "tag !mine"),
        ("a: «!!timestamp 2024-01-01", "tag !!timestamp"),
        ("a: «!!int 1", "tag !!int"),
        ("a: «1e400", "does not fit"),
        ("a: «" + "9" * 401, "401 characters"),
        ("a: «*zz", "undefined alias"),
        ("a: &x [«*x]", "loop"),
        ("a: {<<: «3}", "mapping"),
        ("a: " + "[" * 63 + "«[" + "]" * 64, "64 levels deep"),
        ("a: 1\nb: «\x07", "U+0007"),
        ("«" + BOMB, "values once its aliases are expanded"),
        ("«" + DEEP, "64 levels deep once its aliases are expanded"),
    ],
)
def test_bad_yaml_is_a_problem_at_its_place(text: str, words: str) -> None:
    text, places = unmarked(text)
    found = problems(text)
    assert [(problem.line, problem.column) for problem in found] == places
    assert all(word in found[0].message for word in words.split()), found[0].message


def test_all_duplicates_are_found_not_only_the_first() -> None:
    assert len(problems("a: 1\na: 2\nb: {c: 1, c: 2}")) == 2


def test_a_missing_file_and_a_folder_are_problems(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.yaml", tmp_path):
        found = read("s.yaml", path)
        assert isinstance(found, tuple) and "cannot be read" in found[0].message


@pytest.mark.parametrize(
    "raw",
    [b"\xef\xbb\xbfa: 1\nb: x\n", b"a: 1\r\nb: x\r\n", b"---\na: 1\nb: x\n...\n", b"a: 1\nb: x"],
)
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


# ---- tags and encodings
TAGS = (
    "!!int",
    "!!str",
    "!!binary",
    "!!set",
    "!!map",
    "!!merge",
    "!!python/object:os.system",
    "!custom",
    "!",
    f"!{'long' * 100}",
)
NODES = ("1", "abc", "", "[GV214]", "{a: 1}", "<<")
BASE = (
    "gradverify: 1\nchecks:\n  - name: a\n    function: mul\n    inputs: {x: {shape: [2]}, y: "
    "{shape: [2]}}\n"
)
PLACES = (
    "    expect: %s\n",
    "    ? %s\n    : 1\n",
    "    kwargs: {a: {b: [[%s]]}}\n",
    "    kwargs: {<<: %s}\n",
    "    matrix: {k: [%s]}\n",
)
WHOLE = (
    "{tag} [1]\n",
    "--- {tag}\n" + BASE,
    BASE.replace("  - name", "  - {tag}\n    name"),
    BASE.replace("checks:", "checks: {tag}"),
    BASE.replace("checks:", "{tag} checks:"),
)


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_anywhere_is_read_or_told_with_its_place(tmp_path: Path, tag: str) -> None:
    """As a value and as a key, plain and by an alias; never a traceback."""
    texts = [text.replace("{tag}", tag) for text in WHOLE]
    for node, place in itertools.product(NODES, PLACES):
        texts += [
            BASE + place % f"{tag} {node}",
            f"{BASE}    description: &a {tag} {node}\n{place % '*a '}",
        ]
    for text in texts:
        for problem in loaded(text, tmp_path).problems:
            assert (
                1 <= problem.line <= len(text.splitlines()) + 1
                and problem.column >= 1
                and len(problem.message) < 1000
            ), text


@pytest.mark.parametrize("text", ["a: '<<'", "'<<': 1", "a: <<", "a: {<<: {b: 1}}", "a: '!!int 1'"])
def test_what_looks_like_a_tag_or_a_merge_and_is_none_is_read(text):
    assert not isinstance(parse("s.yaml", text), tuple)


@pytest.mark.parametrize(
    "raw, line, column, said",
    [
        (b"gradverify: 1\nname: caf\xe9\n", 2, 10, "not UTF-8: byte 0xe9"),
        (b"\xff", 1, 1, "not UTF-8"),
        ("é: \xff".encode() + b"\xff", 1, 5, "not UTF-8"),
        (b"a: 1\r\nb\xff", 2, 2, "not UTF-8"),
        (b"\xef\xbb\xbfa\xff", 1, 2, "not UTF-8"),
        (b"\xc3\xa9\n\xed\xa0\x80", 2, 1, "not UTF-8"),
        (b"a: 1\nb: \0", 2, 4, "NUL"),
        ("gradverify: 1\n".encode("utf-16"), 1, 4, "UTF-16"),
        ("gradverify: 1\n".encode("utf-16-le"), 1, 2, "UTF-16"),
        ("gradverify: 1\n".encode("utf-16-be"), 1, 1, "UTF-16"),
        ("gradverify: 1\n".encode("utf-32"), 1, 3, "UTF-16"),
        (b"", 1, 1, "empty"),
        (b"a: \x07", 1, 4, "U+0007"),
        (b"\x89PNG\0\0", 1, 5, "binary"),
        (b"# " + b"x" * MAX_BYTES, 1, 1, "1 MiB"),
        (b'a: 1\nb: "\\U00110000"', 2, 5, "U0010FFFF"),
        (b"a: \xef\xbf\xbe", 1, 4, "U+FFFE"),
    ],
)
def test_a_problem_of_the_encoding_has_a_line_and_a_column(tmp_path, raw, line, column, said):
    (tmp_path / "s.yaml").write_bytes(raw)
    (found,) = load([tmp_path / "s.yaml"], builtins={}, codes=[], cwd=tmp_path).problems
    assert (found.line, found.column) == (line, column) and said in found.message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_what_is_utf_8_is_read_with_or_without_its_mark(tmp_path, encoding):
    (tmp_path / "s.yaml").write_bytes(BASE.replace("name: a", "name: é").encode(encoding))
    found = load([tmp_path / "s.yaml"], builtins={"mul": ("x", "y")}, codes=[], cwd=tmp_path)
    assert not found.problems and found.cases[0].name == "é"
