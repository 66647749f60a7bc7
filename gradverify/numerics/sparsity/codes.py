"""Group testing by constant-weight codes: which slices of an axis are perturbed in which call, so
that the calls that moved an output name its slice.

Every slice has a word, one bit a call, and is perturbed in the calls of its ones. All words have
the same number of ones, and the union of two different words has more: an output that moved in
exactly so many calls depends on slices of a single word (Sperner 1928). C(L, L/2) slices are told
apart in L calls, 70 in 8 and 1,716 in 13, where a binary code with its complement takes 14 and 22.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from gradverify.numerics.rungs import AnyArray, Index, Mask
from gradverify.numerics.sparsity.pattern import NO_ENTRY, rank_among

# Calls of the short code: each perturbs a random half of the slices, each slice in two of them
HALVES = 4
SHORT = 20  # slices up to which all are told apart at once: 6 calls


@dataclass(frozen=True)
class Code:
    """The word of each slice [n]: bit c says that call c perturbs it. `weight`: the ones of every
    word."""

    words: AnyArray
    calls: int
    weight: int

    @cached_property
    def exact(self) -> bool:
        """No two slices share a word."""
        words = np.sort(self.words)
        return bool((words[1:] != words[:-1]).all())

    def slices(self, call: int) -> Mask:
        """What a call perturbs [n]."""
        return np.asarray(self.words >> call & 1 == 1)

    def decode(self, response: Index) -> Index:
        """The slice [M] whose word was heard; NO_ENTRY where it is no slice's. For exact codes."""
        order = np.argsort(self.words)
        at = np.minimum(np.searchsorted(self.words[order], response), len(order) - 1)
        return np.where(self.words[order][at] == response, order[at], NO_ENTRY)

    def extended(self) -> Code:
        """This code and as many calls more as tell the slices of each word apart."""
        rank = rank_among(self.words)
        more, weight = _words(int(rank.max()) + 1)
        return Code(
            self.words | more[rank] << self.calls,
            self.calls + int(more.max()).bit_length(),
            self.weight + weight,
        )


def one_at_a_time(n: int) -> Code:
    """Each slice by itself: n calls, and an output's word lists all the slices that it depends
    on."""
    return Code(1 << np.arange(n), n, 1)


def exact(n: int, generator: np.random.Generator) -> Code:
    """Every slice its own word, in the fewest calls."""
    words, weight = _words(n)
    return Code(generator.permutation(words)[:n], int(words.max()).bit_length(), weight)


def halves(n: int, generator: np.random.Generator) -> Code:
    """Four calls, each a random half: the six words of weight 2, shuffled anew for each six slices,
    so that neighbours mostly differ."""
    words, weight = _words(comb(HALVES, HALVES // 2))
    rows = words[None].repeat(-(-n // len(words)), 0)
    return Code(generator.permuted(rows, axis=1).reshape(-1)[:n], HALVES, weight)


def mixed(n: int, generator: np.random.Generator) -> Code:
    """The words of `halves`, each slice's drawn by itself."""
    words, weight = _words(comb(HALVES, HALVES // 2))
    return Code(
        words.astype(np.uint8).take(generator.integers(0, len(words), n, np.uint8)), HALVES, weight
    )


def _words(n: int) -> tuple[Index, int]:
    """At least n words of the fewest bits, half of them ones; and how many ones."""
    bits = next(bits for bits in range(1, 64) if comb(bits, bits // 2) >= n) if n > 1 else 1
    weight = max(bits // 2, 1)
    return np.array(
        [word for word in range(1 << bits) if word.bit_count() == weight], np.intp
    ), weight
