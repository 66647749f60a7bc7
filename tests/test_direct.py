"""`gradverify.check` and `gradverify.assert_gradients`: right and wrong functions, and a process
that is left as it was."""

import json
import os
import random
import re
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from live import randn

import gradverify
from gradverify.direct import PACKAGE, _caller


class Halved(torch.autograd.Function):
    """sin whose gradient is half of what it should be."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 0.5 * g * x.cos()


def noisy(x):
    """sin with noise in its fourth digit: its finite difference knows no slope to six."""
    return x.sin() + 1e-4 * torch.frac(1e6 * x).detach()


@pytest.mark.parametrize("function", [Halved, Halved.apply])
def test_an_assertion_error_shows_the_element_and_the_line(function):
    with pytest.raises(AssertionError, match="GV101") as caught:
        gradverify.assert_gradients(function, randn(2, 3), msg="sine of the ocean")
    text = str(caught.value)
    assert text.startswith("sine of the ocean\nGV101 jacobian: 6 of 36 elements of d y0 / d ")
    assert "y0[0,0]" in text and "return 0.5 * g * x.cos()" in text
    assert "this again" not in text and re.search(r"test_direct\.py:\d+", text)
    assert (
        isinstance(caught.value, gradverify.GradientError) and caught.value.result.verdict == "fail"
    )


def test_what_requires_grad_is_differentiated_where_anything_does():
    flagged = gradverify.check(torch.mul, [randn(3), randn(3, seed=1).requires_grad_()])
    assert [each.requires_grad for each in flagged.inputs] == [False, True]
    plain = gradverify.check(torch.mul, [randn(3), randn(3, seed=1)])
    assert [each.requires_grad for each in plain.inputs] == [True, True]


def test_arguments_by_name_in_containers_and_by_keyword():
    def dot(x, *, weights, power, shift=None):
        return (x * weights["w"] ** power).sum() + shift

    found = gradverify.check(
        dot,
        {"x": randn(3)},
        kwargs={"weights": {"w": randn(3).exp()}, "power": 2, "shift": randn(1)[0]},
    )
    assert found.verdict == "pass", str(found)
    assert {each.name for each in found.inputs} == {"x", "weights.w", "shift"} and all(
        each.requires_grad for each in found.inputs
    )


def test_a_module_is_checked_with_its_parameters_and_left_as_it_is():
    module = torch.nn.Linear(3, 2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = gradverify.check(module, [randn(4, 3)])
    assert found.ok and {each.name for each in found.inputs} == {"input", "weight", "bias"}
    assert module.weight.dtype is torch.float32 and all(
        torch.equal(before[name], value) for name, value in module.state_dict().items()
    )


def test_an_undecided_check_fails_unless_a_warning_is_enough():
    assert gradverify.check(noisy, [randn(2)]).verdict == "undecided"
    with pytest.raises(AssertionError, match="GV007"):
        gradverify.assert_gradients(noisy, randn(2))
    with pytest.warns(gradverify.UndecidedWarning, match="GV007"):
        gradverify.assert_gradients(noisy, randn(2), undecided="warn")


class KeepsOnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.x.cos()


def test_warnings_of_rules_are_python_warnings():
    place = f"{__file__.rpartition('/')[2]}:"
    with pytest.warns(gradverify.GradverifyWarning, match=rf"GV21[45] .*{place}") as caught:
        gradverify.assert_gradients(KeepsOnCtx, randn(2))
    assert [each.filename for each in caught] == [__file__] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradverify.assert_gradients(torch.sin, randn(2))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"undecided": True, "seed": -1},
            ["seed: must be at least 0, got -1", "undecided: must be 'warn' or 'fail', got True"],
        ),
        ({"select": "GV1"}, ["select: expected a list, got 'GV1'; write ['GV1']"]),
        (
            {"expect": ["GV101"]},
            ["expect: unknown key 'expect' here: it belongs in a spec: in a check"],
        ),
        (
            {"reference": "my:fn"},
            ["reference: unknown key 'reference' here: it belongs in a check"],
        ),
        ({"calls": 3}, ["calls: unknown key 'calls' here: it belongs in `budget: {…}`"]),
        ({"strict": "yes"}, ["strict: expected true or false, got 'yes'; write True or False"]),
    ],
)
def test_what_is_no_setting_is_told_in_words_of_python(said, told):
    for call in (
        lambda: gradverify.check(torch.sin, [randn(2)], **said),
        lambda: gradverify.assert_gradients(torch.sin, randn(2), **said),
    ):
        with pytest.raises(gradverify.ProblemsError) as caught:
            call()
        assert len(caught.value.problems) == len(told)
        for problem, sentence in zip(caught.value.problems, told, strict=True):
            assert str(problem).startswith("check(): ") and sentence in str(problem)
            assert not any(word in str(problem) for word in ("YAML", "rules."))


def test_what_is_no_function_is_named_with_what_is_allowed():
    text = str(gradverify.check("Cube", [randn(2)]))
    assert (
        "function: 'Cube' is of type str, not an autograd Function, a callable or a module" in text
    )
    assert "function: 3 is of type int" in str(gradverify.check(3, [randn(2)]))


def test_a_result_as_json_text_and_html():
    found = gradverify.check(Halved, [randn(2)])
    assert json.loads(found.to_json())["findings"][0]["code"] == "GV101"
    assert (
        "GV101" in str(found)
        and "GV101" in found._repr_html_()
        and "<script" not in found._repr_html_()
    )


def state():
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        list(sys.path),
        torch.is_anomaly_enabled(),
    )


@pytest.mark.parametrize("grad", [True, False])
def test_nothing_is_printed_and_no_global_state_is_changed(capfd, grad):
    def meddles(x):
        torch.manual_seed(3)
        torch.set_default_dtype(torch.float32)
        return x.sin()

    x = randn(3)
    kept = x.clone()
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("error")
        before = state()
        assert gradverify.check(meddles, [x]).ok and not gradverify.check(Halved, [x]).ok
        assert state() == before
    assert capfd.readouterr() == ("", "") and torch.equal(x, kept) and not x.requires_grad


def interrupts_forward(x):
    raise KeyboardInterrupt


class InterruptsBackward(Halved):
    @staticmethod
    def backward(ctx, g):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "function, code", [(interrupts_forward, "GV002"), (InterruptsBackward, "GV003")]
)
@pytest.mark.parametrize(
    "elsewhere", [True, False], ids=["in another thread", "in the main thread"]
)
def test_a_keyboard_interrupt_of_the_function_itself_is_its_error_in_any_thread(
    function, code, elsewhere
):
    """SIGINT raises in the main thread only: elsewhere nobody but the function can have raised
    it."""
    found = []

    def call():
        try:
            found.append(
                [finding.code for finding in gradverify.check(function, [randn(3)]).findings]
            )
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call)
    (thread.start if elsewhere else call)()
    if elsewhere:
        thread.join()
    assert found == [[code]]


def test_a_caller_whose_folder_begins_with_the_packages_name_is_the_caller():
    file, found = f"{PACKAGE.rstrip(os.sep)}_of_mine/test_it.py", []
    exec(compile("found.append(caller())", file, "exec"), {"caller": _caller, "found": found})
    assert found[0][0].endswith("gradverify_of_mine/test_it.py") and found[0][1] == 1


def test_checks_of_several_threads_do_not_draw_each_others_numbers():
    """A function of random numbers and forward mode, which torch has one of in a process: side by
    side they would not repeat."""
    x = randn(30)
    before = state()
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(
                lambda function: gradverify.check(function, [x]),
                [torch.nn.functional.dropout, Halved] * 3,
            )
        )
    assert [each.verdict for each in found] == ["pass", "fail"] * 3
    assert not [finding.code for each in found[::2] for finding in each.findings]
    assert state() == before


@pytest.mark.parametrize(("function", "verdict"), [(torch.sin, "pass"), (Halved, "fail")])
def test_inference_mode_of_the_caller_is_not_in_the_way(function, verdict):
    with torch.inference_mode():
        inside = gradverify.check(function, [randn(3)])
        assert inside.verdict == verdict and torch.is_inference_mode_enabled()


@pytest.mark.parametrize(("function", "verdict"), [(torch.sin, "pass"), (Halved, "fail")])
def test_a_default_device_is_the_functions_and_not_in_our_way(function, verdict):
    seen = set()

    def asks(x):
        seen.add(torch.empty(1).device.type)
        return function.apply(x) if function is Halved else function(x)

    x = randn(3)
    with torch.device("meta"):
        assert gradverify.check(asks, [x]).verdict == verdict
        assert torch.get_default_device().type == "meta"
    assert seen == {"meta"}


def test_a_tensor_alone_is_the_only_input_and_what_is_no_list_is_refused():
    assert gradverify.check(torch.sin, randn(3)).ok and not gradverify.check(Halved, randn(3)).ok
    for inputs in (None, "abc", 3):
        with pytest.raises(TypeError, match="a list of the arguments, or a dict"):
            gradverify.check(torch.sin, inputs)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (((torch.rand(2),),), "a tuple: if it holds all the inputs, write"),
        (({"x": torch.rand(2)},), "a dict: "),
        ((torch.rand(2),), None),
        ((torch.rand(2), [torch.rand(2)]), None),
    ],
)
def test_inputs_handed_over_as_to_gradcheck_are_told_how_to_be_written(inputs, said):
    with pytest.raises(gradverify.GradientError) as caught:
        gradverify.assert_gradients(lambda *given: given[-1].no_such_method(), *inputs)
    assert (
        said in str(caught.value) if said else "forward got one argument" not in str(caught.value)
    )


def test_pytest_is_told_to_show_the_line_of_the_test_and_not_ours():
    with pytest.raises(gradverify.GradientError) as caught:
        gradverify.assert_gradients(lambda x: x.no_such_method(), torch.rand(2))
    assert [bool(entry.frame.f_locals.get("__tracebackhide__")) for entry in caught.traceback] == [
        False,
        True,
    ]
