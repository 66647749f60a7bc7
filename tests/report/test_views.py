"""What a person sees of every kind of result, as it is written down in tests/golden; and what holds
of all of it, at any width."""

import json
import math
import re
from dataclasses import replace

import pytest
from factories import (
    comparison,
    entry,
    everything,
    extreme,
    failing,
    of_every_outcome,
    passing,
    raising,
    report,
    result,
    skipped,
    undecided,
    warned,
)
from rich.cells import cell_len

from gradverify.model.case import Case, InputRecipe, Settings, SpecPlace, TensorRecipe
from gradverify.model.codec import as_text
from gradverify.model.event import Selection, Shard
from gradverify.model.mutation import Mutant, MutatedCheck
from gradverify.model.mutation import report as mutation_report
from gradverify.model.report import Gate
from gradverify.model.result import Calls, ErrorMap, Fault, Finding, Frame, RuleRun
from gradverify.report import listing, plain
from gradverify.report.look import Look
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.line import name_width
from gradverify.report.terminal.table import RAMP, error_map, glyph, table
from gradverify.report.terminal.view import check_line, closing, render

ANSI = re.compile(r"\x1b\[[0-9;]*m")
THEIRS = Frame(
    "/env/lib/python3.11/site-packages/einops/einops.py",
    99,
    "rearrange",
    "raise EinopsError(shape)",
)
GV101 = Finding("GV101", "m", name="jacobian", input="x", output=0)
GV202 = Finding("GV202", "m", name="grad-output-modified")
GV107 = Finding("GV107", "m", name="expected-gradient", input="x")
COMPARED = (comparison(elements=36), comparison("GV107", output=None, elements=2, mismatched=1))


def of(*compared, **changes):
    return passing(comparisons=compared, **changes)


def table_of(*worst, rule="GV101", **changes):
    return failing(
        comparisons=(comparison(rule, worst=worst, mismatched=len(worst), **changes),),
        findings=(Finding(rule, "m", input="x", output=changes.get("output", 0)),),
        captured=None,
    )


