"""What a newcomer slips on, told in words that need no knowledge of YAML or of the format's tables: a key in the wrong place, a blank or a bracket
too few, a single value where a list is wanted. The sentence must name the repair; other faults must not be taken for these."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from gradverify.model.dtypes import Dtype
from gradverify.spec.fault import SYNONYMS
from gradverify.spec.schema import Budget, Check, Rules, RunSettings, Settings, Spec, Tensor
from gradverify.spec.wording import home_of
from spec.marked import loaded, unmarked

HEAD = "gradverify: 1\nchecks:\n"
INPUTS = "    inputs: {input: {shape: [2]}}\n"

SLIPS = [
    # a blank or a colon too few
    ("gradverify:«1\nchecks: []\n", "a space is missing after the colon: `gradverify: 1`"),
    (f"{HEAD}  - function:«relu\n{INPUTS}", "a space is missing after the colon: `function: relu`"),
    (f"{HEAD}  - function: relu\n    inputs« {{input: {{shape: [2]}}}}\n", "a colon is missing: `inputs: …`"),
    (f"{HEAD}  - function: relu\n    «eps 1e-6\n    seed: 1\n", "a key without a colon: write `key: value`"),
    (f"{HEAD}  - function: my«: relu\n{INPUTS}", "put text that contains `: ` in quotes"),
    # brackets and quotes
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2, 3«}}}}\n", "found `}`: the `[` begun on line 4 is not closed"),
    (f"{HEAD}  - «{{function: relu, inputs: {{input: {{shape: [2, 3]}}}}\n", "found the end of the file: the `{` begun on line 3 is not closed"),
    (f"{HEAD}  - function: «'relu\n{INPUTS}", "found the end of the file: the quote begun on line 3 is not closed"),
    (f"{HEAD}  - function: «[\n", "expected `]`, found the end of the file: the `[` begun on line 3 is not closed"),
    (f"{HEAD}  - function: «[", "expected `]`, found the end of the file: the `[` begun on line 3 is not closed"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: «[2,\n\n", "expected `]`, found the end of the file: the `[` begun on line 4"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2, «}}}}\n", "expected `]`, found `}`: the `[` begun on line 4 is not closed"),
    (f"{HEAD}  - function: relu\n    tags: [a, «, b]\n{INPUTS}", "a `,` without a value before it"),
    (f"{HEAD}  - function: «]\n", "a `]` that closes nothing"),
    # a blank too few after the dash
    (f"{HEAD}  -«function: relu\n{INPUTS}", "a blank is missing after the `-`: `- function: relu`"),
    (f"{HEAD}  -«name: a\n\n    # about it\n    function: relu\n{INPUTS}", "a blank is missing after the `-`: `- name: a`"),
    (f"{HEAD}  - function: relu\n    inputs:\n      -«{{shape: [2]}}\n", "a blank is missing after the `-`: `- {shape: [2]}`"),
    (f"{HEAD}  -function: relu\n  «-function: mul\n", "again on line 4; write `- function: …`, with a blank after the `-`"),
    (f"{HEAD}  - function: 'relu' «x\n{INPUTS}", "text where the value ends already: put all of the value in quotes"),
    # indentation
    (f"{HEAD}  - function: relu\n   «inputs: []\n", "the indentation of this line fits no line above it; the list around it begins on line 3"),
    (f"{HEAD}  - function: relu\n  «inputs: []\n", "the indentation of this line fits no line above it; the list around it begins on line 3"),
    (f"{HEAD}  - function: relu\n    seed: 1\n   «eps: 1e-6\n", "the indentation of this line fits no line above it"),
    # forms of values
    (f"{HEAD}  «function: relu\n", "expected a list of checks: begin each one with `- `, as in `- function: relu`"),
    (f"{HEAD}  - «relu\n", "expected a mapping, got 'relu'; for example {function: relu, inputs:"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: «3}}}}\n", "expected a list, got 3; for example [2, 3]"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2], normal: «1}}}}\n", "expected a list, got 1; for example [0, 1]"),
    (f"{HEAD}  - function: relu\n    skip: «true\n{INPUTS}", 'expected text, got true; for example "needs the new kernel"'),
    (f"{HEAD}  - function: relu\n    budget: «10\n{INPUTS}", 'expected a mapping, got 10; for example {"seconds": 10}'),
    (f"{HEAD}  - function: relu\n    expect: «GV101\n{INPUTS}", "or a list of rule codes, got 'GV101'; write [GV101]"),
    (f"{HEAD}  - function: relu\n    expect: «GV10\n{INPUTS}", "or a list of rule codes, got 'GV10'"),
    # names of functions and rules
    (f"{HEAD}  - function: «ops.py::F\n{INPUTS}", "'ops.py::F' is no name; did you mean 'ops.py:F'?"),
    (f"{HEAD}  - function: «my.ops::F\n{INPUTS}", "'my.ops::F' is no name; did you mean 'my.ops:F'?"),
    (f"{HEAD}  - function: relu\n    rules: {{select: «GV1}}\n{INPUTS}", "expected a list, got 'GV1'; write [GV1]"),
    (f"{HEAD}  - function: relu\n    rules: {{select: [«gv1]}}\n{INPUTS}", "got 'gv1'; write GV1"),
    (f"{HEAD}  - function: relu\n    rules: {{select: [«jacobian]}}\n{INPUTS}", "got 'jacobian'; `gradverify explain` lists them with their names"),
    (f"{HEAD}  - function: torch:cat\n    inputs: {{tensors: [{{shape: [2]}}, «3]}}\n", "expected a mapping, got 3; for example {shape: [2, 3]}"),
    (f"{HEAD}  - function: relu\n    seed: «99999999999999999999\n{INPUTS}", "must be a whole number from 0 to 2**63 - 1, got 99999999999999999999"),
    # words of other programs
    (f"{HEAD}  - function: relu\n    dtype: «double\n{INPUTS}", "unknown value 'double'; did you mean 'float64'?"),
    (f"{HEAD}  - function: relu\n    device: «gpu\n{INPUTS}", "expected cpu, cuda, cuda:<number> or auto, got 'gpu'; did you mean 'cuda'?"),
    (f"{HEAD}  - function: relu\n    requires: [«gpu]\n{INPUTS}", "got 'gpu'; did you mean 'cuda'?"),
    (f"{HEAD}  - function: relu\n    «reproducible: true\n{INPUTS}", "unknown key 'reproducible'; did you mean 'deterministic'?"),
    (f"{HEAD}  - function: relu\n    «nondet_tol: 0.1\n{INPUTS}", "unknown key 'nondet_tol'; did you mean 'nondeterminism'?"),
    (f"{HEAD}  - function: relu\n    «epsilon: 0.1\n{INPUTS}", "unknown key 'epsilon'; did you mean 'eps'?"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{«size: [2]}}}}\n", "unknown key 'size'; did you mean 'shape'?"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2], «randn: [0, 1]}}}}\n", "unknown key 'randn'; did you mean 'normal'?"),
    # keys in the wrong place
    (f"{HEAD}  - function: relu\n    «ignore: [GV2]\n{INPUTS}", "unknown key 'ignore' here: it belongs in `rules`: `rules: {ignore: …}`"),
    (f"{HEAD}  - function: relu\n    «seconds: 3\n{INPUTS}", "it belongs in `budget`: `budget: {seconds: …}`"),
    (f"{HEAD}  - function: relu\n    «path: ..\n{INPUTS}", "it belongs at the top of the file, next to `checks`"),
    (f"{HEAD}  - function: relu\n    «shape: [2]\n{INPUTS}", "it belongs to an input: `inputs: {x: {shape: …}}`"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2], «eps: 1}}}}\n", "it belongs to the check, next to `inputs`"),
    (f"{HEAD}  - function: relu\n    inputs: {{input: {{shape: [2]}}, «eps: 1}}\n", "('eps' is a key of the check: it belongs next to `inputs`)"),
    (f"{HEAD}  - function: relu\n    inputs: [{{«x: {{shape: [2]}}}}]\n", "a list of inputs has no names; as a mapping: `inputs: {x: …}`"),
    ("gradverify: 1\n«seed: 3\nchecks: []\n", "it belongs to a check below `checks` or, for all of them, to `defaults`"),
    ("gradverify: 1\n«name: op\nchecks: []\n", "it belongs to a check below `checks`"),
    ("gradverify: 1\ndefaults: {«function: relu}\nchecks: []\n", "it belongs to a check, not to `defaults`"),
    ("gradverify: 1\ndefaults: {«shape: [2]}\nchecks: []\n", "it belongs to an input of a check"),
]


@pytest.mark.parametrize(("text", "said"), SLIPS, ids=[said for _, said in SLIPS])
def test_a_slip_is_told_with_its_repair_at_its_place(text, said, tmp_path):
    text, places = unmarked(text)
    problems = loaded(text, tmp_path).problems
    assert [(problem.line, problem.column) for problem in problems][:1] == places
    assert said in problems[0].message


@pytest.mark.parametrize("text", [
    f"{HEAD}  - function: relu\n    name: 'a:b {{'\n{INPUTS}",
    f"{HEAD}  - name: shape [2]\n    function: relu\n{INPUTS}",
    f"{HEAD}  - function: my_ops:relu\n    inputs: {{inputs: {{shape: [2]}}, eps: 1e-6, shape: [2]}}\n",
])
def test_what_only_looks_like_a_slip_is_none(text, tmp_path):
    assert loaded(text, tmp_path).problems == ()


def test_a_word_of_another_program_with_a_colon_is_not_blamed(tmp_path):
    """`http:x` above the fault is no key of the format."""
    problems = loaded(f"{HEAD}  - function: relu\n    name: a\n      http:x: 1\n", tmp_path).problems
    assert "a space is missing" not in problems[0].message


def test_a_synonym_stands_for_a_name_of_the_format_and_is_none_itself():
    known = {info.alias or name for each in (Spec, Check, Tensor, Budget, Rules) for name, info in each.model_fields.items()}
    values = {*get_args(Dtype), "cuda"}
    assert set(SYNONYMS.values()) <= known | values
    assert not set(SYNONYMS) & (known | values)


@pytest.mark.parametrize("model", [Spec, Check, Settings, RunSettings, Tensor, Budget, Rules], ids=lambda model: model.__name__)
def test_no_key_is_sent_away_from_a_place_that_has_it_to_one_that_lacks_it(model):
    homes = {"`rules`": Rules, "`budget`": Budget, "top of the file": Spec, "below `checks`": Check, "to a check": Check, "to the check": Check,
             "to an input": Tensor}
    every = {info.alias or name for each in (Spec, Check, Tensor, Budget, Rules) for name, info in each.model_fields.items()}
    for key in every - {info.alias or name for name, info in model.model_fields.items()}:
        home = home_of(key, model, 1)
        if home:
            place = next(place for words, place in homes.items() if words in home.replace("an input of a check", "an input"))
            assert key in {info.alias or name for name, info in place.model_fields.items()}, (key, home)


def test_a_sound_document_is_read_without_the_models_of_the_format():
    """They cost a fifth of a second, which a hook that finds nothing to check need not spend."""
    code = "import sys, gradverify.spec.walk, gradverify.spec.document; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout == "False\n"
