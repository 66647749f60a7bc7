from dataclasses import replace

from factories import ARGV, comparison, entry, failing, passing, raising, report, result

from gradverify.model.result import Finding, Frame
from gradverify.report.look import Look
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.panel import comparisons_of, panel


def shown(check, look=None):
    look = look or Look(120, boxes=False)
    return paint(panel(report(check).checks[0], ARGV, look), look)


def test_a_finding_is_told_in_the_order_in_which_it_is_read():
    text = shown(failing())
    parts = ["== FAIL  swish", "specs/ops.yaml:12", "GV101 jacobian  y0 / x", "64 of 96 elements of the Jacobian differ", "cause: scaled",
             "numeric ± bar", "… and 54 more of 96", "error map:", "hint: look for a missing minus sign", "also: GV107", "at my_ops/act.py:41",
             "    def backward(ctx, grad_output):", "printed by your code:", "nan seen [i,2]", "this again: gradverify check"]
    places = [text.find(part) for part in parts]
    assert -1 not in places and places == sorted(places)


def test_the_users_frames_are_shown_with_their_lines():
    text = shown(raising())
    assert "at my_ops/act.py:30 in forward\n    return x.view(3)\nat my_ops/util.py:7 in <lambda>\n    raise ValueError(x)" in text


def test_frames_of_other_packages_are_folded():
    theirs = Frame("/env/lib/python3.11/site-packages/einops/einops.py", 99, "rearrange", "raise EinopsError(shape)")
    found = replace(raising().findings[0], frames=(*raising().findings[0].frames, theirs, theirs))
    text = shown(replace(raising(), findings=(found,)))
    assert "    raise ValueError(x)\n… 2 frames in einops\n" in text and "EinopsError" not in text


def test_only_the_last_lines_printed_are_shown():
    text = shown(failing(captured="\n".join(f"line {i}" for i in range(50))))
    assert "the last 20 lines" in text and "line 30" in text and "line 49" in text and "line 29" not in text


def test_a_line_printed_over_and_over_is_shown_once():
    assert "    a\n    b  (300 times)\n    a\n" in shown(failing(captured="a\n" + "b\n" * 300 + "a\n"))


def test_a_broken_expectation_is_the_first_thing_said():
    assert shown(passing(expect="fail")).splitlines()[2] == "expected to fail, but passed"


def test_a_reason_without_findings_is_shown():
    assert "no CUDA device" in shown(result(verdict="skip", reason="no CUDA device"))


def test_warnings_of_a_failing_check_are_in_its_panel():
    check = failing(findings=(*failing().findings, Finding("GV224", "saved, never read", "saved-unused", "warning", input="x")))
    assert "warning GV224 saved-unused  x\nsaved, never read" in shown(check)


def test_each_finding_has_the_table_of_its_own_pair():
    check = result(verdict="fail", comparisons=(comparison(worst=(entry((1,)),)), comparison(input="w", worst=(entry((2,)),)),
                                                comparison("GV106", input="w", worst=(entry((3,)),))),
                   findings=(Finding("GV101", "m", input="w", output=0), Finding("GV106", "m", input="w", output=0)))
    tables = [[c.worst[0].output_index for c in comparisons_of(found, check)] for found in check.findings]
    assert tables == [[(2,)], [(3,)]]


def test_a_finding_about_values_without_a_comparison_shows_the_jacobians():
    check = result(verdict="fail", comparisons=(comparison(worst=(entry((1,)),)),),
                   findings=(Finding("GV103", "m", input="x", output=0), Finding("GV201", "m", input="x", output=0)))
    assert [len(comparisons_of(found, check)) for found in check.findings] == [1, 0]


def test_a_gradient_that_is_none_has_no_table_of_zeros():
    check = failing(findings=(Finding("GV102", "backward returns None for x", input="x", output=0, hint="return it"),))
    assert "analytic" in shown(failing()) and "analytic" not in shown(check) and "hint: return it" in shown(check)


def test_the_device_names_the_interpreter():
    assert "on cpu, under Triton's interpreter, float64, from specs/ops.yaml:12" in shown(failing(interpreter="triton"))
