"""Dtypes that a spec may name: those of 16 bits too, in a check, a matrix and a tensor; 8-bit floats get one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec.marked import check, loaded, unmarked


@pytest.mark.parametrize("text", [check("dtype: bfloat16"), check("inputs: {x: {shape: [2], dtype: float16}, y: 1}")])
def test_sixteen_bits_are_read(text: str, tmp_path: Path) -> None:
    assert not loaded(text, tmp_path).problems


def test_they_are_values_of_a_matrix(tmp_path: Path) -> None:
    cases = loaded(check("matrix: {dtype: [float64, float32, bfloat16, float16]}"), tmp_path).cases
    assert [case.settings.dtype for case in cases] == ["float64", "float32", "bfloat16", "float16"]


@pytest.mark.parametrize("text", [check("dtype: «float8_e4m3fn"), check("inputs: {x: {shape: [2], dtype: «float8_e5m2}, y: 1}")])
def test_eight_bits_are_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    text, places = unmarked(text)
    problems = loaded(text, tmp_path).problems
    assert [(problem.line, problem.column) for problem in problems] == places
    assert "outputs and saved tensors may hold 8-bit floats" in problems[0].message
