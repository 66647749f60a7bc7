"""A report read back from its JSON text is the same report: nothing is lost, whatever it holds. Not
a report is told in one sentence: every way in which a file can be cut off, foreign, of another
version; and what a later version added stands in nobody's way."""

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from factories import everything, extreme, failing, of_every_outcome, passing, report
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradverify.model.report import NoReport, Report, read, written

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["", "nan", "inf", "-inf", "pass", "\ud800", "\x1b[31m", "σ ± 🔥", "]]>", "null"]
)
JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)


def of_type(hint: Any) -> st.SearchStrategy:
    """Any value that a field of this type can hold, by the type alone."""
    origin = get_origin(hint)
    if hint is Any:
        return JSONS
    if hint is float:
        return st.floats() | st.just(-0.0)
    if hint in (int, str, bool, type(None)):
        return {int: st.integers(), str: TEXTS, bool: st.booleans(), type(None): st.none()}[hint]
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(each) for each in get_args(hint)])
    if origin is tuple:
        return st.lists(of_type(get_args(hint)[0]), max_size=2).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(TEXTS, of_type(get_args(hint)[1]), max_size=2)
    return of_class(hint)


def of_class(cls: type) -> st.SearchStrategy:
    hints = get_type_hints(cls)
    made = {field.name: of_type(hints[field.name]) for field in dataclasses.fields(cls)}
    if cls is Report:
        made["schema_version"] = st.just(1)
    return st.builds(cls, **made)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(of_class(Report))
def test_whatever_a_report_holds_is_read_back(made):
    assert written(read(written(made))) == written(made)


@pytest.mark.parametrize(
    "checks",
    [
        everything(),
        (extreme(), of_every_outcome()),
        (failing(captured="\ud800\x00"),),
        (passing(seconds=0),),
    ],
    ids=["everything", "extreme", "captured", "a whole number of seconds"],
)
def test_reports_as_runs_leave_them_are_read_back(checks):
    made = report(*checks)
    again = read(written(made))
    assert (
        type(again.checks[0].seconds) is float
        and again.checks[0].findings == made.checks[0].findings
    )
    assert written(read(written(again))) == written(again)
    assert json.loads(written(again)) == json.loads(written(made))


def test_numbers_that_are_none_come_back_as_numbers():
    worst = read(written(report(extreme()))).checks[0].comparisons[0].worst[1]
    assert math.isnan(worst.analytic) and worst.bar == math.inf


def test_every_beginning_of_a_report_is_cut_off():
    text = written(report(failing(rows=1), extreme()))
    for end in range(len(text.rstrip()) - 1, 1, -7):
        with pytest.raises(NoReport, match=r"^is no JSON: "):
            read(text[:end])


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("gradverify: 1\nchecks: []\n", "is no JSON: "),
        ("{'schema_version': 1, 'checks': []}", "is no JSON: "),
        ("[" * 100_000, "no report"),
        ('{"schema_version": ' + "1" * 5000 + "}", "no report"),
        ("[]", "is JSON, but no report"),
        ("3", "is JSON, but no report"),
        ('{"checks": []}', "is JSON, but no report"),
        ('{"version": "2.1.0", "runs": []}', "is JSON, but no report"),
    ],
)
def test_what_is_no_report_is_told_so(text, said):
    with pytest.raises(NoReport, match=said):
        read(text)


def changed(change):
    data = json.loads(written(report(failing(rows=1), passing())))
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused(version):
    with pytest.raises(NoReport, match=r"^has schema version .*; this gradverify reads version 1$"):
        read(changed(lambda data: data.update(schema_version=version)))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("summary"),
        lambda data: data.update(checks={}),
        lambda data: data["checks"][0].pop("verdict"),
        lambda data: data["checks"][0].update(verdict="passed"),
        lambda data: data["checks"][0]["spec"].update(line="four"),
        lambda data: data["checks"][0].update(settings=[1]),
        lambda data: data["checks"][0]["comparisons"][0].update(max_abs_error="none"),
        lambda data: data["checks"].append(None),
        lambda data: data.update(summary=3),
        lambda data: data.update(duration_s=10**400),
    ],
)
def test_data_that_does_not_fit_is_refused_in_one_line(change):
    with pytest.raises(NoReport, match=r"^is no report of `gradverify check`: .+$") as refused:
        read(changed(change))
    assert len(str(refused.value)) < 300


def test_fields_of_a_later_version_are_left_out():
    def later(data):
        data["later"] = data["summary"]["later"] = data["checks"][0]["later"] = data["checks"][0][
            "findings"
        ][0]["later"] = {"a": 1}
        data["environment"]["later"] = data["checks"][0]["comparisons"][0]["worst"][0]["later"] = (
            None
        )

    assert written(read(changed(later))) == written(report(failing(rows=1), passing()))


def test_fields_that_an_earlier_version_lacked_have_their_defaults():
    def earlier(data):
        del data["crashed"], data["checks"][0]["changed"], data["checks"][1]["faults"]

    assert written(read(changed(earlier))) == written(report(failing(rows=1), passing()))


def test_a_report_says_whether_all_was_as_expected():
    assert (
        report(passing()).ok
        and not report(failing()).ok
        and not report(failing(), exit_code=0, forgiven=1).ok
    )
    assert json.loads(report(passing()).to_json())["exit_code"] == 0
