"""The plot of one element: how far the difference quotient of each step is from backward's value, both logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradverify.model.element import Element, Measured
from gradverify.report.html.heat import Tick
from gradverify.report.names import element
from gradverify.report.numbers import bar
from gradverify.report.terminal.element import distances, is_settled, noise_at

LEFT, TOP, WIDTH, HEIGHT = 52.0, 12.0, 480.0, 230.0     # units: where the plot begins, and its size
ROOM = 16.0         # between the smallest exponent and the axis: there a distance of 0 is drawn
TICKS = 8           # labels along an axis, at most
SERIES = (("analytic", "from backward's value"), ("numeric", "from the numeric value"), ("left", "left slope, from backward's value"),
          ("right", "right slope, from backward's value"))


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Series:
    """`kind` is a class of the style sheet."""

    kind: str
    label: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """In units of the picture. `noise` is a polyline; `tolerance` the height of a line, `chosen` the place of the step that was used."""

    caption: str
    series: tuple[Series, ...]
    noise: str
    tolerance: float | None
    tolerance_label: str
    chosen: float | None
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


def plot(e: Element) -> Plot | None:
    """None where f has a value at fewer than two steps."""
    m = e.measured
    steps = [math.log10(rung.step) for rung in m.rungs if 0 < rung.step < math.inf]
    if len(steps) < 2 or max(steps) == min(steps):
        return None
    heights = list(_heights(m))
    if not heights:
        return None
    low, high = math.floor(min(heights)), max(math.ceil(max(heights)), math.floor(min(heights)) + 1)
    across, up = _scale(min(steps), max(steps), LEFT, LEFT + WIDTH), _scale(low, high, TOP + HEIGHT - ROOM, TOP)
    chosen = m.fixed.step if m.fixed else m.rungs[m.chosen.rung].step if m.chosen else None
    return Plot(_caption(e), tuple(_series(m, across, up)), _noise(m, across, up),
                up(math.log10(m.tolerance.value)) if 0 < m.tolerance.value < math.inf else None, f"tolerance {bar(m.tolerance.value)}",
                across(math.log10(chosen)) if chosen else None,
                _ticks(math.ceil(min(steps)), math.floor(max(steps)), across), _ticks(low, high, up))


def _caption(e: Element) -> str:
    named = f"{element(e.output.name, e.output.index, e.output.part)} / {element(e.input.name, e.input.index, e.input.part)}"
    return f"{named}, the worst element: distance of the difference quotient, by step. {e.conclusion[:1].upper()}{e.conclusion[1:]}."


def _heights(m: Measured) -> Iterator[float]:
    """Exponents of what is drawn."""
    values = [m.tolerance.value, *(rung.noise for rung in m.rungs), *(value for rung in m.rungs for value in distances(rung, m))]
    return (math.log10(value) for value in values if 0 < value < math.inf)


def _scale(first: float, last: float, start: float, end: float) -> Callable[[float], float]:
    return lambda exponent: start + (exponent - first) / (last - first) * (end - start)


def _series(m: Measured, across: Callable[[float], float], up: Callable[[float], float]) -> Iterator[Series]:
    """Those with any dot; a distance of 0 lies on the axis."""
    for place, (kind, label) in enumerate(SERIES):
        dots = []
        for rung in m.rungs:
            of_rung = distances(rung, m)
            value = of_rung[place] if place < len(of_rung) else math.nan
            if 0 < rung.step < math.inf and math.isfinite(value) and (kind != "numeric" or is_settled(m)):
                y = up(math.log10(value)) if value else TOP + HEIGHT
                dots.append(Dot(across(math.log10(rung.step)), y, f"step {rung.step:.2g}: {value:.2g}"))
        if dots:
            yield Series(kind, label, tuple(dots))


def _noise(m: Measured, across: Callable[[float], float], up: Callable[[float], float]) -> str:
    """Points of a polyline: noise of f ÷ step at each step; empty where f has none."""
    steps = [rung.step for rung in m.rungs if 0 < rung.step < math.inf]
    found = [(step, noise_at(m.rungs, step)) for step in steps]
    return " ".join(f"{across(math.log10(step)):.1f},{up(math.log10(value)):.1f}" for step, value in found if 0 < value < math.inf)


def _ticks(low: int, high: int, scale: Callable[[float], float]) -> tuple[Tick, ...]:
    stride = max(1, math.ceil((high - low) / TICKS))
    return tuple(Tick(scale(exponent), f"1e{exponent:+03d}") for exponent in range(low, high + 1, stride))
