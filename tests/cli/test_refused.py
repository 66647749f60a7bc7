"""Command lines, specs and files that are refused: exit code and sentences as written down in
tests/golden/refused.txt, before anything runs."""

import re
import shlex

import pytest

from gradverify.report.formats import KINDS, NAMES

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{this}: &{this} [{', '.join([f'*{last}'] * 9)}]\n"
    for last, this in zip("abcdefgh", "bcdefghi", strict=True)
)
HEAD = "gradverify: 1\nchecks:\n"
RELU = "function: relu, inputs: {input: {shape: [2]}}"
LONG = "n" * 300
KNOWN = '{"gradverify_baseline": 1, "known": '
FILES = {
    "specs/ref2.yaml": HEAD,
    "specs/slow.yaml": HEAD,
    "specs/swish.gradverify.yaml": HEAD,
    "f.py": "def double(x): return 2 * x\n",
    "no/.keep": "",
    "misspelled.yaml": HEAD + "  - functoin: add\n    epz: 1\n",
    "version.yaml": "gradverify: 2\nchecks: []\n",
    "no_list.yaml": "gradverify: 1\nchecks: 3\n",
    "keys.yaml": HEAD
    + "".join(
        f"  - {{name: c{place}, {body}}}\n"
        for place, body in enumerate(
            (
                "function: relo, inputs: {}",
                "function: relu, inputs: {x: {shape: [2]}}",
                "function: linear, inputs: {input: {shape: [2, 3]}}",
                f"{RELU}, seed: -1",
                "function: 'pp.py:f', inputs: {}",
                f"{RELU}, rtol: .nan",
                f"{RELU}, eps: -1e-6, epz: 1",
                "function: relu, inputs: {input: {integers: [0, 9], shape: [2], requires_grad: "
                "true}}",
                f"function: '{LONG}.py:f', inputs: {{}}",
                f"function: 'f.py:double', inputs: {{x: {{file: {LONG}.npy}}}}",
                f"function: 'f.py:double', inputs_from: '{LONG}.py:f'",
            )
        )
    ),
    "empty.yaml": "",
    "tab.yaml": HEAD + "\t- {function: relu}\n",
    "duplicate.yaml": HEAD + "  - {name: a, function: relu, name: again, inputs: {}}\n",
    "tag.yaml": HEAD + "  - {function: !!python/object/apply:os.mkdir [pwned]}\n",
    "bomb.yaml": "gradverify: 1\n" + BOMB + "checks: []\n",
    "loop.yaml": "gradverify: 1\nchecks: &all [*all]\n",
    "binary.yaml": bytes(range(256)),
    "latin.yaml": b"gradverify: 1\nchecks: [\xe9]\n",
    "torn.py": "def (",
    "report.xml": "<?xml version='1.0'?>\n",
    "two.json": '{"schema_version": 2, "tool": {"version": "9"}, "checks": []}',
    "cut.json": '{"schema_version": 1, "tool": {"na',
    "torn.json": KNOWN + "[\n<<<<<<< HEAD\n",
    "list.json": "[]",
    "second.json": '{"gradverify_baseline": 2, "known": []}',
    "chek.json": KNOWN + '[{"chek": "a", "code": "GV1"}]}',
    "less.json": '{"gradverify_baseline": 1}',
    "deep.json": "[" * 100_000,
    "digits.json": '{"gradverify_baseline": ' + "1" * 5000 + "}",
}
COMMANDS = """
check s.yaml --eps nan
check s.yaml --eps -1 --atol nan --rtol -1e-3 --seed 1.5 --dtype flaot64 --device cdua --mode entires --select GV999 --ignore GV120 --ignore jacobian
check s.yaml --eps 0 --seed -1 --undecided wran --format tabel --color allways --require-device gpu --dtype float8_e4m3fn --select X1 --select X2
check s.yaml --eps inf --dtype double --jobs 0 --timeout 0 --durations ²
check s.yaml --durations 10001 --jobs 1025
check s.yaml --report jsom:x.json --report json: --report r.json --report json:-
check s.yaml --report json:.
check s.yaml --report json:s.yaml/r.json
check s.yaml --maxfail 0
check s.yaml --maxfail=-1
check s.yaml --max-rows 101
check s.yaml --max-rows 1.5
check s.yaml --width 59
check s.yaml --width=
check s.yaml --no-such-option
check s.yaml --last-failed
check s.yaml --failed-first -x
check s.yaml --no-isolate --jobs 2
check s.yaml -k 'a and'
check s.yaml -k othr
check s.yaml -k op -m slow
list s.yaml -m fsat
list s.yaml --color allways
list --functions --color allways
explain --color allways
coverage . --color allways
explain GV239
explain jacobiam
explain GV1111
explain swishy
explain GV101 GV102
explain GV101 --eps 1
explain GV101 --element x:y
explain s.yaml
explain s.yaml::othr
explain s.yml::other
explain s.yaml::other --element x
explain s.yaml::other --element 'x[0]:'
explain s.yaml::other --format yaml
explain misspelled.yaml::add
env s.yaml
env --format json
check s.yaml::othr
validate s.yaml::othr
check nowhere.yaml
check empty
check specs/a.yaml specs/*.yaml specs/slwo.yaml specs/ref.yaml specs/slow.yml specs/SLOW.yaml specs/a.gradverify.yaml
coverage f.py --specs specs/slwo.yaml
coverage nowhere
coverage f.py --specs misspelled.yaml
coverage torn.py
coverage torn.py --format json
validate misspelled.yaml no_list.yaml gone.yaml
check misspelled.yaml
check version.yaml
check version.yaml gone.yaml
check keys.yaml
check empty.yaml tab.yaml duplicate.yaml tag.yaml bomb.yaml loop.yaml binary.yaml latin.yaml f.py
check s.yaml --baseline-update
check s.yaml --baseline none.json
check s.yaml --baseline torn.json
check s.yaml --baseline list.json
check s.yaml --baseline second.json
check s.yaml --baseline chek.json
check s.yaml --baseline less.json
check s.yaml --baseline deep.json
check s.yaml --baseline digits.json
check s.yaml --baseline specs
check s.yaml --baseline f.py/b.json --baseline-update
mutate s.yaml --fail-under 101
init nowhere.py
show no.json
show list.json
show torn.json
show report.xml
show two.json
show cut.json
show binary.yaml
show s.yaml --format jsn
show specs
check s.yaml --eps
check s.yaml -k 'specs and othr'
check s.yaml -k '(otehr)'
check s.yaml -k 'op and othr'
check s.yaml -k op -m fsat
check s.yaml -k 'op and zzz'
chek s.yaml
"""


