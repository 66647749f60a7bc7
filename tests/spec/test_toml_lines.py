"""Lines of keys in TOML: whatever can stand before a key (texts over several lines that look like keys, other tables) must not be taken for it."""

from __future__ import annotations

import tomllib

import pytest

from gradverify.spec.toml_lines import place_of, refusal

KEY = ("tool", "gradverify", "defaults", "seed")


@pytest.mark.parametrize(("text", "line", "column"), [
    ("[tool.gradverify.defaults]\nseed = 1\n", 2, 1),
    ("[tool.gradverify.defaults]\r\n  seed = 1\r\n", 2, 3),
    ("[tool.gradverify]\ndefaults = {eps = 1.0, seed = 1}\n", 2, 24),
    ("[tool.gradverify]\ndefaults.seed = 1\n", 2, 10),
    ("[tool]\ngradverify.defaults.seed = 1\n", 2, 21),
    ("[ tool . 'gradverify' . defaults ]  # seed = 3\n\"seed\" = 1\n", 2, 2),
    ("text = '''\n[tool.gradverify.defaults]\nseed = 2\n'''\n[tool.gradverify.defaults]\n# seed = 3\nseed = 1\n", 7, 1),
    ("[tool.gradverify.defaults]\neps = 'seed = 2'\nseed = 1\n", 3, 1),
    ("[tool.other.defaults]\nseed = 2\n[tool.gradverify.defaults]\nseed = 1\n[more]\nseed = 3\n", 4, 1),
    ("a = [\n  'x',\n\n  ['y'], # ]\n]\n[[tool.other]]\nseed = 1\n[tool.gradverify]\n[tool.gradverify.defaults]\nseed = 1\n", 10, 1),
    ("[tool.gradverify.defaults.rules]\nignore = []\n[tool.gradverify.defaults]\nseed = 1\n", 4, 1),
    ("[tool.gradverify.defaults]\n\"\\u0073eed\" = 1\n", 2, 1),
])
def test_a_key_is_found_where_it_stands(text, line, column):
    assert tomllib.loads(text)["tool"]["gradverify"]["defaults"]["seed"] == 1
    place = place_of(text, KEY)
    assert (place.line, place.column) == (line, column)
    assert place.text == text.replace("\r\n", "\n").split("\n")[line - 1]


def test_the_nearest_thing_around_a_key_that_is_not_written_stands_for_it():
    text = "[tool.gradverify]\npaths = ['a',\n 'b']\n"
    assert place_of(text, ("tool", "gradverify", "paths", 1)).line == 2
    assert place_of(text, ("tool", "gradverify", "paths", 5)).line == 2
    assert place_of(text, ("tool", "gradverify", "jobs")).line == 1
    assert place_of(text, ("other", "jobs")) is None


@pytest.mark.parametrize(("text", "line"), [("a = 1\nb = \n", 2), ("[a\n", 1), ("a = 1\na = 2\n", 2), ("a = '''\nb\n", 3)])
def test_what_is_no_toml_has_its_line_and_a_message_without_it(text, line):
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    message, place = refusal(caught.value, text)
    assert place.line == line and "line" not in message and message[0].islower()


def test_long_values_are_not_parsed_again_for_each_of_their_lines(monkeypatch):
    """A list of a thousand lines took seconds, where every line of it was tried as its end."""
    parsed = []
    monkeypatch.setattr(tomllib, "loads", lambda text, loads=tomllib.loads: (parsed.append(text), loads(text))[1])
    text = "[tool.other]\nlong = [\n" + '  "an entry",\n' * 1000 + "]\n[tool.gradverify.defaults]\nseed = 1\n"
    assert place_of(text, KEY).line == 1005 and place_of(text, ("tool", "gradverify", "defaults")).line == 1004
    assert len(parsed) < 10
