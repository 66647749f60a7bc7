"""Inputs found by trying: for ops of every shape a call that runs, or a sentence that says what is missing; never a gradient judged.

What is asked of a found call is independent of how it was found: torch itself runs it and differentiates it, and gradverify's check of the
spec passes, as all gradients in `ops.py` are right.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from gradverify.model.case import Search
from gradverify.model.proposal import Sought
from gradverify.trial.propose import propose
from trial import ops

OPS = Path(ops.__file__)


def proposed(target, example=None, folder=OPS.parent, **said):
    return propose(Sought(target, Search(str(folder)), example), **said)


def of(name, **said):
    return proposed(f"{OPS}:{name}", **said)


def written(tmp_path, text, name="Op"):
    """What is proposed for a function that is written here."""
    file = tmp_path / "own.py"
    file.write_text("import torch\nfrom torch.autograd import Function\nfrom torch import Tensor\n" + text)
    return proposed(f"{file}:{name}", folder=tmp_path)


def shapes(proposal):
    return {each.name: [list(recipe.shape) for recipe in each.recipes] or each.value for each in (*proposal.inputs, *proposal.keywords)}


def draws(proposal):
    return {each.name: each.tensor.draw for each in proposal.inputs if each.tensor is not None}


def test_the_shapes_are_those_that_the_ops_are_written_for():
    assert shapes(of("LinearFunction")) == {"input": [[2, 3]], "weight": [[4, 3]], "bias": [[4]]}
    assert shapes(of("Conv2d"))["weight"] == [[3, 4, 3, 3]]
    assert shapes(of("LayerNorm")) | {"eps": None} == {"x": [[2, 3]], "gamma": [[3]], "beta": [[3]], "eps": None}
    found = of("SelectiveScan")
    assert found.missing is None and found.note is None and found.attempts < 3000
    scan = shapes(found)
    (b, d, length), = scan["u"]
    assert scan["delta"] == scan["u"] and scan["A"][0][0] == d and scan["B"] == [[b, scan["A"][0][1], length]]


def test_indices_targets_and_masks():
    assert draws(of("ScatterAdd")) == {"src": "normal", "index": "integers"}
    assert draws(of("CrossEntropy")) == {"logits": "normal", "target": "integers"}
    assert draws(of("Embedding")) == {"indices": "integers", "weight": "normal"}
    assert draws(of("MaskedMSE"))["mask"] == "kind"
    assert draws(of("Sqrt")) == {"x": "uniform"}


def test_a_module_is_built_by_sizes_that_its_input_has():
    found = of("RMSNorm")
    assert found.init == {"dim": 3} and shapes(found) == {"x": [[2, 3]]}


def test_optional_tensors_are_given_and_may_be_left_out():
    assert of("LinearFunction").left_out == ("bias",)
    assert of("modulated").left_out == ("scale",)


def test_numbers_words_and_truth_values_are_varied_where_forward_takes_others():
    assert of("Pool").varied == {"mode": ("sum", "mean"), "keepdim": (False, True)}
    assert of("Conv2d").varied == {"stride": (1, 2), "padding": (0, 1)}
    assert of("RMSNormFunction").varied == {}       # eps
    assert of("Mish").varied == {}


def test_what_gets_no_gradient_by_design_is_said_with_how_it_was_seen():
    found = of("Rope")
    line = OPS.read_text().splitlines().index("        return g * cos + torch.cat((b, -a), -1), None, None") + 1
    assert found.remarks == dict.fromkeys(("cos", "sin"), f"backward returns None for it (ops.py:{line})")
    assert [each.tensor.requires_grad for each in found.inputs] == [None, False, False]


def test_what_a_spec_cannot_write_is_one_sentence():
    found = of("Checkpoint")
    assert "'run_function' is called as a function" in found.missing and found.attempts == 0
    assert shapes(found) == {"run_function": None, "x": [[2, 3]]}


def test_registered_operators():
    found = proposed("torch.ops.gradverify_init_tests.leaky")
    assert shapes(found) == {"x": [[2, 3]], "slope": 0.1} and found.varied == {"slope": (0.1, 0.15)}
    assert "no operator" in proposed("torch.ops.gradverify_init_tests.gone").missing
    assert proposed("torch.ops.aten.linear").missing is None
    assert shapes(proposed("torch.ops.aten.cat"))["tensors"] == [[2, 3], [2, 3]]


@pytest.mark.parametrize("name", ["conv2d", "embedding", "cross_entropy", "grid_sample", "pixel_shuffle"])
def test_functions_of_torch(name):
    assert proposed(f"torch.nn.functional:{name}").missing is None


@pytest.mark.parametrize("name", ["GRUCell", "MultiheadAttention", "BatchNorm2d"])
def test_modules_of_torch(name):
    assert proposed(f"torch.nn:{name}").missing is None


def test_code_that_refuses_double_is_checked_in_single(tmp_path):
    found = written(tmp_path, """
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        if x.dtype != torch.float32:
            raise RuntimeError("expected scalar type Float but found Double")
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
""")
    assert (found.missing, found.dtype) == (None, "float32")


def test_a_backward_that_raises_is_written_down_and_said(tmp_path):
    found = written(tmp_path, """
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        raise ValueError("not written yet")
""")
    assert found.missing is None and "not written yet" in found.note


@pytest.mark.parametrize(("text", "sentence"), [
    ("raise RuntimeError('broken module')\nclass Op(Function):\n    pass", "broken module"),
    ("class Other:\n    pass", "no attribute 'Op'"),
    ("def Op(x):\n    raise SystemExit(3)", "SystemExit"),
    ("def Op(x):\n    return x.detach()", "no output depends on an input"),
    ("Op = 3", "not an autograd Function"),
])
def test_whatever_the_code_does_there_is_an_answer(tmp_path, text, sentence):
    assert sentence in written(tmp_path, text).missing


def test_a_guess_that_does_not_come_back_costs_that_guess(tmp_path, monkeypatch):
    monkeypatch.setattr("gradverify.trial.attempt.LONGEST", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    found = written(tmp_path, """
