"""Numbers that keep apart: from each other, and from values to avoid."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SLACK = 1e-9  # of a distance: rounding of the numbers it lies between


def smallest_gap(tensor: Tensor) -> float:
    """The smallest distance of two elements; inf for fewer than two."""
    flat = tensor.reshape(-1)
    if flat.numel() < 2:
        return float("inf")
    if flat.is_complex():
        return float(torch.pdist(torch.view_as_real(flat)).min())
    ordered = flat.sort().values
    return float((ordered[1:] - ordered[:-1]).min())


def keep_apart(tensor: Tensor, distance: float) -> bool:
    return smallest_gap(tensor) >= distance * (1 - SLACK)


def spaced(low: float, high: float, count: int, distance: float, zones: Sequence[tuple[float, float]], source: torch.Generator) -> Tensor | None:
    """`count` uniform numbers of [low, high] under the condition that they keep their distance (and off the zones), in random order [count].

    Uniform on what the distances leave free, sorted, the distances put back between neighbours; the zones are cut out of the line before
    and put back after. None where they do not fit. float64.
    """
    inside = [(max(a, low), min(b, high)) for a, b in zones if b > low and a < high]
    free = (high - low) - sum(b - a for a, b in inside) - max(count - 1, 0) * distance
    if free < 0:
        return None
    numbers = low + free * torch.rand(count, generator=source, dtype=torch.float64).sort().values
    numbers = numbers + distance * torch.arange(count, dtype=torch.float64)
    for a, b in inside:
        numbers = torch.where(numbers > a, numbers + (b - a), numbers)
    return numbers[torch.randperm(count, generator=source)]


def spaced_integers(low: int, high: int, count: int, distance: int, source: torch.Generator) -> Tensor | None:
    """The same for the integers from `low` to below `high` (int64)."""
    free = high - low - max(count - 1, 0) * distance
    if free < 1:
        return None
    numbers = torch.randint(low, low + free, (count,), generator=source).sort().values + distance * torch.arange(count)
    return numbers[torch.randperm(count, generator=source)]


def pushed_apart(tensor: Tensor, distance: float, zones: Sequence[tuple[float, float]]) -> Tensor:
    """The same numbers in the same order of size, moved away from the median no further than their distances (and the zones) demand."""
    ordered, order = tensor.reshape(-1).sort()
    numbers = ordered.tolist()
    middle = len(numbers) // 2
    mirrored = sorted((-b, -a) for a, b in zones)
    above = _climb(numbers[middle:], distance, zones)
    below = _climb([-above[0], *(-x for x in reversed(numbers[:middle]))], distance, mirrored)[1:] if above else []
    result = torch.empty_like(ordered)
    result[order] = torch.tensor([*(-x for x in reversed(below)), *above], dtype=ordered.dtype)
    return result.reshape(tensor.shape)


def _climb(numbers: Sequence[float], distance: float, zones: Sequence[tuple[float, float]]) -> list[float]:
    """Ascending numbers, each at least `distance` above the one before and outside of the (ascending, separate) zones."""
    result: list[float] = []
    for x in numbers:
        x = max(x, result[-1] + distance) if result else x
        for a, b in zones:
            x = b if a < x < b else x
        result.append(x)
    return result


def merged(centres: Sequence[float], margin: float) -> list[tuple[float, float]]:
    """The open neighbourhoods of these values as ascending, separate intervals."""
    zones: list[tuple[float, float]] = []
    for centre in sorted(centres):
        if zones and centre - margin < zones[-1][1]:
            zones[-1] = (zones[-1][0], centre + margin)
        else:
            zones.append((centre - margin, centre + margin))
    return zones
