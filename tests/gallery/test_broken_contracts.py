"""Faults whose numbers are right, or that no number shows: each is really there, and really gone from the right twin."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from gallery.twins import INPUTS, draw, gradients, load, values


def raw_backward(twin: Any, inputs: tuple[Any, ...], grad_output: Tensor) -> Any:
    """What `backward` itself returns, before autograd casts and sums it."""
    returned: list[Any] = []

    class Watched(twin):
        @staticmethod
        def backward(ctx, grad):
            returned.append(twin.backward(ctx, grad))
            return returned[-1]

    try:
        torch.autograd.grad(Watched.apply(*inputs), inputs[0], grad_output)
    except RuntimeError:
        assert returned, "backward was never reached"
    return returned[0]


def saved_and_read(twin: Any, inputs: tuple[Any, ...]) -> tuple[int, int]:
    """How many tensors a forward packs, and how many of them its backward unpacks."""
    packed: list[Tensor] = []
    read: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(tensor) or tensor, lambda tensor: read.append(tensor) or tensor):
        output = twin.apply(*inputs)
        output.backward(torch.full_like(output, -1.5))
    return len(packed), len(read)


def test_the_tutorials_product_is_right_for_ones_and_deaf_to_everything_else():
    module, inputs = load("mul_ignores_grad_output"), INPUTS["mul_ignores_grad_output"]()
    ones = torch.ones(2, 3, dtype=torch.float64)
    torch.testing.assert_close(gradients(module.Faulty, inputs, ones), gradients(module.Right, inputs, ones))
    torch.testing.assert_close(gradients(module.Faulty, inputs, -3 * ones), gradients(module.Faulty, inputs, ones))
    torch.testing.assert_close(gradients(module.Right, inputs, -3 * ones), tuple(-3 * g for g in gradients(module.Right, inputs, ones)))


def test_the_tutorials_relu_returns_right_values_and_damages_grad_output():
    module, inputs = load("relu_modifies_grad_output"), INPUTS["relu_modifies_grad_output"]()
    faulty_cotangent, right_cotangent = (torch.full((4,), 5.0, dtype=torch.float64) for _ in range(2))
    faulty, right = gradients(module.Faulty, inputs, faulty_cotangent), gradients(module.Right, inputs, right_cotangent)
    assert faulty[0].tolist() == right[0].tolist() == [0.0, 0.0, 5.0, 5.0]
    assert faulty_cotangent.tolist() == [0.0, 0.0, 5.0, 5.0]
    assert right_cotangent.tolist() == [5.0] * 4


def test_the_tutorials_sigmoid_is_right_on_the_cpu():
    module, inputs = load("numpy_sigmoid"), INPUTS["numpy_sigmoid"]()
    assert gradcheck(module.Faulty.apply, inputs)
    torch.testing.assert_close(module.Faulty.apply(*inputs), torch.sigmoid(*inputs))
    assert module.Faulty.apply(torch.tensor(0.0, dtype=torch.float64)).item() == 0.5


def test_the_tutorials_sigmoid_works_only_where_numpy_can_see_the_tensor():
    """A meta tensor, like a CUDA tensor, has no NumPy view; the twin in torch does not mind."""
    module, elsewhere = load("numpy_sigmoid"), torch.zeros(3, device="meta")
    with pytest.raises((TypeError, RuntimeError), match=r"numpy|meta"):
        module.Faulty.apply(elsewhere)
    assert module.Right.apply(elsewhere).shape == (3,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_tutorials_sigmoid_raises_on_cuda():
    with pytest.raises(TypeError, match="numpy"):
        load("numpy_sigmoid").Faulty.apply(torch.zeros(3, device="cuda"))


def test_the_tutorials_sum_saves_a_tensor_that_backward_never_reads():
    module, inputs = load("add_saves_unused"), INPUTS["add_saves_unused"]()
    assert saved_and_read(module.Faulty, inputs) == (1, 0)
    assert saved_and_read(module.Right, inputs) == (0, 0)


@pytest.mark.parametrize("name", ["drops_factor", "mul_ignores_grad_output", "relu_modifies_grad_output", "numpy_sigmoid", "gives_index_a_gradient"])
def test_other_faults_read_what_they_save(name):
    packed, read = saved_and_read(load(name).Faulty, INPUTS[name]())
    assert packed == read > 0


@pytest.mark.parametrize("twin, dtype", [("Faulty", torch.float32), ("Right", torch.float64)])
def test_the_float32_gradient_is_what_backward_returns_and_autograd_hides(twin, dtype):
    inputs, grad_output = INPUTS["returns_float32_gradient"](), torch.ones(2, 3, dtype=torch.float64)
    twin = getattr(load("returns_float32_gradient"), twin)
    assert raw_backward(twin, inputs, grad_output).dtype == dtype
    seen = gradients(twin, inputs, grad_output)[0]
    assert seen.dtype == torch.float64
    assert torch.equal(seen, inputs[0].exp()) == (dtype == torch.float64)


def test_one_gradient_for_two_inputs_is_refused_by_autograd():
    module, inputs = load("returns_too_few_gradients"), INPUTS["returns_too_few_gradients"]()
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        gradients(module.Faulty, inputs)
    assert len(gradients(module.Right, inputs)) == 2


def test_a_transposed_shape_is_refused_by_autograd():
    module, inputs = load("returns_wrong_shape"), INPUTS["returns_wrong_shape"]()
    with pytest.raises(RuntimeError, match="invalid gradient at index 1"):
        gradients(module.Faulty, inputs)
    assert gradients(module.Right, inputs)[1].shape == (3, 4)


@pytest.mark.parametrize("twin, shape", [("Faulty", (3, 2)), ("Right", (2,))])
def test_the_unsummed_gradient_is_what_backward_returns_and_autograd_sums(twin, shape):
    inputs, grad_output = INPUTS["returns_unsummed_gradient"](), torch.ones(3, 2, dtype=torch.float64)
    twin = getattr(load("returns_unsummed_gradient"), twin)
    assert raw_backward(twin, inputs, grad_output)[1].shape == shape
    assert gradients(twin, inputs, grad_output)[1].tolist() == [3.0, 3.0]


def test_the_fast_path_leaves_the_class_out_of_the_graph():
    module, (x,) = load("bypasses_backward"), INPUTS["bypasses_backward"]()
    assert module.Faulty.apply(x).grad_fn.name() == "MulBackward0"
    assert module.Right.apply(x).grad_fn.name() == "RightBackward"
    assert module.Faulty.apply(torch.zeros(module.Faulty.SMALL, requires_grad=True)).grad_fn.name() == "FaultyBackward"


@pytest.mark.parametrize("twin, expected", [("Faulty", torch.float64), ("Right", None)])
def test_an_integer_index_gets_a_float_gradient_that_autograd_drops(twin, expected):
    inputs, grad_output = INPUTS["gives_index_a_gradient"](), torch.ones(3, 2, dtype=torch.float64)
    twin = getattr(load("gives_index_a_gradient"), twin)
    returned = raw_backward(twin, inputs, grad_output)[1]
    assert (returned if expected is None else returned.dtype) is expected
    assert gradients(twin, inputs, grad_output)[0][:, 0].tolist() == [1.0, 0.0, 0.0, 2.0]


def test_a_stack_of_no_rows_raises_for_an_empty_batch_alone():
    module, empty = load("stacks_no_rows"), (torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),)
    assert gradcheck(module.Faulty.apply, (draw(2, 3),))
    with pytest.raises(RuntimeError, match="non-empty TensorList"):
        gradients(module.Faulty, empty)
    assert gradients(module.Right, empty)[0].shape == (0, 3)


def test_what_forward_did_not_keep_is_missed_in_backward_alone():
    module, inputs = load("reads_what_forward_did_not_keep"), (values(1.0, 2.0), 2.5)
    assert module.Faulty.apply(*inputs).tolist() == [2.5, 5.0]
    with pytest.raises(AttributeError, match="factor"):
        gradients(module.Faulty, inputs)
    assert gradients(module.Right, inputs, torch.ones(2, dtype=torch.float64))[0].tolist() == [2.5, 2.5]


@pytest.mark.parametrize("twin, mean", [("Faulty", 0.0), ("Right", 2.0)])
def test_the_deviation_moves_the_callers_tensor(twin, mean):
    x = torch.tensor([1.0, 2.0, 3.0])
    assert getattr(load("centres_its_input_in_place"), twin).apply(x).tolist() == [1, 0, 1]
    assert x.mean() == mean


@pytest.mark.parametrize("twin, changed", [("Faulty", True), ("Right", False)])
def test_the_tanh_is_squared_in_the_callers_hands(twin, changed):
    x, = INPUTS["squares_its_output_in_place"]()
    y = getattr(load("squares_its_output_in_place"), twin).apply(x)
    gradient, = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(gradient, 1 - x.tanh().square())
    assert torch.equal(y, x.tanh()) is not changed


@pytest.mark.parametrize("twin, expected", [("Faulty", [0, 1]), ("Right", [1, 0])])
def test_the_mask_of_the_last_call_is_that_of_all(twin, expected):
    function = getattr(load("keeps_its_mask_on_the_class"), twin)
    first = values(1.0, -1.0)
    y = function.apply(first)
    function.apply(values(-1.0, 1.0))
    assert torch.autograd.grad(y.sum(), first)[0].tolist() == expected


def test_the_weight_of_a_first_layer_gets_no_gradient():
    module, (x, weight) = load("skips_weight_with_its_input"), INPUTS["skips_weight_with_its_input"]()
    seen = {twin: gradients(getattr(module, twin), (x.detach(), weight)) for twin in ("Faulty", "Right")}
    assert seen["Faulty"] == (None,)
    torch.testing.assert_close(seen["Right"], torch.autograd.grad(x.detach() @ weight, weight, torch.linspace(-1, 2, 8).double().reshape(2, 4)))


@pytest.mark.parametrize("twin, again", [("Faulty", [0.0, 0.0]), ("Right", [2.0, -4.0])])
def test_the_saved_gradient_is_what_the_caller_writes_into(twin, again):
    x = values(1.0, -2.0)
    loss = getattr(load("returns_what_it_saved"), twin).apply(x)
    torch.autograd.grad(loss, x, retain_graph=True)[0].data.zero_()
    assert torch.autograd.grad(loss, x)[0].tolist() == again


@pytest.mark.parametrize("twin, lives", [("Faulty", True), ("Right", False)])
def test_the_output_on_ctx_waits_for_the_collector(twin, lives):
    gc.collect()
    gc.disable()
    try:
        node = weakref.ref(getattr(load("keeps_its_output_on_ctx"), twin).apply(values(1.0)).grad_fn)
        assert (node() is not None) is lives
    finally:
        gc.enable()
    gc.collect()
    assert node() is None


def test_the_saved_data_is_stale_without_a_word():
    module, leaf = load("saves_without_a_version"), values(3.0)

    def slope(twin):
        x = leaf * 1
        y = twin.apply(x)
        x.detach().mul_(10)
        return torch.autograd.grad(y, leaf)[0].tolist()

    assert slope(module.Faulty) == [60.0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        slope(module.Right)


def test_without_gradients_the_gelu_is_another_function():
    module, (x,) = load("approximates_without_gradients"), INPUTS["approximates_without_gradients"]()
    with torch.no_grad():
        faulty, right = module.Faulty.apply(x), module.Right.apply(x)
    assert 1e-6 < (faulty - module.Faulty.apply(x)).abs().max() < 1e-3
    assert torch.equal(right, module.Right.apply(x))


@pytest.mark.parametrize("twin, view", [("Faulty", False), ("Right", True)])
def test_the_identity_lies_in_its_inputs_memory_with_and_without_a_base(twin, view):
    x, = INPUTS["returns_its_inputs_memory"]()
    y = getattr(load("returns_its_inputs_memory"), twin).apply(x)
    assert y.data_ptr() == x.data_ptr()
    assert y._is_view() is view


@pytest.mark.parametrize("twin, expected", [("Faulty", 3.0), ("Right", 2.0)])
def test_two_views_of_one_gradient_are_added_to_twice(twin, expected):
    inputs = INPUTS["returns_two_views"]()
    for _ in range(2):
        getattr(load("returns_two_views"), twin).apply(*inputs).backward(torch.ones(2, 3, dtype=torch.float64))
    assert all(x.grad.eq(expected).all() for x in inputs)


@pytest.mark.parametrize("twin, right", [("Faulty", False), ("Right", True)])
def test_the_forgotten_tangent_is_missing_in_forward_mode_alone(twin, right):
    module, (x, y) = load("jvp_forgets_a_tangent"), INPUTS["jvp_forgets_a_tangent"]()
    assert gradcheck(module.Faulty.apply, (x, y))
    with forward_ad.dual_level():
        duals = forward_ad.make_dual(x.detach(), torch.zeros_like(x)), forward_ad.make_dual(y.detach(), torch.ones_like(y))
        dual = getattr(module, twin).apply(*duals)
        tangent = forward_ad.unpack_dual(dual).tangent
    assert torch.equal(tangent, x) == right


@pytest.mark.parametrize("name", ["keeps_an_intermediate", "detaches_in_backward", "reads_data_in_backward", "backward_without_grad"])
def test_a_silent_second_derivative_is_seen_by_gradgradcheck_alone(name):
    module, inputs = load(name), INPUTS[name]()
    assert gradcheck(module.Faulty.apply, inputs)
    with pytest.raises((GradcheckError, RuntimeError)):
        gradgradcheck(module.Faulty.apply, inputs)


@pytest.mark.parametrize("twin, right", [("Faulty", False), ("Right", True)])
def test_a_shared_argument_is_what_the_vmap_rule_forgets(twin, right):
    function = getattr(load("vmap_ignores_in_dims"), twin)
    x, w = draw(3, 3).detach(), draw(3, seed=1).detach()
    together = torch.vmap(function.apply)(x, x + 1)
    assert torch.equal(together, x * (x + 1))
    assert torch.equal(torch.vmap(function.apply, in_dims=(1, None))(x, w), x.T * w) == right


def test_a_number_taken_out_of_torch_cannot_be_vmapped():
    module, x, scale = load("vmap_rule_reads_a_number"), draw(3, 2).detach(), draw(3, 4, seed=1).detach()
    with pytest.raises(RuntimeError, match="item"):
        torch.vmap(module.Faulty.apply)(x, scale)
    assert torch.equal(torch.vmap(module.Right.apply)(x, scale), x / scale.abs().amax(-1, keepdim=True))


def test_the_dropped_mask_is_missed_by_a_second_backward_only():
    module, (x,) = load("drops_its_mask_in_backward"), INPUTS["drops_its_mask_in_backward"]()
    for twin in (module.Faulty, module.Right):
        y = twin.apply(x)
        first, = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
        assert torch.equal(first, (x > 0).double())
        if twin is module.Right:
            assert torch.equal(torch.autograd.grad(y, x, torch.ones_like(y))[0], first)
        else:
            with pytest.raises(AttributeError, match="mask"):
                torch.autograd.grad(y, x, torch.ones_like(y))


def test_the_number_out_of_grad_output_refuses_a_vectorized_jacobian():
    module, (x,) = load("asks_grad_output_for_a_number"), INPUTS["asks_grad_output_for_a_number"]()
    wanted = torch.autograd.functional.jacobian(module.Right.apply, x.detach())
    assert torch.equal(torch.autograd.functional.jacobian(module.Right.apply, x.detach(), vectorize=True), wanted)
    assert torch.equal(torch.autograd.functional.jacobian(module.Faulty.apply, x.detach()), wanted)
    with pytest.raises(RuntimeError, match="aten::item"):
        torch.autograd.functional.jacobian(module.Faulty.apply, x.detach(), vectorize=True)


def test_the_gain_is_not_in_the_output():
    module, (x, gain) = load("forgets_its_gain"), INPUTS["forgets_its_gain"]()
    assert torch.equal(module.Faulty.apply(x, gain), module.Faulty.apply(x, -7 * gain))
    assert gradients(module.Faulty, (x, gain))[1].tolist() == [0, 0, 0]
    assert gradients(module.Right, (x, gain))[1].abs().min() > 0