def Op(x, n: int):
    while n == 2:
        pass
    return x * n
""")
    assert found.missing is None and shapes(found)["n"] == 1
    assert signal.getsignal(signal.SIGALRM) is before


def test_attempts_that_ended_a_process_are_not_made_again(tmp_path):
    numbers = []
    first = of("Mish", begun=numbers.append)
    again = propose(Sought(f"{OPS}:Mish", Search(str(OPS.parent)), None, (1,)))
    assert numbers[0] == 1 and shapes(first) == {"x": [[2, 3]]}
    assert again.missing is None and shapes(again) != shapes(first)


@pytest.mark.parametrize(("name", "example", "expected"), [
    ("Mish", "Mish.apply(torch.randn(3, 5))", {"x": [[3, 5]]}),
    ("weighted_sum", "weighted_sum([torch.randn(3), torch.randn(3)], torch.rand(2))", {"tensors": [[3], [3]], "weights": [[2]]}),
    ("modulated", "modulated(torch.randn(2), shift=torch.randn(2))", {"x": [[2]], "shift": [[2]]}),
    ("RMSNorm", "RMSNorm(8, eps=1e-3)(torch.randn(2, 8))", {"x": [[2, 8]]}),
    ("Pool", "f(torch.randn(2, 7), 'mean', True)", {"x": [[2, 7]], "mode": "mean", "keepdim": True}),
])
def test_an_example_call_says_it_all(name, example, expected):
    found = of(name, example=example)
    assert found.missing is None and shapes(found) == expected
    assert found.init == ({"dim": 8, "eps": 1e-3} if name == "RMSNorm" else None)


def test_an_examples_numbers_keep_their_kind():
    found = of("CrossEntropy", example="f(torch.randn(20, 4), torch.arange(20) % 4, 0.1)")
    target = found.inputs[1].tensor
    assert (target.draw, target.arguments, target.shape) == ("integers", [0, 4], (20,))
    found = of("MaskedMSE", example="f(torch.rand(2, 3), torch.rand(2, 3), torch.ones(2, 3) > 0)")
    assert draws(found) == {"prediction": "uniform", "target": "uniform", "mask": "kind"}


@pytest.mark.parametrize(("example", "sentence"), [
    ("Mish.apply(", "no Python expression"), ("3", "is no call"), ("Mish.apply(torch.randn(3", "no Python expression"),
    ("Mish.apply(unknown)", "NameError"), ("Mish.apply(lambda x: x)", "which a spec cannot write"), ("Mish.apply(3)", "does not run"),
])
def test_examples_that_cannot_be_used(example, sentence):
    assert sentence in of("Mish", example=example).missing


@pytest.mark.parametrize("doc", [
    "linear(arg0: torch.Tensor, arg1: torch.Tensor, arg2: float = 1.0) -> torch.Tensor",
    "linear(arg0: at::Tensor, arg1: at::Tensor) -> at::Tensor\n\nThe linear layer",
    "linear(input: Tensor, weight: Tensor, *, out: Optional[Tensor] = None) -> Tensor",
])
def test_compiled_functions_are_called_by_what_their_docstring_says(tmp_path, doc):
    """`__signature__` is what pybind11 functions lack."""
    found = written(tmp_path, f'''
class Compiled:
    __doc__ = {doc!r}
    __signature__ = "none"

    def __call__(self, x, w):
        return x @ w.T

Op = Compiled()
''')
    given = list(shapes(found).values())
    assert found.missing is None and given[0][0][-1] == given[1][0][-1]


def test_what_autograd_says_of_a_refused_gradient_is_taken_up(tmp_path):
    """One step of an integrator: the threshold is one number, and broadcasting would have taken any shape in forward."""
    found = written(tmp_path, """
