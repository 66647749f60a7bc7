"""What a report with pictures shows of a failing check, beside its numbers: plain data, JSON both ways."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.model.element import Element

Grid = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The Jacobian of one pair on a grid of cells, real coordinates of the output down and of the input across.

    rows, columns: how many coordinates there are; a cell holds rows / len(error) of them down, rounded up, and as many across.
    analytic, numeric, error [down][across]: of the element in each cell whose error is largest; error is 0 where no element is wrong.
    worst: (row, column) of the worst element, in coordinates.
    """

    rule: str
    input: str
    output: int
    output_name: str
    rows: int
    columns: int
    analytic: Grid
    numeric: Grid
    error: Grid
    worst: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """The source of `backward`, as it stands in the file; `first`: the number of its first line."""

    file: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pictures:
    """`maps`: of each wrong pair whose elements were kept; `elements`: the worst element of each, on every step; `code`: where it has a source."""

    maps: tuple[HeatMap, ...] = ()
    elements: tuple[Element, ...] = ()
    code: Code | None = None
