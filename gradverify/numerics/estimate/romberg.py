"""Richardson extrapolation of central differences in Romberg's table, with the noise carried along, and the choice of its best entry.

C. Ridders, Adv. Eng. Softw. 4 (1982), with three departures: the rungs' ratio is no integer, noise is propagated through the table, and
a value counts only where every finer rung agrees with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.records import Record
from gradverify.numerics.rungs import RATIO, Array, Index, Mask, Z

ORDERS = 4  # extrapolation orders 0 to 3: errors h², h⁴, h⁶, h⁸
CONFIRM = 4  # finest rungs with a value, of a long ladder, that no value is taken from: they must agree with it
LONG = 8


@dataclass(frozen=True)
class Table:
    """T(k, j), its bar and the part of the bar that is noise: each [orders, n, m]."""

    value: Array
    bar: Array
    noise: Array


@dataclass(frozen=True)
class Best(Record):
    """The chosen entry of each element [m]; rung −1 where none was consistent."""

    value: Array
    bar: Array
    noise: Array
    rung: Index

    @classmethod
    def none(cls, m: int) -> Best:
        """No choice for any of m elements."""
        return cls(np.full(m, np.nan), np.full(m, np.inf), np.full(m, np.inf), np.full(m, -1))

    def better(self, elements: Index, new: Best) -> Best:
        """With the entries of `new` at these elements, where it found any."""
        better = new.rung >= 0
        return self.replaced(elements[better], new.take(better))


def table(D: Array, h: Array, noise: Array) -> Table:
    """The Romberg table of quotients D at steps h with noise standard deviations, all [n, m].

    Var(k, 0) = σ²/(2h²); Var(k, j) = (R⁴ʲ Var(k, j−1) + Var(k−1, j−1)) / (R²ʲ − 1)².
    """
    shape = (ORDERS, *D.shape)
    value, variance, trend = np.full(shape, np.nan), np.full(shape, np.inf), np.full(shape, np.inf)
    value[0], variance[0] = D, (noise / (np.sqrt(2) * h)) ** 2
    trend[0, 1:] = np.abs(D[1:] - D[:-1])
    for j in range(1, ORDERS):
        w, fine, coarse = RATIO ** (2 * j), value[j - 1, j:], value[j - 1, j - 1 : -1]
        value[j, j:] = (w * fine - coarse) / (w - 1)
        variance[j, j:] = (w * w * variance[j - 1, j:] + variance[j - 1, j - 1 : -1]) / (w - 1) ** 2
        # from both parents: the fine one alone takes convergence at order 2j for granted
        trend[j, j:] = np.maximum(np.abs(value[j, j:] - fine), np.abs(value[j, j:] - coarse))
    noise_bar = np.sqrt(variance, out=variance)
    noise_bar *= Z
    trend += noise_bar
    return Table(value, np.where(np.isfinite(trend), trend, np.inf), noise_bar)


def pick(D: Array, h: Array, noise: Array, full: bool) -> Best:
    """The entry with the least bar that every finer rung agrees with: kills the plateaus of kinks, jumps and aliases."""
    n, m = D.shape
    t = table(D, h, noise)
    confirmed = _confirmed(D) if full else np.ones(D.shape, bool)
    value, bar, noise_bar, rung = np.full(m, np.nan), np.full(m, np.inf), np.full(m, np.inf), np.full(m, -1)
    for j in range(ORDERS):
        for k in range(max(j, 1), n):
            better = (t.bar[j, k] < bar) & confirmed[k]
            if not better.any():
                continue
            finer = D[k + 1 :]
            agree = np.abs(t.value[j, k] - finer) <= t.bar[j, k] + t.bar[0, k + 1 :]
            better &= (agree | ~np.isfinite(finer)).all(0)
            value[better], bar[better] = t.value[j, k][better], t.bar[j, k][better]
            noise_bar[better], rung[better] = t.noise[j, k][better], k
    return Best(value, bar, noise_bar, rung)


def _confirmed(D: Array) -> Mask:
    """Rungs that a value may be taken from: enough finer ones have a value, or the ladder is short."""
    from_here = np.cumsum(np.isfinite(D)[::-1], 0)[::-1]  # rungs with a value, k and finer
    return np.asarray((from_here > CONFIRM) | (from_here[0] <= LONG))


def one_sided(change: Array, step: Array, noise: Array, safety: float = 1.0) -> Best:
    """Forward differences without extrapolation: change of f, signed step and noise [n, m]; the bar is safety·|ΔD| + noise.

    Orders are fractional where f ends or bends (x^1.5), so none is assumed. Every finer rung must agree, as in `pick`.
    """
    d, noise_bars = change / step, Z * np.sqrt(2) * noise / np.abs(step)
    trend = np.vstack([np.full(d.shape[1], np.inf), safety * np.abs(np.diff(d, axis=0))])
    bars = np.where(np.isfinite(trend + noise_bars), trend + noise_bars, np.inf)
    agree = [((np.abs(d[k] - d[k + 1 :]) <= bars[k] + bars[k + 1 :]) | ~np.isfinite(d[k + 1 :])).all(0) for k in range(len(d))]
    bars = np.where(agree, bars, np.inf)
    rung, elements = np.argmin(bars, 0), np.arange(d.shape[1])
    return Best(d[rung, elements], bars[rung, elements], noise_bars[rung, elements], rung)
