"""Whatever a check does to its process, the checks after it in the same spec are judged as if it
had not run. Each is a child of a process that has only imported what the spec names."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import SQUARES, checks, here, spec

EFFECTS = (  # statements that a forward runs in its first call, by kind
    # streams
    "sys.stdout.close()",
    "os.close(1)",
    "sys.stderr.detach()",
    "os.dup2(os.open(os.devnull, os.O_RDONLY), 1)",
    "os.closerange(3, 350)",
    # logging, builtins, the library
    "logging.shutdown()",
    "builtins.sum = lambda *a, **k: 0",
    "builtins.open = lambda *a, **k: 0",
    "math.isfinite = lambda value: False",
    "json.dumps = None",
    "os.fork = None",
    "time.monotonic = lambda: 1e18",
    "tempfile.tempdir = '/nowhere'",
    # NumPy
    "np.isfinite = lambda *a: np.False_",
    "np.random.Generator.standard_normal = None",
    "np.seterr(all='raise')",
    # signals and limits
    "signal.alarm(1)",
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))",
    "sys.addaudithook(lambda event, given: 1 / (event != 'import'))",
    "resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))",
    "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    # the process
    "os.environ.clear()",
    "os.chdir('/')",
    "os.umask(0o777)",
    "sys.path.clear()",
    "sys.setrecursionlimit(150)",
    # modules and the interpreter
    "sys.modules.clear()",
    "sys.modules['numpy'] = None",
    "builtins.__import__ = None",
    "gc.set_threshold(1)",
    "warnings.simplefilter('error')",
    # torch
    "torch.set_default_device('meta')",
    "torch._C._set_grad_enabled(False)",
    "torch.inference_mode().__enter__()",
    "torch.autograd.grad = lambda *a, **k: None",
    "torch.Tensor.__mul__ = lambda *a, **k: None",
    # gradverify
    "from gradverify.rules import values as g; g.gv101 = lambda evidence: iter(())",
    "import gradverify.verify as g; g._verdict = lambda *a: 'pass'",
    "import gradverify.running.worker as g; g.encoded = lambda *a: {}",
    # what is left behind
    "atexit.register(os._exit, 7)",
    "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "kept.extend(open(os.devnull) for _ in range(200))",
    "multiprocessing.connection.Connection.send_bytes = None",
)
MODULE = (
    "import builtins, gc, json, logging, math, multiprocessing.connection, resource, tempfile\n"
    f"import warnings\n{SQUARES}kept = []\n"
)
CHECK = (
    "name: {}, function: 'effects_of:{}', inputs: {{x: {{shape: [2]}}}}, rules: {{select: "
    "[GV101]}}, timeout: 20"
)


def verdicts(folder, *names_and_functions):
    lines = [CHECK.format(name, function) for name, function in names_and_functions]
    (folder / "s.yaml").write_text(spec(*lines))
    here("check", "s.yaml", "-q", "--report", "json:r.json")
    return {name: check["verdict"] for name, check in checks(folder / "r.json").items()}


@pytest.mark.timeout(600)
def test_no_side_effect_reaches_a_neighbour(folder):
    """After each effect a right check and a wrong one, in turn."""
    text, wanted, lines = MODULE, {}, []
    for number, effect in enumerate(EFFECTS):
        text += (
            f"\ndef f{number}(x):\n    if not kept:\n        kept.append(1)\n        {effect}\n    "
            "return x * x\n"
        )
        function, verdict = (("Square", "pass"), ("Wrong", "fail"))[number % 2]
        lines += [(f"of {number}", f"f{number}"), (f"after {number}", function)]
        wanted[f"after {number}"] = verdict
    (folder / "effects_of.py").write_text(text)
    found = verdicts(folder, *lines)
    reached = [
        EFFECTS[int(name.split()[1])] for name, verdict in wanted.items() if found[name] != verdict
    ]
    assert reached == [] and "not_run" not in found.values()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="threads are counted by /proc")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
            ["started 1 thread while it was imported"],
        ),
        ("x = torch.ones(3, requires_grad=True)\n(x * x).sum().backward()\n", []),
    ],
)
def test_a_module_that_computes_or_starts_threads_while_it_is_imported(folder, text, told):
    """A process with threads is not forked; any other one imports a module once for all checks."""
    text += "with open('imported', 'a') as file:\n    file.write('x')\n"
    (folder / "effects_of.py").write_text(MODULE + text)
    found = verdicts(folder, ("a", "Square"), ("b", "Wrong"), ("c", "Square"), ("d", "Wrong"))
    assert found == {"a": "pass", "b": "fail", "c": "pass", "d": "fail"}
    assert [check["changed"] for check in checks(folder / "r.json").values()] == [told] * 4
    assert told or (folder / "imported").read_text() == "x"
