"""Text from outside (names, paths, messages, what was printed) in every view and format: it arrives
whole and readable, and means nothing there.

The class of faults: a character of a name or of an exception that a terminal, XML, Markdown, a
workflow command or an encoding takes for its own.
"""

import json
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import fields, is_dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from factories import everything, extreme, report
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from gradverify.report import github, gitlab, jsonl, junit, markdown, sarif
from gradverify.report.formats import NAMES, renderer
from gradverify.report.look import Look
from gradverify.report.names import CONTROL, clean, inert, one_line
from gradverify.report.plain import check_text
from gradverify.report.terminal.view import render as terminal

SARIF = jsonschema.Draft4Validator(
    json.loads((Path(__file__).parents[1] / "schemas" / "sarif-2.1.0-rtm.5.json").read_text())
)
LONG = "x" * 2_000
TEXTS = {
    "markup": "[red]x[/red] :fire: |a|b| <b>&amp;</b> ]]> `c` ``` ~~~ *d* _e_ $f$ @someone #1 "
    "https://x.y",
    "escape sequences": "a\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J\x1b[2J",
    "controls": "".join(map(chr, range(32))) + "\x7f\x85",
    "lines": "a\nb\r\nc\rd\u2028e\u2029f",
    "turned around": "a\u202eb\u2066c\u200fd\u061c",
    "no text": "\ud800 \udfff \ufffe\uffff",
    "commands": "::error::x\n  ::add-mask::y\n##[group]z %0A%25\n##vso[task.complete]a ##teamcity[b]\n"
    "::stop-commands::c",
    "numbers": "NaN -inf \u00b1\u00f7",
    "long": LONG,
    "other scripts": "σ 数 🔥 ‍",
    "only": "|",
    "tick": "`",
    "blank": " ",
    "nothing": "",
    "backslashes": "\\ \\| a\\",
    "tags": "</code></details><script>x</script> <!-- -->",
}
KEPT = {
    "verdict",
    "severity",
    "status",
    "outcome",
    "code",
    "rule",
    "started_at",
    "version",
    "expect",
    "lines",
    "output_part",
    "input_part",
    "missing",
    "also",
}
"""Strings that are ours: words with a meaning, not text from outside."""

A_COMMAND = re.compile(r"\s*::|.*##(vso|teamcity)?\[")
LOOKS = (Look(120, boxes=False, wrap=False), Look(90, color=True, verbosity=2))


def spoiled(value, text, name=""):
    """A copy in which every string from outside is followed by `text`."""
    if isinstance(value, str):
        return value if name in KEPT else value + text
    if isinstance(value, tuple):
        return tuple(spoiled(item, text, name) for item in value)
    if is_dataclass(value):
        return replace(
            value,
            **{
                field.name: spoiled(getattr(value, field.name), text, field.name)
                for field in fields(value)
            },
        )
    return value


@cache
def with_text(text):
    return spoiled(report(*everything(), extreme(), crashed="KeyError: boom"), text)


def nothing_raw(text):
    assert not CONTROL.search(text.replace("\n", "")) and "\t" not in text
    text.encode("utf-8")


def of_lines(text):
    """As a panel shows it: blanks at the ends of lines are left out."""
    return "\n".join(line.rstrip() for line in clean(text).splitlines()).rstrip()


def each(test):
    return pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)(test)


@pytest.mark.parametrize("kind", [*NAMES, "github"])
def test_no_format_carries_a_raw_control_character(kind):
    """A sample of all code points, those of the first two blocks whole, and all texts but the long
    one."""
    drawn = random.Random(0)
    points = [
        *range(0x180),
        *(drawn.randrange(0x180, 0x110000) for _ in range(300)),
        *range(0x2000, 0x2070),
    ]
    found = with_text(
        "".join(map(chr, points)) + "".join(text for text in TEXTS.values() if text != LONG)
    )
    nothing_raw(renderer(kind)(found))
    if kind in READ:
        READ[kind](found)


@each
@pytest.mark.parametrize("look", LOOKS, ids=["plain", "colour"])
def test_no_view_carries_one_and_names_arrive_whole(look, text):
    shown = terminal(with_text(text), look)
    if look.color:
        shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    nothing_raw(shown)
    if not look.wrap:
        # expected: it has no panel
        assert f"== FAIL  {one_line('mul of the tutorial' + text)}" not in shown
        assert f"== XPASS  {one_line('mul, mended' + text).rstrip()}" in shown


