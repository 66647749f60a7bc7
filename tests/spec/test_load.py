"""Planted faults: each is found where it stands, and said in words that help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gradverify.spec.load import load
from gradverify.spec.settings import Layer
from spec.marked import BUILTINS, CODES, HEAD, check, loaded, unmarked

TENSOR = "inputs: {{x: {}, y: {{shape: [2]}}}}"


def tensor(text: str) -> str:
    return check(TENSOR.format(text))


def own(text: str) -> str:
    """A check of a function that nothing is known of."""
    return f"gradverify: 1\nchecks:\n  - function: my.ops:f\n    inputs: {{x: {{shape: [2]}}}}\n    {text}\n"


FAULTS = [  # the spec, with « where each problem is expected; the words of its first sentence
    # the file
    ("«checks: []", "`gradverify: 1` missing"),
    ("gradverify: «2\nchecks: []", "version 2 unknown reads version 1"),
    ("gradverify: «'1'\nchecks: []", "expected an integer, got '1'; remove the quotes"),
    ("gradverify: «true\nchecks: []", "expected an integer, got true"),
    ("«gradverify: 1", "'checks' missing"),
    ("«gradverify: 1\n«cheks: []", "'checks' missing"),
    ("gradverify: 1\nchecks: []\n«chekcs: []", "unknown key 'chekcs' did you mean 'checks'?"),
    ("gradverify: 1\nchecks: «{}", "expected a list"),
    ("gradverify: 1\nchecks: [«1, «null]", "expected a mapping, got 1"),
    ("gradverify: 1\nchecks: []\npath: «nope", "no folder 'nope'"),
    ("gradverify: 1\nchecks: []\npath: [., «nope]", "no folder 'nope'"),
    ("gradverify: 1\nchecks: []\nimport: [«a-b]", "'a-b' is no module's name"),
    ("gradverify: 1\nchecks: []\nimport: «3", "expected a module or a list of modules, got 3"),
    ("«[1, 2]", "mapping `gradverify: 1`"),
    ("«just text", "mapping `gradverify: 1`"),
    ("gradverify: 1\ndefaults: {«dtipe: float64}\nchecks: []", "unknown key 'dtipe' did you mean 'dtype'?"),
    ("gradverify: 1\ndefaults: {«function: mul}\nchecks: []", "unknown key 'function'"),
    ("gradverify: 1\ndefaults: {eps: «'1e-6'}\nchecks: []", "number greater than 0, or auto, got '1e-6'; remove the quotes"),
    ("gradverify: 1\ndefaults: {dtype: «float8_e5m2}\nchecks: []", "outputs and saved tensors may hold 8-bit floats"),
    ("gradverify: 1\ndefaults: {expect: [«GV999]}\nchecks: []", "no rule 'GV999'"),
    ("gradverify: 1\nchecks:\n«\t- function: mul", "tab spaces"),
    ("gradverify: 1\n«gradverify: 1\nchecks: []", "duplicate key 'gradverify': first on line 1, again on line 2"),
    # names
    (HEAD + "  - {function: «liner, inputs: []}", "unknown built-in 'liner'; did you mean 'linear'?"),
    (HEAD + "  - {function: «nope.py:F, inputs: []}", "no file 'nope.py'"),
    (HEAD + "  - {function: «opps.py:F, inputs: []}", "no file did you mean 'ops.py'?"),
    (HEAD + "  - {function: «ops.py, inputs: []}", "no attribute ops.py:Name"),
    (HEAD + "  - {function: «'a b:c', inputs: []}", "'a b:c' is no name module:attribute"),
    (HEAD + "  - {function: «torch.ops.lib, inputs: []}", "no registered operator's name torch.ops.library.operator"),
    (HEAD + "  - «inputs: []", "'function' is missing"),
    (HEAD + "  - «function: mul", "'inputs' missing"),
    (HEAD + "  - {function: mul, inputs: [1, 2]}\n  - {function: «mul, inputs: [1, 2]}", "name 'mul' is taken by the check on line 3"),
    (HEAD + "  - {name: a, function: mul, inputs: []}\n  - {name: «a, function: relu, inputs: []}", "name 'a' is taken by the check on line 3"),
    (check("name: «' a'"), "one line without spaces"),
    (check('name: «"a\\u202eb"'), "without control characters or others that do not show"),
    (check("reference: «a/b"), "no attribute named"),
    (check("gradient: «mul"), "'mul' names no module"),
    (check("«nmae: x"), "unknown key 'nmae'; did you mean 'name'?"),
    # settings
    (check("eps: «0"), "must be greater than 0, got 0"),
    (check("eps: «-1e-6"), "must be greater than 0, got -1e-6"),
    (check("eps: «.inf"), "expected a finite number, got .inf"),
    (check("eps: «true"), "a number greater than 0, or auto, got true"),
    (check("eps: «outo"), "did you mean 'auto'?"),
    (check("eps: «1_000"), "write 1000"),
    (check("atol: «.nan"), "expected a finite number, got .nan"),
    (check("rtol: «-1"), "must be at least 0"),
    (check("atol: «'1e-6'"), "expected a number, got '1e-6'; remove the quotes"),
    (check("atol: «1e400"), "1e400 does not fit float64"),
    (check("atol: «nan"), "expected a number, got 'nan' finite"),
    (check("seed: «1.5"), "expected an integer, got 1.5"),
    (check("seed: «-1"), "must be a whole number from 0 to 2**63 - 1, got -1"),
    (check("seed: «9223372036854775808"), "must be a whole number from 0 to 2**63 - 1, got 9223372036854775808"),
    (check("matrix: {seed: [0, «-1]}"), "must be a whole number from 0 to 2**63 - 1, got -1"),
    (check("strict: «on"), "true or false, got 'on' write true or false"),
    (check("vmap: «yes"), "auto, true or false write true or false"),
    (check("dtype: «flaot32"), "unknown value 'flaot32'; did you mean 'float32'?"),
    (check("device: «gpu"), "cpu, cuda"),
    (check("mode: «entires"), "did you mean 'entries'?"),
    (check("expect: «fial"), "did you mean 'fail'?"),
    (check("expect: [«GV2]"), "a rule code such as GV101, got 'GV2'"),
    (check("expect: [GV101, «GV999]"), "no rule 'GV999'"),
    (check("rules: {ignore: [«GV120]}"), "no rule 'GV120'; the rule on CUDA streams was retired"),
    (check("expect: «[]"), "at least 1"),
    (check("rules: {select: [«GV9]}"), "no rule 'GV9'"),
    (check("rules: {«selct: [GV1]}"), "did you mean 'select'?"),
    (check("outputs: [«-1]"), "at least 0"),
    (check("tags: «slow"), "expected a list, got 'slow'"),
    (check("tags: [«and]"), "word of `-m`"),
    (check("skip: «true"), "expected text, got true"),
    (check("requires: [«mps]"), "cuda module:"),
    (check("kwargs: {«z: 1}"), "mul has no parameter 'z'"),
    (check("kwargs: {«x: 1}"), "'x' is an input already"),
    (own("kwargs: {y: {«shap: [2]}}"), "unknown key 'shap'; did you mean 'shape'?"),
    (own("kwargs: {y: «{normal: [0, 1]}}"), "the key 'shape' is missing"),
    (own("kwargs: {«y-1: {shape: [2]}}"), "is no parameter's name"),
    (own("kwargs: {y: {shape: [«$n]}}"), "unknown variable $n"),
    (check("«inputs_from: a:b"), "`inputs` and `inputs_from` keep one"),
    # inputs
    (check("inputs: {x: {shape: [2]}, «z: 1}"), "mul has no input 'z'; x, y"),
    (check("«inputs: {y: 1, x: 2}"), "in order x, y"),
    (check("«inputs: [1, 2, 3]"), "mul takes at most 2 (x, y), got 3"),
    (check("inputs: {x: {shape: [2]}, «y:4}"), "put a space after the colon: `y: 4`"),
    (tensor("{«shap: [2]}"), "unknown key 'shap'; did you mean 'shape'?"),
    (tensor("{shape: [2, «three]}"), "expected an integer, got 'three'"),
    (tensor("{shape: [«-1]}"), "at least 0"),
    (tensor("{shape: «3}"), "expected a list, got 3"),
    (tensor("«{uniform: [0, 1]}"), "'shape' is missing"),
    (tensor("{shape: [2], normal: [0, 1], «uniform: [0, 1]}"), "`normal` and `uniform` keep one"),
    (tensor("{shape: [2], uniform: «[2, 1]}"), "low 2.0 is above high 1.0"),
    (tensor("{shape: [2], normal: [0, «-1]}"), "standard deviation at least 0"),
    (tensor("{shape: [2], uniform: «[1]}"), "list of at least 2"),
    (tensor("{shape: [2], integers: «[3, 3]}"), "no integer high is excluded"),
    (tensor("{shape: [2], integers: [0, 3], requires_grad: «true}"), "int64 cannot require gradients"),
    (tensor("{shape: [2], integers: «[0, 300], dtype: uint8}"), "does not fit into uint8"),
    (tensor("{shape: [2], dtype: «int64}"), "`normal` does not draw int64 `integers`"),
    (tensor("{shape: «[2, 2], linspace: [0, 1]}"), "`linspace` has one dimension"),
    (tensor("{shape: [2], «margin: 0.3}"), "`margin` `avoid`"),
    (tensor("{shape: [2], avoid: 0, margin: «0}"), "greater than 0"),
    (tensor("{shape: [2], avoid: «0, uniform: [-0.05, 0.05]}"), "every number `uniform` nearer than 0.1"),
    (tensor("{values: [1, 2], «avoid: 0}"), "nothing can be redrawn"),
    (tensor("{values: [[1, 2], «[3]]}"), "row of 2 ragged"),
    (tensor("{values: [[1, 2], «3]}"), "list of 2 ragged"),
    (tensor("{values: [1, «two]}"), "expected a number, got 'two'"),
    (tensor("{values: [«nan]}"), "written .nan"),
    (tensor("{values: [«true]}"), "`dtype: bool`"),
    (tensor("{values: [1, «1.5], dtype: int64}"), "1.5 is no int64"),
    (tensor("{values: [«'1+2j']}"), "1+2j needs `dtype: complex128` float64"),
    (tensor("{values: [1], shape: «[2]}"), "shape [1], `shape` says [2]"),
    (tensor("{file: «no.npy}"), "no file 'no.npy'"),
    (tensor("{file: «data.npz}"), "data.npz#key"),
    (tensor("{file: «ops.py}"), "unknown kind of file '.py' .npy"),
    (tensor("{file: data.npy, «shape: [2]}"), "remove `shape`"),
    (tensor("{shape: [2], requires_grad: «yes}"), "true or false"),
    (check("expected: {x: «[1, 2, 3]}"), "shape [2], got [3]"),
    (check("expected: {«z: 1}"), "no input 'z' x, y"),
    (check("inputs: {x: {shape: [2], requires_grad: false}, y: 2}", "expected: {«x: [1, 2], «y: 1}"), "not differentiated"),
    # matrix
    (check("inputs: {x: {shape: [«$rowz]}, y: {shape: [$rows]}}", "matrix: {rows: [1]}"), "unknown variable $rowz; did you mean 'rows'?"),
    (check("outputs: [«$n]"), "unknown variable $n no `matrix`"),
    (check("matrix: «[1]"), "expected a mapping"),
    (check("matrix: {seed: «3}"), "expected a list, got 3"),
    (check("matrix: {seed: «[]}"), "at least 1"),
    (check("matrix: {«dtyp: [float64]}"), "$dtyp is used nowhere did you mean 'dtype'?"),
    (check("matrix: {dtype: [float64, «float63]}"), "unknown value 'float63' did you mean 'float64'?"),
    (check("inputs: {x: {shape: [2, «$n]}, y: 1}", "matrix: {n: [1, two]}"), "expected an integer, got 'two' ($n is 'two')"),
    (check("inputs: {x: {shape: «$s}, y: 1}", "matrix: {s: [[2], [2, x]]}"), "expected an integer, got 'x' ($s is"),
    (check("matrix: {seed: [1, «1]}"), "1 is there twice"),
    (check("matrix: {seed: [1, 2], exclude: [{«sede: 1}]}"), "unknown variable 'sede'; did you mean 'seed'?"),
    (check("matrix: {seed: [1, 2], exclude: [{seed: «3}]}"), "3 is no value of seed; values: 1, 2"),
    (check("matrix: {seed: [1], exclude: «[{seed: 1}]}"), "drops every combination"),
    (check(f"matrix: «{{seed: {list(range(101))}, timeout: {list(range(1, 101))}}}"), "10,100 combinations; at most 10,000"),
]


def test_a_built_in_without_an_input_that_it_needs_is_a_fault(tmp_path):
    """`required`: the first ones of each, as the catalogue has it."""
    def faults(inputs, kwargs="{}"):
        (tmp_path / "s.yaml").write_text(f"{HEAD}  - {{function: linear, kwargs: {kwargs}, inputs: {inputs}}}\n")
        found = load([Path("s.yaml")], builtins=BUILTINS, codes=CODES, cwd=tmp_path, required={"linear": 2}).problems
        return [problem.message for problem in found]

    needs = "linear needs 'weight'; its inputs: input, weight, bias (bias may be left out)"
    tensor = "{shape: [2, 2]}"
    assert faults(f"{{input: {tensor}}}") == faults(f"[{tensor}]") == faults(f"{{input: {tensor}, bias: null}}") == [needs]
    assert faults("{}") == faults("[]") == [needs.replace("'weight'", "'input' and 'weight'")]
    assert faults(f"{{input: {tensor}, weight: {tensor}}}") == faults(f"[{tensor}, {tensor}]") == []
    assert faults(f"{{input: {tensor}}}", f"{{weight: {tensor}}}") == []
    assert faults(f"{{input: {tensor}, wieght: {tensor}}}") == ["linear has no input 'wieght'; did you mean 'weight'?"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ops.py", "data.npy", "data.npz"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(("text", "words"), FAULTS, ids=[f"{index}-{words}" for index, (_, words) in enumerate(FAULTS)])
def test_a_planted_fault_is_found_where_it_stands(text: str, words: str, folder: Path) -> None:
    text, places = unmarked(text)
    result = loaded(text, folder)
    assert [(problem.line, problem.column) for problem in result.problems] == places
    message = result.problems[0].message
    assert all(word in message for word in words.split()), message
    assert result.problems[0].file == "s.yaml"
    assert len(message.splitlines()) == 1


def test_every_planted_fault_is_gone_when_mended(folder: Path) -> None:
    assert loaded(check("eps: 1e-6", "atol: 0", "vmap: auto", "expect: [GV101]", "tags: [slow]"), folder).problems == ()


def test_all_faults_of_all_checks_are_reported_in_the_order_of_the_file(folder: Path) -> None:
    text, places = unmarked(
        "gradverify: 1\ndefaults: {«sed: 1}\nchecks:\n"
        "  - function: «mull\n    inputs: {x: {shape: [«a, «-1]}, y: {values: [«b], «avoid: 0}}\n    eps: «-1\n    mode: «rosw\n"
        "  - function: relu\n    inputs: {«inputt: {shape: [1], uniform: «[2, 1]}}\n    reference: «gone.py:f\n")
    result = loaded(text, folder)
    assert [(problem.line, problem.column) for problem in result.problems] == places
    assert result.cases == ()


def test_a_fault_spares_the_cases_of_other_checks(folder: Path) -> None:
    result = loaded(HEAD + "  - {function: mul, inputs: [1, 2]}\n  - {function: relu, inputs: [1], eps: -1}\n", folder)
    assert [case.name for case in result.cases] == ["mul"]
    assert len(result.problems) == 1


def test_a_type_error_hides_no_other_fault_and_invents_none(folder: Path) -> None:
    """An input that is no tensor yet must not read as a missing one, nor a misspelled key as a missing `shape`."""
    text, places = unmarked(check("inputs: {x: {«shpae: [2]}, y: [«1, {shape: [2]}]}"))
    assert [(problem.line, problem.column) for problem in loaded(text, folder).problems] == places


def test_a_problem_prints_its_place_its_path_and_a_caret(folder: Path) -> None:
    text = "gradverify: 1\nchecks:\n  - function: relu\n    inputs:\n      input: {shape: [2, three]}\n"
    assert str(loaded(text, folder).problems[0]) == (
        "s.yaml:5:26: checks[0].inputs.input.shape[1]: expected an integer, got 'three'\n"
        "          input: {shape: [2, three]}\n"
        "                             ^")


def test_a_fault_in_an_anchored_mapping_is_reported_at_the_anchor_once(folder: Path) -> None:
    text, places = unmarked(
        HEAD + "  - {name: a, function: mul, inputs: &i {x: {shape: [«-1]}, y: 1}}\n  - {name: b, function: mul, inputs: *i}\n")
    problems = loaded(text, folder).problems
    assert [(problem.line, problem.column) for problem in problems] == places


def test_all_files_are_read_and_their_problems_gathered(folder: Path) -> None:
    (folder / "a.yaml").write_text(check("eps: 0"))
    (folder / "b.yaml").write_text(check("eps: 0"))
    result = load([Path("a.yaml"), Path("b.yaml"), Path("gone.yaml")], builtins=BUILTINS, codes=CODES, cwd=folder)
    assert [problem.file for problem in result.problems] == ["a.yaml", "b.yaml", "gone.yaml"]
    assert "cannot be read" in result.problems[2].message


def test_a_faulty_option_is_one_problem_however_many_cases_there_are(folder: Path) -> None:
    result = loaded(check("matrix: {seed: [1, 2, 3]}"), folder, options=Layer("command line", {"eps": -1.0}))
    assert [str(problem) for problem in result.problems] == ["command line: eps: must be greater than 0, got -1.0"]


def test_options_that_are_no_rule_are_problems(folder: Path) -> None:
    result = loaded(check(), folder, options=Layer("command line", {"dtype": "float16", "select": ("GV9",)}))
    assert ["no rule 'GV9'" in problem.message for problem in result.problems] == [True]


def test_an_empty_list_of_checks_is_valid_and_holds_nothing(folder: Path) -> None:
    result = loaded("gradverify: 1\nchecks: []\n", folder)
    assert (result.cases, result.problems) == ((), ())


def test_loading_imports_neither_torch_nor_numpy() -> None:
    script = "import gradverify.spec.load, gradverify.spec.discover, gradverify.spec.reference, sys; print({'torch', 'numpy'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


@pytest.mark.parametrize(("text", "known"), [("{«zzz: [2]}", "shape, normal, uniform"), ("{shape: [2]}, «zzz: 1", "x, y")])
def test_where_no_name_is_near_all_are_listed(text: str, known: str, folder: Path) -> None:
    problem, = loaded(unmarked(check(f"inputs: {{x: {text}, y: 1}}"))[0], folder).problems
    assert known in problem.message


def test_where_a_name_is_near_nothing_else_is_listed(folder: Path) -> None:
    problem, = loaded(check("inputs: {x: {shap: [2]}, y: 1}"), folder).problems
    assert problem.message == "unknown key 'shap'; did you mean 'shape'?"


def test_the_projects_folder_is_searched_after_the_specs_own(tmp_path: Path) -> None:
    inner = tmp_path / "pkg" / "specs"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    case, = loaded(HEAD.replace("checks:", "path: ..\nchecks:") + "  - {function: mul, inputs: [1, 2]}\n", inner).cases
    assert case.search.path == tuple(str(folder.resolve()) for folder in (inner.parent, inner, tmp_path))


def test_the_nearest_project_counts_and_one_beside_the_spec_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    for folder in (tmp_path, tmp_path / "specs"):
        (folder / "pyproject.toml").write_text("")
    case, = loaded(HEAD + "  - {function: mul, inputs: [1, 2]}\n", tmp_path / "specs").cases
    assert case.search.path == ()


def test_functions_in_files_are_named_below_the_current_folder_or_as_written(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    for place in (tmp_path / "outside.py", tmp_path / "specs" / "ops.py"):
        place.touch()
    result = loaded(HEAD + "  - {function: 'ops.py:f', inputs: [1], reference: '../outside.py:g', gradient: 'm:h'}\n", tmp_path / "specs")
    root = tmp_path.resolve()
    assert result.names == {f"{root}/specs/ops.py:f": "ops.py:f", f"{root}/outside.py:g": "../outside.py:g"}


def test_the_sources_of_a_check_stand_over_those_of_the_defaults(tmp_path: Path) -> None:
    text = ("gradverify: 1\ndefaults: {sources: [a.cu]}\nchecks:\n"
            "  - {function: relu, inputs: [1]}\n  - {function: mul, inputs: [1, 2], sources: [b.cu]}\n")
    assert [case.sources for case in loaded(text, tmp_path).cases] == [("a.cu",), ("b.cu",)]
