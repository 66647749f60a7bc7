"""`gradverify.run`: the run of the command line as a value. What it must not do stands for whatever
a library must not do to its caller: print, exit, change what the process shares, depend on the main
thread or module, leave a process behind."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy
import pytest
import torch
from commands import SQUARES, here, process, soon, spec
from factories import passing, report

import gradverify

SPEC = spec(
    "name: square, function: 'op.py:Square', inputs: {x: {shape: [3]}}, tags: [fast]",
    "name: wrong, function: 'op.py:Wrong', inputs: {x: {shape: [3]}}",
    "name: sum, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, tags: [fast]",
)
OP = (
    SQUARES.replace("        ctx.save", "        print('NOISE')\n        ctx.save")
    + """
def gives_up(x):
    os.abort()


def sleeps(x):
    import pathlib, time
    pathlib.Path("asleep").write_text(str(os.getpid()))
    time.sleep(600)
"""
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SPEC)
    (tmp_path / "op.py").write_text(OP)
    return tmp_path


def without_times(text):
    data = json.loads(text)
    for name in ("started_at", "duration_s", "argv"):
        del data[name]
    for check in data["checks"]:
        del check["seconds"]
    return data


def test_it_is_the_report_of_the_command_line(folder):
    report = gradverify.run("s.yaml", jobs=2)
    here("check", "s.yaml", "--report", "json:r.json")
    assert without_times(report.to_json()) == without_times(Path("r.json").read_text())
    assert [(check.name, check.ok) for check in report.checks] == [
        ("square", True),
        ("wrong", False),
        ("sum", True),
    ]
    assert (report.ok, report.exit_code, report.argv) == (False, 1, ("check", "s.yaml"))


def test_paths_selection_gate_and_settings_are_those_of_the_command_line(folder):
    assert [
        check.name
        for check in gradverify.run(
            [folder / "s.yaml"], tags="fast", keyword="s.yaml and not sum"
        ).checks
    ] == ["square"]
    found = gradverify.run("s.yaml::square", dtype="float32", seed=7, select=["GV1"])
    assert (found.checks[0].dtype, found.checks[0].seed, found.ok) == ("float32", 7, True)
    assert found.argv == (
        "check",
        "s.yaml::square",
        "--dtype",
        "float32",
        "--seed",
        "7",
        "--select",
        "GV1",
    )
    assert gradverify.run("s.yaml", keyword="nothing").exit_code == 5
    (folder / "s.yaml").write_text(SPEC.replace("tags: [fast]", "skip: later"))
    gated = gradverify.run(
        "s.yaml", keyword="sum", fail_on_skip=True, undecided="fail", require_device=["cpu", "cuda"]
    )
    assert gated.exit_code == 3
    assert gated.argv == (
        "check",
        "s.yaml",
        "--undecided",
        "fail",
        "--fail-on-skip",
        "--require-device",
        "cpu",
        "--require-device",
        "cuda",
    )


def test_what_the_project_says_holds_unless_an_argument_says_otherwise(folder, monkeypatch):
    """Seen in what a host is asked for; nothing runs."""
    (folder / "pyproject.toml").write_text(
        '[tool.gradverify]\njobs = 3\nundecided = "fail"\nfail-on-skip = true\n'
        "[tool.gradverify.defaults]\nseed = 5\n"
    )
    asked = []
    monkeypatch.setattr(
        "gradverify.running.schedule.hosted",
        lambda request: asked.append(request) or report(passing()),
    )
    gradverify.run("s.yaml")
    gradverify.run("s.yaml", jobs=1, undecided="warn", fail_on_skip=False, seed=6)
    assert [
        (one.jobs, one.gate.undecided, one.gate.fail_on_skip, one.cases[0].settings.seed)
        for one in asked
    ] == [(3, "fail", True, 5), (1, "warn", False, 6)]
    (folder / "pyproject.toml").write_text("[tool.gradverify]\njbos = 3\n")
    with pytest.raises(gradverify.ProblemsError, match="did you mean 'jobs'"):
        gradverify.run("s.yaml")


def test_every_problem_is_in_one_exception_and_nothing_runs(folder):
    (folder / "s.yaml").write_text(SPEC.replace("inputs", "inptus", 2))
    with pytest.raises(gradverify.ProblemsError) as refused:
        gradverify.run(["s.yaml", "gone.yaml"], epsilon=1e-6)
    said = str(refused.value)
    assert (
        said.count("did you mean 'inputs'?") == 2
        and "gone.yaml: no such file" in said
        and "run(): epsilon: unknown key" in said
    )


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"jobs": 0}, "jobs '0': must be"),
        ({"timeout": "x"}, "timeout 'x': must be"),
        ({"undecided": "maybe"}, "undecided 'maybe': must be"),
        ({"require_device": ["gpu"]}, "require_device 'gpu': must be"),
        ({"keyword": "a b"}, "keyword 'a b': not an expression"),
        ({"eps": "small"}, "run(): eps: expected"),
        ({"select": ["XY"]}, "run(): select[0]: "),
        (
            {"reference": "a:b"},
            "run(): reference: unknown key 'reference' here: it belongs in a check",
        ),
        ({"ignore": "GV1"}, "run(): ignore: expected a list, got 'GV1'; write ['GV1']"),
        ({"seed": -1}, "run(): seed: must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_is_refused(folder, arguments, said):
    with pytest.raises(gradverify.ProblemsError) as refused:
        gradverify.run("s.yaml", **arguments)
    assert said in str(refused.value) and "Traceback" not in str(refused.value)


def shared():
    """What a process shares, as far as it can be seen from outside."""
    from gradverify.running.family import family

    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    descriptors = list(Path("/proc/self/fd").iterdir()) if Path("/proc/self/fd").exists() else []
    return (
        random.getstate(),
        numpy.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        list(sys.path),
        Path.cwd(),
        dict(os.environ),
        handlers,
        threading.enumerate(),
        sys.stdout,
        sys.stderr,
        sys.modules["__main__"],
        len(descriptors),
        os.umask(0o22),
        family(os.getpid()),
    )


def test_nothing_of_the_callers_process_is_changed_and_nothing_printed(folder, capfd):
    gradverify.run("s.yaml", keyword="sum")  # what is imported and cached once is
    torch.manual_seed(3)
    with torch.no_grad():
        before = shared()
        gradverify.run("s.yaml", dtype="float32", jobs=2)
        after = shared()
    assert after == before
    assert capfd.readouterr() == ("", "")
    assert "op" not in sys.modules


def test_importing_and_running_import_no_torch(folder):
    code = (
        "import sys, gradverify\nassert not {'torch', 'numpy', 'rich', 'yaml', 'pydantic', "
        "'gradverify.api'} & set(sys.modules)\n"
        "assert gradverify.run('s.yaml', keyword='sum').ok\nassert not {'torch', 'numpy'} & "
        "set(sys.modules)"
    )
    assert process(sys.executable, "-c", code, cwd=folder).returncode == 0


def test_any_thread_may_call_and_a_running_event_loop_goes_on(folder):
    found = {}
    thread = threading.Thread(
        target=lambda: found.update(thread=gradverify.run("s.yaml", keyword="square"))
    )
    thread.start()

    async def inside():
        found["loop"] = gradverify.run("s.yaml", keyword="sum")
        await asyncio.sleep(0)
        return await asyncio.to_thread(gradverify.run, "s.yaml", keyword="sum")

    assert asyncio.run(inside()).ok
    thread.join(120)
    assert found["thread"].ok and found["loop"].ok


def test_a_script_without_a_guard_is_run_once(folder):
    (folder / "script.py").write_text(
        "import gradverify\nopen('runs', 'a').write('x')\nprint(gradverify.run('s.yaml', "
        "jobs=2).exit_code)\n"
    )
    done = process(sys.executable, "script.py", cwd=folder)
    assert (done.stdout, done.stderr, Path("runs").read_text()) == ("1\n", "", "x")


def test_a_crash_costs_its_check_and_limits_hold(folder):
    text = SPEC.replace("op.py:Wrong", "op.py:gives_up").replace("op.py:Square", "op.py:sleeps")
    (folder / "s.yaml").write_text(text)
    report = gradverify.run("s.yaml", timeout=1)
    assert [check.verdict for check in report.checks] == [
        "error",
        "error",
        "pass",
    ] and report.exit_code == 3
    assert (
        report.checks[0].findings[0].code == "GV005"
        and "SIGABRT" in report.checks[1].findings[0].message
    )


def test_a_host_that_cannot_start_or_is_killed_is_told_and_no_pass(folder, monkeypatch):
    monkeypatch.setattr(
        "gradverify.running.schedule.START",
        "import sys; print('no memory', file=sys.stderr); sys.exit(7)",
    )
    report = gradverify.run("s.yaml")
    assert report.exit_code == 4 and "ended with status 7:\nno memory" in report.crashed
    assert [check.verdict for check in report.checks] == ["not_run"] * 3
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert "no process could be started" in gradverify.run("s.yaml").crashed


def test_what_lies_on_the_path_changes_no_run(folder, tmp_path_factory):
    """A file of the current folder named like a module of Python's own, where the caller's path
    does not begin there; a `Path` on the path."""
    (folder / "json.py").write_text("raise SystemExit('not the json that was meant')")
    script = tmp_path_factory.mktemp("elsewhere") / "script.py"
    script.write_text(
        "import pathlib, sys, gradverify\nsys.path.insert(0, pathlib.Path('/nowhere'))\n"
        "print(gradverify.run('s.yaml', keyword='sum').ok)\n"
    )
    done = process(sys.executable, script, cwd=folder)
    assert done.stdout == "True\n", done.stdout + done.stderr


def test_no_torch_is_told_before_anything_runs(folder, monkeypatch):
    monkeypatch.setattr("gradverify.cli.gather._is_installed", lambda package: False)
    with pytest.raises(gradverify.ProblemsError, match="torch is not in this environment"):
        gradverify.run("s.yaml")


ASLEEP = SPEC.replace("op.py:Square", "op.py:sleeps")
CALLER = textwrap.dedent("""
    import gradverify
    try:
        gradverify.run("s.yaml", keyword="square")
    except KeyboardInterrupt:
        print("interrupted")
""")


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number, said", [(signal.SIGINT, "interrupted\n"), (signal.SIGKILL, "")])
def test_nothing_goes_on_after_its_caller(folder, number, said):
    (folder / "s.yaml").write_text(ASLEEP)
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert soon(lambda: Path("asleep").exists() and Path("asleep").read_text(), 60)
    from gradverify.running.family import family

    relatives = family(caller.pid)
    assert int(Path("asleep").read_text()) in relatives
    caller.send_signal(number)
    assert caller.communicate(timeout=30)[0] == said
    assert soon(lambda: not [pid for pid in relatives if alive(pid)], 5)
