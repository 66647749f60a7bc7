"""The registry of kinds: what is listed can be rendered, and a file's name tells a kind only where it can mean no other."""

from pathlib import PurePath

import pytest
from factories import everything, report

from gradverify.report.formats import KINDS, NAMES, meant_by, renderer


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_renders_a_report_with_every_outcome(name):
    text = renderer(name)(report(*everything()))
    assert text.endswith("\n") and renderer(name)(report(*everything())) == text


def test_a_name_that_is_no_kind_has_no_renderer():
    with pytest.raises(KeyError):
        renderer("jsom")


def test_no_ending_belongs_to_two_kinds():
    endings = [suffix for kind in KINDS for suffix in kind.suffixes]
    assert len(set(endings)) == len(endings) and ".json" not in endings


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.suffixes], ids=lambda kind: kind.name)
def test_an_ending_tells_its_kind(kind):
    assert {meant_by(PurePath(f"build/Gradients{suffix.upper()}")) for suffix in kind.suffixes} == {kind.name}


@pytest.mark.parametrize("name", ["report.json", "report", "report.txt", "sarif", "xml/"])
def test_other_names_tell_none(name):
    assert meant_by(PurePath(name)) is None
