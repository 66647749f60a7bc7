import json
import math

import pytest

from gradverify.model.case import Case, SpecPlace
from gradverify.model.codec import from_json, to_json
from gradverify.model.result import Finding


@pytest.mark.parametrize(
    "data, complaint",
    [
        ({"path": "a", "line": "three"}, "^line: "),
        ({"path": "a", "lines": 3}, "^line: Field required"),
        ([1], "dictionary"),
    ],
)
def test_what_does_not_fit_is_refused(data, complaint):
    with pytest.raises(ValueError, match=complaint):
        from_json(SpecPlace, data)


def test_tensors_are_no_plain_data():
    with pytest.raises(TypeError, match="no plain data"):
        to_json(Finding("GV001", object()))


@pytest.mark.parametrize(
    "values", [{"limit": math.inf, "word": "inf", "rows": [[-math.inf], "nan"]}]
)
def test_plain_values_of_the_users_arrive_as_they_are(values):
    """A case crosses to a worker as JSON text; a string there is a string, infinity a number."""
    sent = Case("a", "a", "a", SpecPlace("a", 1), "f", kwargs=values)
    assert from_json(Case, json.loads(json.dumps(to_json(sent, exact=True)))).kwargs == values
