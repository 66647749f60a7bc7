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


def test_validate_tells_every_problem_of_every_file(gradverify, folder):
    (folder / "s.yaml").write_text("gradverify: 1\nchecks:\n  - functoin: add\n    epz: 1\n")
    (folder / "t.yaml").write_text("gradverify: 1\nchecks: 3\n")
    code, out, _ = gradverify("validate", "s.yaml", "t.yaml", "gone.yaml")
    assert code == 2
    for start in ("s.yaml:3:", "s.yaml:4:", "t.yaml:2:", "gone.yaml: no such file"):
        assert any(line.startswith(start) for line in out.splitlines()), start
    assert out.splitlines()[-1].endswith("problems")


def test_validate_refuses_a_name_that_no_check_has(gradverify, spec):
    code, out, _ = gradverify("validate", "s.yaml::othr")
    assert code == 2 and "othr" in out and "other" in out


def test_validate_without_specs_is_5(gradverify, folder):
    code, out, err = gradverify("validate")
    assert (code, out) == (5, "") and "no specs" in err


def test_list_shows_ids_tags_and_sizes(gradverify, spec):
    code, out, _ = gradverify("list", "s.yaml")
    assert code == 0 and out.splitlines() == ["s.yaml::op[a=1]\tfast\tcpu\tx[2] y[2]", "s.yaml::other\t\tcpu\tx[3] y[3]"]


def test_list_selects(gradverify, spec):
    assert [case["name"] for case in json.loads(gradverify("list", "s.yaml", "-m", "fast", "--format", "json")[1])] == ["op[a=1]"]
    assert gradverify("list", "s.yaml", "-k", "nothing")[:2] == (5, "")


def test_list_functions_is_the_catalogue(gradverify, folder):
    assert [row["name"] for row in json.loads(gradverify("list", "--functions", "--format", "json")[1])] == list(BUILTINS)


def test_schema_prints_schemas(gradverify):
    for arguments in (["schema"], ["schema", "--report"]):
        code, out, _ = gradverify(*arguments)
        jsonschema.Draft7Validator.check_schema(json.loads(out))
        assert code == 0
    assert "checks" in out and gradverify("schema")[1] != out


def test_explain_prints_a_page(gradverify):
    code, out, _ = gradverify("explain", "gv201")
    assert code == 0 and out.startswith("GV201 backward-linear") and "severity: error" in out


@pytest.mark.parametrize(("options", "columns", "width"), [((), None, 120), (("--width", "70"), None, 70), ((), "80", 80), ((), "30", 60)])
def test_a_page_is_as_wide_as_was_asked_for_and_its_example_stays(gradverify, monkeypatch, options, columns, width):
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    for rule in rules():
        code, out, _ = gradverify("explain", rule.code, *options)
        page = rule.page.strip()
        prose = [line for line in out.splitlines() if not line.startswith("    ")]
        assert code == 0 and max(map(len, prose)) <= width
        assert [line for line in out.splitlines() if line.startswith("    ")] == [line for line in page.splitlines() if line.startswith("    ")]
        assert out.split() == [*page.split(), "severity:", rule.severity]


def test_explain_knows_its_neighbours(gradverify):
    code, out, err = gradverify("explain", "GV239")
    assert (code, out) == (2, "") and "no rule 'GV239'" in err and "did you mean GV2" in err


def test_env_says_what_a_bug_report_needs(gradverify):
    code, out, _ = gradverify("env")
    assert code == 0
    for line in ("python: ", "platform: ", "gradverify: ", "torch: 2", "cuda devices: ", "threads: "):
        assert any(found.startswith(line) for found in out.splitlines()), line


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_names_no_types_of_python(process, arguments):
    out = process(*arguments, "--help", env={"COLUMNS": "200"}).stdout
    assert "--help" in out and not re.search(r"<(bool|str|int|float|list)", out)


def test_the_help_of_check_names_every_format_and_fits_eighty_columns(process):
    from gradverify.cli.asked import CHECK_FORMATS
    from gradverify.report.formats import NAMES

    out = process("check", "--help", env={"COLUMNS": "80"}).stdout
    words = re.sub(r"[│\s]+", " ", out)
    assert {*CHECK_FORMATS, *NAMES} <= set(re.findall(r"\w+", words.partition("Output")[2]))
    assert max(map(len, out.splitlines())) <= 80 and "x>=" not in out and not re.search(r"\w…", out)      # nothing is cut
    panels = [line.split()[1] for line in out.splitlines() if line.startswith("╭─")]
    assert panels == ["Arguments", "Options", "Selection", "Running", "Settings", "Gate", "Output"]


@pytest.mark.parametrize(("option", "least"), [("--maxfail", 1), ("--max-rows", 1), ("--width", 60)])
@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "", "9" * 5000])
def test_a_count_below_its_least_is_refused(gradverify, spec, option, least, value):
    code, out, err = gradverify("check", "s.yaml", f"{option}={value}")
    assert (code, out) == (2, "") and f"Invalid value for '{option}': {value!r} is no whole number from {least}" in err


@pytest.mark.parametrize(("argument", "said"), [
    ("--max-rows=101", "Invalid value for '--max-rows': '101' is no whole number from 1 to 100"),
    ("--width=59", "Invalid value for '--width': '59' is no whole number from 60"),
    ("--device=gpu", "--device 'gpu': must be cpu, cuda, cuda:N or auto; did you mean cuda?"),
    ("--require-device=gpu", "did you mean cuda?"), ("--dtype=double", "did you mean float64?"),
    ("--report=json:-", "--report 'json:-': a report is written to a file, and `-` is none; json:/dev/stdout stands for stdout\n")])
