import math

import pytest

from gradverify.report import numbers


@pytest.mark.parametrize("value, text", [(math.pi / 4, "0.785398"), (-1.2345678e-5, "-1.23457e-05"), (2.0, "2"),
                                         (math.nan, "nan"), (-math.inf, "-inf"),
                                         (123456789.0, "1.23457e+08"), (-0.0, "0")])
def test_six_significant_digits(value, text):
    assert numbers.number(value) == text


@pytest.mark.parametrize("a, b, texts", [(1.0, 1.0, ("1", "1")), (1.0, 1.0000001, ("1", "1.0000001")), (1.0, 2.0, ("1", "2")),
                                         (1.0, 1.0 + 2**-52, ("1", "1")), (math.nan, 1.0, ("nan", "1"))])
def test_a_pair_gets_the_digits_that_tell_it_apart(a, b, texts):
    assert numbers.pair(a, b) == texts


@pytest.mark.parametrize("value, of, text", [(1.0, 3.0, "0.333"), (1.0, 0.0, "inf"), (0.0, 0.0, "0"), (math.nan, 0.0, "nan")])
def test_ratios(value, of, text):
    assert numbers.ratio(value, of) == text


@pytest.mark.parametrize("value, text", [(0.0213, "0.02 s"), (9.994, "9.99 s"), (75.34, "75.3 s")])
def test_seconds(value, text):
    assert numbers.seconds(value) == text


@pytest.mark.parametrize(("size", "shown"), [(0, "1 MiB"), (2**20 * 12.2, "12 MiB"), (2**30 * 0.1, "0.1 GiB"), (2**30 * 1.5, "1.5 GiB")])
def test_memory_is_never_shown_as_none(size, shown):
    assert numbers.memory(size) == shown
