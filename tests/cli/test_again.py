"""`show` as a shell sees it: reports of earlier runs, shown again."""

import os

import pytest
from factories import everything, report

from gradverify.model.report import written
from gradverify.report.formats import NAMES
from gradverify.report.look import Look
from gradverify.report.plain import render


@pytest.fixture
def left(folder):
    """A report of everything."""
    (folder / "r.json").write_text(written(report(*everything())))
    return folder


def test_a_report_is_shown_as_the_run_showed_it(gradverify, left):
    shown = render(report(*everything()), Look(wrap=False))
    assert gradverify("show", "r.json") == (0, shown, "")
    code, out, _ = gradverify("show", "r.json", "--format", "table", "--width", "90", "-q")
    assert code == 0 and "╭─ FAIL  swish[rows=7,act=:fire:]" in out and "\nPASS " not in out


@pytest.mark.parametrize("kind", NAMES)
def test_a_report_is_shown_as_any_kind_of_report(gradverify, left, kind):
    from gradverify.report.formats import renderer
    from gradverify.rules.catalogue import rules

    wanted = renderer(kind, rules)(report(*everything()))
    assert gradverify("show", "r.json", "--format", kind) == (0, wanted, "")
    code, _, _ = gradverify("show", "r.json", "--report", f"{kind}:deep/out.txt")
    assert code == 0 and (left / "deep" / "out.txt").read_text(encoding="utf-8") == wanted


def test_a_byte_order_mark_is_no_fault(gradverify, left):
    (left / "r.json").write_bytes(b"\xef\xbb\xbf" + (left / "r.json").read_bytes())
    assert gradverify("show", "r.json")[0] == 0


def test_neither_imports_torch(process, left):
    probe = {"PYTHONSTARTUP": "", "PYTHONPATH": str(left)}
    (left / "sitecustomize.py").write_text(
        "import atexit, sys\natexit.register(lambda: open('seen', 'w').write(str('torch' in "
        "sys.modules)))\n"
    )
    for arguments in (["show", "r.json"],):
        process(
            *arguments,
            env={
                **probe,
                "PYTHONPATH": os.pathsep.join([str(left), os.environ.get("PYTHONPATH", "")]),
            },
        )
        assert (left / "seen").read_text() == "False"
        (left / "seen").unlink()