VARIANTS = {
    "elements are those of the Jacobian and the weakest resolution counts": of(
        comparison(elements=4, resolution=1e-9),
        comparison(input="w", elements=6, resolution=2e-8),
        comparison("GV106", elements=10, resolution=1.0),
        comparison("GV111", input="bias", elements=1, resolution=0.0),
    ),
    "only another oracle compared": of(comparison("GV107", elements=10)),
    "nothing to compare": of(comparison(elements=0, resolution=0.0)),
    "a resolution of 0 is no claim": of(comparison(resolution=0.0)),
    "one is undecided": of(comparison(undecided=1)),
    "one at a kink": of(comparison(kinks=1)),
    "lines in place of elements": of(comparison(lines="columns", elements=1, undecided=1)),
    "kinks, undecided and not finite": of(comparison(kinks=3, undecided=13, non_finite=1)),
    "groups": of(
        comparison(mismatched=3, groups=4, row_groups=2),
        comparison(input="w", row_groups=1),
        comparison(input="v", groups=1),
    ),
    "how close it was": of(
        comparison(
            worst=(entry(analytic=1.0, numeric=1.0 + 2.5e-7, tolerance=1e-6, outcome="pass"),)
        )
    ),
    "a failure counts what the failed rule compared": result(
        verdict="fail", comparisons=COMPARED, findings=(GV107,)
    ),
    "of two the Jacobian's": result(verdict="fail", comparisons=COMPARED, findings=(GV107, GV101)),
    "of a contract all": result(verdict="fail", comparisons=COMPARED, findings=(GV202,)),
    "a warning with its remedy": passing(
        findings=(
            Finding(
                "GV109",
                "silently wrong",
                name="double-backward",
                severity="warning",
                hint="mark it",
            ),
        )
    ),
    "an expected warning": replace(warned(), expect=("GV224",)),
    "undecided": undecided(),
    "could not be judged": raising(),
    "skipped": skipped(),
    "every outcome": of_every_outcome(),
    "fails as expected": failing(expect=("GV101",)),
    "fails otherwise than expected": failing(expect=("GV201",)),
    "passes unexpectedly": passing(expect=("GV201",)),
    "should fail and passes": passing(expect="fail"),
    "should fail and is an error": result(
        "f", "error", expect="fail", findings=(Finding("GV002", "raised"),)
    ),
    "expected and not judged": passing(
        expect=("GV201", "GV224"), rules=(RuleRun("GV201", "ignored"), RuleRun("GV224", "ignored"))
    ),
    "codes of errors once": result(
        verdict="fail",
        calls=Calls(0, 1),
        findings=(
            Finding("GV101", "a", name="jacobian"),
            Finding("GV101", "b", name="jacobian", output=1),
            Finding("GV224", "c", name="saved-unused", severity="warning"),
        ),
    ),
    "interpreted kernels": failing(interpreter="triton", device_memory=3 << 20),
    "rules by code": passing(
        rules=(
            RuleRun("GV202", "ran"),
            RuleRun("GV101", "ran", calls=Calls(1, 0)),
            RuleRun("GV007", "ran", "why"),
            RuleRun("GV224", "ignored"),
            RuleRun("GV102", "ignored"),
            RuleRun("GV111", "ignored", "by a reason"),
        )
    ),
    "many ignored rules are the others": passing(
        rules=(RuleRun("GV101", "ran"), *(RuleRun(f"GV2{n:02}", "ignored") for n in range(9)))
    ),
    "left out for the budget": passing(
        rules=(
            RuleRun("GV206", "ran", "left out: all but 2 calls"),
            RuleRun("GV205", "not_applicable", "left out: b"),
        )
    ),
    "in low precision": passing(rules=(RuleRun("GV112", "ran", "held against float64"),)),
    "all settings": passing(
        settings={
            "eps": "auto",
            "atol": None,
            "budget": {"calls": None, "seconds": 10.0},
            "select": ["GV1", "GV2"],
        }
    ),
    "frames of other packages are folded": replace(
        raising(),
        findings=(
            replace(raising().findings[0], frames=(*raising().findings[0].frames, THEIRS, THEIRS)),
        ),
    ),
    "the last lines printed": failing(captured="\n".join(f"line {i}" for i in range(50))),
    "a line printed over and over": failing(
        captured="a\n" + "b\n" * 300 + "a\n\x1b[2J\x1b]0;title\x07 done\x07"
    ),
    "known": replace(
        failing(), baselined=True, ok=True, findings=(replace(failing().findings[0], known=True),)
    ),
    "a fault that costs a rule": failing(
        faults=(Fault("the rule GV109", "KeyError: 3", "a.py:1", "trace"),)
    ),
    "a fault that costs a hint": failing(
        faults=(Fault("the cause", "KeyError: 3", "a.py:1", "trace", costs=False),)
    ),
    "a fault that costs the check": result(
        "ours",
        "error",
        reason="gradverify itself failed",
        faults=(Fault("it", "KeyError: 3", "a.py:1", "t"),),
    ),
    "its process": passing(changed=("closed stdout",)),
    "warnings of a failing check": failing(
        findings=(
            *failing().findings,
            Finding(
                "GV224", "saved, never read", name="saved-unused", severity="warning", input="x"
            ),
        )
    ),
    "each finding has the table of its pair": result(
        verdict="fail",
        comparisons=(
            comparison(worst=(entry((1,)),)),
            comparison(input="w", worst=(entry((2,)),)),
            comparison("GV106", input="w", worst=(entry((3,)),)),
        ),
        findings=(replace(GV101, input="w"), Finding("GV106", "m", input="w", output=0)),
    ),
    "about values, without a comparison": result(
        verdict="fail",
        comparisons=(comparison(worst=(entry((1,)),)),),
        findings=(
            Finding("GV103", "m", input="x", output=0),
            Finding("GV201", "m", input="x", output=0),
        ),
    ),
    "None has no table of zeros": failing(
        findings=(
            Finding("GV102", "backward returns None for x", input="x", output=0, hint="return it"),
        )
    ),
    "writes": failing(findings=(replace(GV202, also=("GV101",)),)),
    "parts of complex numbers": table_of(entry(output_part="re", input_part="im"), entry((), ())),
    "numbers that do not look alike": table_of(
        entry(analytic=1.0, numeric=1.000000001), entry(analytic=2.0, numeric=1.0, tolerance=0.0)
    ),
    "no verdict, no ratio": table_of(
        *(entry(outcome=each) for each in ("undecided", "kink", "jump", "staircase")),
        entry(analytic=math.nan, numeric=math.inf, bar=math.inf, outcome="non_finite"),
    ),
    "given numbers": table_of(entry((), (1,), 0.5, 0.6, bar=5.3e-16), rule="GV107", output=None),
    "given numbers that are uncertain": table_of(
        entry((), (1,), 0.5, 0.6, bar=1e-4), rule="GV107", output=None
    ),
    "a reference": table_of(entry(bar=1e-9), rule="GV106"),
    "a bar however small, and none": table_of(entry(bar=1e-15), entry(bar=0.0)),
    "rows are capped": table_of(*(entry((i,)) for i in range(12)), kinks=50, elements=96),
    "one more": failing(comparisons=(comparison(mismatched=2, worst=(entry(),)),)),
    "what came out alike is counted": failing(
        comparisons=(
            comparison(mismatched=1, kinks=50, undecided=3, worst=(entry(), entry(outcome="jump"))),
        )
    ),
}
RUNS = {
    "interrupted": report(passing(), result(verdict="not_run"), interrupted=True),
    "crashed": report(passing(), crashed="KeyError: 'x'"),
    "deselected, left out, a shard": report(
        passing(), selection=Selection(deselected=7, left_out=2, shard=Shard(2, 3, 9))
    ),
    "a shard without checks": report(
        passing(), checks=(), selection=Selection(shard=Shard(2, 3, 1))
    ),
    "an empty run": report(passing(), checks=()),
    "all skipped": report(skipped(), skipped()),
    "forgiven": report(failing(), exit_code=0, forgiven=1),
    "required": report(passing(), skipped(), gate=Gate(require_device=("cuda",))),
    "undecided in a green run": report(passing(), undecided(), warned()),
    "undecided in a run that fails for it": report(undecided(), gate=Gate("fail")),
    "expected to be undecided": report(replace(undecided(), expect=("GV007",))),
    "undecided and forgiven": report(undecided(), argv=("check", "--exit-zero")),
    "the first of several failures again": report(
        passing(), raising("op[a=1]"), failing("n" * 200)
    ),
    "not run": report(
        failing(), result("late", "not_run", reason="left out after the first failure (-x)")
    ),
}


