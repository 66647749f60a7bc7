"""Damaged gradients in words: every survivor with its reason, uncut; a last line that says it all."""

from __future__ import annotations

import json

import pytest

from gradverify.model.codec import as_text, to_json
from gradverify.model.mutation import Mutant, MutatedCheck, report
from gradverify.report.listing import mutation_line as check_line
from gradverify.report.listing import mutation_text as closing
from gradverify.report.look import Look

WHY = "x has shape [3, 4]: only a shape of more than 16 elements can show it"
CHECK = MutatedCheck("s.yaml::op[a=1]", "op[a=1]", "op", (
    Mutant("×1.01", ("x",), "killed", "GV101"), Mutant("sign", ("x",), "survived", why="forgiven; found with `eps: auto`"),
    Mutant("drop the last tile", ("x",), "unseen", why=WHY), Mutant("swap inputs", ("x", "y"), "equivalent", why="the same gradient"),
    Mutant("stale state", (), "killed", "GV207")), seconds=1.25)
LEFT_OUT = MutatedCheck("s.yaml::broken", "broken", "op", left_out="it does not pass undamaged: fail (GV101 jacobian)", broken=True)
REPORT = report([CHECK, LEFT_OUT], version="1", argv=("mutate",), duration=2.0)
PLAIN, TABLE = Look(boxes=False), Look(width=80)


def test_plain_lines_hold_one_survivor_each_with_its_whole_reason():
    lines = closing(REPORT, PLAIN).splitlines()
    assert f"op        drop the last tile  x            {WHY}" in lines
    assert "op        sign                x            forgiven; found with `eps: auto` (in s.yaml::op[a=1])" in lines
    assert lines[-1] == "killed 2 of 4 (50.0 %), 2 let through, 1 equivalent in 2.00 s; 1 check left out"


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_a_table_keeps_to_its_width_and_cuts_nothing(width):
    text = closing(REPORT, Look(width=width))
    assert max(map(len, text.splitlines()[:-1])) <= width, "the last line is one line, however narrow"
    assert all(word in text for word in (*WHY.split(), "forgiven;", "×1.01", "s.yaml::op[a=1])"))


def test_the_table_of_kinds_counts_each():
    rows = [line.split() for line in closing(REPORT, PLAIN).splitlines()]
    assert ["×1.01", "1"] in rows
    assert ["drop", "the", "last", "tile", "0", "1"] in rows
    assert ["swap", "inputs", "0", "1"] in rows


def test_equivalent_damage_is_listed_apart():
    before, after = closing(REPORT, PLAIN).split("equivalent, and not counted")
    assert "swap inputs" in after.splitlines()[2]
    assert "x, y" in after
    assert WHY in before


def test_a_check_has_a_line():
    assert check_line(CHECK, PLAIN) == "killed 2 of 3     1.25 s  op[a=1]  1 survived, 2 without effect here\n"
    assert check_line(LEFT_OUT, PLAIN) == "left out                  broken: it does not pass undamaged: fail (GV101 jacobian)\n"


@pytest.mark.parametrize("check", [CHECK, LEFT_OUT])
def test_a_long_line_of_a_check_goes_on_below(check):
    long = MutatedCheck(check.id, "a rather long name of a check", "op", check.mutants, check.left_out, check.broken, 1.0)
    lines = check_line(long, Look(width=72)).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 72
    assert all(line.startswith(" " * 26) for line in lines[1:])


def test_without_unicode_there_is_none():
    assert closing(REPORT, Look(width=80, ascii=True)).isascii()


def test_colour_is_only_added():
    plain = closing(REPORT, TABLE)
    colored = closing(REPORT, Look(width=80, color=True))
    assert "\x1b[" in colored
    assert "killed 2 of 4" in plain


def test_nothing_damaged_and_an_interrupt_are_said():
    assert closing(report([LEFT_OUT], version="1", argv=(), duration=1.0), PLAIN) == "nothing was damaged in 1.00 s; 1 check left out\n"
    assert closing(report([CHECK], version="1", argv=(), duration=1.0, interrupted=True), PLAIN).splitlines()[-1].startswith("interrupted: killed")


def test_json_is_the_report():
    assert json.loads(as_text(REPORT)) == to_json(REPORT)
    assert json.loads(as_text(REPORT))["counts"] == {"killed": 2, "survived": 1, "unseen": 1, "equivalent": 1}
