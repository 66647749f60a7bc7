import json

import jsonschema
import pytest
from factories import failing, passing, raising, result, skipped, undecided

from gradverify.cli.watch import collected
from gradverify.model.event import RunFinished, RunStarted, Selection
from gradverify.model.report import Gate
from gradverify.model.result import FunctionInfo
from gradverify.report.json_schema import report_schema


@pytest.mark.parametrize("results, options, code", [
    ([passing()], [], 0), ([passing(), failing()], [], 1), ([raising()], [], 3), ([skipped()], [], 5), ([failing(), raising()], [], 1),
    ([undecided()], [], 0), ([undecided()], ["--undecided", "fail"], 3), ([passing(), skipped()], ["--fail-on-skip"], 3),
    ([passing(), skipped()], ["--require-device", "cuda"], 3), ([passing(), skipped()], ["--require-device", "cpu"], 0),
    ([failing(expect=("GV101",))], [], 0), ([passing(expect="fail")], [], 1)])
def test_the_exit_code_is_the_reports(gradverify, engine, spec, results, options, code):
    engine(*results)
    assert gradverify("check", "s.yaml", *options)[0] == code


def test_undecided_checks_fail_in_ci(gradverify, engine, spec, monkeypatch):
    monkeypatch.setenv("CI", "true")
    engine(undecided())
    assert gradverify("check", "s.yaml")[0] == 3
    assert gradverify("check", "s.yaml", "--undecided", "warn")[0] == 0


def test_an_interrupt_still_shows_and_writes_what_there_is(gradverify, engine, spec, folder):
    engine(passing(), result("late", "not_run", reason="interrupted"), interrupted=130)
    code, out, _ = gradverify("check", "s.yaml", "--report", "json:r.json")
    written = json.loads((folder / "r.json").read_text())
    assert code == written["exit_code"] == 130 and written["interrupted"] is True
    assert "interrupted: 1 passed, 1 not run" in out.splitlines()[-1]


def test_an_interrupt_between_two_checks_keeps_what_was_seen():
    def events():
        yield RunStarted("", (), None, None, 2)
        raise KeyboardInterrupt

    assert [type(event) for event in collected(events())] == [RunStarted, RunFinished]
    assert collected(events())[-1].interrupted == 130


def test_an_interrupt_before_anything_was_seen_goes_on():
    def events():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        collected(events())


def test_a_fault_of_our_own_is_4_and_a_bug_report_on_stderr(gradverify, engine, spec):
    engine(passing(), crashed="KeyError: 'x'")
    code, _, err = gradverify("check", "s.yaml")
    assert code == 4 and "fault in gradverify" in err and "KeyError: 'x'" in err and "command: gradverify check s.yaml" in err


def test_stdout_is_only_the_format_asked_for(gradverify, engine, spec):
    engine(passing(), failing())
    code, out, err = gradverify("check", "s.yaml", "--format", "json")
    jsonschema.validate(json.loads(out), report_schema())
    assert code == 1 and err == ""


def test_the_report_file_is_the_json_of_stdout(gradverify, engine, spec, folder):
    engine(passing(), failing())
    _, out, _ = gradverify("check", "s.yaml", "--format", "json", "--report", "json:deep/er/r.json", "--report", "json:second.json")
    assert (folder / "deep/er/r.json").read_text() == (folder / "second.json").read_text() == out
    written = {path.name for path in folder.rglob("*") if path.is_file() and path.parent.name != ".gradverify_cache"}
    assert written == {"r.json", "s.yaml", "second.json"}


def test_a_report_that_fails_costs_neither_the_others_nor_the_summary(gradverify, engine, spec, folder, monkeypatch):
    engine(passing(), failing())
    calls = []

    def render(report):
        calls.append(1)
        if len(calls) in (1, 5):      # a.json as the run begins and as it ends: drawn whole, then each of two checks alone
            raise ValueError("odd")
        return "whole"

    monkeypatch.setattr("gradverify.report.json.render", render)
    code, out, err = gradverify("check", "s.yaml", "--report", "json:a.json", "--report", "json:b.json")
    assert code == 4 and "1 failed, 1 passed" in out and "ValueError: odd" in err and "a.json could not be written" in err
    assert not (folder / "a.json").exists() and (folder / "b.json").read_text() == "whole"


