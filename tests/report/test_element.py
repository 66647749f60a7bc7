import json
import math
import re
from dataclasses import replace

import pytest
from elements import STEPS, at_a_fixed_step, element, everything, kink, ladder, noisy, staircase, wrong
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


def plot(each, width=80, **look):
    """The rows of the picture by the label of their axis; unlabelled ones under the row above."""
    lines = render(each, Look(width, **look)).splitlines()
    return [line for line in lines if "│" in line]


def row_of(each, mark):
    return [line.split("│")[0].strip() for line in plot(each) if mark in line.split("│")[1]]


def test_a_right_gradients_quotients_fall_to_the_noise_and_rise_again():
    text = "\n".join(plot(element()))
    assert text.count("◉") + text.count("◆") >= 20 and "●" not in text


def test_a_wrong_gradient_is_a_flat_line_above_the_falling_numeric_one():
    assert row_of(wrong(), "●") == ["1e-02"]                    # 0.5 − 0.475
    assert len(row_of(wrong(), "○")) > 6


def test_the_marks_stand_in_the_rows_of_their_values():
    each = element(rungs=ladder(0.5 + 2e-3), numeric=0.5 + 2e-3, bar=1e-10, truncation=None)
    assert row_of(each, "●") == ["1e-03"]                       # 2e-3 is nearer to 1e-3 than to 1e-2, in logarithms
    assert row_of(each, "◆") == ["1e-10"]
    assert row_of(each, "╌") == ["1e-06"]                       # of 5e-7


def test_the_steps_grow_from_left_to_right_and_the_chosen_one_is_marked():
    lines = render(element(), Look(80)).splitlines()
    [marker] = [line for line in lines if "▲ chosen" in line]
    [ticks] = [line for line in lines if "1e-12" in line and "1e-04" in line]
    assert ticks.index("1e-12") < ticks.index("1e-04") < marker.index("▲") < ticks.index("1e-02")       # 0.23 / 3.6⁴ = 1.4e-3
    [table] = [line for line in lines if line.startswith("→")]
    assert f"{STEPS[4]:.3g}" in table


def test_a_kink_shows_its_two_sides_and_not_their_middle():
    text = "\n".join(plot(kink()))
    assert text.count("‹") == text.count("›") == len(STEPS) and "●" not in text and "◉" not in text
    assert row_of(kink(), "‹") == ["0"]                         # the left slope is backward's own
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


def test_a_fixed_step_is_marked_and_its_verdict_leads():
    shown = render(at_a_fixed_step(), Look(80))
    assert (shown.startswith("MISMATCH  fixed  x[1,3].imag : y0[2]") and "▲ eps" in shown) or "eps ▲" in shown
    assert "moved together with x[1,3]" in shown


def test_colour_only_adds_to_the_text():
    for each in everything():
        coloured = render(each, Look(100, color=True))
        assert ANSI.search(coloured)
        assert "".join(line.rstrip() + "\n" for line in ANSI.sub("", coloured).splitlines()) == render(each, Look(100))


def test_numbers_that_no_picture_can_hold_leave_none():
    nowhere = tuple(replace(rung, quotient=math.nan, left=math.nan, right=math.nan) for rung in ladder(0.0))
    assert plot(element(rungs=nowhere, chosen=None, numeric=math.nan, bar=math.inf)) == []


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_sizes_at_the_ends_of_the_range_are_drawn(scale):
    rungs = tuple(replace(rung, quotient=rung.quotient * scale, noise=rung.noise * scale) for rung in ladder(0.5, -0.11))
    lines = plot(element(rungs=rungs, analytic=0.5 * scale, numeric=0.5 * scale))
    assert 3 < len(lines) <= 26


def test_names_of_users_cannot_move_the_cursor():
    assert "\x1b" not in render(element("a\x1b[2J\nb", conclusion="c\x1b[2J"), Look(80))


def test_json_holds_every_number_and_reads_back():
    for each in everything():
        assert from_json(Element, json.loads(as_text(each))) == each
    assert json.loads(as_text(kink()))["measured"]["bar"] == "inf"
    assert len(json.loads(as_text(wrong()))["measured"]["rungs"]) == len(STEPS)


def test_a_check_that_could_not_run_shows_the_users_frames():
    shown = not_run(raising(), Look(80, color=True))
    assert shown.startswith("specs/ops.yaml::op[a=1] could not be run: forward raised ValueError") and "at my_ops/act.py:30 in forward" in shown
    assert not ANSI.search(shown)
    assert not_run(skipped(), Look(80)) == "specs/ops.yaml::linear on a GPU could not be run: no CUDA device was found"