def titled(shown):
    return "\n".join(f"#### {title}\n{text}" for title, text in shown.items())


def test_every_kind_of_check_and_run_reads_as_written_down(golden):
    whole = Look(120, boxes=False, wrap=False, verbosity=2)
    golden(
        "variants-plain.txt",
        titled({title: render(report(check), whole) for title, check in VARIANTS.items()}),
    )
    golden(
        "variants-table.txt",
        titled({title: render(report(check), Look(80)) for title, check in VARIANTS.items()}),
    )
    golden(
        "runs.txt", titled({title: render(run, Look(80, slowest=1)) for title, run in RUNS.items()})
    )


@pytest.mark.parametrize("width", [80, 120])
def test_a_whole_run_reads_as_written_down(golden, width):
    golden(f"table-{width}.txt", render(report(*everything(), extreme()), Look(width)))
    golden(f"plain-{width}.txt", plain.render(report(*everything(), extreme()), Look(width)))


def test_quiet_shows_failures_and_the_summary_alone():
    look = Look(100, verbosity=-1)
    text = render(report(passing("calm"), failing("broken"), skipped("absent"), warned()), look)
    assert (
        "broken" in text
        and "calm" not in text
        and "absent" not in text
        and "1 failed, 2 passed, 1 skipped, 1 warning (1 not shown)" in text
    )
    assert render(report(passing("calm")), look).splitlines() == ["1 passed in 3.40 s"]


def test_panels_are_for_what_makes_the_run_red_and_v_shows_more():
    for check, counts in (
        (undecided(), (0, 1, 1)),
        (failing(expect=("GV101",)), (0, 0, 1)),
        (failing(), (1, 1, 1)),
    ):
        assert (
            tuple(
                closing(report(check), Look(100, verbosity=verbosity)).count("╭")
                for verbosity in (0, 1, 2)
            )
            == counts
        )
    left_out = result("late", "not_run", reason="left out")
    assert check_line(left_out, Look(100)) == "" and "late" in check_line(
        left_out, Look(100, verbosity=1)
    )