def test_an_older_report_is_gone_when_the_run_starts(gradverify, spec, folder, monkeypatch):
    report = folder / "r.json"
    report.write_text("old")

    def killed(*arguments, **options):
        assert json.loads(report.read_text())["summary"]["not_run"] == 2
        raise KeyboardInterrupt

    monkeypatch.setattr("gradverify.running.schedule.run", killed)
    assert gradverify("check", "s.yaml", "--report", "json:r.json")[0] == 130
    assert json.loads(report.read_text())["interrupted"]


@pytest.mark.parametrize("target", ["json:.", "json:s.yaml/r.json", "json:/proc/nowhere/r.json"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(gradverify, engine, spec, target):
    asked = engine(passing())
    code, out, err = gradverify("check", "s.yaml", "--report", target)
    assert (code, out, asked) == (2, "", {}) and "cannot be written" in err


def test_the_engine_gets_what_was_asked(gradverify, engine, spec):
    asked = engine(passing())
    gradverify("check", "s.yaml", "--eps", "1e-5", "--seed", "7", "--select", "GV1,GV224", "--select", "GV201", "--strict", "--no-witness", "-x",
               "-k", "op", "-m", "fast", "--require-device", "cuda")
    case, = asked["cases"]
    assert case.name == "op[a=1]" and (case.settings.eps, case.settings.seed, case.settings.strict) == (1e-5, 7, True)
    assert not case.settings.witness
    assert case.settings.select == ("GV1", "GV224", "GV201")
    assert asked["maxfail"] == 1 and asked["argv"][:2] == ("check", "s.yaml") and asked["gate"] == Gate(require_device=("cuda",))
    assert asked["selection"] == Selection(("s.yaml",), "op", "fast", deselected=1)


@pytest.mark.parametrize("path, names", [("s.yaml", ["op[a=1]", "other"]), ("s.yaml::op[a=1]", ["op[a=1]"]), ("s.yaml::other", ["other"])])
def test_one_check_can_be_named(gradverify, engine, spec, path, names):
    asked = engine(passing())
    gradverify("check", path)
    assert [case.name for case in asked["cases"]] == names


def test_quiet_and_verbose(gradverify, engine, spec):
    engine(passing(), failing("broken"))
    quiet, normal, verbose = (gradverify("check", "s.yaml", *option)[1] for option in (["-q"], [], ["-v"]))
    assert "linear" not in quiet and "broken" in quiet
    assert "PASS       linear" in normal and "GV111 not applicable" not in normal
    assert "GV111 not applicable: the function has no parameters" in verbose


def test_what_is_piped_is_plain_and_without_colour(gradverify, engine, spec):
    engine(failing())
    out = gradverify("check", "s.yaml")[1]
    assert "\x1b" not in out and "╭" not in out and "== FAIL  swish" in out
    assert "╭" in gradverify("check", "s.yaml", "--format", "table")[1]


def test_rows_are_capped_as_asked(gradverify, engine, spec):
    engine(failing())
    assert "… and 62 more of 96" in gradverify("check", "s.yaml", "--max-rows", "2")[1]


@pytest.mark.parametrize("arguments, sentence", [
    (["--eps", "nan"], "--eps 'nan': must be `auto` or a finite number above 0"),
    (["--eps", "-1"], "--eps '-1': must be"), (["--eps", "0"], "--eps '0'"), (["--eps", "inf"], "--eps 'inf'"), (["--eps", "tiny"], "--eps 'tiny'"),
    (["--atol", "nan"], "--atol 'nan': must be a finite number, 0 or above"), (["--rtol", "-1e-3"], "--rtol '-1e-3'"),
    (["--seed", "1.5"], "--seed '1.5': must be a whole number"), (["--seed", "-1"], "--seed '-1'"),
    (["--dtype", "flaot64"], "did you mean float64?"), (["--device", "cdua"], "did you mean cuda?"), (["--mode", "entires"], "did you mean entries?"),
    (["--select", "GV999"], "--select 'GV999': no rule has a code that begins so"),
    (["--ignore", "GV120"], "no rule has a code that begins so; the rule on CUDA streams was retired"),
    (["--ignore", "jacobian"], "--ignore 'jacobian'"),
    (["--undecided", "wran"], "did you mean warn?"), (["--format", "tabel"], "did you mean table?"), (["--color", "allways"], "did you mean always?"),
    (["--report", "jsom:x.json"], "did you mean json?"), (["--report", "json:"], "must be KIND:PATH, where KIND is"),
    (["--report", "r.json"], "must be KIND:PATH"), (["--report", "json:a/../r.json", "--report", "json:r.json"], "two reports are to be written to"),
    (["--require-device", "gpu"], "--require-device 'gpu'"), (["-k", "a and"], "-k 'a and'"), (["--dtype", "float8_e4m3fn"], "bfloat16, float16")])
def test_a_bad_value_is_refused_in_one_sentence(gradverify, engine, spec, arguments, sentence):
    asked = engine(passing())
    code, out, err = gradverify("check", "s.yaml", *arguments)
    assert (code, out, asked) == (2, "", {}) and sentence in err and len(err.splitlines()) == 1


def test_all_bad_values_are_told_at_once(gradverify, spec):
    _, _, err = gradverify("check", "s.yaml", "--eps", "0", "--dtype", "f", "--select", "X1", "--select", "X2")
    assert [line.split(":")[0] for line in err.splitlines()] == ["--eps '0'", "--dtype 'f'", "--select 'X1'", "--select 'X2'"]


def test_a_faulty_spec_is_2_and_nothing_runs(gradverify, engine, folder):
    asked = engine(passing())
    (folder / "s.yaml").write_text("gradverify: 1\nchecks:\n  - functoin: add\n    epz: 1\n")
    code, out, err = gradverify("check", "s.yaml")
    assert (code, out, asked) == (2, "", {}) and "s.yaml:3:" in err and "s.yaml:4:" in err


def test_a_folder_without_specs_is_5(gradverify, engine, folder):
    engine()
    code, out, err = gradverify("check")
    assert code == 5 and "no specs" in err and "`gradverify init` writes a first one" in err and "nothing was checked" in out


def test_a_required_device_that_is_missing_is_told_everywhere(gradverify, engine, spec):
    engine(passing(), skipped())
    code, out, _ = gradverify("check", "s.yaml", "--require-device", "cuda", "-q", "--format", "table", "--width", "100")
    assert code == 3 and out.count("no CUDA device was found, required by --require-device cuda") == 2
    assert "1 skipped though required, 1 passed in" in out


@pytest.mark.parametrize("text, said", [
    ("gradverify: 1\nchecks:\n  - functoin: add\n    epz: 1\n", "nothing ran: 3 problems in 1 spec"),
    ("gradverify: 2\nchecks: []\n", "nothing ran: 1 problem in 1 spec")])
def test_problems_of_specs_are_counted_at_the_end(gradverify, engine, folder, text, said):
    (folder / "s.yaml").write_text(text)
    _, _, err = gradverify("check", "s.yaml")
    assert err.splitlines()[-1] == said and sum(line.startswith("s.yaml:") for line in err.splitlines()) == int(said.split()[2])


def test_problems_elsewhere_are_counted_without_a_number_of_specs(gradverify, engine, folder):
    (folder / "s.yaml").write_text("gradverify: 2\nchecks: []\n")
    assert gradverify("check", "s.yaml", "gone.yaml")[2].splitlines()[-1] == "nothing ran: 2 problems"
    assert "nothing ran" not in gradverify("check", "gone.yaml")[2]


def test_a_selection_that_is_empty_names_its_nearest(gradverify, engine, spec):
    engine()
    code, _, err = gradverify("check", "s.yaml", "-k", "othr")
    assert code == 5 and err == "-k 'othr' fits none of 2 checks; did you mean 'other'?\n"


def test_functions_in_files_are_shown_below_the_current_folder(gradverify, engine, folder):
    (folder / "ops").mkdir()
    (folder / "ops" / "act.py").touch()
    (folder / "specs").mkdir()
    (folder / "specs" / "s.yaml").write_text("gradverify: 1\nchecks: [{function: ../ops/act.py:F, inputs: [1]}]\n")
    target = f"{folder.resolve()}/ops/act.py:F"
    engine(failing(function=FunctionInfo(target)))
    out = gradverify("check", "specs")[1]
    assert "\nops/act.py:F on cpu" in out and str(folder) not in out
    assert json.loads(gradverify("check", "specs", "--format", "json")[1])["checks"][0]["function"]["target"] == "ops/act.py:F"


@pytest.mark.parametrize("options, is_wrapped", [([], False), (["--width", "80"], True)])
def test_plain_wraps_sentences_where_the_width_is_known(gradverify, engine, spec, options, is_wrapped):
    engine(failing("n" * 90))
    lines = gradverify("check", "s.yaml", *options)[1].splitlines()
    sentence = failing().findings[0].message
    assert (sentence not in lines) is is_wrapped
    assert any(line.startswith("FAIL") and "n" * 90 in line for line in lines)
    assert any(line.startswith("this again: ") and len(line) > 90 for line in lines)
