from __future__ import annotations

import math

import pytest
import yaml

from gradverify.spec.document import Document, parse


def value(text: str) -> object:
    document = parse("s.yaml", f"key: {text}\n")
    assert isinstance(document, Document), document
    return document.data["key"]


# YAML 1.2.2, section 10.3 (core schema), and what the JavaScript parser behind the editors makes of
# them
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-6", 1e-6),
        ("1E-6", 1e-6),
        ("+1e-6", 1e-6),
        ("-1e-3", -1e-3),
        ("1e6", 1e6),
        ("1.0e6", 1e6),
        ("1.e-6", 1e-6),
        (".5", 0.5),
        ("1.", 1.0),
        ("12e03", 12000.0),
        ("-2E+05", -200000.0),
        ("0", 0),
        ("-19", -19),
        ("+12", 12),
        ("010", 10),
        ("08", 8),
        ("0o14", 12),
        ("0x3A", 58),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("y", "y"),
        ("n", "n"),
        ("null", None),
        ("~", None),
        ("", None),
        ("Null", None),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        ("'1e-6'", "1e-6"),
        ("$rows", "$rows"),
        ("torch.nn:gelu", "torch.nn:gelu"),
    ],
)
def test_a_scalar_is_read_as_yaml_1_2_says(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_nan_is_read() -> None:
    found = value(".nan")
    assert isinstance(found, float) and math.isnan(found)


def test_pyyaml_keeps_its_own_tables() -> None:
    """A resolver added to the shared tables would change YAML for every other user of PyYAML in the
    process."""
    assert yaml.safe_load("a: 1e-6\nb: no\nc: 010") == {"a": "1e-6", "b": False, "c": 8}