def test_settings_come_with_the_place_that_named_them():
    assert "settings: rtol 1e-06 (command line)\n" in check_line(
        passing(), Look(120, boxes=False, verbosity=1), origins={"rtol": "command line"}
    )


# ---- at any width
@pytest.mark.parametrize("width", [40, 60, 66, 71, 72, 80, 100, 120])
def test_no_framed_line_is_wider_than_the_terminal_and_no_number_is_cut(width):
    framed = [
        line
        for line in render(report(failing(), extreme()), Look(width)).splitlines()
        if line.startswith(("╭", "│", "╰"))
    ]
    assert len(framed) > 20 and {cell_len(line) for line in framed} == {max(width, 60)}
    text = render(report(extreme()), Look(width))
    for figure in (
        "-1.2345678e-05",
        "-1.2345679e-05",
        "±1.2e-16",
        "-1.23456e-305",
        "±inf",
        "non-finite",
        "1,048,576",
    ):
        assert figure in text, figure
    assert "…" not in text.replace("… and 2 more of 1,048,576", "")
    compared = comparison(
        "GV107",
        input="projection_weight_of_the_second_attention_head",
        output=None,
        worst=(entry((), (1023, 4095)),),
    )
    assert all(
        len(line) <= max(width, 60)
        for line in paint(table(compared, Look(width)), Look(width)).splitlines()
    )


@pytest.mark.parametrize("width", [72, 80, 100, 120])
@pytest.mark.parametrize("longest", [4, 14, 30, 41, 48])
def test_the_lines_of_a_run_align_and_stay_within_the_terminal(width, longest):
    checks = [passing(name) for name in ("a", "b" * longest)] + [
        replace(undecided(), name="c"),
        skipped("d"),
        failing("e"),
    ]
    lines = [
        check_line(report(check).checks[0], Look(width), longest).splitlines() for check in checks
    ]
    ends = {
        (line[0] if "elements" in line[0] else line[1]).index(" elements")
        for line in (lines[0], lines[1], lines[2], lines[4])
    }
    assert len(ends) == 1 and all(cell_len(text) <= width for found in lines for text in found)


SENTENCE = "would catch any absolute error above 3.1e-10"
TYPICAL = "linear at other shapes[rows=5,in=4,out=3]"


@pytest.mark.parametrize(
    "width, expected",
    [
        (80, f"PASS  {TYPICAL}      62 elements\n      {SENTENCE}"),
        (
            100,
            f"PASS  {TYPICAL}      62 elements                   37 calls   0.02 s\n      "
            f"{SENTENCE}",
        ),
        (120, f"PASS  {TYPICAL}      62 elements  {SENTENCE}   0.02 s"),
        (140, f"PASS       {TYPICAL}      62 elements  {SENTENCE}     37 calls   0.02 s"),
    ],
)
def test_the_sentence_stands_on_the_line_or_below_it(width, expected):
    assert check_line(passing(TYPICAL), Look(width)) == expected + "\n"


def test_names_are_measured_and_the_longest_that_is_not_extreme_counts():
    assert (
        name_width(["mm", "square_of_sum", "x" * 300]) == len("square_of_sum")
        and name_width(["注意"]) == 4
    )
    long = of(comparison(kinks=3, undecided=14), name="n" * 40)
    assert check_line(long, Look(80)).splitlines()[1] == f"      {SENTENCE}; 3 kinks, 14 undecided"
    first, second, third = check_line(passing("n" * 60), Look(80)).splitlines()
    assert (
        first == "PASS  " + "n" * 60
        and second.split() == ["62", "elements"]
        and third.strip() == SENTENCE
    )
    far = replace(skipped("d"), reason="no CUDA device, required by --require-device cuda")
    assert (
        check_line(far, Look(80)).rstrip().endswith(far.reason)
        and len(check_line(far, Look(80)).splitlines()) == 1
    )


# ---- colour, plain text, text from outside
def test_colour_only_adds_and_an_ascii_look_draws_with_ascii_alone(golden):
    coloured = render(report(), Look(100, color=True))
    assert (
        coloured.count("\x1b[1;31m") > 3 and "\x1b[33m" in coloured and "\x1b[32mPASS" in coloured
    )
    bare = "".join(line.rstrip() + "\n" for line in ANSI.sub("", coloured).splitlines())
    assert bare == render(report(), Look(100))
    text = render(report(), Look(80, ascii=True))
    assert text.isascii() and "+- FAIL" in text and "0.785398 +-1.2e-11" in text
    assert check_line(
        report(skipped(), gate=Gate(fail_on_skip=True)).checks[0], Look(120, color=True)
    ).startswith("\x1b[1;31mSKIP")


