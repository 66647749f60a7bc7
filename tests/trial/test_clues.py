"""What the body of a forward says about its arguments; and what it does not say, so that no shape is left out for a comparison in passing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gradverify.trial.wanted import clues_of


def unpacks(x):
    b, c, h, w = x.shape
    return b + c + h + w


def sizes(x):
    n, d = x.size()
    return n, d


def starred(x):
    b, *rest = x.shape
    return b, rest


def subscripts(x):
    return x.shape[2], x.size(3), x.shape[-2]


def asserts(x):
    assert x.dim() == 4 and x.is_contiguous()


def raises(x):
    if x.ndim != 3:
        raise ValueError


def only_asks(x):
    if x.dim() == 2:
        x = x.unsqueeze(0)
    return x


def convolves(x, w):
    return F.conv2d(x, w)


def indexes(x, i, j, k, dim):
    return x[i] + torch.gather(x, dim, j) + x.index_select(0, k)


def embeds(weight, ids):
    return torch.embedding(weight, ids)


def embeds_by_name(ids, weight):
    return F.embedding(ids, weight)


def chooses(x, mode, flag, other, n, run, many):
    if mode == "mean" or mode in ("sum", "none"):
        x = x.sum()
    if not flag:
        x = run(x)
    if other is None:
        x = torch.zeros(n)
    return torch.cat(many)


@pytest.mark.parametrize(("function", "ranks", "least"), [
    (unpacks, {4}, 0), (sizes, {2}, 0), (starred, set(), 1), (subscripts, set(), 4), (asserts, {4}, 0), (raises, {3}, 0), (only_asks, set(), 0),
    (convolves, {4}, 0)])
def test_dimensions(function, ranks, least):
    clues = clues_of(function)["x"]
    assert (clues.ranks, clues.least) == (ranks, least) and (clues.tensor or function is convolves)


def test_indices():
    assert [name for name, clues in clues_of(indexes).items() if clues.index] == ["i", "j", "k"]
    assert clues_of(indexes)["dim"].whole
    assert [name for name, clues in clues_of(embeds).items() if clues.index] == ["ids"]
    assert [name for name, clues in clues_of(embeds_by_name).items() if clues.index] == ["ids"]


def test_words_truth_values_counts_and_what_is_called():
    clues = clues_of(chooses)
    assert clues["mode"].words == ["mean", "sum", "none"]
    assert clues["flag"].truth and clues["other"].optional and clues["n"].whole and clues["run"].called and clues["many"].sequence
    assert not (clues["x"].truth or clues["x"].called or clues["other"].truth)


@pytest.mark.parametrize("function", [torch.relu, len, eval("lambda x: x"), type("Callable", (), {"__call__": lambda self, x: x})()],
                         ids=["built-in", "of Python", "lambda", "instance"])
def test_code_without_source_says_nothing(function):
    assert dict(clues_of(function)) == {}
