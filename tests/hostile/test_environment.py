"""Whatever surrounds a run (variables, folders, warnings, limits of the system, what modules set
while they are imported, what they replace): verdicts are the same, or one sentence says what is
short, and no fault of ours is reported."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys

import pytest
from commands import SQUARES, apart, checks, codes, here, pytest_run, shell, spec

import gradverify
from gradverify.running import server
from gradverify.running.server import lacking

OP = (
    SQUARES
    + """import multiprocessing
from torch.utils.data import DataLoader, TensorDataset

kept = {}


def plain(x):
    return x * x


def put(queue):
    queue.put(3.0)


def through(x, how):
    if how not in kept:
        context = multiprocessing.get_context(how)
        queue = context.Queue()
        process = context.Process(target=put, args=(queue,))
        process.start()
        kept[how] = queue.get(timeout=100)
        process.join()
    return x * kept[how]


def by_spawn(x):
    return through(x, "spawn")


def by_fork(x):
    return through(x, "fork")


def by_loader(x):
    if "loaded" not in kept:
        data = DataLoader(TensorDataset(torch.ones(4)), num_workers=1)
        kept["loaded"] = sum(float(batch[0].sum()) for batch in data)
    return x * kept["loaded"]


def by_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x * x))
    thread.start()
    thread.join()
    return found[0]


def hooked(x):      # its hook warns where no input needs a gradient, as one of our own calls has it
    if "module" not in kept:
        kept["module"] = torch.nn.Linear(2, 2).double()
        kept["module"].register_full_backward_hook(lambda module, given, got: None)
    return kept["module"](x)


def floods_stderr(x):
    os.write(2, b"e" * (1 << 20))
    print("flood " * 10000, file=sys.stderr)
    return x * x


def raises(x):
    raise ValueError("mine")
