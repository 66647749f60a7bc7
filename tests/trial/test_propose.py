"""Inputs found in few calls: for ops of every shape a call that runs, or a sentence that says what
is missing; never a gradient judged.

What is asked of a found call is independent of how it was found: torch itself runs it and
differentiates it, and gradverify's check of the spec passes, as all gradients in `ops.py` are
right.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from repository import ROOT

from gradverify.cli.coverage import found_in
from gradverify.model.case import Search
from gradverify.model.proposal import Sought
from gradverify.trial.propose import MOST, propose
from trial import ops

OPS = Path(ops.__file__)


def proposed(target, folder=OPS.parent):
    return propose(Sought(target, Search(str(folder))))


def of(name):
    return proposed(f"{OPS}:{name}")


def written(tmp_path, text, name="Op"):
    """What is proposed for a function that is written here."""
    file = tmp_path / "own.py"
    file.write_text(
        "import torch\nfrom torch.autograd import Function\nfrom torch import Tensor\n" + text
    )
    return proposed(f"{file}:{name}", folder=tmp_path)


def shapes(proposal):
    return {
        each.name: [list(recipe.shape) for recipe in each.recipes] or each.value
        for each in (*proposal.inputs, *proposal.keywords)
    }


def draws(proposal):
    return {each.name: each.tensor.draw for each in proposal.inputs if each.tensor is not None}


def test_the_shapes_are_those_that_the_ops_are_written_for():
    assert shapes(of("LinearFunction")) == {"input": [[2, 3]], "weight": [[4, 3]], "bias": [[4]]}
    assert shapes(of("Conv2d"))["weight"] == [[4, 4, 3, 3]]
    assert shapes(of("LayerNorm")) == {"x": [[2, 3]], "gamma": [[3]], "beta": [[3]]}
    assert shapes(of("Rope")) == {"x": [[2, 4, 5, 6]], "cos": [[5, 6]], "sin": [[5, 6]]}
    found = of("SelectiveScan")
    assert found.missing is None and found.note is None and found.attempts <= MOST
    scan = shapes(found)
    ((b, d, length),) = scan["u"]
    assert scan["delta"] == scan["u"] and scan["A"][0][0] == d
    assert scan["B"] == [[b, scan["A"][0][1], length]]


COMMENTS = """def Op(q, table):
    # q: (batch, heads, seq, dim)
    # table: (seq, dim)
    return q @ table.T
"""
DOCSTRING = '''def Op(q, table):
    """Turn.

    q: (batch, heads, seq, dim)
    table (Tensor): of shape (seq, dim)
    """
    return q @ table.T
'''
UNPACKED = """def Op(q, table):
    batch, heads, seq, dim = q.shape
    assert table.shape == (seq, dim)
    return q @ table.T
"""
TOGETHER = """def Op(q, table):
    # q, other: (batch, heads, seq, dim)
    # other, table: (seq, dim)
    return q @ table.T
"""
COMPARED = """def Op(q, table):
    _, _, seq, dim = q.size()
    if table.shape != (seq, dim):
        raise ValueError
    return q @ table.T
"""


@pytest.mark.parametrize("text", [COMMENTS, DOCSTRING, UNPACKED, COMPARED, TOGETHER])
def test_sizes_are_those_of_comments_docstrings_and_unpacked_shapes(tmp_path, text):
    found = written(tmp_path, text)
    assert found.attempts == 1 and shapes(found) == {"q": [[2, 4, 5, 6]], "table": [[5, 6]]}


def test_a_large_size_in_a_comment_is_not_drawn(tmp_path):
    found = written(tmp_path, "def Op(x):\n    # x: (65536, 32768)\n    return x * 2\n")
    assert shapes(found) == {"x": [[2, 3]]}


def test_words_are_those_that_an_argument_is_compared_with(tmp_path):
    found = written(
        tmp_path,
        """
def Op(x, how):
    if how == "cubed":
        return x ** 3
    if how not in ("doubled", "halved"):
        raise ValueError(how)
    return x * 2 if how == "doubled" else x / 2
""",
    )
    assert set(found.varied["how"]) == {"cubed", "doubled", "halved"}


def test_what_setup_context_saves_is_a_tensor(tmp_path):
    found = written(
        tmp_path,
        """