@pytest.mark.parametrize(
    "variables",
    [
        {"FORCE_COLOR": "1"},
        {"NO_COLOR": "1"},
        {"TERM": "dumb"},
        {"COLUMNS": "40"},
        {"TTY_COMPATIBLE": "1"},
    ],
)
def test_no_environment_variable_changes_what_is_rendered(monkeypatch, variables):
    before = render(report(), Look(100))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert render(report(), Look(100)) == before


@pytest.mark.parametrize(
    "name",
    ["op[a=1]", "dx[i,2]", "a[/b]", ":fire:", "[bold]x[/bold]", "pkg.mod:fire:1", "C:\\ops[0]"],
)
@pytest.mark.parametrize("boxes", [True, False])
def test_names_come_out_as_they_are(name, boxes):
    assert (
        ANSI.sub("", render(report(failing(name)), Look(120, boxes=boxes, color=True))).count(name)
        >= 3
    ), "in the line, the title and the command"


def test_plain_says_the_same_in_the_same_order_and_wraps_no_line_that_is_searched_or_copied():
    framed, bare = render(report(failing()), Look(100)), plain.render(report(failing()), Look(100))
    assert re.findall(r"[\w.']+", framed) == re.findall(r"[\w.']+", bare) and not set(
        "╭│╰─\x1b"
    ) & set(bare)
    look = Look(80, boxes=False)
    wrapped = plain.render(report(failing("n" * 70)), look)
    whole = plain.render(report(failing("n" * 70)), replace(look, wrap=False))
    sentence = failing().findings[0].message
    assert (
        sentence in whole.splitlines()
        and sentence not in wrapped.splitlines()
        and sentence in " ".join(wrapped.split())
    )
    long = [line for line in wrapped.splitlines() if len(line) > 80]
    assert {line.split("n" * 70)[0].strip() for line in long} == {
        "FAIL",
        "== FAIL",
        "this again: gradverify check specs/ops.yaml::",
    }
    source = "def backward(ctx, grad_output): " + "x" * 90
    assert f"    {source}\n" in render(
        report(failing(findings=(Finding("GV101", "m", file="a.py", line=3, source=source),))), look
    )


# ---- the error map
@pytest.mark.parametrize(
    "ratio, drawn",
    [
        (0.0, " "),
        (0.009, " "),
        (0.01, "."),
        (1.0, "."),
        (1.001, ":"),
        (10.0, ":"),
        (10.1, "-"),
        (1e3, "="),
        (1e8, "@"),
        (1e300, "@"),
        (math.inf, "@"),
        (math.nan, "?"),
    ],
)
def test_the_glyph_of_a_ratio(ratio, drawn):
    assert glyph(ratio) == drawn and drawn in RAMP + "?"


def test_rows_are_outputs_and_a_map_that_does_not_fit_is_left_out():
    text = paint(
        error_map(ErrorMap(((0.0, 0.5, 5.0), (50.0, math.nan, 0.0))), Look(80)), Look(80)
    ).splitlines()
    assert text[0] == "error map: 2 output elements down, 3 input elements across" and text[
        1:3
    ] == ["| .:|", "|-? |"]
    for ratio in (((1.0,) * 90,), ((1.0,),) * 60, (), ((),)):
        assert list(error_map(ErrorMap(ratio), Look(80))) == []


