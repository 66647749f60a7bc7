"""Elements by their names, and one clear sentence for what is no element."""

import pytest
import torch
from live import Argument, case, randn

from gradverify.element.explain import input_element, output_element, pair_of
from gradverify.evidence import Evidence
from gradverify.model.element import Place
from gradverify.model.problem import ProblemsError
from gradverify.subject.subject import Subject
from gradverify.subject.target import live


def of(function, *arguments, **settings):
    """Evidence with arguments as they are given: names and all."""
    return Evidence(
        Subject(case(**settings), live("live", function, None, torch.float64), arguments, {})
    )


def argument(name, value, **changes):
    return Argument(name, value, changes.pop("differentiable", True), **changes)


LINEAR = (
    argument("x", randn(2, 4)),
    argument("w", randn(3, 4, seed=1)),
    argument("index", torch.tensor([1]), differentiable=False),
)


def linear(x, w, index):
    return torch.nn.functional.linear(x, w), index, (x * 2).detach()


def refusal(call):
    with pytest.raises(ProblemsError) as raised:
        call()
    [problem] = raised.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("text", "tensor", "coordinate"),
    [("x[0,0]", 0, 0), ("x[1,2]", 0, 6), ("w[2,3]", 1, 11), (" w[ 2, 3 ] ", 1, 11)],
)
def test_an_element_of_an_input_is_its_place_in_row_major_order(text, tensor, coordinate):
    found = input_element(of(linear, *LINEAR), text)
    assert (found.tensor, found.coordinate) == (tensor, coordinate)


@pytest.mark.parametrize(("text", "coordinate"), [("y[0,0]", 0), ("y0[1,2]", 5)])
def test_an_element_of_an_output_is_named_with_or_without_its_number(text, coordinate):
    found = output_element(of(linear, *LINEAR), text)
    assert (found.name, found.coordinate) == ("y0", coordinate)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ww[0,0]", "no input 'ww'; did you mean 'w'?"),
        ("weights[0]", "no input 'weights'; inputs: x, w, index"),
        ("w[3,0]", "w[3,0] is no element: w has shape [3, 4], from w[0,0] to w[2,3]"),
        ("w[-1,0]", "w[-1,0] is no element: w has shape [3, 4]"),
        ("w[1]", "w[1] is no element: w has shape [3, 4]"),
        ("w", "w is no element: w has shape [3, 4]"),
        ("w[a,b]", "'w[a,b]': an index is whole numbers in brackets, such as [3,1]"),
        ("w[1,2].imag", "w[1,2] is real: leave out .imag"),
        ("index[0]", "index is not differentiated (int64); inputs that are: x, w"),
    ],
)
def test_an_input_that_is_no_element_is_refused(text, message):
    assert refusal(lambda: input_element(of(linear, *LINEAR), text)).startswith(
        f"--element: {message}"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("z[0]", "no output 'z'; outputs: y0, y1, y2"),
        ("y0[2,0]", "y0[2,0] is no element: y0 has shape [2, 3], from y0[0,0] to y0[1,2]"),
        ("y1[0]", "y1 is not compared: it is int64"),
        ("y2[0,0]", "y2 is not compared: it has no graph"),
    ],
)
def test_an_output_that_is_no_element_is_refused(text, message):
    assert refusal(lambda: output_element(of(linear, *LINEAR), text)) == f"--element: {message}"


def test_a_number_has_no_index_and_an_empty_tensor_no_element():
    seen = of(
        lambda a, b: a * b.sum(),
        argument("a", torch.tensor(2.0, dtype=torch.float64)),
        argument("b", torch.zeros(0, dtype=torch.float64)),
    )
    assert input_element(seen, "a").coordinate == 0 == input_element(seen, "a[]").coordinate
    assert "a has shape [], so it is a without an index" in refusal(
        lambda: input_element(seen, "a[0]")
    )
    assert "b has shape [0], and no elements" in refusal(lambda: input_element(seen, "b[0]"))


def test_a_complex_number_has_two_parts_and_one_must_be_named():
    seen = of(torch.square, argument("z", randn(2, dtype=torch.complex128)), dtype="complex128")
    assert [input_element(seen, f"z[1].{part}").coordinate for part in ("real", "imag")] == [2, 3]
    assert output_element(seen, "y[1].imag").place == Place("y0", (1,), "im")
    assert (
        refusal(lambda: input_element(seen, "z[1]"))
        == "--element: z[1] is complex: say z[1].real or z[1].imag"
    )


def symmetric(dtype=torch.float64):
    x = randn(3, 3, dtype=dtype)
    return of(
        lambda a: torch.linalg.eigvalsh(a),
        argument("a", x + x.mT.conj(), symmetric=True),
        dtype=str(dtype).removeprefix("torch."),
    )


def test_of_a_pair_in_a_symmetric_input_the_one_that_is_moved_is_asked_for():
    seen = symmetric()
    assert pair_of(seen, input_element(seen, "a[0,2]")) == Place("a", (2, 0))
    assert pair_of(seen, input_element(seen, "a[1,1]")) is None
    assert "a[1,1].imag is 0 in a Hermitian matrix" in refusal(
        lambda: input_element(symmetric(torch.complex128), "a[1,1].imag")
    )
    assert (
        refusal(lambda: input_element(seen, "a[2,0]"))
        == "--element: a is `symmetric`: a[2,0] moves together with a[0,2]; ask for that one"
    )


@pytest.mark.parametrize(
    ("text", "name", "coordinate"),
    [
        ("y.out[1,2]", "y.out", 5),
        ("y0[1,2]", "y.out", 5),
        ("y.aux[0][1]", "y.aux[0]", 1),
        ("y1[1]", "y.aux[0]", 1),
        ("y.aux[1]", "y.aux[1]", 0),
    ],
)
def test_an_output_of_a_dict_has_the_name_that_findings_give_it_and_its_number(
    text, name, coordinate
):
    def of_a_dict(x, w, index):
        y = torch.nn.functional.linear(x, w)
        return {"out": y, "aux": [y.sum(1), y.sum()]}

    found = output_element(of(of_a_dict, *LINEAR), text)
    assert (found.name, found.coordinate) == (name, coordinate)
    assert "no output 'z0'; outputs: y.out, y.aux[0], y.aux[1]" in refusal(
        lambda: output_element(of(of_a_dict, *LINEAR), "z0[0]")
    )
