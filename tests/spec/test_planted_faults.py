"""Forty slips as people make them: an editor with the published schema refuses each, and the loader says line and column."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import jsonschema
import pytest

from gradverify.cli.boundary import run
from gradverify.cli.output import Output
from gradverify.spec.document import Document, parse
from gradverify.spec.schema import json_schema
from spec.marked import HEAD, check, loaded, unmarked

VALIDATOR = jsonschema.Draft7Validator(json_schema())


def tensor(text: str) -> str:
    return check(f"inputs: {{x: {text}, y: 1}}")


FAULTS = [
    # the file
    ("gradverify: «2\nchecks: []", "version 2"), ("gradverify: '«1'\nchecks: []".replace("'«1'", "«'1'"), "'1'"),
    ("gradverify: 1\n«cheks: []\nchecks: []", "did you mean 'checks'"), ("gradverify: 1\nchecks: «3", "list"),
    ("gradverify: 1\npath: «3\nchecks: []", "folder"), ("gradverify: 1\nimport: [«3]\nchecks: []", "text"),
    ("gradverify: 1\ndefaults: {«dtpye: float32}\nchecks: []", "did you mean 'dtype'"),
    ("gradverify: 1\ndefaults: {seed: «half}\nchecks: []", "integer"), (HEAD + "  - «text", "mapping"),
    # a check
    (check("«referense: a.b:c"), "did you mean 'reference'"), (check("name: «3"), "text"), (check("eps: «0"), "greater than 0"),
    (check("eps: «'1e-6'"), "remove the quotes"), (check("atol: «-1"), "at least 0"), (check("dtype: «float46"), "did you mean 'float64'"),
    (check("device: «gpu"), "cpu, cuda"), (check("seed: «1.5"), "integer"), (check("mode: «column"), "did you mean 'columns'"),
    (check("strict: «yes"), "true or false"), (check("reseed: «no"), "true or false"), (check("expect: «failing"), "fail"),
    (check("expect: [«GV1]"), "rule code"), (check("outputs: «[]"), "at least 1"), (check("outputs: [«-1]"), "at least 0"),
    (check("requires: [«triton]"), "module:<name>"), (check("tags: [«'2fast']"), "letter"), (check("rules: {«chosen: [GV1]}"), "select"),
    (check("rules: {ignore: [«101]}"), "text"), (check("budget: {seconds: «0}"), "greater than 0"), (check("matrix: {seed: «3}"), "list"),
    (check("matrix: {layout: [«transpose]}"), "did you mean 'transposed'"), (check("grad_output: [1, «one]", "expected: {x: [1, 2]}"), "number"),
    # a tensor
    (tensor("{«shap: [2]}"), "did you mean 'shape'"), (tensor("{shape: [«two]}"), "integer"), (tensor("{shape: [«-1]}"), "at least 0"),
    (tensor("{shape: [2], uniform: «[1]}"), "at least 2"), (tensor("{shape: [2], kind: «orthogonl}"), "did you mean 'orthogonal'"),
    (tensor("{shape: [2], layout: «channels-last}"), "did you mean 'channels_last'"), (tensor("{shape: [2], distinct: «0}"), "greater than 0"),
    (tensor("{shape: [2], choice: «[]}"), "at least 1"), (tensor("{shape: [2], dtype: «double}"), "float64"),
    (tensor("{shape: [2], requires_grad: «off}"), "true or false"), (tensor("{values: [1, «two]}"), "number"),
    (tensor("[{shape: [2]}, {«shpe: [2]}]"), "did you mean 'shape'"),
]


def test_there_are_at_least_forty() -> None:
    assert len({text for text, _ in FAULTS}) >= 40


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_the_schema_refuses_it_and_the_loader_says_where(text: str, said: str, tmp_path: Path) -> None:
    text, places = unmarked(text)
    document = parse("s.yaml", text)
    assert isinstance(document, Document)
    assert not VALIDATOR.is_valid(document.data)
    problems = loaded(text, tmp_path).problems
    assert [(problem.line, problem.column) for problem in problems] == places
    assert said in problems[0].message


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_validate_prints_file_line_and_column(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, ((line, column), *_) = unmarked(text)
    Path("s.yaml").write_text(text, encoding="utf-8")
    out = Output(["validate", "s.yaml"], StringIO(), StringIO())
    assert run(out) == 2
    printed = out.stdout.getvalue() + out.stderr.getvalue()
    assert f"s.yaml:{line}:{column}: " in printed and said in printed


SENSELESS = [
    (tensor("{shape: [3, 2], kind: «spd}"), "square"), (tensor("{shape: [3], kind: «orthogonal}"), "at least 2 dimensions"),
    (tensor("{shape: [], kind: «simplex}"), "at least 1 dimension,"), (tensor("{shape: [3], kind: «unit_vector, dtype: int32}"), "floating"),
    (tensor("{shape: [3], kind: «simplex, dtype: complex128}"), "real numbers"), (tensor("{shape: [300], kind: «permutation, dtype: int8}"), "fit"),
    (tensor("{shape: [9], uniform: [0, 1], distinct: «0.2}"), "do not fit between 0 and 1"),
    (tensor("{shape: [4], integers: [0, 3], distinct: «1}"), "do not fit"), (tensor("{values: [1, 1.01], distinct: «0.1}"), "1 and 1.01"),
    (tensor("{shape: [3], choice: [1, 2], distinct: «1}"), "cannot be chosen"), (tensor("{shape: [3], fill: 1, distinct: «1}"), "equal numbers"),
    (tensor("{shape: [2, 2], symmetric: true, distinct: «0.1}"), "twice"),
    (tensor("{shape: [3], layout: «transposed}"), "at least 2 dimensions"), (tensor("{shape: [3], layout: «channels_last}"), "4 or 5 dimensions"),
    (tensor("{shape: [], layout: «strided}"), "at least 1 dimension,"), (tensor("{values: [1, 2], layout: «expanded}"), "differ"),
    (tensor("{shape: [3, 3], kind: spd, layout: «expanded}"), "cut `spd`"), (tensor("{shape: [4], distinct: 0.1, layout: «expanded}"), "distinct"),
    (tensor("{shape: [2], choice: [1, «0.5], dtype: int64}"), "0.5 is no int64"), (tensor("{shape: [2], avoid: «1, choice: [1]}"), "nearer"),
    (check("«grad_output: [1, 1]"), "there is none"), (tensor("{shape: [2], make: «'a b:c'}"), "no name"),
    (check("matrix: {layout: [contiguous, «channels_last]}"), "no input can be laid out"),
    (tensor("[{shape: [3], layout: «transposed}]"), "at least 2"),
]


@pytest.mark.parametrize(("text", "said"), SENSELESS)
def test_what_no_key_alone_can_know_is_said_at_its_place_too(text: str, said: str, tmp_path: Path) -> None:
    text, places = unmarked(text)
    problems = loaded(text, tmp_path).problems
    assert [(problem.line, problem.column) for problem in problems] == places
    assert said in problems[0].message


SENSIBLE = [
    tensor("{shape: [2, 3, 3], kind: spd, layout: expanded}"), tensor("{shape: [5], uniform: [0, 1], distinct: 0.25}"),
    tensor("{shape: [3], integers: [0, 3], distinct: 1}"), tensor("{values: [[1, 2], [1, 2]], layout: expanded}"),
    tensor("{shape: [3, 4], kind: permutation}"), tensor("{shape: [2], choice: [1, 2], dtype: int64}"),
    tensor("[{shape: [2]}, {shape: []}]"), check("matrix: {layout: [contiguous, strided]}"),
    check("expected: {x: [1, 2]}", "grad_output: [[1, 2], 3]"), check("reference: torch.ops.aten.mul.Tensor"),
]


@pytest.mark.parametrize("text", SENSIBLE)
def test_what_makes_sense_is_accepted(text: str, tmp_path: Path) -> None:
    assert loaded(text, tmp_path).problems == ()