class Op(Function):
    @staticmethod
    def forward(ctx, x, a, b):
        ctx.save_for_backward(x)
        ctx.b = b if isinstance(b, Tensor) else torch.tensor(float(b), dtype=x.dtype)
        ctx.a = a
        return x * a * ctx.b
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * ctx.a * ctx.b, (g * x * ctx.b).sum(), (g * x * ctx.a).sum()
""")
    assert found.missing is None and found.note is None
    assert shapes(found)["a"] == [[]] and shapes(found)["b"] == [[]]


def test_a_gpu_only_kernel_is_said_to_be_one(tmp_path):
    found = written(tmp_path, """
def Op(x):
    if not x.is_cuda:
        raise RuntimeError("input must be a CUDA tensor")
    return x * 2
""")
    if torch.cuda.is_available():
        assert (found.missing, found.device) == (None, "cuda")
    else:
        assert "GPU only" in found.missing and found.device == "cuda" and found.attempts < 100


def test_an_argument_that_is_called_deep_inside_is_told(tmp_path):
    found = written(tmp_path, "def inner(f, x):\n    return f(x)\n\ndef Op(x, gain):\n    return inner(gain, x)\n")
    assert "seems to be a function" in found.missing


@pytest.mark.parametrize("use", ["net(x)", "x * sum(p.sum() for p in net.parameters())"])
def test_an_argument_that_is_a_module_is_told_after_few_calls(tmp_path, use):
    """`net` stands for whatever it is given: nothing in forward's own text says that it is called."""
    found = written(tmp_path, f"def inner(net, x):\n    return {use}\n\ndef Op(x, net, w):\n    return inner(net, x * 2) @ w\n")
    assert "a module or another object, which a spec cannot write: name a function of tensors around it" in found.missing
    assert found.attempts < 400


def test_matrices_that_must_have_a_structure_have_it_by_their_name(tmp_path):
    found = written(tmp_path, """
def Op(chol, covar):
    torch.linalg.cholesky(covar)
    assert torch.equal(chol, chol.tril())
    return chol @ covar
""")
    assert [each.tensor.arguments for each in found.inputs] == ["lower_triangular", "spd"]


def test_a_class_is_picked_once_at_a_place(tmp_path):
    """The backward is right for one class at each place, as torch's own cross entropy takes them, and for no other number of them."""
    found = written(tmp_path, """
def picked(pred, target):
    return pred.log_softmax(1).gather(1, target)
class Op(Function):
    @staticmethod
    def forward(ctx, pred, target):
        ctx.save_for_backward(pred, target)
        return picked(pred, target)
    @staticmethod
    def backward(ctx, g):
        pred, target = ctx.saved_tensors
        return (pred.softmax(1) * -g).scatter_add(1, target, g), None
""")
    assert shapes(found) == {"pred": [[2, 3]], "target": [[2, 1]]}


@pytest.mark.parametrize("body", ["table[index]", "table[:, index]", "table.gather(0, index.reshape(-1, 1).expand(-1, table.shape[1]))",
                                  "torch.zeros_like(table).index_add(0, index, table[: len(index)])"])
def test_every_whole_number_of_a_range_is_one_that_forward_takes(tmp_path, body):
    """A table that is not square, and an index whose draw under the first seed may or may not come to the largest number."""
    found = written(tmp_path, f"def Op(table, index):\n    return {body}\n")
    assert found.missing is None
    table, index = (each.tensor for each in found.inputs)
    low, high = index.arguments
    assert high - low > 1
    for number in range(low, high):
        space = {"torch": torch}
        eval(f"lambda table, index: {body}", space)(torch.randn(table.shape), torch.full(index.shape, number))
