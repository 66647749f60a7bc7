import json
import re

import pytest
from elements import STEPS, at_a_fixed_step, element, everything, kink, noisy, staircase, wrong
from factories import raising, skipped
from rich.cells import cell_len

from gradverify.model.codec import as_text, from_json
from gradverify.model.element import Element
from gradverify.report.look import Look
from gradverify.report.terminal.element import not_run, render

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", [80, 120])
def test_elements_look_as_written_down(golden, width):
    golden(f"element-{width}.txt", "\n".join(render(each, Look(width)) for each in everything()))


def test_elements_in_ascii_look_as_written_down(golden):
    text = "\n".join(render(each, Look(80, ascii=True, boxes=False)) for each in everything())
    golden("element-ascii-80.txt", text)
    assert text.isascii()


@pytest.mark.parametrize("width", [60, 72, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width):
    lines = [line for each in everything() for line in render(each, Look(width)).splitlines()]
    assert max(map(cell_len, lines)) <= width


def test_the_chosen_step_is_marked():
    [chosen] = [line for line in render(element(), Look(80)).splitlines() if line.startswith("→")]
    assert f"{STEPS[4]:.3g}" in chosen


def test_a_kink_shows_its_two_sides():
    shown = render(kink(), Look(80))
    assert "left slope   0.25 ±1e-15" in shown and "right slope  1 ±2e-15" in shown


def test_both_readings_of_a_staircase_are_told():
    assert "or else     0 ±1.2e-12, as consistent, on other steps" in render(staircase(), Look(80))


def test_what_limits_an_element_and_what_the_check_says_are_told():
    shown = " ".join(render(noisy(), Look(80)).split())
    assert "limited by the forward's own noise is larger than the tolerance" in shown
    assert "in the whole check this element is mismatch no element was named" in shown


def test_the_parts_of_the_tolerance_are_told():
    assert "5e-07 = atol 0 + max(rtol 1e-06 * 0.5, floor 6.1e-13)" in render(element(), Look(80))


def test_the_verdict_of_a_fixed_step_leads():
    shown = render(at_a_fixed_step(), Look(80))
    assert shown.startswith("MISMATCH  fixed  x[1,3].imag : y0[2]")
    assert "moved together with x[1,3]" in shown


def test_colour_only_adds_to_the_text():
    for each in everything():
        coloured = render(each, Look(100, color=True))
        assert ANSI.search(coloured)
        assert "".join(
            line.rstrip() + "\n" for line in ANSI.sub("", coloured).splitlines()
        ) == render(each, Look(100))


def test_names_of_users_cannot_move_the_cursor():
    assert "\x1b" not in render(element("a\x1b[2J\nb", conclusion="c\x1b[2J"), Look(80))


def test_json_holds_every_number_and_reads_back():
    for each in everything():
        assert from_json(Element, json.loads(as_text(each))) == each
    assert json.loads(as_text(kink()))["measured"]["bar"] == "inf"
    assert len(json.loads(as_text(wrong()))["measured"]["rungs"]) == len(STEPS)


def test_a_check_that_could_not_run_shows_the_users_frames():
    shown = not_run(raising(), Look(80, color=True))
    assert (
        shown.startswith("specs/ops.yaml::op[a=1] could not be run: forward raised ValueError")
        and "at my_ops/act.py:30 in forward" in shown
    )
    assert not ANSI.search(shown)
    assert (
        not_run(skipped(), Look(80))
        == "specs/ops.yaml::linear on a GPU could not be run: no CUDA device was found"
    )