# ---- listings, damage
CASES = (
    Case(
        "a.yaml::op[a=1]",
        "op[a=1]",
        "op",
        SpecPlace("a.yaml", 3),
        "m:F",
        (
            InputRecipe("x", TensorRecipe((2, 3))),
            InputRecipe("v", TensorRecipe(None, "values", [[1.0, 2.0]])),
            InputRecipe(None, None, math.inf),
        ),
        settings=Settings(device="cuda"),
        tags=("fast", ":fire:"),
        requires=("cuda",),
    ),
    Case(
        "a.yaml::data",
        "data",
        "data",
        SpecPlace("a.yaml", 9),
        "m:G",
        (InputRecipe("x", TensorRecipe(None, "file", "/x.npy")),),
        skip="slow",
    ),
    Case(
        "a.yaml::made", "made", "made", SpecPlace("a.yaml", 12), "m:H", inputs_from="make.py:inputs"
    ),
    Case(
        "a.yaml::cat",
        "cat",
        "cat",
        SpecPlace("a.yaml", 3),
        "torch:cat",
        (
            InputRecipe(
                "tensors", tensors=(TensorRecipe((2, 3)), TensorRecipe(None, "values", [1.0]))
            ),
        ),
    ),
)
WHY = "x has shape [3, 4]: only a shape of more than 16 elements can show it"
CHECK = MutatedCheck(
    "s.yaml::op[a=1]",
    "op[a=1]",
    "op",
    (
        Mutant("×1.01", ("x",), "killed", "GV101"),
        Mutant("sign", ("x",), "survived", why="forgiven; found with `eps: auto`"),
        Mutant("drop the last tile", ("x",), "unseen", why=WHY),
        Mutant("swap inputs", ("x", "y"), "equivalent", why="the same gradient"),
        Mutant("stale state", (), "killed", "GV207"),
    ),
    seconds=1.25,
)
LEFT_OUT = MutatedCheck(
    "s.yaml::broken",
    "broken",
    "op",
    left_out="it does not pass undamaged: fail (GV101 jacobian)",
    broken=True,
)
DAMAGE = mutation_report([CHECK, LEFT_OUT], version="1", argv=("mutate",), duration=2.0)
NOTHING = mutation_report([LEFT_OUT], version="1", argv=(), duration=1.0, interrupted=True)
FUNCTIONS = [("add", ("x", "y"), "x + y")]


def test_listings_and_damage_read_as_written_down(golden):
    looks = {
        "plain": Look(20, boxes=False),
        "table": Look(80),
        "narrow": Look(60),
        "ascii": Look(80, ascii=True),
    }
    shown = {
        name: listing.cases_text(CASES, look)
        + listing.functions_text(FUNCTIONS, look)
        + listing.mutation_line(CHECK, look)
        + listing.mutation_line(LEFT_OUT, look)
        + listing.mutation_text(DAMAGE, look)
        + listing.mutation_text(NOTHING, look)
        for name, look in looks.items()
    }
    assert shown["ascii"].isascii()
    golden(
        "listings.txt",
        titled(
            shown
            | {
                "JSON": listing.cases_json(CASES)
                + listing.functions_json(FUNCTIONS)
                + as_text(DAMAGE)
            }
        ),
    )
    json.loads(listing.cases_json(CASES), parse_constant=pytest.fail)


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_a_table_of_damage_keeps_to_its_width_and_cuts_nothing(width):
    text = listing.mutation_text(DAMAGE, Look(width))
    assert max(map(len, text.splitlines()[:-1])) <= width, (
        "the last line is one line, however narrow"
    )
    assert all(word in text for word in (*WHY.split(), "forgiven;", "×1.01", "s.yaml::op[a=1])"))


def test_cases_of_a_matrix_that_fail_alike_share_a_panel():
    cases = [failing(f"op[n={n}]") for n in range(3)]
    other = failing(
        "op[n=9]", findings=(replace(failing().findings[0], cause=None), *failing().findings[1:])
    )
    elsewhere = failing("op2", spec=SpecPlace("specs/other.yaml", 1))
    found = report(*cases, other, elsewhere)
    text = render(found, Look(100))
    assert text.count("this again:") == 3
    assert "the same in 2 more cases: op[n=1], op[n=2]\n" in text
    assert render(found, Look(100, verbosity=1)).count("this again:") == 5


def test_a_warning_of_a_line_is_shown_once():
    place = {"file": "ops.py", "line": 3}
    warning = Finding("GV225", "m", name="w", severity="warning", **place)
    checks = [passing(f"c{n}", findings=(warning,)) for n in range(3)]
    checks.append(passing("other", findings=(replace(warning, line=4),)))
    text = render(report(*checks), Look(100))
    assert text.count("warning GV225") == 2 and "4 passed, 2 warnings in 4 checks" in text
    assert render(report(*checks), Look(100, verbosity=1)).count("warning GV225") == 4
