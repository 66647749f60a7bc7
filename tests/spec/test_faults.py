"""Specs with a fault: each is found where it stands, and said in words that help; whatever is right
is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from gradverify.spec.document import parse
from gradverify.spec.load import load
from gradverify.spec.schema import json_schema
from gradverify.spec.settings import Layer
from spec.marked import BUILTINS, CODES, HEAD, check, loaded, unmarked

VALIDATOR = jsonschema.Draft7Validator(json_schema())
INPUTS = "    inputs: {input: {shape: [2]}}\n"


def tensor(text: str) -> str:
    return check(f"inputs: {{x: {text}, y: {{shape: [2]}}}}")


def own(text: str) -> str:
    """A check of a function that nothing is known of."""
    return (
        f"gradverify: 1\nchecks:\n  - function: my.ops:f\n    inputs: {{x: {{shape: [2]}}}}\n    "
        f"{text}\n"
    )


FAULTS = [  # the spec, with « where each problem is expected; the words of its first sentence
    # the file
    ("«checks: []", "`gradverify: 1` missing"),
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
    (
        "gradverify: 1\ndefaults: {«dtipe: float64}\nchecks: []",
        "unknown key 'dtipe' did you mean 'dtype'?",
    ),
    ("gradverify: 1\ndefaults: {«function: mul}\nchecks: []", "unknown key 'function'"),
    (
        "gradverify: 1\ndefaults: {eps: «'1e-6'}\nchecks: []",
        "number greater than 0, or auto, got '1e-6'; remove the quotes",
    ),
    (
        "gradverify: 1\ndefaults: {dtype: «float8_e5m2}\nchecks: []",
        "outputs and saved tensors may hold 8-bit floats",
    ),
    ("gradverify: 1\ndefaults: {expect: [«GV999]}\nchecks: []", "no rule 'GV999'"),
    ("gradverify: 1\nchecks:\n«\t- function: mul", "tab spaces"),
    (
        "gradverify: 1\n«gradverify: 1\nchecks: []",
        "duplicate key 'gradverify': first on line 1, again on line 2",
    ),
    # names
    (
        HEAD + "  - {function: «liner, inputs: []}",
        "unknown built-in 'liner'; did you mean 'linear'?",
    ),
    (HEAD + "  - {function: «nope.py:F, inputs: []}", "no file 'nope.py'"),
    (HEAD + "  - {function: «opps.py:F, inputs: []}", "no file did you mean 'ops.py'?"),
    (HEAD + "  - {function: «ops.py, inputs: []}", "no attribute ops.py:Name"),
    (HEAD + "  - {function: «'a b:c', inputs: []}", "'a b:c' is no name module:attribute"),
    (
        HEAD + "  - {function: «torch.ops.lib, inputs: []}",
        "no registered operator's name torch.ops.library.operator",
    ),
    (HEAD + "  - «inputs: []", "'function' is missing"),
    (HEAD + "  - «function: mul", "'inputs' missing"),
    (
        HEAD + "  - {function: mul, inputs: [1, 2]}\n  - {function: «mul, inputs: [1, 2]}",
        "name 'mul' is taken by the check on line 3",
    ),
    (
        HEAD
        + "  - {name: a, function: mul, inputs: []}\n  - {name: «a, function: relu, inputs: []}",
        "name 'a' is taken by the check on line 3",
    ),
    (check("name: «' a'"), "one line without spaces"),
    (check('name: «"a\\u202eb"'), "without control characters or others that do not show"),
    (check("reference: «a/b"), "no attribute named"),
    (check("gradient: «mul"), "'mul' names no module"),
    (check("«nmae: x"), "unknown key 'nmae'; did you mean 'name'?"),
    # settings
    (check("eps: «-1e-6"), "must be greater than 0, got -1e-6"),
    (check("eps: «.inf"), "must be a finite number, got .inf"),
    (check("eps: «true"), "a number greater than 0, or auto, got true"),
    (check("eps: «outo"), "did you mean 'auto'?"),
    (check("eps: «1_000"), "write 1000"),
    (check("atol: «.nan"), "must be a finite number, got .nan"),
    (check("rtol: «-1"), "must be at least 0"),
    (check("atol: «'1e-6'"), "expected a number, got '1e-6'; remove the quotes"),
    (check("atol: «1e400"), "1e400 does not fit float64"),
    (check("atol: «nan"), "expected a number, got 'nan' finite"),
    (check("seed: «-1"), "must be at least 0, got -1"),
    (check("seed: «9223372036854775808"), "must be less than 2**63, got 9223372036854775808"),
    (check("matrix: {seed: [0, «-1]}"), "must be at least 0, got -1"),
    (check("strict: «on"), "true or false, got 'on' write true or false"),
    (check("vmap: «yes"), "auto, true or false write true or false"),
    (check("dtype: «flaot32"), "unknown value 'flaot32'; did you mean 'float32'?"),
    (check("mode: «entires"), "did you mean 'entries'?"),
    (check("expect: «fial"), "did you mean 'fail'?"),
    (check("expect: [«GV2]"), "a rule code such as GV101, got 'GV2'"),
    (check("expect: [GV101, «GV999]"), "no rule 'GV999'"),
    (check("expect: «[]"), "at least 1"),
    (check("rules: {select: [«GV9]}"), "no rule 'GV9'"),
    (check("rules: {«selct: [GV1]}"), "did you mean 'select'?"),
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
    (tensor("{shape: [2, «three]}"), "expected an integer, got 'three'"),
    (tensor("{shape: «3}"), "expected a list, got 3"),
    (tensor("«{uniform: [0, 1]}"), "'shape' is missing"),
    (tensor("{shape: [2], normal: [0, 1], «uniform: [0, 1]}"), "`normal` and `uniform` keep one"),
    (tensor("{shape: [2], uniform: «[2, 1]}"), "low 2.0 is above high 1.0"),
    (tensor("{shape: [2], normal: [0, «-1]}"), "standard deviation at least 0"),
    (tensor("{shape: [2], integers: «[3, 3]}"), "no integer high is excluded"),
    (
        tensor("{shape: [2], integers: [0, 3], requires_grad: «true}"),
        "int64 cannot require gradients",
    ),
    (tensor("{shape: [2], integers: «[0, 300], dtype: uint8}"), "does not fit into uint8"),
    (tensor("{shape: [2], dtype: «int64}"), "`normal` does not draw int64 `integers`"),
    (tensor("{shape: «[2, 2], linspace: [0, 1]}"), "`linspace` has one dimension"),
    (tensor("{shape: [2], «margin: 0.3}"), "`margin` `avoid`"),
    (tensor("{shape: [2], avoid: 0, margin: «0}"), "greater than 0"),
    (tensor("{values: [1, 2], «avoid: 0}"), "nothing can be redrawn"),
    (tensor("{values: [[1, 2], «[3]]}"), "row of 2 ragged"),
    (tensor("{values: [[1, 2], «3]}"), "list of 2 ragged"),
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
    (
        check(
            "inputs: {x: {shape: [2], requires_grad: false}, y: 2}", "expected: {«x: [1, 2], «y: 1}"
        ),
        "not differentiated",
    ),
    # matrix
    (
        check("inputs: {x: {shape: [«$rowz]}, y: {shape: [$rows]}}", "matrix: {rows: [1]}"),
        "unknown variable $rowz; did you mean 'rows'?",
    ),
    (check("outputs: [«$n]"), "unknown variable $n no `matrix`"),
    (check("matrix: «[1]"), "expected a mapping"),
    (check("matrix: {seed: «[]}"), "at least 1"),
    (check("matrix: {«dtyp: [float64]}"), "$dtyp is used nowhere did you mean 'dtype'?"),
    (
        check("matrix: {dtype: [float64, «float63]}"),
        "unknown value 'float63' did you mean 'float64'?",
    ),
    (
        check("inputs: {x: {shape: [2, «$n]}, y: 1}", "matrix: {n: [1, two]}"),
        "expected an integer, got 'two' ($n is 'two')",
    ),
    (
        check("inputs: {x: {shape: «$s}, y: 1}", "matrix: {s: [[2], [2, x]]}"),
        "expected an integer, got 'x' ($s is",
    ),
    (check("matrix: {seed: [1, «1]}"), "1 is there twice"),
    (
        check("matrix: {seed: [1, 2], exclude: [{«sede: 1}]}"),
        "unknown variable 'sede'; did you mean 'seed'?",
    ),
    (check("matrix: {seed: [1, 2], exclude: [{seed: «3}]}"), "3 is no value of seed; values: 1, 2"),
    (check("matrix: {seed: [1], exclude: «[{seed: 1}]}"), "drops every combination"),
    (
        check(f"matrix: «{{seed: {list(range(101))}, timeout: {list(range(1, 101))}}}"),
        "10,100 combinations; at most 10,000",
    ),
    # No missing input, no missing shape
    (check("inputs: {x: {«shpae: [2]}, y: [«1, {shape: [2]}]}"), "unknown key 'shpae'"),
    (
        check("inputs: {x: [«1, {shape: [2]}], y: {shape: [2], uniform: [2, 1]}}"),
        "expected a mapping, got 1",
    ),
    (
        check("inputs: {x: [{«shap: [2]}, {shape: [2], uniform: [2, 1]}], y: 1}"),
        "unknown key 'shap'",
    ),
    # A check's matrix first, then types, then sense
    (check("inputs: {x: {shap: [«$n]}, y: 1}"), "unknown variable $n"),
    (check("dtype: «float8_e4m3fn"), "outputs and saved tensors may hold 8-bit floats"),
]
REFUSED_BY_EDITORS = [  # by the published schema too, and the words of its first sentence
    # the file
    ("gradverify: «2\nchecks: []", "version 2"),
    ("gradverify: '«1'\nchecks: []".replace("'«1'", "«'1'"), "'1'"),
    ("gradverify: 1\n«cheks: []\nchecks: []", "did you mean 'checks'"),
    ("gradverify: 1\nchecks: «3", "list"),
    ("gradverify: 1\npath: «3\nchecks: []", "folder"),
    ("gradverify: 1\nimport: [«3]\nchecks: []", "text"),
    ("gradverify: 1\ndefaults: {«dtpye: float32}\nchecks: []", "did you mean 'dtype'"),
    ("gradverify: 1\ndefaults: {seed: «half}\nchecks: []", "integer"),
    (HEAD + "  - «text", "mapping"),
    # a check
    (check("«referense: a.b:c"), "did you mean 'reference'"),
    (check("name: «3"), "text"),
    (check("eps: «0"), "greater than 0"),
    (check("eps: «'1e-6'"), "remove the quotes"),
    (check("atol: «-1"), "at least 0"),
    (check("dtype: «float46"), "did you mean 'float64'"),
    (check("device: «gpu"), "cpu, cuda"),
    (check("seed: «1.5"), "integer"),
    (check("mode: «row"), "did you mean 'rows'"),
    (check("strict: «yes"), "true or false"),
    (check("reseed: «no"), "true or false"),
    (check("expect: «failing"), "fail"),
    (check("expect: [«GV1]"), "rule code"),
    (check("outputs: «[]"), "at least 1"),
    (check("outputs: [«-1]"), "at least 0"),
    (check("requires: [«triton]"), "module:<name>"),
    (check("tags: [«'2fast']"), "letter"),
    (check("rules: {«chosen: [GV1]}"), "select"),
    (check("rules: {ignore: [«101]}"), "text"),
    (check("budget: {seconds: «0}"), "greater than 0"),
    (check("matrix: {seed: «3}"), "list"),
    (check("matrix: {layout: [«transpose]}"), "did you mean 'transposed'"),
    (check("grad_output: [1, «one]", "expected: {x: [1, 2]}"), "number"),
    # a tensor
    (tensor("{«shap: [2]}"), "did you mean 'shape'"),
    (tensor("{shape: [«two]}"), "integer"),
    (tensor("{shape: [«-1]}"), "at least 0"),
    (tensor("{shape: [2], uniform: «[1]}"), "at least 2"),
    (tensor("{shape: [2], kind: «orthogonl}"), "did you mean 'orthogonal'"),
    (tensor("{shape: [2], layout: «channels-last}"), "did you mean 'channels_last'"),
    (tensor("{shape: [2], distinct: «0}"), "greater than 0"),
    (tensor("{shape: [2], choice: «[]}"), "at least 1"),
    (tensor("{shape: [2], dtype: «double}"), "float64"),
    (tensor("{shape: [2], requires_grad: «off}"), "true or false"),
    (tensor("{values: [1, «two]}"), "number"),
    (tensor("[{shape: [2]}, {«shpe: [2]}]"), "did you mean 'shape'"),
]
SENSELESS = [
    (tensor("{shape: [3, 2], kind: «spd}"), "square"),
    (tensor("{shape: [3], kind: «orthogonal}"), "at least 2 dimensions"),
    (tensor("{shape: [], kind: «simplex}"), "at least 1 dimension,"),
    (tensor("{shape: [3], kind: «unit_vector, dtype: int32}"), "floating"),
    (tensor("{shape: [3], kind: «simplex, dtype: complex128}"), "real numbers"),
    (tensor("{shape: [300], kind: «permutation, dtype: int8}"), "fit"),
    (tensor("{shape: [3], layout: «transposed}"), "at least 2 dimensions"),
    (tensor("{shape: [3], layout: «channels_last}"), "4 or 5 dimensions"),
    (tensor("{shape: [], layout: «strided}"), "at least 1 dimension,"),
    (tensor("{shape: [3, 3], kind: spd, layout: «expanded}"), "cut `spd`"),
    (tensor("{shape: [2], choice: [1, «0.5], dtype: int64}"), "0.5 is no int64"),
    (check("«grad_output: [1, 1]"), "there is none"),
    (tensor("{shape: [2], make: «'a b:c'}"), "no name"),
    (check("matrix: {layout: [contiguous, «channels_last]}"), "no input can be laid out"),
    (tensor("[{shape: [3], layout: «transposed}]"), "at least 2"),
]
SLIPS = [  # and the sentence, which names the repair
    # a blank or a colon too few
    ("gradverify:«1\nchecks: []\n", "a blank is missing after the colon: `gradverify: 1`"),
    (f"{HEAD}  - function:«relu\n{INPUTS}", "a blank is missing after the colon: `function: relu`"),
    (f"{HEAD}  - function: relu\n    eps 1e-6\n    «seed: 1\n", "or a key without one"),
    (f"{HEAD}  - function: my«: relu\n{INPUTS}", "put text that contains `: ` in quotes"),
    # brackets and quotes
    (
        f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2, 3«}}}}\n",
        "expected ',' or ']', but got '}' (while parsing a flow sequence, begun on line 4)",
    ),
    (
        f"{HEAD}  - function: «'relu\n{INPUTS}",
        "found the end of the file: the quote begun on line 3 is not closed",
    ),
    (
        f"{HEAD}  - function: relu\n    tags: [a, «, b]\n{INPUTS}",
        "expected the node content, but found ','",
    ),
    # a blank too few after the dash
    (f"{HEAD}  -«function: relu\n{INPUTS}", "a blank is missing after the `-`: `- function: relu`"),
    (
        f"{HEAD}  -«name: a\n\n    # about it\n    function: relu\n{INPUTS}",
        "a blank is missing after the `-`: `- name: a`",
    ),
    (
        f"{HEAD}  - function: relu\n    inputs:\n      -«{{shape: [2]}}\n",
        "a blank is missing after the `-`: `- {shape: [2]}`",
    ),
    (
        f"{HEAD}  -function: relu\n  «-function: mul\n",
        "again on line 4; write `- function: …`, with a blank after the `-`",
    ),
    # indentation
    (
        f"{HEAD}  - function: relu\n   «inputs: []\n",
        "the indentation of this line fits no line above it; the list around it begins on line 3",
    ),
    (
        f"{HEAD}  - function: relu\n  «inputs: []\n",
        "the indentation of this line fits no line above it; the list around it begins on line 3",
    ),
    (
        f"{HEAD}  - function: relu\n    seed: 1\n   «eps: 1e-6\n",
        "the indentation of this line fits no line above it",
    ),
    # forms of values
    (
        f"{HEAD}  «function: relu\n",
        "expected a list of checks: begin each one with `- `, as in `- function: relu`",
    ),
    (f"{HEAD}  - «relu\n", "expected a mapping, got 'relu'; for example {function: relu, inputs:"),
    (
        f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: «3}}}}\n",
        "expected a list, got 3; for example [2, 3]",
    ),
    (
        f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2], normal: «1}}}}\n",
        "expected a list, got 1; for example [0, 1]",
    ),
    (
        f"{HEAD}  - function: relu\n    skip: «true\n{INPUTS}",
        'expected text, got true; for example "needs the new kernel"',
    ),
    (
        f"{HEAD}  - function: relu\n    budget: «10\n{INPUTS}",
        'expected a mapping, got 10; for example {"seconds": 10}',
    ),
    (
        f"{HEAD}  - function: relu\n    expect: «GV101\n{INPUTS}",
        "or a list of rule codes, got 'GV101'; write [GV101]",
    ),
    (
        f"{HEAD}  - function: relu\n    expect: «GV10\n{INPUTS}",
        "or a list of rule codes, got 'GV10'",
    ),
    # names of functions and rules
    (
        f"{HEAD}  - function: «ops.py::F\n{INPUTS}",
        "'ops.py::F' is no name; did you mean 'ops.py:F'?",
    ),
    (
        f"{HEAD}  - function: «my.ops::F\n{INPUTS}",
        "'my.ops::F' is no name; did you mean 'my.ops:F'?",
    ),
    (
        f"{HEAD}  - function: relu\n    rules: {{select: «GV1}}\n{INPUTS}",
        "expected a list, got 'GV1'; write [GV1]",
    ),
    (f"{HEAD}  - function: relu\n    rules: {{select: [«gv1]}}\n{INPUTS}", "got 'gv1'; write GV1"),
    (
        f"{HEAD}  - function: relu\n    rules: {{select: [«jacobian]}}\n{INPUTS}",
        "got 'jacobian'; `gradverify explain` lists them with their names",
    ),
    (
        f"{HEAD}  - function: torch:cat\n    inputs: {{tensors: [{{shape: [2]}}, «3]}}\n",
        "expected a mapping, got 3; for example {shape: [2, 3]}",
    ),
    (
        f"{HEAD}  - function: relu\n    seed: «99999999999999999999\n{INPUTS}",
        "must be less than 2**63, got 99999999999999999999",
    ),
    # words of other programs
    (
        f"{HEAD}  - function: relu\n    dtype: «double\n{INPUTS}",
        "unknown value 'double'; did you mean 'float64'?",
    ),
    (
        f"{HEAD}  - function: relu\n    device: «gpu\n{INPUTS}",
        "expected cpu, cuda, cuda:<number> or auto, got 'gpu'; did you mean 'cuda'?",
    ),
    (
        f"{HEAD}  - function: relu\n    requires: [«gpu]\n{INPUTS}",
        "got 'gpu'; did you mean 'cuda'?",
    ),
    (
        f"{HEAD}  - function: relu\n    «reproducible: true\n{INPUTS}",
        "unknown key 'reproducible'; did you mean 'deterministic'?",
    ),
    (
        f"{HEAD}  - function: relu\n    «nondet_tol: 0.1\n{INPUTS}",
        "unknown key 'nondet_tol'; did you mean 'nondeterminism'?",
    ),
    (
        f"{HEAD}  - function: relu\n    «epsilon: 0.1\n{INPUTS}",
        "unknown key 'epsilon'; did you mean 'eps'?",
    ),
    (
        f"{HEAD}  - function: relu\n    inputs: {{input: {{«size: [2]}}}}\n",
        "unknown key 'size'; did you mean 'shape'?",
    ),
    (
        f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2], «randn: [0, 1]}}}}\n",
        "unknown key 'randn'; did you mean 'normal'?",
    ),
    # keys in the wrong place
    (
        f"{HEAD}  - function: relu\n    «ignore: [GV2]\n{INPUTS}",
        "unknown key 'ignore' here: it belongs in `rules: {…}`",
    ),
    (f"{HEAD}  - function: relu\n    «seconds: 3\n{INPUTS}", "it belongs in `budget: {…}`"),
    (
        f"{HEAD}  - function: relu\n    «path: ..\n{INPUTS}",
        "it belongs at the top of the file, next to `checks`",
    ),
    (
        f"{HEAD}  - function: relu\n    «shape: [2]\n{INPUTS}",
        "it belongs in an input: `inputs: {x: {…}}`",
    ),
    (
        f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2], «eps: 1}}}}\n",
        "it belongs in a check, or in `defaults`",
    ),
    (
        f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2]}}, «eps: 1}}\n",
        "('eps' is a key of the check: it belongs next to `inputs`)",
    ),
    ("gradverify: 1\n«seed: 3\nchecks: []\n", "it belongs in a check, or in `defaults`"),
    ("gradverify: 1\n«name: op\nchecks: []\n", "it belongs in a check"),
    ("gradverify: 1\ndefaults: {«function: relu}\nchecks: []\n", "it belongs in a check"),
    (
        "gradverify: 1\ndefaults: {«shape: [2]}\nchecks: []\n",
        "it belongs in an input: `inputs: {x: {…}}`",
    ),
]
INSIDE = [  # an input
    ("{shape: [2, 3], sparse: {layout: «dok}}", "coo"),
    ("{shape: [2, 3], sparse: {density: «0}}", ""),
    ("{shape: [2, 3], sparse: {density: «1.5}}", ""),
    ("{shape: [2, 3], sparse: {layout: bsr}}", "blocksize"),
    ("{shape: [2, 3], sparse: {blocksize: [1, 1]}}", "holds no blocks"),
    ("{shape: [2, 3], sparse: {layout: bsc, blocksize: [2, 2]}}", "do not divide"),
    ("{shape: [2], sparse: {layout: csr}}", "two dimensions"),
    ("{shape: [], sparse: {}}", "at least one dimension"),
    ("{shape: [20000, 20000], sparse: {}}", "kept as a dense tensor"),
    ("{values: [1, 0], sparse: {density: 0.5}}", "remove `density`"),
    ("{shape: [2, 2], symmetric: true, sparse: {}}", "symmetric"),
    ("{shape: [2, 2], kind: spd, sparse: {}}", "`spd`"),
    ("{shape: [2, 2], make: 'a:b', sparse: {}}", "`make`"),
    ("{shape: [2, 2], layout: transposed, sparse: {}}", "layout"),
    ("{shape: [2, 2], sparse: {}, nested: {lengths: [2]}}", "nested"),
    ("{shape: [2, 2], uniform: [1, 2], domain: [1, 2], sparse: {masked: false}}", "zeros"),
    ("{shape: [3, 2], nested: {lengths: [1, 1]}}", "add up to 2"),
    ("{shape: [3], nested: {lengths: [3]}}", "two dimensions"),
    ("{shape: [3, 2], nested: {}}", "lengths"),
    ("{shape: [2], domain: [1, 0]}", "low < high"),
    ("{shape: [2], domain: [1, 1]}", "low < high"),
    ("{shape: [2], domain: [.nan, 1]}", "low < high"),
    ("{shape: [2], domain: [0, 1], dtype: complex128}", "real numbers"),
    ("{shape: [2], domain: [0]}", ""),
    ("{shape: [2, 3], symmetric: true}", "square"),
    ("{values: [1, 2], symmetric: true}", "square"),
]
SENSIBLE = [
    tensor("{shape: [2, 3, 3], kind: spd, layout: expanded}"),
    tensor("{shape: [5], uniform: [0, 1], distinct: 0.25}"),
    tensor("{shape: [3], integers: [0, 3], distinct: 1}"),
    tensor("{values: [[1, 2], [1, 2]], layout: expanded}"),
    tensor("{shape: [3, 4], kind: permutation}"),
    tensor("{shape: [2], choice: [1, 2], dtype: int64}"),
    tensor("[{shape: [2]}, {shape: []}]"),
    check("matrix: {layout: [contiguous, strided]}"),
    check("expected: {x: [1, 2]}", "grad_output: [[1, 2], 3]"),
    check("reference: torch.ops.aten.mul.Tensor"),
    check("dtype: bfloat16"),
    tensor("{shape: [2], dtype: float16}"),
    check("matrix: {dtype: [float64, float32, bfloat16, float16]}"),
    "gradverify: 1\nchecks: []\n",
    check("eps: 1e-6", "atol: 0", "vmap: auto", "expect: [GV101]", "tags: [slow]"),
    f"{HEAD}  - function: relu\n    name: 'a:b {{'\n{INPUTS}",
    f"{HEAD}  - name: shape [2]\n    function: relu\n{INPUTS}",
    f"{HEAD}  - function: my_ops:relu\n    inputs: {{inputs: {{shape: [2]}}, eps: 1e-6, shape: "
    f"[2]}}\n",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ops.py", "data.npy", "data.npz"):
        (tmp_path / name).write_text("")
    return tmp_path


def numbered(table: list) -> list:
    return [pytest.param(*row, id=f"{index}-{row[-1]}") for index, row in enumerate(table)]


@pytest.mark.parametrize(("text", "words"), numbered(FAULTS + SENSELESS))
def test_a_planted_fault_is_found_where_it_stands(text: str, words: str, folder: Path) -> None:
    text, places = unmarked(text)
    problems = loaded(text, folder).problems
    assert [(problem.line, problem.column) for problem in problems] == places
    message = problems[0].message
    assert all(word in message for word in words.split()), message
    assert problems[0].file == "s.yaml" and len(message.splitlines()) == 1


@pytest.mark.parametrize(("text", "said"), numbered(REFUSED_BY_EDITORS))
def test_the_schema_refuses_it_and_the_loader_says_where(
    text: str, said: str, folder: Path
) -> None:
    test_a_planted_fault_is_found_where_it_stands(text, said, folder)
    assert not VALIDATOR.is_valid(parse("s.yaml", unmarked(text)[0]).data)


@pytest.mark.parametrize(("text", "said"), numbered(SLIPS))
def test_a_slip_is_told_with_its_repair_at_its_place(text: str, said: str, folder: Path) -> None:
    """Other faults of the file may follow from it."""
    text, places = unmarked(text)
    problems = loaded(text, folder).problems
    assert [(problem.line, problem.column) for problem in problems][:1] == places
    assert said in problems[0].message


@pytest.mark.parametrize(("text", "said"), numbered(INSIDE))
def test_what_makes_no_sense_of_an_input_is_one_problem(text: str, said: str, folder: Path) -> None:
    (problem,) = loaded(unmarked(tensor(text))[0], folder).problems
    assert said in problem.message and str(problem.path).startswith("checks[0].inputs.x")


@pytest.mark.parametrize("text", SENSIBLE)
def test_what_makes_sense_is_accepted(text: str, folder: Path) -> None:
    assert loaded(text, folder).problems == ()


def test_a_built_in_without_an_input_that_it_needs_is_a_fault(tmp_path):
    """`required`: the first ones of each, as the catalogue has it."""

    def faults(inputs, kwargs="{}"):
        (tmp_path / "s.yaml").write_text(
            f"{HEAD}  - {{function: linear, kwargs: {kwargs}, inputs: {inputs}}}\n"
        )
        found = load(
            [Path("s.yaml")], builtins=BUILTINS, codes=CODES, cwd=tmp_path, required={"linear": 2}
        ).problems
        return [problem.message for problem in found]

    needs = "linear needs 'weight'; its inputs: input, weight, bias (bias may be left out)"
    tensor = "{shape: [2, 2]}"
    assert (
        faults(f"{{input: {tensor}}}")
        == faults(f"[{tensor}]")
        == faults(f"{{input: {tensor}, bias: null}}")
        == [needs]
    )
    assert faults("{}") == faults("[]") == [needs.replace("'weight'", "'input' and 'weight'")]
    assert faults(f"{{input: {tensor}, weight: {tensor}}}") == faults(f"[{tensor}, {tensor}]") == []
    assert faults(f"{{input: {tensor}}}", f"{{weight: {tensor}}}") == []
    assert faults(f"{{input: {tensor}, wieght: {tensor}}}") == [
        "linear has no input 'wieght'; did you mean 'weight'?"
    ]


def test_all_faults_of_all_checks_are_reported_in_the_order_of_the_file(folder: Path) -> None:
    text, places = unmarked(
        "gradverify: 1\ndefaults: {«sed: 1}\nchecks:\n"
        "  - function: mull\n    inputs: {x: {shape: [«a, «-1]}, y: {values: [b], avoid: 0}}\n    "
        "eps: «-1\n    mode: «rosw\n"
        "  - function: «mull\n    inputs: {x: {shape: [2]}, y: {values: [«b], «avoid: 0}}\n"
        "  - function: relu\n    inputs: {«inputt: {shape: [1], uniform: «[2, 1]}}\n    reference: "
        "«gone.py:f\n"
    )
    result = loaded(text, folder)
    assert [(problem.line, problem.column) for problem in result.problems] == places
    assert result.cases == ()


def test_a_fault_spares_the_cases_of_other_checks(folder: Path) -> None:
    result = loaded(
        HEAD + "  - {function: mul, inputs: [1, 2]}\n  - {function: relu, inputs: [1], eps: -1}\n",
        folder,
    )
    assert [case.name for case in result.cases] == ["mul"]
    assert len(result.problems) == 1


def test_a_problem_prints_its_place_its_path_and_a_caret(folder: Path) -> None:
    text = (
        "gradverify: 1\nchecks:\n  - function: relu\n    inputs:\n      input: {shape: [2, "
        "three]}\n"
    )
    assert str(loaded(text, folder).problems[0]) == (
        "s.yaml:5:26: checks[0].inputs.input.shape[1]: expected an integer, got 'three'\n"
        "          input: {shape: [2, three]}\n"
        "                             ^"
    )


def test_a_fault_in_an_anchored_mapping_is_reported_at_the_anchor_once(folder: Path) -> None:
    text, places = unmarked(
        HEAD
        + (
            "  - {name: a, function: mul, inputs: &i {x: {shape: [«-1]}, y: 1}}\n  - {name: b, "
            "function: mul, inputs: *i}\n"
        )
    )
    problems = loaded(text, folder).problems
    assert [(problem.line, problem.column) for problem in problems] == places


def test_all_files_are_read_and_their_problems_gathered(folder: Path) -> None:
    (folder / "a.yaml").write_text(check("eps: 0"))
    (folder / "b.yaml").write_text(check("eps: 0"))
    result = load(
        [Path("a.yaml"), Path("b.yaml"), Path("gone.yaml")],
        builtins=BUILTINS,
        codes=CODES,
        cwd=folder,
    )
    assert [problem.file for problem in result.problems] == ["a.yaml", "b.yaml", "gone.yaml"]
    assert "cannot be read" in result.problems[2].message


def test_a_faulty_option_is_one_problem_however_many_cases_there_are(folder: Path) -> None:
    result = loaded(
        check("matrix: {seed: [1, 2, 3]}"), folder, options=Layer("command line", {"eps": -1.0})
    )
    assert [str(problem) for problem in result.problems] == [
        "command line: eps: must be greater than 0, got -1.0"
    ]


@pytest.mark.parametrize(
    ("modules", "left_out"), [("load discover", "torch numpy"), ("walk document", "pydantic")]
)
def test_what_costs_time_is_not_imported(modules: str, left_out: str) -> None:
    """A hook that finds nothing to check need not spend a fifth of a second on pydantic."""
    names = ", ".join(f"gradverify.spec.{module}" for module in modules.split())
    script = f"import sys, {names}; print(set({left_out.split()}) & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
        == "set()\n"
    )


@pytest.mark.parametrize(
    ("text", "known"),
    [("{«zzz: [2]}", "shape, normal, uniform"), ("{shape: [2]}, «zzz: 1", "x, y")],
)
def test_where_no_name_is_near_all_are_listed(text: str, known: str, folder: Path) -> None:
    (problem,) = loaded(unmarked(check(f"inputs: {{x: {text}, y: 1}}"))[0], folder).problems
    assert known in problem.message


def test_the_projects_folder_is_searched_after_the_specs_own(tmp_path: Path) -> None:
    inner = tmp_path / "pkg" / "specs"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    (case,) = loaded(
        HEAD.replace("checks:", "path: ..\nchecks:") + "  - {function: mul, inputs: [1, 2]}\n",
        inner,
    ).cases
    assert case.search.path == tuple(
        str(folder.resolve()) for folder in (inner.parent, inner, tmp_path)
    )


def test_the_nearest_project_counts_and_one_beside_the_spec_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    for folder in (tmp_path, tmp_path / "specs"):
        (folder / "pyproject.toml").write_text("")
    (case,) = loaded(HEAD + "  - {function: mul, inputs: [1, 2]}\n", tmp_path / "specs").cases
    assert case.search.path == ()


def test_the_sources_of_a_check_stand_over_those_of_the_defaults(tmp_path: Path) -> None:
    text = (
        "gradverify: 1\ndefaults: {sources: [a.cu]}\nchecks:\n"
        "  - {function: relu, inputs: [1]}\n  - {function: mul, inputs: [1, 2], sources: [b.cu]}\n"
    )
    assert [case.sources for case in loaded(text, tmp_path).cases] == [("a.cu",), ("b.cu",)]


def test_a_word_of_another_program_with_a_colon_is_not_blamed(folder: Path) -> None:
    """`http:x` above the fault is no key of the format."""
    problems = loaded(f"{HEAD}  - function: relu\n    name: a\n      http:x: 1\n", folder).problems
    assert "a space is missing" not in problems[0].message
