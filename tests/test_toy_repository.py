"""A repository with three ops and every door of gradverify at once: `init`, `coverage`, pre-commit,
pytest, reports, saved failures, shards, `--lf` and a baseline. First all is right, then a commit
has one sign wrong.

The class of faults: doors that work one by one and not side by side: they name one check, file or
folder in different ways, or one of them lets a wrong commit through that another one stops.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from commands import PLUGIN, here
from junitparser import JUnitXml
from repository import ROOT, Repository

BIN = Path(sys.executable).parent
pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(
        not (BIN / "pre-commit").exists(),
        reason="pre-commit is not installed beside this interpreter",
    ),
]

SWISH = """import torch
from torch.autograd import Function


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * (s + x * s * (1 - s))
"""
ROWS = """import torch
from torch.autograd import Function


class _Rows(Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, grad_output):
        index, = ctx.saved_tensors
        grad_table = grad_output.new_zeros(ctx.rows, *grad_output.shape[1:])
        return grad_table.index_add(0, index, grad_output), None


def take_rows(table, index):
    return _Rows.apply(table, index)
"""
NORM = """import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class _RMS(Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, r)
        return x * r * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight, r = ctx.saved_tensors
        g = grad_output * weight
        grad_x = r * g - x * r**3 * (g * x).mean(-1, keepdim=True)
        return grad_x, (grad_output * x * r).reshape(-1, weight.numel()).sum(0), None


class RMSNorm(torch.nn.Module):
    def __init__(self, width=4, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return _RMS.apply(x, self.weight, self.eps)
"""
HOOK = """repos:
  - repo: local
    hooks:
      - id: gradverify
        name: gradverify
        entry: '{python} -m gradverify hook'
        language: system
        always_run: true
        types: []
        require_serial: true
"""
FILES = {
    "toy/__init__.py": "",
    "toy/act.py": SWISH,
    "toy/rows.py": ROWS,
    "toy/norm.py": NORM,
    ".gitignore": "__pycache__/\nout/\n",
    ".pre-commit-config.yaml": HOOK.format(python=sys.executable),
    "pytest.ini": "[pytest]\ngradverify_files = specs/*.yaml\n",
}
RIGHT, WRONG = "grad_x = r * g - x", "grad_x = r * g + x"
LINE = 1 + NORM[: NORM.index("return grad_x")].count("\n")
WRONG_CHECKS = {"specs/toy.norm.yaml::_RMS", "specs/front.yaml::RMSNorm"}


class Toy(Repository):
    def gradverify(self, *arguments):
        """In this process."""
        with chdir(self.folder), pytest.MonkeyPatch.context() as patched:
            patched.setenv("CI", "")
            code, out, err = here(*arguments)
        return code, out + err

    def report(self, name):
        return json.loads((self.folder / name).read_text())


def not_ok(report):
    return {check["id"] for check in report["checks"] if not check["ok"]}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Ops, specs that `init` wrote, the hook installed, and all of it committed."""
    folder = tmp_path_factory.mktemp("repository")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "out").mkdir()
    made = Toy(folder, tmp_path_factory.mktemp("home"), {"PYTHONPATH": str(ROOT)})
    made.git("init", "-q")
    assert made.pre_commit("install")[0] == 0
    code, text = made.gradverify("init", "toy")
    assert code == 0 and text.count(": runs") == 3, text
    code, text = made.gradverify(
        "init", "toy.rows:take_rows", "toy.norm:RMSNorm", "-o", "specs/front.yaml"
    )
    assert code == 0 and text.count(": runs") == 2, text
    made.git("add", "-A")
    code, text = made.commit()
    assert code == 0 and "Passed" in text, text
    return made


@pytest.fixture(scope="module")
def wrong(right, tmp_path_factory):
    """A copy in which one sign is wrong, and not committed yet."""
    folder = tmp_path_factory.mktemp("copy") / "repository"
    shutil.copytree(right.folder, folder)
    norm = folder / "toy/norm.py"
    norm.write_text(norm.read_text().replace(RIGHT, WRONG))
    return Toy(folder, folder.parent, right.environ)


def test_every_door_lets_the_right_one_through(right):
    code, text = right.gradverify("coverage", "toy", "--fail-under", "100")
    assert code == 0 and "3 of 3" in text, text
    reports = [
        word for name in ("r.html", "r.xml", "r.sarif") for word in ("--report", f"out/{name}")
    ]
    code, text = right.gradverify("check", "-j", "2", *reports)
    assert code == 0 and "5 passed" in text, text
    assert "5 passed" in (right.folder / "out/r.html").read_text()
    cases = [case for suite in JUnitXml.fromfile(str(right.folder / "out/r.xml")) for case in suite]
    assert len(cases) == 5 and all(case.is_passed for case in cases)
    assert right.report("out/r.sarif")["runs"][0]["results"] == []


def test_the_hook_refuses_the_wrong_commit_and_runs_what_it_affects(wrong):
    code, text = wrong.commit("-a")
    assert (
        code == 1 and "2 failed" in text and "GV101" in text and f"toy/norm.py:{LINE - 1}" in text
    ), text
    assert "Swish" not in text and "take_rows" not in text
    assert wrong.commits() == 1


def test_every_report_names_the_same_checks_and_the_line(wrong):
    code, text = wrong.gradverify(
        "check",
        "-j",
        "2",
        "--report",
        "out/r.html",
        "--report",
        "out/r.xml",
        "--report",
        "out/r.sarif",
        "--report",
        "json:out/r.json",
    )
    assert code == 1 and "2 failed, 3 passed" in text, text
    assert not_ok(wrong.report("out/r.json")) == WRONG_CHECKS
    page = (wrong.folder / "out/r.html").read_text()
    assert "2 failed" in page and all(name in page for name in WRONG_CHECKS)
    failed = {
        case.name
        for suite in JUnitXml.fromfile(str(wrong.folder / "out/r.xml"))
        for case in suite
        if not case.is_passed
    }
    assert failed == {"_RMS", "RMSNorm"}
    places = [
        result["locations"][0]["physicalLocation"]
        for result in wrong.report("out/r.sarif")["runs"][0]["results"]
    ]
    assert {place["artifactLocation"]["uri"] for place in places} == {"toy/norm.py"}
    code, text = wrong.gradverify("show", "out/r.json", "--report", "gitlab:out/q.json")
    assert code == 0 and {issue["location"]["path"] for issue in wrong.report("out/q.json")} == {
        "toy/norm.py"
    }, text


def test_pytest_and_the_action_stop_it_too(wrong):
    code, text = wrong.call(sys.executable, "-m", "pytest", "-q", *PLUGIN, "-n", "1")
    assert (
        code == 1
        and "2 failed, 3 passed" in text
        and all(f"FAILED {name}" in text for name in WRONG_CHECKS)
    ), text


def test_only_what_failed_is_run_again_until_it_is_known(wrong):
    code, text = wrong.gradverify("check", "--lf")
    assert code == 1 and "2 failed, 3 deselected" in text, text
    code, text = wrong.gradverify(
        "check", "--baseline", "out/known.json", "--baseline-update", "-q"
    )
    assert code == 0 and "2 known" in text, text
    assert {
        known["check"].lstrip("./") for known in wrong.report("out/known.json")["known"]
    } == WRONG_CHECKS
