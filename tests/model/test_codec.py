import json
import math

import pytest

from gradverify.model.case import Case, InputRecipe, Settings, SpecPlace, TensorRecipe
from gradverify.model.codec import from_json, to_json
from gradverify.model.result import CaseResult, Comparison, Entry, ErrorMap, Finding, FunctionInfo


def entry(**changes):
    values = dict(output_index=(0, 1), input_index=(2,), analytic=1.0, numeric=math.nan, bar=math.inf, tolerance=1e-6,
                  abs_error=-math.inf, rel_error=0.1, outcome="non_finite")
    return Entry(**{**values, **changes})


def result():
    comparison = Comparison("GV101", "x", 0, 4, mismatched=1, worst=(entry(), entry(input_part="im")), error_map=ErrorMap(((0.1, math.inf),)))
    return CaseResult("a.yaml::n", SpecPlace("a.yaml", 3), "n", FunctionInfo("m:F", "autograd.Function"), "cpu", "float64", 0, {"eps": "auto"},
                      "fail", expect=("GV101",), comparisons=(comparison,), findings=(Finding("GV101", "wrong", also=("GV111",)),))


@pytest.mark.parametrize("value", [
    result(),
    Case("a.yaml::n", "n", "n", SpecPlace("a.yaml", 1), "m:F",
         (InputRecipe("x", TensorRecipe((2, 3), "uniform", [0, 1])), InputRecipe("n", None, 4))),
    Case("a", "a", "a", SpecPlace("a", 1), "f", settings=Settings(eps=1e-6, atol=1e-4, outputs=(0,)), expect=("GV101",)),
], ids=["result", "case", "settings"])
def test_through_json_text_and_back(value):
    text = json.dumps(to_json(value), allow_nan=False)
    back = from_json(type(value), json.loads(text))
    assert repr(to_json(back)) == repr(to_json(value))
    assert type(back) is type(value)


def test_non_finite_numbers_come_back_as_numbers():
    back = from_json(Entry, json.loads(json.dumps(to_json(entry()))))
    assert math.isnan(back.numeric) and back.bar == math.inf and back.abs_error == -math.inf


@pytest.mark.parametrize("data, complaint", [
    ({"path": "a", "line": "3"}, "expected int"), ({"path": "a", "lines": 3}, "no field 'lines'"), ([1], "must be an object"),
    ({"path": "a", "line": True}, "expected int")])
def test_what_does_not_fit_is_refused(data, complaint):
    with pytest.raises(ValueError, match=complaint):
        from_json(SpecPlace, data)


def test_tensors_are_no_plain_data():
    with pytest.raises(TypeError, match="no plain data"):
        to_json(Finding("GV001", object()))


@pytest.mark.parametrize("values", [{"limit": math.inf, "word": "inf", "rows": [[-math.inf], "nan"]}])
def test_plain_values_of_the_users_arrive_as_they_are(values):
    """A case crosses to a worker as JSON text; a string there is a string, infinity a number."""
    sent = Case("a", "a", "a", SpecPlace("a", 1), "f", kwargs=values)
    assert from_json(Case, json.loads(json.dumps(to_json(sent, exact=True)))).kwargs == values
