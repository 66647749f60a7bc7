"""A wrong gradient whose spec is hard to read, or whose check is easily lost, reaches exit code 0
through no door: it fails, or is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SQUARES, here, pytest_run

import gradverify
from gradverify.model.problem import ProblemsError

RULES = "rules: {select: [GV101]}"
CHECK = f"  - {{name: NAME, function: 'ops:NAME', inputs: {{x: {{shape: [2]}}}}, {RULES}}}\n"
RIGHT, WRONG = (
    f"gradverify: 1\nimport: [ops]\nchecks:\n{CHECK.replace('NAME', name)}"
    for name in ("Square", "Wrong")
)
JSON = (
    '{\n  "gradverify": 1,\n  "checks": [{"function": "ops:Wrong", "inputs": {"x": {"shape": '
    '[2]}}, "rules": {"select": ["GV101"]}}]\n}\n'
)
IN_BLOCKS = "gradverify: 1\nchecks:\n  - function: ops:Wrong\n    inputs: {x: {shape: [2]}}\n"


def matrix(inputs: str, values: str) -> str:
    return (
        f"gradverify: 1\nchecks:\n  - {{name: Wrong, function: 'ops:Wrong', inputs: {{x: "
        f"{inputs}}}, matrix: {values}, {RULES}}}\n"
    )


FAULTS: dict[str, tuple[str, bytes]] = {
    "a comment in Latin-1": ("specs/w.yaml", b"# caf\xe9\n" + WRONG.encode()),
    "UTF-16": ("specs/w.yaml", WRONG.encode("utf-16")),
    "a NUL": ("specs/w.yaml", WRONG.encode() + b"# \0\n"),
    "JSON on several lines": ("specs/w.yaml", JSON.encode()),
    "a JSON file": ("specs/w.json", JSON.encode()),
    "a slip in the key": ("specs/w.yaml", WRONG.replace("gradverify", "gradverfy").encode()),
    "indented keys": (
        "specs/w.yaml",
        "".join(f"  {line}\n" for line in WRONG.splitlines()).encode(),
    ),
    "a suffix in capitals": ("specs/w.YAML", WRONG.encode()),
    "a folder named build": ("specs/build/w.yaml", WRONG.encode()),
    "a variable that is a literal": (
        "specs/w.yaml",
        matrix("{shape: [$n, $$n]}", "{n: [2, 3]}").encode(),
    ),
    "a variable in a matrix": ("specs/w.yaml", matrix("{shape: [$n]}", '{n: ["$m"]}').encode()),
    **{
        f"the line break U+{ord(each):04X} in a comment": (
            "specs/w.yaml",
            f"{IN_BLOCKS}# checked daily{each}    expect: fail\n".encode(),
        )
        for each in "\x85\u2028"
    },
}
READ = ("JSON", "indented", "suffix", "folder")  # the others are refused
UNREADABLE = [name for name in FAULTS if not any(word in name for word in READ)]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """`project(path, content)`: a repository with a right spec and this one, which is the current
    folder; the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    subprocess.run(["git", "init", "--quiet"], check=True)

    def make(path, content):
        for name, text in (
            ("ops.py", SQUARES.encode()),
            ("specs/a.yaml", RIGHT.encode()),
            (path, content),
        ):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(text)
        return path

    yield make
    sys.modules.pop("ops", None)


def through_python(*paths):
    try:
        return gradverify.run(list(paths), isolate=False).exit_code
    except ProblemsError:
        return 2


