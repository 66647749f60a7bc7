"""A scaling plot as SVG, written by hand: points on two logarithmic axes, one polyline a series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Of one panel and its margins, in pixels
WIDTH, HEIGHT, LEFT, TOP, GAP, LEGEND = 460, 300, 70, 40, 60, 210
COLOURS = ("#0b6e99", "#c2410c", "#3f7d20")
STYLE = "text{font-family:sans-serif;font-size:12px;fill:#111827}.s{font-size:11px;fill:#6b7280}.t{font-size:13px;font-weight:bold}"


@dataclass(frozen=True)
class Series:
    """Points (x, y), both above 0. Series of one colour are variants of one thing: the dashed one
    is the other's yardstick."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    y_label: str
    series: tuple[Series, ...]


def svg(panels: Sequence[Panel], x_label: str) -> str:
    """Panels side by side with one legend, that of the first."""
    width = LEFT + len(panels) * (WIDTH + GAP) + LEGEND
    height = TOP + HEIGHT + 60
    drawn = [_panel(panel, LEFT + n * (WIDTH + GAP), x_label) for n, panel in enumerate(panels)]
    legend = _legend(panels[0].series, LEFT + len(panels) * (WIDTH + GAP) - GAP + 20)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    title = escape(" and ".join(panel.title for panel in panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n"
        f'<rect width="100%" height="100%" fill="white"/>\n{"".join(drawn)}{legend}</svg>\n'
    )


def _panel(panel: Panel, left: float, x_label: str) -> str:
    every = [point for series in panel.series for point in series.points]
    x = _Axis.of([p[0] for p in every], left, left + WIDTH)
    y = _Axis.of([p[1] for p in every], TOP + HEIGHT, TOP)
    lines = [f'<text class="t" x="{left}" y="{TOP - 14}">{escape(panel.title)}</text>\n']
    for power in x.powers:
        lines.append(
            f'<line x1="{x(10.0**power):.1f}" y1="{TOP}" x2="{x(10.0**power):.1f}" '
            f'y2="{TOP + HEIGHT}" stroke="#e5e7eb"/>\n'
            f'<text class="s" x="{x(10.0**power):.1f}" y="{TOP + HEIGHT + 16}" '
            f'text-anchor="middle">{_power(power)}</text>\n'
        )
    for power in y.powers:
        lines.append(
            f'<line x1="{left}" y1="{y(10.0**power):.1f}" x2="{left + WIDTH}" '
            f'y2="{y(10.0**power):.1f}" stroke="#e5e7eb"/>\n'
            f'<text class="s" x="{left - 6}" y="{y(10.0**power) + 4:.1f}" '
            f'text-anchor="end">{_power(power)}</text>\n'
        )
    lines += [_series(series, x, y) for series in panel.series]
    lines.append(
        f'<text class="s" x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" '
        f'text-anchor="middle">{escape(x_label)}</text>\n'
        f'<text class="s" x="{left - 44}" y="{TOP + HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 {left - 44} {TOP + HEIGHT / 2})">{escape(panel.y_label)}</text>\n'
    )
    return "".join(lines)


def _series(series: Series, x: _Axis, y: _Axis) -> str:
    at = [(x(a), y(b)) for a, b in series.points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
    dots = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{COLOURS[series.colour]}"/>' for a, b in at
    )
    return (
        f'<polyline points="{path}" fill="none" stroke="{COLOURS[series.colour]}" '
        f'stroke-width="2"{_dash(series)}/>{dots}\n'
    )


def _legend(series: Sequence[Series], left: float) -> str:
    lines = []
    for n, each in enumerate(series):
        height = TOP + 12 + 22 * n
        lines.append(
            f'<line x1="{left}" y1="{height}" x2="{left + 28}" y2="{height}" '
            f'stroke="{COLOURS[each.colour]}" stroke-width="2"{_dash(each)}/>'
            f'<text x="{left + 36}" y="{height + 4}">{escape(each.name)}</text>\n'
        )
    return "".join(lines)


def _dash(series: Series) -> str:
    return ' stroke-dasharray="5 4"' if series.dashed else ""


def _power(power: int) -> str:
    return f'10<tspan dy="-5" font-size="8">{power}</tspan>'


@dataclass(frozen=True)
class _Axis:
    """Powers of ten low … high between two places in pixels."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1), start, end)

    @property
    def powers(self) -> range:
        return range(self.low, self.high + 1)

    def __call__(self, value: float) -> float:
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (
            self.end - self.start
        )