def test_what_an_option_does_not_take_is_refused_before_anything_runs(gradverify, spec, folder, argument, said):
    code, out, err = gradverify("check", "s.yaml", argument)
    assert (code, out) == (2, "") and said in err and [each.name for each in folder.iterdir()] == ["s.yaml"]


def test_the_help_of_width_and_rows_says_what_is_taken(process):
    out = re.sub(r"[│\s]+", " ", process("check", "--help", env={"COLUMNS": "200"}).stdout)
    assert "Width in columns, at least 60;" in out and "Elements shown for each finding, 100 at most; default 10." in out
    assert "With --show-config: how it is printed." in re.sub(r"[│\s]+", " ", process("env", "--help", env={"COLUMNS": "200"}).stdout)


@pytest.mark.parametrize(("name", "near"), [("a.yaml", None), ("*.yaml", None), ("slwo.yaml", "slow.yaml"), ("ref.yaml", "ref2.yaml"),
                                            ("slow.yml", "slow.yaml"), ("SLOW.yaml", "slow.yaml"), ("a.gradverify.yaml", None)])
def test_only_a_path_that_is_close_is_suggested(gradverify, folder, name, near):
    (folder / "specs").mkdir()
    for there in ("ref2.yaml", "slow.yaml", "swish.gradverify.yaml"):
        (folder / "specs" / there).write_text("gradverify: 1\nchecks: []\n")
    (folder / "f.py").touch()
    for command in (["check", f"specs/{name}"], ["coverage", "f.py", "--specs", f"specs/{name}"]):
        code, _, err = gradverify(*command)
        assert code == 2 and err == f"specs/{name}: no such file or folder" + (f"; did you mean {near!r}?\n" if near else "\n")


def test_version_names_torch_too(gradverify):
    from gradverify import __version__

    code, out, _ = gradverify("--version")
    assert code == 0 and out.startswith(f"gradverify {__version__} (torch 2.")


LIGHT = """
import sys
sys.argv = ["gradverify", *{arguments!r}]
from gradverify.__main__ import main
try:
    main()
except SystemExit as leaving:
    assert leaving.code in (0, None), leaving.code
heavy = sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "numpy"))
assert not heavy, heavy[:3]
"""


@pytest.mark.parametrize("arguments", [
    ["--help"], ["check", "--help"], ["--version"], ["validate", "s.yaml"], ["list", "s.yaml"], ["list", "--functions"], ["schema"],
    ["schema", "--report"], ["explain", "GV101"], ["env", "--show-config", "s.yaml"], ["explain"], ["explain", "jacobian"]], ids=" ".join)
def test_light_commands_import_neither_torch_nor_numpy(spec, folder, arguments):
    code = LIGHT.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_console_script_imports_nothing_at_its_top():
    code = "import sys; before = set(sys.modules); import gradverify.__main__; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['gradverify', 'gradverify.__main__']"


def test_list_shows_files_as_a_person_names_them(gradverify, folder):
    for name in ("specs", "ops", "elsewhere"):
        (folder / name).mkdir()
    for name in ("ops/act.py", "make.py"):
        (folder / name).touch()
    (folder / "specs" / "s.yaml").write_text(
        "gradverify: 1\nchecks: [{function: ../ops/act.py:F, inputs_from: ../make.py:fn}]\n")
    assert gradverify("list", "specs")[1] == "specs/s.yaml::F\t\tcpu\tfrom make.py:fn\n"
    assert json.loads(gradverify("list", "specs", "--format", "json")[1])[0]["function"] == "ops/act.py:F"


def test_list_shows_files_elsewhere_as_they_are_written(gradverify, folder, monkeypatch):
    (folder / "specs").mkdir()
    (folder / "make.py").touch()
    (folder / "specs" / "s.yaml").write_text("gradverify: 1\nchecks: [{function: relu, inputs_from: ../make.py:fn}]\n")
    monkeypatch.chdir(folder / "specs")
    assert gradverify("list", "s.yaml")[1] == "s.yaml::relu\t\tcpu\tfrom ../make.py:fn\n"


def test_list_names_the_nearest_of_an_empty_selection(gradverify, spec):
    assert gradverify("list", "s.yaml", "-m", "fsat") == (5, "", "-m 'fsat' fits none of 2 checks; did you mean 'fast'?\n")


def test_validate_says_which_sources_stand_for_no_file_and_goes_on(gradverify, folder):
    (folder / "a.cu").touch()
    text = "gradverify: 1\nchecks:\n  - {function: add, inputs: [1, 2], sources: [a.cu, '*.hip', '*.hip'], matrix: {seed: [1, 2]}}\n"
    (folder / "s.yaml").write_text(text)
    assert gradverify("validate", "s.yaml") == (
        0, "1 spec, 2 checks: valid\n", "s.yaml:3: sources: '*.hip' stands for no file (relative to the spec)\n")


@pytest.mark.parametrize("command", ["merge", "show"])
def test_a_count_that_is_a_default_needs_no_word(gradverify, folder, command):
    """Here the file that is missing is what is wrong."""
    code, out, err = gradverify(command, "no.json")
    assert (code, out) == (2, "") and "no.json" in err and "fault" not in err


@pytest.mark.parametrize("command", [("list",), ("list", "--functions"), ("explain",), ("coverage", ".")])
def test_a_colour_that_is_none_is_refused_by_every_command_that_takes_one(gradverify, spec, command):
    code, out, err = gradverify(*command, "--color", "allways")
    assert (code, out) == (2, "") and "--color 'allways': must be one of auto, always, never; did you mean always?" in err
