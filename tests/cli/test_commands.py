import json
import re
import subprocess
import sys

import jsonschema
import pytest

from gradverify.cli.app import COMMANDS
from gradverify.functions.catalogue import BUILTINS
from gradverify.rules.catalogue import rules


def test_validate_counts_what_is_sound(gradverify, spec, folder):
    (folder / "t.yaml").write_text(spec.read_text())
    assert gradverify("validate", "s.yaml", "t.yaml") == (0, "2 specs, 4 checks: valid\n", "")


def test_validate_without_specs_is_5(gradverify, folder):
    code, out, err = gradverify("validate")
    assert (code, out) == (5, "") and "no specs" in err


def test_list_shows_ids_tags_and_sizes(gradverify, spec):
    code, out, _ = gradverify("list", "s.yaml")
    assert code == 0 and out.splitlines() == [
        "s.yaml::op[a=1]\tfast\tcpu\tx[2] y[2]",
        "s.yaml::other\t\tcpu\tx[3] y[3]",
    ]


def test_list_selects(gradverify, spec):
    assert [
        case["name"]
        for case in json.loads(gradverify("list", "s.yaml", "-m", "fast", "--format", "json")[1])
    ] == ["op[a=1]"]
    assert gradverify("list", "s.yaml", "-k", "nothing")[:2] == (5, "")


def test_list_functions_is_the_catalogue(gradverify, folder):
    assert [
        row["name"] for row in json.loads(gradverify("list", "--functions", "--format", "json")[1])
    ] == list(BUILTINS)


def test_schema_prints_schemas(gradverify):
    for arguments in (["schema"], ["schema", "--report"]):
        code, out, _ = gradverify(*arguments)
        jsonschema.Draft7Validator.check_schema(json.loads(out))
        assert code == 0
    assert "checks" in out and gradverify("schema")[1] != out


def test_explain_prints_a_page(gradverify):
    code, out, _ = gradverify("explain", "gv201")
    assert code == 0 and out.startswith("GV201 backward-linear") and "severity: error" in out


@pytest.mark.parametrize(
    ("options", "columns", "width"),
    [((), None, 120), (("--width", "70"), None, 70), ((), "80", 80), ((), "30", 60)],
)
def test_a_page_is_as_wide_as_was_asked_for_and_its_example_stays(
    gradverify, monkeypatch, options, columns, width
):
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    for rule in rules() if options == ("--width", "70") else rules()[:4]:
        code, out, _ = gradverify("explain", rule.code, *options)
        page = rule.page.strip()
        prose = [line for line in out.splitlines() if not line.startswith("    ")]
        assert code == 0 and max(map(len, prose)) <= width
        assert [line for line in out.splitlines() if line.startswith("    ")] == [
            line for line in page.splitlines() if line.startswith("    ")
        ]
        assert out.split() == [*page.split(), "severity:", rule.severity]


def test_env_says_what_a_bug_report_needs(gradverify):
    code, out, _ = gradverify("env")
    assert code == 0
    for line in (
        "python: ",
        "platform: ",
        "gradverify: ",
        "torch: 2",
        "cuda devices: ",
        "threads: ",
    ):
        assert any(found.startswith(line) for found in out.splitlines()), line


def test_help_names_no_types_of_python(gradverify, capsys):
    for arguments in ([], *([name] for name in COMMANDS)):
        assert gradverify(*arguments, "--help")[0] == 0
        out = capsys.readouterr().out
        assert "--help" in out and not re.search(r"<(bool|str|int|float|list)", out), arguments


def test_the_help_of_check_names_every_format_and_fits_eighty_columns(process):
    from gradverify.report.formats import NAMES

    out = process("check", "--help", env={"COLUMNS": "80"}).stdout
    words = re.sub(r"[│\s]+", " ", out)
    assert {"table", "plain", "json", "jsonl", "github", *NAMES} <= set(
        re.findall(r"\w+", words.partition("Output")[2])
    )
    # Nothing is cut
    assert max(map(len, out.splitlines())) <= 80 and "x>=" not in out and not re.search(r"\w…", out)
    panels = [line.split()[1] for line in out.splitlines() if line.startswith("╭─")]
    wanted = "Arguments Options Functions Selection Running Settings Gate Output Advanced"
    assert panels == wanted.split()


def test_version_names_torch_too(gradverify):
    from gradverify import __version__

    code, out, _ = gradverify("--version")
    assert code == 0 and out.startswith(f"gradverify {__version__} (torch 2.")


LIGHT = [
    ["--help"],
    ["check", "--help"],
    ["--version"],
    ["validate", "s.yaml"],
    ["list", "s.yaml"],
    ["list", "--functions"],
    ["schema"],
    ["schema", "--report"],
    ["explain", "GV101"],
    ["explain"],
    ["explain", "jacobian"],
    ["coverage", "ops.py", "--specs", "s.yaml"],
]


def test_light_commands_import_neither_torch_nor_numpy(spec, folder):
    text = (
        "import torch\n\n\nclass F(torch.autograd.Function):\n    def forward(ctx, x): return x\n  "
        "  def backward(ctx, g): return g\n"
    )
    (folder / "ops.py").write_text(text)
    code = f"""
import io, sys
from gradverify.cli.boundary import run
from gradverify.cli.output import Output
for arguments in {LIGHT!r}:
    assert run(Output(arguments, io.StringIO(), io.StringIO())) == 0, arguments
    heavy = sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "numpy"))
    assert not heavy, (arguments, heavy[:3])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_console_script_imports_nothing_at_its_top():
    code = (
        "import sys; before = set(sys.modules); import gradverify.__main__; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "['gradverify', 'gradverify.__main__']"


def test_list_shows_files_as_a_person_names_them(gradverify, folder):
    for name in ("specs", "ops", "elsewhere"):
        (folder / name).mkdir()
    for name in ("ops/act.py", "make.py"):
        (folder / name).touch()
    (folder / "specs" / "s.yaml").write_text(
        "gradverify: 1\nchecks: [{function: ../ops/act.py:F, inputs_from: ../make.py:fn}]\n"
    )
    assert gradverify("list", "specs")[1] == "specs/s.yaml::F\t\tcpu\tfrom make.py:fn\n"
    assert (
        json.loads(gradverify("list", "specs", "--format", "json")[1])[0]["function"]
        == "ops/act.py:F"
    )


def test_list_shows_files_outside_of_the_folder_by_their_path(gradverify, folder, monkeypatch):
    (folder / "specs").mkdir()
    (folder / "make.py").touch()
    (folder / "specs" / "s.yaml").write_text(
        "gradverify: 1\nchecks: [{function: relu, inputs_from: ../make.py:fn}]\n"
    )
    monkeypatch.chdir(folder / "specs")
    assert gradverify("list", "s.yaml")[1] == f"s.yaml::relu\t\tcpu\tfrom {folder}/make.py:fn\n"


def test_validate_says_which_sources_stand_for_no_file_and_goes_on(gradverify, folder):
    (folder / "a.cu").touch()
    text = (
        "gradverify: 1\nchecks:\n  - {function: add, inputs: [1, 2], sources: [a.cu, '*.hip', "
        "'*.hip'], matrix: {seed: [1, 2]}}\n"
    )
    (folder / "s.yaml").write_text(text)
    assert gradverify("validate", "s.yaml") == (
        0,
        "1 spec, 2 checks: valid\n",
        "s.yaml:3: sources: '*.hip' stands for no file (relative to the spec)\n",
    )