@pytest.fixture
def files(spec, folder):
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "empty").mkdir()
    return folder


def test_what_is_refused_is_told_as_written_down(golden, gradverify, engine, files):
    asked, told = engine(), []
    before = sorted(path.name for path in files.rglob("*") if path.is_file())
    for line in COMMANDS.strip().splitlines():
        asked.clear()
        code, out, err = gradverify(*shlex.split(line))
        assert code in (2, 5) and (code == 5 or not asked), line
        assert "fault in gradverify" not in err and "Traceback" not in err, line
        shown = re.sub(
            r"(Exceeds the limit|maximum recursion depth).*",
            r"\1",
            f"$ gradverify {line}\n[{code}]\n{out}{err}",
        )
        shown = re.sub(r"Usage: (.*\n)+Error: ", "Error: ", shown)  # typer's own words
        told.append(
            re.sub(r"n{300}", "nnn", shown)
            .replace(str(files), "FOLDER")
            .replace(str(files.resolve()), "FOLDER")
            .replace(", ".join(NAMES), "KINDS")
            .replace(", ".join(suffix for kind in KINDS for suffix in kind.suffixes), "ENDINGS")
        )
    golden("refused.txt", "\n".join(told))
    # Nothing was written, no tag built anything
    assert sorted(path.name for path in files.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize(
    "value",
    [
        "5/4",
        "0/3",
        "a/b",
        "3",
        "1/0",
        "1/2/3",
        "-1/2",
        "1.0/2",
        "",
        "1/",
        "/2",
        "9" * 5000 + "/2",
        " 1/2",
        "1/²",
    ],
)
def test_a_shard_that_is_none_is_refused_in_one_sentence(gradverify, engine, spec, value):
    asked = engine()
    code, out, err = gradverify("check", "s.yaml", f"--shard={value}")
    assert (code, out, asked) == (
        2,
        "",
        {},
    ) and err == f"--shard {value!r}: must be I/N, whole numbers with I from 1 to N, such as 2/4\n"


@pytest.mark.parametrize(
    "command",
    ["check", "validate", "list", "show", "explain", "mutate", "init", "init f.py:double -o"],
)
def test_a_name_that_no_file_system_could_hold_is_of_no_file(gradverify, files, command):
    code, out, err = gradverify(*command.split(), LONG)
    assert (
        code == 2
        and LONG in out + err
        and re.search("cannot be (read|written)|no such file|no rule", out + err)
        and "Trace" not in err
    )
