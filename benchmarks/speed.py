"""CPU seconds and counted calls of gradverify and of torch.autograd.gradcheck, on the same
functions in one run.

    python benchmarks/speed.py [--cases WORD ...] [--repeats N] [--modes MODE ...] [--edges N ...] [--small] [--out benchmarks/results/speed.md]

gradverify compares the Jacobian alone (rule GV101), in each of its modes; gradcheck runs with its
defaults, slow and fast. A time is the median of the repeats, one thread. With --out the page is
written, and beside it the picture of how calls and time grow. With --small only the rows of small
inputs under all rules (`small.py`) are measured, and with --out put into the page that is there.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import counted
import small
import torch
import torch.nn.functional as F
from cases import CASES, Case, layer_norm, softmax
from plot import Panel, Series, svg
from timing import OURS, PATIENCE, SAMPLE, THEIRS, TIGHT, Timed, possible, timed
from torch import Tensor

SLOW = "gradcheck slow"
PICTURE = "speed.svg"
GROWING = (("gelu", F.gelu), ("softmax", softmax), ("layer_norm", layer_norm))
EDGES = (8, 16, 32, 64, 128, 256, 512, 1000)  # of the square inputs in the picture
SLOWEST = 5.0  # seconds: where gradcheck took longer, the next size is not asked of it

Table = dict[str, tuple[Case, dict[str, Timed]]]


def measure(cases: Sequence[Case], repeats: int, modes: Sequence[str]) -> Table:
    """Each case in turn; what it found is told on stderr meanwhile."""
    timed(Case("first", F.gelu, ((2, 2),)), 1, modes)  # what is imported late
    table: Table = {}
    for case in cases:
        table[case.name] = case, timed(case, repeats, modes)
        print(" | ".join(times_row(*table[case.name], modes)), file=sys.stderr, flush=True)
    return table


# ---- the page
def times_row(case: Case, found: Mapping[str, Timed], modes: Sequence[str]) -> list[str]:
    """The case, both of gradcheck, then each of ours with its ratio to gradcheck slow."""
    return [
        case.name,
        *(_time(found[name], name, case) for name in THEIRS),
        *(_ours(found[mode], found[SLOW], mode) for mode in modes),
    ]


def _time(t: Timed, name: str, case: Case) -> str:
    if t.seconds:
        return _seconds(t.median)
    inputs, outputs = case.size
    return (
        f"not possible: {2 * 8 * inputs * outputs / 1e12:.0f} TB"
        if not possible(name, case)
        else "–"
    )


def _ours(t: Timed, slow: Timed, mode: str) -> str:
    if not t.seconds:
        return "–"
    ratio = f" ({_ratio(slow.median / t.median)}×)" if slow.seconds else ""
    made = f"{t.mode}, " if mode in ("auto", TIGHT) else ""
    return f"{made}{_seconds(t.median)}{ratio}{'' if t.verdict == 'pass' else f' {t.verdict}'}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def calls_row(case: Case, found: Mapping[str, Timed], modes: Sequence[str]) -> list[str]:
    inputs, outputs = case.size
    return [case.name, f"{2 * inputs + 1:,} / {outputs:,}", *(_calls(found[m]) for m in modes)]


def _calls(t: Timed) -> str:
    return f"{t.forward:,} / {t.backward:,}" if t.seconds else "–"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows)]
    )


def verdict_of(table: Table) -> str:
    """Where `auto` was slower than gradcheck slow, in a sentence."""
    auto = [
        (name, found["auto"], found[SLOW])
        for name, (_, found) in table.items()
        if "auto" in found and found[SLOW].seconds
    ]
    behind = [name for name, ours, slow in auto if ours.median > slow.median]
    if not auto:
        return ""
    ahead = (
        f"By `auto`, gradverify was faster than gradcheck slow in {len(auto) - len(behind)} of the "
        f"{len(auto)} cases that gradcheck can do"
    )
    return f"{ahead}{'; slower in: ' + ', '.join(behind) if behind else ''}."


def page(
    table: Table,
    modes: Sequence[str],
    repeats: int,
    limits: Sequence[counted.Row],
    little: str,
    chosen_modes: str,
) -> str:
    """`little`: the section of small inputs."""
    times = markdown(
        ["function", *THEIRS, *modes], [times_row(*row, modes) for row in table.values()]
    )
    calls = markdown(
        ["function", "gradcheck slow", *modes], [calls_row(*row, modes) for row in table.values()]
    )
    kept = markdown(
        ["function", "compared by", "forward / backward calls", "at most"],
        [
            [
                row.kind,
                row.way,
                "{} / {}".format(*row.counted),
                "{} / {}{}".format(*row.most, "" if row.kept else ": exceeded"),
            ]
            for row in limits
        ],
    )
    return (
        "\n\n".join(
            [
                "# Speed, measured",
                f"CPU time with torch {torch.__version__.partition('+')[0]} and Python "
                f"{platform.python_version()}, one thread of a machine of two cores; medians of "
                f"{repeats} samples, each the mean of as many runs in a row as take {SAMPLE} s, "
                "the checkers of a row in turn and at the same inputs, which are drawn "
                f"beforehand (one that has taken {PATIENCE:.0f} seconds on a row is not asked "
                "again). `tight` is `auto` with a budget of half the calls that entries take. In "
                "parentheses: how many times as fast as gradcheck slow, the one of the two that "
                "compares every element. gradverify's time is that of a whole check with the "
                "rule GV101 alone; “–” was not run, for the time it would take.",
                times,
                f"{verdict_of(table)} What gradcheck's fast mode misses is counted in "
                "[verdicts.md](verdicts.md).",
                "## Calls",
                "Forward / backward calls, which do not depend on the machine. gradcheck slow "
                "takes 2N + 1 / M.",
                calls,
                "From the JSON report of [benchmarks/specs/calls.yaml](../specs/calls.yaml), "
                "against the limits that tests hold:",
                kept,
                little,
                "## Growth",
                f"![Calls and seconds against the number of elements]({PICTURE})",
                "Square inputs, gradverify by `auto`; dashed, gradcheck slow: its calls, and its "
                f"time as far as it was asked, to about {SLOWEST:.0f} s a "
                f"check. What `auto` chose: {chosen_modes}.",
            ]
        )
        + "\n"
    )


# ---- growth
@dataclass(frozen=True)
class Growth:
    """One function at growing sizes: elements of its square input, with `auto` and with gradcheck
    slow as far as it was asked.

    `calls`: what gradcheck slow takes at every size.
    """

    name: str
    ours: tuple[tuple[int, Timed], ...]
    theirs: tuple[tuple[int, Timed], ...]
    calls: tuple[tuple[int, int], ...]


def growths(edges: Sequence[int]) -> list[Growth]:
    return [_grown(name, forward, edges) for name, forward in GROWING]


def _grown(name: str, forward: Callable[..., Tensor], edges: Sequence[int]) -> Growth:
    ours = list[tuple[int, Timed]]()
    theirs = list[tuple[int, Timed]]()
    calls = list[tuple[int, int]]()
    for edge in edges:
        case = Case(
            name,
            forward,
            ((edge, edge), (edge,), (edge,)) if name == "layer_norm" else ((edge, edge),),
        )
        slow = not theirs or (len(theirs) == len(ours) and theirs[-1][1].median < SLOWEST)
        found = timed(case, 1, ("auto",), (SLOW,) if slow and possible(SLOW, case) else ())
        ours.append((edge * edge, found["auto"]))
        calls.append((edge * edge, 2 * case.size[0] + 1 + case.size[1]))
        theirs += [(edge * edge, found[SLOW])] if SLOW in found else []
    return Growth(name, tuple(ours), tuple(theirs), tuple(calls))


def panels(grown: Sequence[Growth]) -> tuple[Panel, Panel]:
    """Calls, and seconds, against the number of elements."""
    calls, seconds = list[Series](), list[Series]()
    for colour, each in enumerate(grown):
        theirs = f"{each.name}, gradcheck slow"
        calls += [
            Series(each.name, tuple((n, t.forward + t.backward) for n, t in each.ours), colour),
            Series(theirs, each.calls, colour, dashed=True),
        ]
        seconds += [
            Series(each.name, tuple((n, t.median) for n, t in each.ours), colour),
            Series(theirs, tuple((n, t.median) for n, t in each.theirs), colour, dashed=True),
        ]
    return Panel("Calls, forward and backward", "calls", tuple(calls)), Panel(
        "CPU time", "seconds", tuple(seconds)
    )


def modes_chosen(grown: Sequence[Growth]) -> str:
    """What `auto` took, by function, in order of size."""
    return "; ".join(f"for {each.name} {', '.join(_spans(each))}" for each in grown)


def _spans(each: Growth) -> Iterator[str]:
    for mode, group in groupby(each.ours, key=lambda point: point[1].mode):
        sizes = [n for n, _ in group]
        yield f"{mode} at {sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "")


def chosen(words: Sequence[str]) -> Iterator[Case]:
    """Cases whose name contains one of the words; all without any. Raises SystemExit where none
    does."""
    found = [case for case in CASES if not words or any(word in case.name for word in words)]
    if not found:
        raise SystemExit(
            f"--cases: none is called like that; there are {', '.join(case.name for case in CASES)}"
        )
    yield from found


def main(arguments: Sequence[str]) -> str:
    """Prints the table of times, and returns it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        default=(),
        metavar="WORD",
        help="only cases whose name contains one of these",
    )
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="runs of each checker; default: 5"
    )
    parser.add_argument(
        "--modes",
        nargs="+",
        default=OURS,
        choices=OURS,
        metavar="MODE",
        help=f"of gradverify; default: {' '.join(OURS)}",
    )
    parser.add_argument(
        "--edges",
        type=int,
        nargs="+",
        default=EDGES,
        metavar="N",
        help="of the squares in the picture of growth",
    )
    parser.add_argument(
        "--out", type=Path, help="also write a page with the tables, and the picture beside it"
    )
    parser.add_argument(
        "--small", action="store_true", help="only the rows of small inputs under all rules"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.small:
        return _small(options)
    table = measure(list(chosen(options.cases)), options.repeats, options.modes)
    times = markdown(
        ["function", *THEIRS, *options.modes],
        [times_row(*row, options.modes) for row in table.values()],
    )
    if options.out:
        grown = growths(options.edges)
        options.out.with_name(PICTURE).write_text(svg(panels(grown), "elements"))
        little = small.section(list(small.rows(options.repeats)), options.repeats)
        options.out.write_text(
            page(table, options.modes, options.repeats, counted.rows(), little, modes_chosen(grown))
        )
    print(times)
    return times


def _small(options: argparse.Namespace) -> str:
    section = small.section(list(small.rows(options.repeats)), options.repeats)
    if options.out:
        options.out.write_text(small.replaced(options.out.read_text(), section))
    print(section)
    return section


if __name__ == "__main__":
    main(sys.argv[1:])