class Op(Function):
    @staticmethod
    def forward(x, alpha):
        return x * alpha
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, alpha = inputs
        ctx.save_for_backward(x, alpha)
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        return g * alpha, (g * x).sum()
""",
    )
    assert found.attempts == 1 and shapes(found) == {"x": [[2, 3]], "alpha": [[]]}


NOT_FOUND = {"swaps_sparse_indices", "ends_its_process"}  # sparse matrices; what ends this process
RAISES = {"reads_what_forward_did_not_keep", "returns_too_few_gradients"}  # the faulty backward


@pytest.mark.population(most=1)
@pytest.mark.parametrize("part", range(3))
def test_every_other_function_of_the_gallery_and_every_built_in_is_found(part):
    places = [
        *sorted((ROOT / "specs" / "gallery").glob("*.py")),
        *sorted((ROOT / "gradverify" / "functions").glob("*.py")),
    ]
    _, functions = found_in(
        [str(place) for place in places[part::3] if place.stem not in NOT_FOUND]
    )
    found = {
        (each.file.stem, each.name): proposed(f"{each.file}:{each.name}", ROOT)
        for each in functions
        if each.kind != "operator" and not each.inside
    }
    assert len(found) > 30
    assert not {key: each.missing for key, each in found.items() if each.missing is not None}
    raised = {(place.stem, "Faulty") for place in places[part::3] if place.stem in RAISES}
    assert {key for key, each in found.items() if each.note} == raised
    assert max(each.attempts for each in found.values()) <= MOST
    assert sum(each.attempts for each in found.values()) < 3 * len(found)


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


def test_words_and_truth_values_are_varied_where_forward_takes_others():
    assert of("Pool").varied == {"mode": ("sum", "mean"), "keepdim": (False, True)}
    assert of("RMSNormFunction").varied == {}  # eps
    assert of("Mish").varied == {}


def test_what_gets_no_gradient_is_marked():
    found = of("Rope")
    assert found.remarks == dict.fromkeys(("cos", "sin"), "backward gave no gradient for it")
    assert [each.tensor.requires_grad for each in found.inputs] == [None, False, False]


def test_what_a_spec_cannot_write_is_one_sentence():
    found = of("Checkpoint")
    assert "'Tensor' object is not callable (" in found.missing
    assert "an argument seems to be a function" in found.missing and found.attempts <= MOST


def test_registered_operators():
    found = proposed("torch.ops.gradverify_init_tests.leaky")
    assert shapes(found) == {"x": [[2, 3]], "slope": 0.1}
    assert "no operator" in proposed("torch.ops.gradverify_init_tests.gone").missing
    assert proposed("torch.ops.aten.linear").missing is None


@pytest.mark.parametrize("name", ["GRUCell", "MultiheadAttention", "BatchNorm2d"])
def test_modules_of_torch(name):
    assert proposed(f"torch.nn:{name}").missing is None


def test_code_that_refuses_double_is_checked_in_single(tmp_path):
    found = written(
        tmp_path,
        """
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        if x.dtype != torch.float32:
            raise RuntimeError("expected scalar type Float but found Double")
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
""",
    )
    assert (found.missing, found.dtype) == (None, "float32")


def test_a_backward_that_raises_is_written_down_and_said(tmp_path):
    found = written(
        tmp_path,
        """
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        raise ValueError("not written yet")
""",
    )
    assert found.missing is None and "not written yet" in found.note


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("raise RuntimeError('broken module')\nclass Op(Function):\n    pass", "broken module"),
        ("class Other:\n    pass", "no attribute 'Op'"),
        ("def Op(x):\n    raise SystemExit(3)", "SystemExit"),
        ("def Op(x):\n    return x.detach()", "no output depends on an input"),
        ("Op = 3", "not an autograd Function"),
    ],
)
def test_whatever_the_code_does_there_is_an_answer(tmp_path, text, sentence):
    assert sentence in written(tmp_path, text).missing


def test_what_autograd_says_of_a_refused_gradient_is_taken_up(tmp_path):
    """One step of an integrator: the threshold is one number, and broadcasting would have taken any
    shape in forward."""
    found = written(
        tmp_path,
        """
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
""",
    )
    assert found.missing is None and found.note is None
    assert shapes(found)["b"] == [[]]


def test_a_gpu_only_kernel_is_said_to_be_one(tmp_path):
    found = written(
        tmp_path,
        """
def Op(x):
    if not x.is_cuda:
        raise RuntimeError("input must be a CUDA tensor")
    return x * 2
""",
    )
    if torch.cuda.is_available():
        assert (found.missing, found.device) == (None, "cuda")
    else:
        assert "GPU only" in found.missing and found.device == "cuda" and found.attempts <= MOST


def test_an_argument_that_is_called_deep_inside_is_told(tmp_path):
    found = written(
        tmp_path,
        "def inner(f, x):\n    return f(x)\n\ndef Op(x, gain):\n    return inner(gain, x)\n",
    )
    assert "seems to be a function" in found.missing


@pytest.mark.parametrize("use", ["net(x)", "x * sum(p.sum() for p in net.parameters())"])
def test_an_argument_that_is_a_module_is_told_after_few_calls(tmp_path, use):
    """`net` stands for whatever it is given: nothing in forward's own text says that it is
    called."""
    found = written(
        tmp_path,
        f"def inner(net, x):\n    return {use}\n\ndef Op(x, net, w):\n    return inner(net, x * "
        "2) @ w\n",
    )
    assert (
        "a module or another object, which a spec cannot write: name a function of tensors around "
        "it"
    ) in found.missing
    assert found.attempts <= MOST


def test_matrices_that_must_have_a_structure_have_it_by_their_name(tmp_path):
    found = written(
        tmp_path,
        """
def Op(chol, covar):
    torch.linalg.cholesky(covar)
    assert torch.equal(chol, chol.tril())
    return chol @ covar
