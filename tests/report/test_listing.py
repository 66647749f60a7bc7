import json
import math
from dataclasses import replace

import pytest

from gradverify.model.case import Case, InputRecipe, Settings, SpecPlace, TensorRecipe
from gradverify.report import listing
from gradverify.report.look import Look

CASES = (
    Case("a.yaml::op[a=1]", "op[a=1]", "op", SpecPlace("a.yaml", 3), "m:F",
         (InputRecipe("x", TensorRecipe((2, 3))), InputRecipe("v", TensorRecipe(None, "values", [[1.0, 2.0]])), InputRecipe(None, None, None)),
         settings=Settings(device="cuda"), tags=("fast", ":fire:"), requires=("cuda",)),
    Case("a.yaml::data", "data", "data", SpecPlace("a.yaml", 9), "m:G", (InputRecipe("x", TensorRecipe(None, "file", "/x.npy")),), skip="slow"),
    Case("a.yaml::made", "made", "made", SpecPlace("a.yaml", 12), "m:H", inputs_from="make.py:inputs"))


def test_plain_lines_can_be_cut_and_searched():
    lines = listing.cases_text(CASES, Look(20, boxes=False)).splitlines()
    assert lines[0].split("\t") == ["a.yaml::op[a=1]", "fast, :fire:, requires cuda", "cuda", "x[2,3] v[1,2] 2=null"]
    assert lines[1].split("\t") == ["a.yaml::data", "skip", "cpu", "x[from a file]"]
    assert lines[2].split("\t") == ["a.yaml::made", "", "cpu", "from make.py:inputs"]


def test_a_list_of_tensors_shows_the_size_of_each():
    tensors = InputRecipe("tensors", tensors=(TensorRecipe((2, 3)), TensorRecipe(None, "values", [1.0])))
    case = Case("a.yaml::cat", "cat", "cat", SpecPlace("a.yaml", 3), "torch:cat", (tensors,))
    assert listing.cases_text([case], Look(80, boxes=False)).split("\t")[-1] == "tensors=[[2,3] [1]]\n"
    assert json.loads(listing.cases_json([case]))[0]["inputs"] == [{"name": "tensors", "shapes": [[2, 3], [1]]}]


@pytest.mark.parametrize("look", [Look(80), Look(80, ascii=True)])
def test_a_table_has_headers_and_names_as_they_are(look):
    text = listing.cases_text(CASES, look)
    assert text.split()[:4] == ["check", "tags", "device", "inputs"] and "op[a=1]" in text and ":fire:" in text
    assert text.isascii() is look.ascii


def test_json_gives_sizes_as_numbers():
    data = json.loads(listing.cases_json(CASES))
    assert data[0]["inputs"] == [{"name": "x", "shape": [2, 3]}, {"name": "v", "shape": [1, 2]}, {"name": None, "value": None}]
    assert data[1]["skip"] == "slow" and data[1]["inputs"] == [{"name": "x", "shape": None}]


def test_functions_show_how_they_are_called():
    rows = [("add", ("x", "y"), "x + y")]
    assert listing.functions_text(rows, Look(80, boxes=False)) == "add(x, y)\tx + y\n"
    assert json.loads(listing.functions_json(rows)) == [{"name": "add", "parameters": ["x", "y"], "summary": "x + y"}]


def test_infinity_among_plain_values_is_json():
    case = replace(CASES[0], inputs=(InputRecipe("limit", value=[math.inf, math.nan]),))
    assert json.loads(listing.cases_json([case]), parse_constant=pytest.fail)[0]["inputs"] == [{"name": "limit", "value": ["inf", "nan"]}]