"""
)


def line(name, module="own_op"):
    return f"name: {name}, function: '{module}:{name}', inputs: {{x: {{shape: [2]}}}}"


@pytest.fixture
def written(folder):
    """`written(*names)`: a spec with a check of each of these functions."""
    (folder / "own_op.py").write_text(OP)
    return lambda *names: (folder / "s.yaml").write_text(spec(*map(line, names)))


def test_processes_threads_and_streams_of_the_checked_code_in_order_are_no_fault(written, folder):
    written("by_spawn", "by_fork", "by_loader", "by_thread", "floods_stderr", "plain")
    options = ("-j", "2", "--report", "json:r.json")
    code, _, stderr = here("check", "s.yaml", *options)
    found = checks(folder / "r.json")
    assert {check["verdict"] for check in found.values()} == {"pass"} and code == 0, stderr
    assert [found[name]["changed"] for name in ("by_fork", "by_thread", "plain")] == [[]] * 3


def test_nothing_is_needed_of_the_environment_nor_of_the_current_folder(written, folder):
    """Warnings are errors there, and torch has no compiler of scripts: it warns as it is imported,
    and where it is called in unusual ways."""
    written("plain", "hooked")
    (folder / "here").mkdir()
    for name in ("types", "random", "socket", "selectors", "signal", "struct", "torch", "numbers"):
        (folder / "here" / f"{name}.py").write_text("raise RuntimeError('not what was asked')\n")
    command = ("-P", "-m", "gradverify", "check", str(folder / "s.yaml"))
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder / "here",
        env={"PYTHONWARNINGS": "error::UserWarning", "OMP_NUM_THREADS": "1", "PYTORCH_JIT": "0"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "") and "2 passed" in done.stdout


def test_a_folder_that_is_gone_is_told_in_a_sentence(folder):
    (folder / "gone").mkdir()
    done = apart("check", "s.yaml", cwd=folder / "gone", preexec_fn=(folder / "gone").rmdir)
    said = "the current folder does not exist any more: change to one that does\n"
    assert (done.returncode, done.stderr) == (2, said)


# ---- what is short
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("AF_UNIX path too long"), "set TMPDIR to a shorter one"),
        (OSError(errno.EMFILE, "x"), "cannot run here: x ("),
        (OSError(errno.ENOMEM, "x"), "cannot run here: x ("),
        (MemoryError(), "MemoryError"),
        (BlockingIOError(errno.EAGAIN, "x"), "cannot run here: x ("),
        (OSError(errno.ENOENT, "x"), None),
        (EOFError(), None),
        (None, None),
    ],
)
def test_what_an_error_tells(error, said):
    assert (lacking(error) is None) if said is None else said in lacking(error)


@pytest.mark.parametrize(
    ("kind", "limit", "said"),
    [
        (resource.RLIMIT_NOFILE, 40, "may have 40 open files"),
        (resource.RLIMIT_AS, 400 << 20, "may have 419,430,400 bytes of memory"),
        (resource.RLIMIT_DATA, 300 << 20, "may have 314,572,800 bytes of data"),
    ],
)
def test_what_a_limit_tells_where_workers_only_end(monkeypatch, kind, limit, said):
    original = resource.getrlimit
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (limit, limit) if which == kind else original(which)
    )
    assert said in lacking(EOFError())


class Refuses:
    """A forkserver that cannot start: from the first call on, or later."""

    def __init__(self, error, after):
        self.error, self.left = error, after

    def ensure_running(self):
        self.left -= 1
        if self.left < 0:
            raise self.error

    def __getattr__(self, name):
        return getattr(server_module, name)


server_module = server.forkserver


def test_before_anything_ran_the_command_line_refuses(written, folder, monkeypatch):
    written("plain")
    subprocess.run(["git", "init", "--quiet"], check=True)
    for error in (OSError("AF_UNIX path too long"), BlockingIOError(errno.EAGAIN, "x")):
        monkeypatch.setattr(server, "forkserver", Refuses(error, 0))
        for door in ("check", "hook"):
            (folder / "r.json").write_text("of an earlier run")
            code, _, stderr = here(door, "--report", "json:r.json", "s.yaml")
            assert code == 2 and lacking(error) in stderr and "Please" not in stderr
            assert not (folder / "r.json").exists()


def test_later_the_run_ends_with_its_report(written, folder, monkeypatch):
    written("plain", "hooked")
    error = BlockingIOError(errno.EAGAIN, "x")
    monkeypatch.setattr(server, "forkserver", Refuses(error, 1))
    code, stdout, stderr = here("check", "s.yaml", "--report", "json:r.json")
    assert code == 3 and "Please" not in stderr and lacking(error) in " ".join(stdout.split())
    found = [(check["verdict"], check["reason"]) for check in checks(folder / "r.json").values()]
    assert found == [("error", lacking(error)), ("not_run", lacking(error))]


def test_from_python_and_under_pytest(written, folder, monkeypatch):
    written("plain")
    (folder / ("d" * 120)).mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / ("d" * 120)))
    report = gradverify.run("s.yaml")
    assert report.exit_code == 3 and report.crashed is None
    assert "set TMPDIR to a shorter one" in report.checks[0].reason
    done = pytest_run("-q", "-p", "no:cacheprovider", "--gradverify-isolate", "s.yaml", cwd=folder)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert "set TMPDIR to a shorter one" in done.stdout


@pytest.mark.parametrize(
    ("limit", "said"),
    [("-n 16", "Too many open files"), ("-v 300000", "gradverify cannot run here")],
)
def test_with_limits_of_the_system(written, folder, limit, said):
    written("plain")
    done = shell(f"ulimit {limit} && exec gradverify check s.yaml", cwd=folder)
    assert done.returncode == 3 and said in done.stdout and done.stderr == "", done.stdout


# ---- what a module sets while it is imported
SETS = {
    "gradient mode": "torch.set_grad_enabled(False)",
    "inference mode": "kept = torch.inference_mode()\nkept.__enter__()",
    "saved tensors hooks": "kept = torch.autograd.graph.saved_tensors_hooks("
    "lambda t: t.half(), lambda t: t)\nkept.__enter__()",
    "default device": "torch.set_default_device('meta')",
    "autocast on cpu": "kept = torch.autocast('cpu')\nkept.__enter__()",
    "NumPy's errors": "np.seterr(all='raise')",
    "backward's threads": "torch.autograd.set_multithreading_enabled(False)",
    "default dtype": "torch.set_default_dtype(torch.float16)",
    "": "import warnings\nwarnings.simplefilter('error')",
}
UNNOTICED = ("", "default dtype")  # what the module's functions may count on
IN_WORKERS = ("gradient mode", "saved tensors hooks", "default device", "default dtype")


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, ("--no-isolate",)) for name in SETS), *((name, ()) for name in IN_WORKERS)],
)
def test_what_a_module_sets_makes_no_right_function_look_wrong(folder, name, options):
    (folder / "sets.py").write_text(f"{SQUARES}\n{SETS[name]}\n")
    again = line("Square", "sets").replace("name: Square", "name: again")
    (folder / "s.yaml").write_text(spec(line("Square", "sets"), again, line("Wrong", "sets")))
    assert here("check", "s.yaml", "--report", "json:r.json", *options)[2] == ""
    found = checks(folder / "r.json")
    assert [check["verdict"] for check in found.values()] == ["pass", "pass", "fail"]
    assert {code for check in found.values() for code in codes(check)} == {"GV101"}
    if name not in UNNOTICED:
        assert f"changed {name} while it was imported" in found["Square"]["changed"]


@pytest.mark.parametrize("name", ["inference mode", "default device"])
def test_nor_what_is_set_where_a_module_is_built_or_inputs_made(folder, name):
    sets = SETS[name].replace("\n", "\n        ")
    (folder / "sets.py").write_text(
        f"{SQUARES}\n{SETS[name]}\ndef plain(x):\n    return x * x\n"
        f"class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {sets}\n    def forward(self, x):\n        return x * x\n"
        f"def made(seed, dtype, device):\n    x = torch.ones(2, dtype=dtype, device=device)\n"
        f"    if True:\n        global kept\n        {sets}\n    return (x,)\n"
    )
    reference = "name: reference, function: 'torch:square', reference: 'sets:plain'"
    text = spec(
        f"{reference}, inputs: {{x: {{shape: [2]}}}}",
        line("Net", "sets"),
        "name: made, function: 'sets:plain', inputs_from: 'sets:made'",
    )
    (folder / "s.yaml").write_text(text)
    assert here("check", "s.yaml")[0] == 0


def test_what_its_functions_count_on_is_there_in_every_check(folder):
    (folder / "sets.py").write_text(
        "import torch\ntorch.set_default_dtype(torch.float64)\n"
        "def f(x):\n    y = torch.zeros(2)\n    y[:] = x\n    return (y.dot(x),)\n"
    )
    lines = (line("f", "sets").replace("name: f", f"name: f{number}") for number in range(3))
    (folder / "s.yaml").write_text(spec(*lines))
    assert here("check", "s.yaml")[0] == 0


# ---- what measures gradients is replaced
REPLACE = {
    "none": "torch.autograd.grad = lambda *a, **k: None",
    "numbers": "torch.autograd.grad = lambda *a, **k: [1.0] * 9",
    "removed": "del torch.autograd.grad",
    "product": "torch.Tensor.__mul__ = lambda a, b: None",
}


def test_what_is_replaced_leaves_its_check_undecided_and_no_fault(folder):
    """What the function raises by itself is its own all the same."""
    lines = []
    for name, text in {**REPLACE, "right": "", "own": REPLACE["none"]}.items():
        (folder / f"m_{name}.py").write_text(f"{OP}\n{text}\n")
        function = "raises" if name == "own" else "Square"
        lines.append(line(function, f"m_{name}").replace(f"name: {function}", f"name: {name}"))
    (folder / "s.yaml").write_text(spec(*lines))
    code, _, stderr = here("check", "s.yaml", "--undecided", "warn", "--report", "json:r.json")
    found = checks(folder / "r.json")
    assert (code, stderr) == (3, "") and found["right"]["verdict"] == "pass"
    assert codes(found["own"]) == ["GV002"] and "ValueError: mine" in found["own"]["reason"]
    for name in REPLACE:
        assert (found[name]["verdict"], codes(found[name])[0]) == ("undecided", "GV007"), name
    assert "the check replaced torch.autograd.grad" in found["none"]["reason"]


def test_in_one_process_warnings_are_no_errors_and_checks_after_a_replacement_are_undecided(folder):
    lines = [line("hooked")]
    (folder / "own_op.py").write_text(OP)
    for name in ("before", "none", "later"):
        (folder / f"m_{name}.py").write_text(f"{SQUARES}\n{REPLACE.get(name, '')}\n")
        lines.append(line("Square", f"m_{name}").replace("name: Square", f"name: {name}"))
    (folder / "s.yaml").write_text(spec(*lines))
    options = ("--no-isolate", "--undecided", "warn", "--report", "json:r.json")
    done = apart("check", "s.yaml", *options, cwd=folder, env={"PYTHONWARNINGS": "error"})
    found = checks(folder / "r.json")
    assert done.returncode == 0, done.stderr
    assert [found[name]["verdict"] for name in found] == ["pass", "pass", "undecided", "undecided"]
    assert "the check replaced torch.autograd.grad" in found["none"]["reason"]
    assert "was replaced before this check, in the same process" in found["later"]["reason"]
