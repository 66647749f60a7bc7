"""Whatever computes says that torch is missing before it computes: usage (2), and no fault of
gradverify's (4)."""

import sys

import pytest


@pytest.mark.parametrize(
    "command",
    [
        ("check", "s.yaml"),
        ("mutate", "s.yaml"),
        ("explain", "s.yaml::other"),
        ("init", "gradverify.functions.products:add", "-n"),
    ],
)
def test_no_torch_is_told_in_a_sentence(gradverify, spec, monkeypatch, command):
    monkeypatch.setattr("gradverify.cli.gather._is_installed", lambda package: False)
    code, out, err = gradverify(*command)
    assert (
        (code, out) == (2, "") and "torch is not in this environment" in err and sys.prefix in err
    )


def test_what_is_skipped_by_word_needs_no_torch(gradverify, spec, monkeypatch):
    monkeypatch.setattr("gradverify.cli.gather._is_installed", lambda package: False)
    spec.write_text(spec.read_text().replace("name: ", "skip: later, name: "))
    assert "torch is not" not in gradverify("mutate", "s.yaml")[2]