def names_in_junit(found):
    xml = junit.render(found)
    cases = {case.name for suite in JUnitXml.fromstring(xml.encode()) for case in suite}
    assert cases == {one_line(check.name) for check in found.checks}
    return xml


@each
def test_junit_is_read_back_with_every_name_and_sentence(text):
    found = with_text(text)
    root = ET.fromstring(names_in_junit(found).encode())
    [failure] = [
        case.find("failure")
        for case in root.iter("testcase")
        if case.get("name") == one_line(found.checks[0].name)
    ]
    assert one_line(found.checks[0].findings[0].message) in failure.get("message")
    assert of_lines(found.checks[0].findings[0].message) in failure.text


@each
def test_sarif_and_gitlab_carry_every_sentence(text):
    found = with_text(text)
    log = json.loads(sarif.render(found))
    SARIF.validate(log)
    [check_text] = [
        result["message"]["text"]
        for result in log["runs"][0]["results"]
        if f"swish[rows=7,act=:fire:]{one_line(text)}: GV101" in result["message"]["text"]
    ]
    assert clean(found.checks[0].findings[0].message) in check_text
    issues = json.loads(gitlab.render(found))
    assert " ".join(clean(found.checks[0].findings[0].message).split()) in issues[0]["description"]
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)


@each
def test_json_lines_carry_the_text_itself(text):
    found = with_text(text)
    lines = [json.loads(line) for line in jsonl.render(found).splitlines()]
    assert [line["check"]["name"] for line in lines if line["event"] == "check_finished"] == [
        check.name for check in found.checks
    ]


@each
def test_a_workflow_command_is_one_line_and_says_it_all(text):
    lines = github.render(with_text(text)).splitlines()
    assert lines and all(
        re.match(r"::(error|warning) file=[^:,]*,line=\d+,title=[^:,]*::[^\n]*$", line)
        for line in lines
    )
    unescaped = (
        re.search(r"title=([^:]*)::", lines[0])[1]
        .replace("%3A", ":")
        .replace("%2C", ",")
        .replace("%25", "%")
    )
    assert unescaped.startswith(f"swish[rows=7,act=:fire:]{one_line(text)}"[:200])


@each
def test_no_text_is_a_workflow_command(text):
    shown = [inert(terminal(with_text(text), LOOKS[0])), *map(check_text, with_text(text).checks)]
    assert not [line for each in shown for line in each.splitlines() if A_COMMAND.match(line)]


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, tuple(attributes)))

    def handle_data(self, data):
        self.text += data


def cells_in_markdown(found):
    """Code, tables and `details`: nothing of a text is anything else, and each table has its own
    number of columns and rows."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown.render(found))
    tags = Tags()
    for token in tokens:
        tags.feed(token.content if token.type == "html_block" else "")
        for child in token.children or ():
            tags.feed(child.content if child.type == "html_inline" else "")
            assert child.type in (
                "text",
                "code_inline",
                "html_inline",
                "softbreak",
                "strong_open",
                "strong_close",
            )
    assert set(tags.seen) <= {("details", ()), ("summary", ()), ("code", ())}
    assert {token.type for token in tokens if not token.type.endswith("_close")} <= {
        "heading_open",
        "inline",
        "table_open",
        "thead_open",
        "tbody_open",
        "tr_open",
        "th_open",
        "td_open",
        "html_block",
        "fence",
        "paragraph_open",
    }
    assert sum(token.type == "td_open" for token in tokens) == 4 * 6 + 3 * 3
    return tokens


READ = {
    "junit": names_in_junit,
    "markdown": cells_in_markdown,
    "github": lambda found: nothing_raw(terminal(found, LOOKS[0])),
}


@each
def test_markdown_shows_every_text_as_code(text):
    found = with_text(text)
    tokens = cells_in_markdown(found)
    shown = [
        "".join(child.content for child in token.children if child.type != "html_inline")
        for token in tokens
        if token.type == "inline"
    ]
    assert one_line(found.checks[0].name) in shown
    fences = [token.content for token in tokens if token.type == "fence"]
    assert len(fences) == 4 and of_lines(found.checks[0].findings[0].message) in fences[0]
