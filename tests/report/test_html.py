"""The HTML report: one file with everything in it, whatever stands in names and errors, and pictures that show the numbers."""

import base64
import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from factories import comparison, entry, everything, failing, passing, raising, report

from gradverify.model.element import Code, HeatMap, Pictures
from gradverify.model.result import Calls, Finding, Frame, FunctionInfo, Repeat
from gradverify.report.html import heat as colours
from gradverify.report.html.heat import data_uri, heat
from gradverify.report.html.page import render

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Page(HTMLParser):
    """Tags as they open and close, text as a reader sees it, attribute values that could load something."""

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


def drawn(rows=4, columns=6, worst=(3, 1)):
    """A map with one wrong element."""
    values = tuple(tuple(float(row - column) for column in range(columns)) for row in range(rows))
    error = tuple(tuple(2.5 if (row, column) == worst else 0.0 for column in range(columns)) for row in range(rows))
    return HeatMap("GV101", "x", 0, "y0", rows, columns, values, values, error, worst)


def pictured(**changes):
    code = Code("my_ops/act.py", 40, ("    @staticmethod", "    def backward(ctx, g):", "        return -g * ctx.saved_tensors[0] < 3"))
    return failing(pictures=Pictures((drawn(),), (), code), **changes)


def pixels(uri):
    """Rows of (r, g, b) of a PNG without filters, read by the PNG specification."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, image = 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        body = data[at + 8:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        image += body if kind == b"IDAT" else b""
        at += 12 + length
    raw, stride = zlib.decompress(image), 1 + 3 * width
    lines = [raw[row * stride + 1:(row + 1) * stride] for row in range(height)]
    return [[tuple(line[3 * i:3 * i + 3]) for i in range(width)] for line in lines]


def test_the_page_is_well_formed_and_loads_nothing():
    page = Page(render(report(pictured(), *everything())))
    assert not page.open
    assert "script" not in page.tags
    assert {link.partition(",")[0] for link in page.links if not link.startswith("#")} == {"data:image/png;base64"}


@pytest.mark.parametrize("evil", ["</style><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{ 7 * 7 }}{% raw %}",
                                  "a\x1b[31mred\x07\x00b", "\u202egnp.exe", "]]>", "x" * 10_000, "\ud800"])
def test_what_stands_in_names_and_messages_is_text(evil):
    finding = Finding("GV101", evil, evil, input=evil, output=0, hint=evil, file=evil, line=3, source=evil)
    text = render(report(failing(name=evil, findings=(finding,), captured=evil), raising(evil)))
    text.encode("utf-8")
    page = Page(text)
    assert not {"script", "img"} & set(page.tags) and not page.open
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text.replace("\n", ""))
    assert "49" not in page.said.replace(evil, "") or "{{" not in evil


def test_the_page_is_as_written_down(golden):
    """But for its style. An empty run has a page too."""
    given = comparison(output=None, mismatched=1, worst=(entry(bar=1e-17),))     # of a number that somebody gave no rounding is worth a word
    checks = (pictured(), failing("given", comparisons=(given,), findings=(Finding("GV101", "wrong", "jacobian", input="x"),)), *everything())
    pages = render(report(*checks, argv=("check", "specs/a b.yaml::two words", "-k", "one or two"))) + render(replace(report(passing()), checks=()))
    golden("page.html.txt", re.sub(r"<style>.*?</style>", "", pages, flags=re.S))


def test_a_png_holds_its_pixels():
    cells = [[(255, 0, 0), (0, 255, 0), (0, 0, 255)], [(1, 2, 3), (4, 5, 6), (7, 8, 9)]]
    assert pixels(data_uri(cells)) == cells


def test_signed_colours_are_blue_white_red_and_errors_darken():
    assert colours.signed_colour(-9.0, 2.0) == colours.SIGNED[0] and colours.signed_colour(2.0, 2.0) == colours.SIGNED[-1]
    assert colours.signed_colour(0.0, 2.0) == (247, 247, 247)
    assert colours.signed_colour(float("nan"), 2.0) == colours.error_colour(float("nan"), 1.0) == colours.NOT_A_NUMBER
    assert colours.error_colour(0.0, 3.0) == colours.RIGHT
    shades = [sum(colours.error_colour(10.0**-k, 1.0)) for k in range(7)]
    assert shades == sorted(shades) and len(set(shades)) == 7


def test_the_worst_element_is_framed_in_every_map_and_alone_is_coloured_as_an_error():
    found = heat(drawn())
    assert [panel.title for panel in found.panels] == ["analytic", "numeric", "error"]
    for panel in found.panels:
        cell = panel.width / 6, panel.height / 4
        middle = panel.worst.x + panel.worst.width / 2, panel.worst.y + panel.worst.height / 2
        assert (int(middle[0] // cell[0]), int(middle[1] // cell[1])) == (1, 3)
    coloured = {(row, column) for row, line in enumerate(pixels(found.panels[2].image)) for column, colour in enumerate(line)
                if colour != colours.RIGHT}
    assert coloured == {(3, 1)}


# ---- in a browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
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
    wide = failing("f" * 300, pictures=Pictures((drawn(64, 64), drawn(1, 60), drawn(60, 1)), (), None))
    page = render(report(pictured(), wide, *everything()))
    (tmp_path / "page.html").write_text(PROBE.format(width=width, page=html.escape(page)), encoding="utf-8")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    shown = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *dark, f"--user-data-dir={tmp_path / 'profile'}",
                            "--virtual-time-budget=5000", "--dump-dom", Path(tmp_path / "page.html").as_uri()],
                           capture_output=True, text=True, timeout=240)
    title = re.search(r"<title>(.*?)</title>", shown.stdout, re.S)
    assert title, shown.stderr
    reach, inside, outside, small, ground = json.loads(html.unescape(title.group(1)))
    assert 0.9 * width <= inside <= width and reach <= inside and not outside and not small
    assert ground == ("rgb(22, 24, 27)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_errors_many_orders_of_magnitude_apart_have_colours():
    """The ratio of two of them may be no float."""
    assert colours.error_colour(5e-324, 1.7e308) == colours.ERRORS[0] and colours.error_colour(1e308, 1.7e308) != colours.ERRORS[0]


def test_what_the_panel_of_a_terminal_tells_of_a_check_stands_on_the_page_too():
    repeats = tuple(Repeat(seed, verdict, verdict == "pass", 0.1, Calls()) for seed, verdict in ((0, "pass"), (1, "fail"), (4, "fail")))
    other = "/usr/lib/python3.11/functools.py"
    finding = replace(failing().findings[0], known=True, code="GV202", also=("GV101",), frames=(Frame(other, 1, "call"), Frame(other, 2, "call")))
    check = failing(repeats=repeats, seed=4, findings=(finding,), saved=("out dir/a.py",), unsaved="the disk is full")
    told = Page(render(report(replace(check, function=FunctionInfo("a:b", None, "a.py", None))))).said
    for said in ("2 of 3 repeats failed (seeds 1, 4); 1 passed (seed 0)", "--seed 4", "(known)",
                 "also: GV101, to be judged once nothing is written there", "… 2 frames in Python",
                 "without gradverify python 'out dir/a.py'", "no script was written: the disk is full", "source a.py spec"):
        assert said in told
    assert "None" not in told


def test_what_is_no_number_has_a_colour_that_the_caption_tells():
    assert "Violet" not in heat(drawn()).caption
    plain = drawn()
    assert "Violet: not a number" in heat(replace(plain, error=((float("nan"),) * len(plain.error[0]), *plain.error[1:]))).caption
