"""The HTML report: one file with everything in it, whatever stands in names and errors."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from factories import comparison, entry, everything, failing, passing, raising, report

from gradverify.model.result import Finding, Frame, FunctionInfo
from gradverify.report.html import render

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Page(HTMLParser):
    """Tags as they open and close, text as a reader sees it, attribute values that could load
    something."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.links, self.tags = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag) if tag not in VOID else None

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)

    @property
    def said(self):
        return " ".join(" ".join(self.text).split())


def test_the_page_is_well_formed_and_loads_nothing():
    page = Page(render(report(failing(), *everything())))
    assert not page.open
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)


@pytest.mark.parametrize(
    "evil",
    [
        "</style><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "{{ 7 * 7 }}{% raw %}",
        "a\x1b[31mred\x07\x00b",
        "\u202egnp.exe",
        "]]>",
        "x" * 10_000,
        "\ud800",
    ],
)
def test_what_stands_in_names_and_messages_is_text(evil):
    finding = Finding(
        "GV101", evil, name=evil, input=evil, output=0, hint=evil, file=evil, line=3, source=evil
    )
    text = render(report(failing(name=evil, findings=(finding,), captured=evil), raising(evil)))
    text.encode("utf-8")
    page = Page(text)
    assert not {"script", "img"} & set(page.tags) and not page.open
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text.replace("\n", "")
    )
    assert "49" not in page.said.replace(evil, "") or "{{" not in evil


def test_the_page_is_as_written_down(golden):
    """But for its style. An empty run has a page too."""
    # Of a number that somebody gave no rounding is worth a word
    given = comparison(output=None, mismatched=1, worst=(entry(bar=1e-17),))
    checks = (
        failing(),
        failing(
            "given",
            comparisons=(given,),
            findings=(Finding("GV101", "wrong", name="jacobian", input="x"),),
        ),
        *everything(),
    )
    pages = render(
        report(*checks, argv=("check", "specs/a b.yaml::two words", "-k", "one or two"))
    ) + render(replace(report(passing()), checks=()))
    golden("page.html.txt", re.sub(r"<style>.*?</style>", "", pages, flags=re.S))


# ---- in a browser
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PROBE = """<body style="margin:0"><iframe id="f" style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe><script>
document.getElementById("f").onload = e => {{ const d = e.target.contentDocument, r = d.documentElement, w = r.clientWidth;
  const out = [...d.body.querySelectorAll("*")].filter(n => !n.closest(".scroll") && !n.closest("svg") && n.getBoundingClientRect().right > w + 1);
  const small = [...d.querySelectorAll("td, p, dd, pre")].filter(n => parseFloat(getComputedStyle(n).fontSize) < 12);
  const ground = getComputedStyle(d.body).backgroundColor;
  document.title = JSON.stringify([r.scrollWidth, w, out.map(n => n.outerHTML.slice(0, 80)), small.length, ground]); }};
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt install chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_nothing_sticks_out_of_the_page_in_a_browser(tmp_path, width, scheme):
    wide = failing("f" * 300)
    page = render(report(wide, *everything()))
    (tmp_path / "page.html").write_text(
        PROBE.format(width=width, page=html.escape(page)), encoding="utf-8"
    )
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    shown = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            *dark,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            Path(tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    title = re.search(r"<title>(.*?)</title>", shown.stdout, re.S)
    assert title, shown.stderr
    reach, inside, outside, small, ground = json.loads(html.unescape(title.group(1)))
    assert 0.9 * width <= inside <= width and reach <= inside and not outside and not small
    assert ground == ("rgb(22, 24, 27)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_what_the_panel_of_a_terminal_tells_of_a_check_stands_on_the_page_too():
    other = "/usr/lib/python3.11/functools.py"
    finding = replace(
        failing().findings[0],
        known=True,
        code="GV202",
        also=("GV101",),
        frames=(Frame(other, 1, "call"), Frame(other, 2, "call")),
    )
    check = failing(findings=(finding,))
    told = Page(
        render(report(replace(check, function=FunctionInfo("a:b", None, "a.py", None))))
    ).said
    for said in (
        "(known)",
        "also: GV101, to be judged once nothing is written there",
        "… 2 frames in Python",
        "source a.py spec",
    ):
        assert said in told
    assert "None" not in told
