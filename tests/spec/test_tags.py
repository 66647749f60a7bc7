"""Every YAML tag on every kind of node, at every depth, as a value and as a key, plain and by an alias: a spec that is read, or problems that say
where they stand; never a traceback."""

import itertools

import pytest

from gradverify.model.problem import Problem
from gradverify.spec.document import parse
from gradverify.spec.load import load

TAGS = ("!!int", "!!float", "!!bool", "!!null", "!!str", "!!binary", "!!timestamp", "!!set", "!!omap", "!!pairs", "!!seq", "!!map", "!!merge",
        "!!value", "!!yaml", "!!python/object:os.system", "!!python/tuple", "!custom", "!", "!<tag:x>", "!<!y>", f"!{'long' * 100}")
NODES = ("1", "abc", "", "'1'", "[GV214]", "[]", "{a: 1}", "{}", "<<", "=")
BASE = "gradverify: 1\nchecks:\n  - name: a\n    function: mul\n    inputs: {x: {shape: [2]}, y: {shape: [2]}}\n"
PLACES = ("    expect: %s\n", "    tags: [%s]\n", "    ? %s\n    : 1\n", "    kwargs: {a: {b: [[%s]]}}\n", "    kwargs: {a: {? %s : 1}}\n",
          "    kwargs: {<<: %s}\n", "    matrix: {k: [%s]}\n", "    seed: %s\n")


def problems(tmp_path, text):
    (tmp_path / "s.yaml").write_text(text)
    return load([tmp_path / "s.yaml"], builtins={"mul": ("x", "y")}, codes=["GV214"], cwd=tmp_path).problems


def placed(problem: Problem, text):
    return (problem.line or 0) >= 1 and (problem.column or 0) >= 1 and problem.line <= len(text.splitlines()) + 1 and len(problem.message) < 1000


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_on_any_node_anywhere_is_read_or_told_with_its_place(tmp_path, tag):
    for node, place in itertools.product(NODES, PLACES):
        for text in (BASE + place % f"{tag} {node}", f"{BASE}    description: &a {tag} {node}\n{place % '*a '}"):
            assert all(placed(problem, text) for problem in problems(tmp_path, text)), text


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("text", ["{tag} [1]\n", "--- {tag}\n" + BASE, BASE.replace("  - name", "  - {tag}\n    name"),
                                  BASE.replace("checks:", "checks: {tag}"), BASE.replace("checks:", "{tag} checks:")])
def test_a_tag_on_what_a_spec_is_made_of_is_read_or_told_with_its_place(tmp_path, tag, text):
    text = text.replace("{tag}", tag)
    assert all(placed(problem, text) for problem in problems(tmp_path, text))


@pytest.mark.parametrize("tag, node, said", [
    ("!!int", "[GV214]", "a list cannot have the tag !!int: leave the tag out"), ("!!str", "{a: 1}", "a mapping cannot have the tag !!str"),
    ("!!seq", "1", "the value '1' cannot have the tag !!seq"), ("!!map", "[1]", "a list cannot have the tag !!map"),
    ("!!bool", "'yes'", "'yes' is no bool"), ("!!binary", "aGk=", "the tag !!binary is not allowed"), ("!own", "x", "the tag !own is not allowed"),
    ("!!merge", "x", "'x' cannot have the tag !!merge")])
def test_each_is_told_once_in_a_sentence(tag, node, said):
    found = parse("s.yaml", f"a: 1\nb: {tag} {node}\n")
    assert isinstance(found, tuple) and len(found) == 1
    assert said in found[0].message and (found[0].line, found[0].column) == (2, 4)


@pytest.mark.parametrize("text", ["a: !!int 1", "a: !!float 1", "a: !!str 1", "a: !!seq [1]", "a: !!map {b: 1}", "!!str a: 1", "a: !!null", "a: ! 1",
                                  "a: {<<: {b: 1}}", "a: {!!merge <<: {b: 1}}", "a: '<<'", "'<<': 1"])
def test_a_tag_that_says_what_the_value_is_anyway_is_read(text):
    assert not isinstance(parse("s.yaml", text), tuple)


@pytest.mark.parametrize("raw, line, column, said", [
    (b"gradverify: 1\nname: caf\xe9\n", 2, 10, "not UTF-8: byte 0xe9"), (b"\xff", 1, 1, "not UTF-8"),
    ("é: \xff".encode() + b"\xff", 1, 5, "not UTF-8"),
    (b"a: 1\r\nb\xff", 2, 2, "not UTF-8"), (b"\xef\xbb\xbfa\xff", 1, 2, "not UTF-8"), (b"\xc3\xa9\n\xed\xa0\x80", 2, 1, "not UTF-8"),
    (b"a: 1\nb: \0", 2, 4, "NUL"), ("gradverify: 1\n".encode("utf-16"), 1, 1, "UTF-16"), ("gradverify: 1\n".encode("utf-16-le"), 1, 1, "UTF-16"),
    ("gradverify: 1\n".encode("utf-16-be"), 1, 1, "UTF-16"), ("gradverify: 1\n".encode("utf-32"), 1, 1, "UTF-16"), (b"", 1, 1, "empty"),
    (b"a: \x07", 1, 4, "U+0007"), (b'a: 1\nb: "\\U00110000"', 2, 5, "U0010FFFF"), (b"a: \xef\xbf\xbe", 1, 4, "U+FFFE")])
def test_a_problem_of_the_encoding_has_a_line_and_a_column(tmp_path, raw, line, column, said):
    (tmp_path / "s.yaml").write_bytes(raw)
    found, = load([tmp_path / "s.yaml"], builtins={}, codes=[], cwd=tmp_path).problems
    assert (found.line, found.column) == (line, column) and said in found.message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_what_is_utf_8_is_read_with_or_without_its_mark(tmp_path, encoding):
    (tmp_path / "s.yaml").write_bytes(BASE.replace("name: a", "name: é").encode(encoding))
    loaded = load([tmp_path / "s.yaml"], builtins={"mul": ("x", "y")}, codes=[], cwd=tmp_path)
    assert not loaded.problems and loaded.cases[0].name == "é"
