"""Tables and their JSON: cases with their sizes, the built-in functions, the coverage by checks,
and the results of mutation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.console import RenderableType
from rich.text import Text

from gradverify.model.case import Case, InputRecipe, Json, TensorRecipe
from gradverify.model.codec import as_text
from gradverify.model.mutation import MutatedCheck, MutationReport, counts
from gradverify.model.problem import NOTHING_CHECKED, OK, WRONG
from gradverify.report.look import Look
from gradverify.report.names import one_line
from gradverify.report.numbers import counted, seconds, some
from gradverify.report.terminal.canvas import columns, paint

UNCUT = 10_000  # columns
CASE_HEADERS = ("check", "tags", "device", "inputs")
RULE_HEADERS = ("code", "name", "severity", "when")
FUNCTION_HEADERS = ("built-in", "what it computes")


def cases_text(cases: Iterable[Case], look: Look) -> str:
    """Return a table; in the plain format tab-separated lines, one per case, for grep and cut."""
    return rows(
        CASE_HEADERS,
        [(case.id, _tags(case), case.settings.device, _inputs(case)) for case in cases],
        look,
    )


def cases_json(cases: Iterable[Case]) -> str:
    return as_text(
        [
            {
                "id": case.id,
                "name": case.name,
                "function": case.target,
                "tags": case.tags,
                "device": case.settings.device,
                "dtype": case.settings.dtype,
                "inputs": [_input_data(recipe) for recipe in (*case.inputs, *case.keywords)],
                "skip": case.skip,
                "requires": case.requires,
                "spec": {"path": case.spec.path, "line": case.spec.line},
            }
            for case in cases
        ]
    )


def functions_text(functions: Iterable[tuple[str, Sequence[str], str]], look: Look) -> str:
    """Return the table of functions, each given as (name, parameters, summary)."""
    return rows(
        FUNCTION_HEADERS,
        [(f"{name}({', '.join(parameters)})", summary) for name, parameters, summary in functions],
        look,
    )


def functions_json(functions: Iterable[tuple[str, Sequence[str], str]]) -> str:
    return as_text(
        [
            {"name": name, "parameters": parameters, "summary": summary}
            for name, parameters, summary in functions
        ]
    )


def rules_text(rules: Iterable[tuple[str, str, str, str]], look: Look) -> str:
    """Return the table of rules, each given as (code, name, severity, message)."""
    return rows(RULE_HEADERS, list(rules), look)


def rows(headers: Sequence[str], lines: Sequence[Sequence[str]], look: Look) -> str:
    """Return a table; in the plain format tab-separated lines without headers."""
    if look.boxes:
        return paint([_table(headers, lines, look, first="cyan")], look)
    return "".join("\t".join(map(one_line, line)).rstrip("\t") + "\n" for line in lines)


def _table(
    headers: Sequence[str],
    lines: Sequence[Sequence[str]],
    look: Look,
    numbers: bool = False,
    first: str = "",
) -> RenderableType:
    """Return a table; in the plain format without a frame, and with the last column uncut.
    `numbers`: all columns but the first hold numbers; `first`: the style of the first."""
    grid = columns(1 if look.boxes else 2, framed=look.boxes and not look.ascii)
    for place, header in enumerate(headers):
        grid.add_column(
            Text(header),
            overflow="fold",
            justify="right" if numbers and place else "left",
            style="" if place else first,
        )
    for line in lines:
        grid.add_row(
            *(Text(one_line(cell.replace("×", "x") if look.ascii else cell)) for cell in line)
        )
    if look.boxes:
        return grid
    return Text(paint([grid], replace(look, width=UNCUT)).rstrip("\n"), no_wrap=True)


def _tags(case: Case) -> str:
    marks = [
        *case.tags,
        *(f"requires {what}" for what in case.requires),
        *(["skip"] if case.skip else []),
    ]
    return ", ".join(marks)


def _inputs(case: Case) -> str:
    made = [f"from {case.inputs_from}"] if case.inputs_from else []
    return " ".join(
        [
            *made,
            *(_input(place, recipe) for place, recipe in enumerate((*case.inputs, *case.keywords))),
        ]
    )


def _input(place: int, recipe: InputRecipe) -> str:
    name = recipe.name if recipe.name is not None else str(place)
    if recipe.tensors:
        return f"{name}=[{' '.join(map(_size, recipe.tensors))}]"
    if recipe.tensor is None:
        return f"{name}={json.dumps(recipe.value)}"
    return f"{name}{_size(recipe.tensor)}"


def _size(tensor: TensorRecipe) -> str:
    shape = _shape(tensor)
    return f"[{','.join(map(str, shape))}]" if shape is not None else "[from a file]"


def _shape(tensor: TensorRecipe) -> tuple[int, ...] | None:
    """Return the shape; None if it is known only from the content of a file."""
    if tensor.shape is None and tensor.draw == "values":
        return _nesting(tensor.arguments)
    return tensor.shape


def _nesting(values: Json) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        return ()
    return (len(values), *(_nesting(values[0]) if values else ()))


def _input_data(recipe: InputRecipe) -> Json:
    if recipe.tensors:
        return {"name": recipe.name, "shapes": [_shape(tensor) for tensor in recipe.tensors]}
    if recipe.tensor is None:
        return {"name": recipe.name, "value": recipe.value}
    return {"name": recipe.name, "shape": _shape(recipe.tensor)}


COVERAGE_VERSION = 1


@dataclass(frozen=True, slots=True)
class CoveredFunction:
    """One autograd Function, or operator with a backward of its own.

    `checks`: ids of the checks that name it; `through`: of those that name a callable or module
    whose code calls it; `note`: why no spec can name it.
    """

    name: str
    kind: Literal["autograd.Function", "operator"]
    file: str
    line: int
    backward: int | None
    checks: tuple[str, ...]
    through: tuple[str, ...]
    note: str | None = None

    @property
    def checked(self) -> bool:
        return bool(self.checks or self.through)


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """The coverage: `percent` of the functions are checked. `unreadable`: files that this
    interpreter cannot parse, with the reason."""

    coverage_version: int
    version: str
    exit_code: int
    total: int
    checked: int
    percent: float | None
    fail_under: float
    functions: tuple[CoveredFunction, ...]
    unreadable: tuple[tuple[str, str], ...]


def coverage_report(
    functions: Sequence[CoveredFunction],
    unreadable: Sequence[tuple[str, str]],
    *,
    version: str,
    fail_under: float,
) -> CoverageReport:
    """Return the report. Its exit code is NOTHING_CHECKED without functions, and WRONG for a share
    below `fail_under` percent."""
    checked = sum(function.checked for function in functions)
    percent = 100 * checked / len(functions) if functions else None
    code = NOTHING_CHECKED if percent is None else WRONG if percent < fail_under else OK
    return CoverageReport(
        COVERAGE_VERSION,
        version,
        code,
        len(functions),
        checked,
        percent,
        fail_under,
        tuple(functions),
        tuple(unreadable),
    )


COVERAGE_HEADERS = ("backward of", "at", "checked by")
MOST_CHECKS = 2  # ids in one cell


def coverage_text(report: CoverageReport, look: Look) -> str:
    """Return a row for each Function, those without a check first, then the count."""
    ordered = sorted(report.functions, key=lambda function: function.checked)
    table = (
        rows(
            COVERAGE_HEADERS,
            [
                (each.name, f"{each.file}:{each.backward or each.line}", _checks(each))
                for each in ordered
            ],
            look,
        )
        if ordered
        else ""
    )
    if table and look.boxes:
        return f"{table}\n{_coverage_summary(report)}\n"
    return f"{table}{_coverage_summary(report)}\n"


def _checks(function: CoveredFunction) -> str:
    if not function.checked:
        return f"nothing: {function.note}" if function.note else "nothing"
    known = function.checks or function.through
    return ("" if function.checks else "through ") + some(known, MOST_CHECKS)


def _coverage_summary(report: CoverageReport) -> str:
    if report.percent is None:
        return "no autograd Function was found"
    share = (
        f"{report.checked} of {counted(report.total, 'autograd Function')} "
        f"{'has' if report.checked == 1 else 'have'} a check"
    )
    under = f", less than {report.fail_under:g} %" if report.percent < report.fail_under else ""
    return f"{share} ({report.percent:.1f} %){under}"


LIVES = ("function", "damage", "gradient of", "why, and what would kill it")
SAME = ("function", "damage", "gradient of", "why it cannot be seen")
KINDS = ("damage", "killed", "let through", "equivalent")
WORD = len("killed 19 of 19") + 2


def mutation_line(check: MutatedCheck, look: Look) -> str:
    """Return the line of one check: the share of its mutants that it detects, or why it was left
    out."""
    name = one_line(check.name)
    if check.left_out is not None:
        word = "left out"
        style = "bold red" if check.broken else "yellow"
        rest = f"         {name}: {one_line(check.left_out)}"
    else:
        own = [mutant.fate for mutant in check.mutants]
        killed, survived = own.count("killed"), own.count("survived")
        word, style = f"killed {killed} of {killed + survived}", "yellow" if survived else "green"
        others = {"survived": survived, "without effect here": len(own) - killed - survived}
        notes = ", ".join(f"{count} {what}" for what, count in others.items() if count)
        rest = f"{seconds(check.seconds):>7}  {name}" + (f"  {notes}" if notes else "")
    return paint([Text.assemble((word.ljust(WORD), style), rest, no_wrap=True)], look)


def mutation_text(report: MutationReport, look: Look) -> str:
    """Return the tables, with the count as the last line."""
    return paint(_pieces(report, look), look)


def _pieces(report: MutationReport, look: Look) -> Iterator[RenderableType]:
    if report.damage:
        yield Text()
        kinds = {
            kind: counts(each for each in report.damage if each.damage == kind)
            for kind in dict.fromkeys(each.damage for each in report.damage)
        }
        lines = [
            (kind, str(own.killed), str(own.let_through or ""), str(own.equivalent or ""))
            for kind, own in kinds.items()
        ]
        yield _table(KINDS, lines, look, numbers=True)
    for title, headers, fates in (
        ("let through", LIVES, ("survived", "unseen")),
        ("equivalent, and not counted", SAME, ("equivalent",)),
    ):
        found = [outcome for outcome in report.damage if outcome.fate in fates]
        if found:
            yield Text()
            yield Text(title, style="bold yellow" if "unseen" in fates else "bold")
            rows = []
            for each in found:
                inputs = ", ".join(each.inputs) or "all inputs"
                check = f" (in {each.check})" if each.fate == "survived" else ""
                rows.append((each.function, each.damage, inputs, f"{each.why or ''}{check}"))
            yield _table(
                headers,
                rows,
                look,
            )
    if report.damage:
        yield Text()
    yield _mutation_summary(report)


def _mutation_summary(report: MutationReport) -> Text:
    """Return the count on one line, whatever the width."""
    head = Text("interrupted: ", style="bold red") if report.interrupted else Text()
    time = f" in {seconds(report.duration_s)}"
    if report.share is None:
        return Text.assemble(
            head,
            ("nothing was damaged", "bold yellow"),
            time,
            _left_out(report.checks),
            no_wrap=True,
        )
    c = report.counts
    style = "green" if not c.let_through else "yellow"
    parts = [f"{c.let_through} let through"] * bool(c.let_through) + [
        f"{c.equivalent} equivalent"
    ] * bool(c.equivalent)
    share = (f"killed {c.killed} of {c.counted} ({report.share:.1f} %)", style)
    return Text.assemble(
        head, share, *(f", {part}" for part in parts), time, _left_out(report.checks), no_wrap=True
    )


def _left_out(checks: Iterable[MutatedCheck]) -> str:
    count = sum(check.left_out is not None for check in checks)
    return f"; {counted(count, 'check')} left out" if count else ""