DOORS = {
    "check": lambda file: here("check", "--no-isolate", "-q")[0],
    "check of the folder": lambda file: here("check", "--no-isolate", "-q", "specs")[0],
    "hook, the spec changed": lambda file: here("hook", "-q", file)[0],
    "hook, the function changed": lambda file: here("hook", "-q", "ops.py")[0],
    "run": lambda file: through_python(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_door_is_green(project, fault):
    file = project(*FAULTS[fault])
    doors = (
        DOORS
        if fault in UNREADABLE[::4] or fault == "a JSON file"
        else {name: DOORS[name] for name in ("check", "hook, the function changed")}
    )
    assert {name: code for name, door in doors.items() if (code := door(file)) not in (1, 2)} == {}
    code, out, _ = here("validate")
    assert code == 2 if fault in UNREADABLE else (code, out) == (0, "2 specs, 2 checks: valid\n")


def test_pytest_refuses_what_it_cannot_read(project, tmp_path):
    project(*FAULTS["a comment in Latin-1"])
    done = pytest_run(
        "-q", "-p", "no:cacheprovider", "-o", "gradverify_files=specs/*.yaml", "specs", cwd=tmp_path
    )
    assert done.returncode == 2 and "not UTF-8: byte 0xe9" in done.stdout


def test_what_is_no_spec_is_counted_and_named(project):
    project("specs/data.json", b"[1, 2]")
    project("specs/other.yaml", b"on: push\n")
    project("specs/template.yaml", b"a: {{ b }}\n")
    project("specs/.hidden/b.yaml", WRONG.encode())
    project("specs/__pycache__/b.yaml", WRONG.encode())
    Path("specs/environment").mkdir()
    Path("specs/environment/pyvenv.cfg").touch()
    left = {
        "specs/data.json": "no key `gradverify`",
        "specs/other.yaml": "no key",
        "specs/template.yaml": "no key",
        "specs/.hidden": "a hidden folder",
        "specs/environment": "a virtual environment",
    }
    code, out, err = here("validate")
    assert (code, out) == (0, "1 spec, 1 check: valid, 5 other files left out\n")
    code, out, more = here("check", "--no-isolate", "-v")
    assert code == 0 and out.splitlines()[-1].startswith("1 passed, 5 other files left out in ")
    for lines in (err.splitlines(), more.splitlines()):
        assert all(
            any(line.startswith(f"left out: {path}: ") and why in line for line in lines)
            for path, why in left.items()
        ), lines
    assert "left out" not in here("check", "--no-isolate")[2]


def test_build_output_is_left_out_beside_what_builds_it(project):
    project("specs/build/b.yaml", WRONG.encode())
    Path("specs/setup.py").touch()
    assert here("validate")[:2] == (0, "1 spec, 1 check: valid, 1 other file left out\n")


def test_linked_folders_are_searched_once(project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "w.yaml").write_text(WRONG)
    project("specs/b.yaml", RIGHT.encode())
    Path("specs/linked").symlink_to(elsewhere)
    Path("specs/again").symlink_to(elsewhere)
    Path("specs/loop").symlink_to(Path("specs").resolve())
    assert here("validate")[:2] == (0, "3 specs, 3 checks: valid\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_what_is_no_regular_file_is_refused_and_not_waited_for(project):
    project("specs/b.yaml", RIGHT.encode())
    os.mkfifo("specs/f.yaml")
    for arguments in (
        ("validate",),
        ("validate", "/dev/zero"),
        ("check", "-q"),
        ("hook", "specs/f.yaml"),
    ):
        code, out, err = here(*arguments)
        assert code == 2 and "cannot be read: it is no regular file" in out + err


def test_a_folder_that_cannot_be_listed_is_refused(project, monkeypatch):
    """Whoever runs this may be root, who can list everything."""
    project("specs/closed/b.yaml", WRONG.encode())
    listed = os.scandir

    def scandir(path="."):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    code, out, _ = here("validate")
    assert code == 2 and out.startswith("specs/closed: cannot be read: ")


def test_a_module_is_compiled_from_its_source(project):
    """Bytecode of another text of the same size and time is beside it."""
    import py_compile

    project(
        "specs/w.yaml",
        WRONG.replace("Wrong", "Square").replace("name: Square", "name: again").encode(),
    )
    os.utime("ops.py", (1e9, 1e9))
    py_compile.compile("ops.py")
    Path("ops.py").write_text(SQUARES.replace("return 2 *", "return 4 *"))
    os.utime("ops.py", (1e9, 1e9))
    assert here("check", "--no-isolate", "-q")[0] == 1
