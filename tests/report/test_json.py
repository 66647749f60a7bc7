import json
import math

import jsonschema
import pytest
from factories import entry, everything, extreme, failing, passing, report

from gradverify.report.json import render, report_schema

TOP = ["schema_version", "tool", "started_at", "duration_s", "argv", "exit_code", "interrupted", "environment", "selection", "summary", "checks"]
CHECK = ["id", "spec", "name", "function", "device", "dtype", "seed", "settings", "verdict", "expect", "ok", "reason", "inputs", "outputs", "calls",
         "seconds", "mode", "could_miss", "rules", "comparisons", "findings"]
COMPARISON = ["rule", "input", "output", "elements", "mismatched", "kinks", "undecided", "non_finite", "max_abs_error", "max_rel_error", "resolution",
              "groups", "row_groups", "worst"]
WORST = ["output_index", "input_index", "analytic", "numeric", "bar", "tolerance", "abs_error", "rel_error", "outcome"]
FINDING = ["code", "name", "severity", "message", "input", "output", "cause", "also", "hint", "file", "line"]
SUMMARY = ["total", "pass", "fail", "undecided", "error", "skip", "not_run", "ok", "warnings"]


def data(*checks, **changes):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(render(report(*checks, **changes)), parse_constant=refuse)


def test_the_report_is_as_written_down(golden):
    golden("report.json", render(report(failing(rows=2), passing(), extreme())))


def in_order(found, wanted):
    return [name for name in found if name in wanted]


def test_fields_have_the_documented_names_and_order():
    whole = data(*everything())
    failed = whole["checks"][0]
    compared = failed["comparisons"][0]
    for found, wanted in [(whole, TOP), (whole["summary"], SUMMARY), (failed, CHECK), (compared, COMPARISON), (compared["worst"][0], WORST),
                          (failed["findings"][0], FINDING), (failed["calls"], ["forward", "backward", "batched"]),
                          (failed["inputs"][0], ["name", "shape", "dtype", "layout", "requires_grad"]), (failed["spec"], ["path", "line"]),
                          (failed["function"], ["target", "kind", "file", "line"]), (failed["outputs"][0], ["index", "shape", "dtype"]),
                          (whole["environment"], ["python", "torch", "numpy", "platform", "devices", "threads"])]:
        assert in_order(found, wanted) == wanted


def test_summary_counts_passes_as_pass():
    summary = data(passing(), failing())["summary"]
    assert (summary["pass"], summary["fail"], summary["total"]) == (1, 1, 2) and "passed" not in summary


@pytest.mark.parametrize("value, written", [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_non_finite_numbers_are_strings(value, written):
    check = failing()
    broken = check.comparisons[0].__class__("GV101", "x", 0, 1, worst=(entry(bar=value),), max_abs_error=value)
    compared = data(failing(comparisons=(broken,)))["checks"][0]["comparisons"][0]
    assert compared["worst"][0]["bar"] == written and compared["max_abs_error"] == written


def test_numbers_read_back_to_the_same_float():
    value = 0.1 + 0.2
    compared = failing().comparisons[0].__class__("GV101", "x", 0, 1, worst=(entry(numeric=value),))
    assert data(failing(comparisons=(compared,)))["checks"][0]["comparisons"][0]["worst"][0]["numeric"] == value


def test_any_pipe_can_carry_it():
    assert render(report(failing("σ \ud800"))).isascii()


def test_rendered_reports_fit_the_schema():
    schema = report_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    for checks in (everything(), (extreme(),), (failing(expect=("GV101",)),)):
        jsonschema.Draft7Validator(schema).validate(data(*checks))
    jsonschema.Draft7Validator(schema).validate(data(passing(), interrupted=True, crashed="boom"))


@pytest.mark.parametrize("spoil", [
    lambda whole: whole.pop("checks"), lambda whole: whole.update(schema_version=2), lambda whole: whole["summary"].update({"pass": "1"}),
    lambda whole: whole["checks"][0].update(verdict="passed"), lambda whole: whole["checks"][0]["comparisons"][0].update(max_abs_error="NaN"),
    lambda whole: whole["checks"][0]["findings"][0].update(also="GV107")])
def test_the_schema_refuses_what_is_not_a_report(spoil):
    whole = data(*everything())
    spoil(whole)
    assert not jsonschema.Draft7Validator(report_schema()).is_valid(whole)


def test_the_schema_lets_later_versions_add_fields():
    whole = data(*everything())
    whole["checks"][0]["later"] = whole["later"] = 1
    assert jsonschema.Draft7Validator(report_schema()).is_valid(whole)
