"""The whole spec format, version 1, as models: the one definition, also of the published JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from gradverify.spec.schema_inputs import InputValue
from gradverify.spec.schema_json import published
from gradverify.spec.schema_settings import Settings
from gradverify.spec.values import UNSAID, Either, Numbers, Strict, Text

FORMAT_VERSION = 1
Version = Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION), WithJsonSchema({"type": "integer", "const": FORMAT_VERSION})]


class Check(Settings):
    """One check: a function, its inputs, what its gradient is compared with, and any setting."""

    name: Text = Field(UNSAID, description="Unique in the file; default: the function's own name.", examples=["linear without bias"])
    function: Text = Field(
        description="A built-in (`linear`), `module:attribute`, `module.attribute`, `file.py:attribute` relative to the spec, or `torch.ops.lib.op`.",
        examples=["linear", "my_ops.act:Swish", "../ops/act.py:Swish"])
    inputs: Annotated[dict[str, InputValue] | list[InputValue], Either("a mapping of names to values, or a list of values")] = Field(
        UNSAID, description="The arguments, in the order of the function's parameters. A mapping is a tensor, any other value is passed as it is. "
        "A module's parameters may be given here too, by their names (`layers.0.weight`).",
        examples=[{"x": {"shape": [2, 3]}, "n": 4}])
    inputs_from: Text = Field(
        UNSAID, description="A function of `seed, dtype, device` that returns the inputs as a tuple or a dict.", examples=["tests/make.py:inputs"])
    kwargs: dict[str, InputValue] = Field(
        {}, description="Arguments by keyword, plain values or tensors: a mapping is a tensor, as in `inputs`, and is differentiated likewise.",
        examples=[{"reduction": "mean", "mask": {"shape": [2, 3]}}])
    init: dict[str, Any] = Field(UNSAID, description="Arguments that build a `torch.nn.Module` class.", examples=[{"in_features": 3}])
    reference: Text = Field(
        UNSAID, description="Another implementation, called with the same arguments (a module's parameters by name), or a module; its "
        "values and gradients are compared too.",
        examples=["my_ops.plain:rms_norm"])
    expected: dict[str, Numbers] = Field(
        UNSAID, description="Gradients of sum(weights * output) as numbers, by input name; weights from `grad_output`.",
        examples=[{"x": [2.2, 110.0]}])
    grad_output: Numbers = Field(
        UNSAID, description="The weights of `expected`, nested like the output, or one number; of several outputs a list with an entry for "
        "each; default: ones.", examples=[[1.0, 0.5]])
    gradient: Text = Field(
        UNSAID, description="A hand-written gradient, in NumPy or torch: `fn(*inputs, grad_output) -> gradients`; with several outputs a "
        "`grad_output` for each.",
        examples=["my_ops.np:mul_backward"])
    surrogate: Text = Field(
        UNSAID, description="Another function whose finite differences count: for gradients meant to differ from the forward's.",
        examples=["my_ops.soft:step"])


class Spec(Strict):
    """A file that says which differentiable functions to check, on which inputs, how strictly."""

    gradverify: Version = Field(description="The format's version.", examples=[FORMAT_VERSION])
    path: Annotated[Text | list[Text], Either("a folder or a list of folders")] = Field(
        [], description="Folders, relative to the spec, that are importable while it runs.", examples=[["../src"]])
    imports: Annotated[Text | list[Text], Either("a module or a list of modules")] = Field(
        [], alias="import", description="Modules imported first, for operators that register themselves.", examples=[["my_ops_extension"]])
    defaults: Settings = Field(UNSAID, description="Settings of every check in the file that says nothing else.", examples=[{"dtype": "float64"}])
    checks: list[Check] = Field(description="The checks; an empty list is valid and checks nothing.", examples=[[{"function": "linear"}]])


def json_schema() -> dict[str, Any]:
    """The format as JSON Schema, draft-07: what `gradverify schema` prints and editors complete from."""
    return published(Spec)