""",
    )
    assert [each.tensor.arguments for each in found.inputs] == ["lower_triangular", "spd"]


def test_a_class_is_picked_once_at_a_place(tmp_path):
    """The backward is right for one class at each place, as torch's own cross entropy takes them,
    and for no other number of them."""
    found = written(
        tmp_path,
        """
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
""",
    )
    assert shapes(found) == {"pred": [[2, 3]], "target": [[2, 1]]}


@pytest.mark.parametrize(
    "body",
    [
        "table[index]",
        "table[:, index]",
        "table.gather(0, index.reshape(-1, 1).expand(-1, table.shape[1]))",
        "torch.zeros_like(table).index_add(0, index, table[: len(index)])",
    ],
)
def test_every_whole_number_of_a_range_is_one_that_forward_takes(tmp_path, body):
    """A table that is not square, and an index whose draw under the first seed may or may not come
    to the largest number."""
    found = written(tmp_path, f"def Op(table, index):\n    return {body}\n")
    assert found.missing is None
    table, index = (each.tensor for each in found.inputs)
    low, high = index.arguments
    assert high - low > 1
    for number in range(low, high):
        space = {"torch": torch}
        eval(f"lambda table, index: {body}", space)(
            torch.randn(table.shape), torch.full(index.shape, number)
        )


ENTROPY = """
class Op(Function):
    @staticmethod
    def forward(ctx, x, target, {signature}):
        kept = target != {name}
        index = target.masked_fill(~kept, 0).unsqueeze(-1)
        ctx.save_for_backward(x, index, kept)
        return -(x.log_softmax(-1).gather(-1, index)[..., 0] * kept).sum() / kept.sum()
    @staticmethod
    def backward(ctx, g):
        x, index, kept = ctx.saved_tensors
        grad = x.softmax(-1).scatter_add(-1, index, x.new_full(index.shape, -1.0))
        return grad * kept[..., None] * g / kept.sum(), None, None
"""


@pytest.mark.parametrize(
    "signature", ["ignore_index", "ignore_index=-100", "ignore_label: int = 255"]
)
def test_an_index_to_ignore_is_one_of_the_targets(tmp_path, signature):
    name = signature.partition("=")[0].partition(":")[0]
    found = written(tmp_path, ENTROPY.format(signature=signature, name=name))
    assert found.missing is None and found.note is None
    target, ignored = found.inputs[1:]
    assert (target.tensor.draw, target.tensor.dtype) == ("values", "int64")
    assert {*target.tensor.arguments} == {0, 1} and (ignored.name, ignored.value) == (name, 1)


@pytest.mark.parametrize("name", ["padding_idx", "skipped"])
def test_another_number_is_none_of_the_integers(tmp_path, name):
    found = written(tmp_path, ENTROPY.format(signature=f"{name}=2", name=name))
    assert found.missing is None and draws(found)["target"] == "integers"
    assert len(found.inputs) == 2 or found.inputs[2].value == 2


def test_an_index_to_ignore_stays_where_no_target_may_be_ignored(tmp_path):
    text = ENTROPY.format(signature="ignore_index", name="ignore_index")
    check = "        assert bool((target != ignore_index).all())\n        kept ="
    found = written(tmp_path, text.replace("        kept =", check, 1))
    assert found.missing is None and draws(found)["target"] == "integers"
    assert found.inputs[2].value == 2


STEPPED = """
class Op(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return {forward}
    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return {backward}
"""


@pytest.mark.parametrize(
    ("forward", "backward", "name"),
    [
        ("torch.round(x) * scale", "g * scale, g * torch.round(x)", "x"),
        ("(x > 0).to(x.dtype) * scale", "g * scale, g * (x > 0)", "x"),
        ("x * scale.sign()", "g * scale.sign(), g * x", "scale"),
    ],
)
def test_a_gradient_of_a_piecewise_constant_forward_is_left_open(tmp_path, forward, backward, name):
    found = written(tmp_path, STEPPED.format(forward=forward, backward=backward))
    assert found.advised and f"piecewise constant in {name}, and backward" in found.missing
    assert "`surrogate`" in found.missing


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("torch.round(x) * scale", "None, g * torch.round(x)"),  # no gradient for what is rounded
        ("torch.round(x) * scale", "g * 0, g * torch.round(x)"),
        ("x.relu() * scale", "g * (x > 0) * scale, g * x.relu()"),
        (
            "x.amax() * scale",
            "g.new_zeros(x.shape) + (x == x.amax()) * (g * scale).sum(), g * x.amax()",
        ),
        ("x[:1] * scale[:1]", "torch.cat([g * scale[:1], 0 * x[1:]]), 0 * scale"),
        ("x / x.norm() + scale", "(g - x / x.norm() * (g * x).sum() / x.norm()) / x.norm(), g"),
        ("scale * 1", "g, g"),  # does not depend on x at all: a wrong gradient
    ],
)
def test_other_functions_are_checked(tmp_path, forward, backward):
    found = written(tmp_path, STEPPED.format(forward=forward, backward=backward))
    assert found.missing is None
