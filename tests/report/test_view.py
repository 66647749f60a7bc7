import re
from dataclasses import replace

import pytest
from factories import everything, extreme, failing, passing, report, result, skipped, undecided
from rich.cells import cell_len

from gradverify.model.result import Finding
from gradverify.report import plain
from gradverify.report.look import Look
from gradverify.report.terminal.view import check_line, closing, render

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_format_is_as_written_down(golden, width):
    golden(f"table-{width}.txt", render(report(*everything(), extreme()), Look(width)))


@pytest.mark.parametrize("width", [80, 120])
def test_the_plain_format_is_as_written_down(golden, width):
    golden(f"plain-{width}.txt", plain.render(report(*everything(), extreme()), Look(width)))


def test_the_verbose_form_is_as_written_down(golden):
    golden("verbose-100.txt", render(report(), Look(100, verbosity=1)))


@pytest.mark.parametrize("width", [60, 66, 71, 72, 80, 100, 120])
def test_no_framed_line_is_wider_than_the_terminal(width):
    framed = [line for line in render(report(failing(), extreme()), Look(width)).splitlines() if line.startswith(("╭", "│", "╰"))]
    assert len(framed) > 20
    assert {cell_len(line) for line in framed} == {width}


@pytest.mark.parametrize("width", [40, 60, 71, 72, 80, 100, 120])
def test_names_fold_but_numbers_are_never_cut(width):
    text = render(report(extreme()), Look(width))
    for figure in ("-1.2345678e-05", "-1.2345679e-05", "±1.2e-16", "-1.23456e-305", "±inf", "non-finite", "1,048,576"):
        assert figure in text.split() or any(figure in line for line in text.splitlines()), figure
    assert "…" not in text.replace("… and 2 more of 1,048,576", "")


def test_colour_only_adds_to_the_text():
    coloured = render(report(), Look(100, color=True))
    assert ANSI.search(coloured)
    bare = "".join(line.rstrip() + "\n" for line in ANSI.sub("", coloured).splitlines())
    assert bare == render(report(), Look(100))


def test_colour_is_of_the_word_not_of_the_whole_line():
    assert check_line(report(passing()).checks[0], Look(100, color=True)).startswith("\x1b[32mPASS  \x1b[0mlinear")


@pytest.mark.parametrize("variables", [{"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "40"}, {"TTY_COMPATIBLE": "1"}])
def test_no_environment_variable_changes_what_is_rendered(monkeypatch, variables):
    before = render(report(), Look(100))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert render(report(), Look(100)) == before


def test_an_ascii_look_draws_with_ascii_alone():
    text = render(report(), Look(80, ascii=True))
    assert text.isascii() and "+- FAIL" in text and "0.785398 +-1.2e-11" in text


@pytest.mark.parametrize("name", ["op[a=1]", "dx[i,2]", "a[/b]", ":fire:", "[bold]x[/bold]", "pkg.mod:fire:1", "C:\\ops[0]"])
@pytest.mark.parametrize("boxes", [True, False])
def test_names_come_out_as_they_are(name, boxes):
    text = render(report(failing(name)), Look(120, boxes=boxes, color=True))
    bare = ANSI.sub("", text)
    assert bare.count(name) >= 3, "in the line, the title and the command"


def test_escape_sequences_of_users_code_do_not_reach_the_terminal():
    text = render(report(failing(captured="\x1b[2J\x1b]0;title\x07 done\x07")), Look(100))
    assert "\x1b" not in text and "\x07" not in text and " done\\x07" in text


def test_a_newline_in_a_name_starts_no_line():
    assert "PASS       a\\nb" in check_line(report(passing("a\nb")).checks[0], Look(100))


def test_plain_keeps_ids_and_sentences_on_one_line():
    text = plain.render(report(extreme()), Look(80))
    assert f"gradverify check '{extreme().id}' --eps 1e-6 --strict" in text
    assert not any(character in text for character in "╭│╰─\x1b")


def test_plain_says_the_same_in_the_same_order():
    framed, bare = render(report(failing()), Look(100)), plain.render(report(failing()), Look(100))
    words = [re.findall(r"[\w.']+", text) for text in (framed, bare)]
    assert words[0] == words[1]


def test_quiet_shows_failures_and_the_summary_alone():
    look = Look(100, verbosity=-1)
    text = render(report(passing("calm"), failing("broken"), skipped("absent")), look)
    assert "broken" in text and "calm" not in text and "absent" not in text and "1 failed, 1 passed, 1 skipped" in text
    assert render(report(passing("calm")), look).splitlines() == ["1 passed in 3.40 s"]


def test_panels_are_for_what_makes_the_run_red():
    assert closing(report(undecided(), passing()), Look(100)).count("╭") == 0
    assert closing(report(undecided()), Look(100, verbosity=1)).count("╭") == 1
    expected = failing(expect=("GV101",))
    assert closing(report(expected), Look(100, verbosity=1)).count("╭") == 0
    assert closing(report(expected), Look(100, verbosity=2)).count("╭") == 1


def test_what_was_not_run_is_listed_under_v_and_counted_always():
    left_out = result("late", "not_run", reason="left out after the first failure (-x)")
    assert check_line(left_out, Look(100)) == ""
    assert check_line(left_out, Look(100, verbosity=1)).split("\n")[0].split(maxsplit=3) == [
        "NOT", "RUN", "late", "left out after the first failure (-x)"]
    assert "1 not run" in closing(report(failing(), left_out), Look(100))


def test_plain_wraps_sentences_but_no_line_that_is_searched_or_copied():
    look = Look(80, boxes=False)
    wrapped, whole = plain.render(report(failing("n" * 70)), look), plain.render(report(failing("n" * 70)), replace(look, wrap=False))
    sentence = failing().findings[0].message
    assert sentence in whole.splitlines() and sentence not in wrapped.splitlines() and sentence in " ".join(wrapped.split())
    long = [line for line in wrapped.splitlines() if len(line) > 80]
    assert {line.split("n" * 70)[0].strip() for line in long} == {"FAIL", "== FAIL", "this again: gradverify check specs/ops.yaml::"}


@pytest.mark.parametrize("look", [Look(80, boxes=False), Look(80, boxes=False, wrap=False)])
def test_plain_never_wraps_code(look):
    source = "def backward(ctx, grad_output): " + "x" * 90
    assert f"    {source}\n" in render(report(failing(findings=(Finding("GV101", "m", file="a.py", line=3, source=source),))), look)
