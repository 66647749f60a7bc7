"""The whole spec format, version 1, as models: the only definition, also of the published JSON
Schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    WithJsonSchema,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gradverify.model.case import DrawKind, Kind, Layout, ModeSetting, SparseLayout
from gradverify.model.dtypes import Dtype, Floating

NO_DEFAULT: Any = None
"""The default of a key whose absence has another meaning than any of its values."""

COMPLEX = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
COMPLEX_NUMBER = re.compile(rf"(?:{COMPLEX}(?=[-+]))?(?:{COMPLEX})[jJ]")
INT64 = 2**63

Integer = Annotated[int, Field(ge=-INT64, lt=INT64)]
NotNegativeInteger = Annotated[int, Field(ge=0, lt=INT64)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Attribute = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:[0-9]+)?|auto)$")]

NESTED = "numbers"
"""The type name that stands for the recursive definition in the published schema; the elements are
checked in build.py."""

Numbers = Annotated[Any, WithJsonSchema({"type": NESTED})]


def key(meaning: str, *examples: Any, default: Any = NO_DEFAULT, **more: Any) -> Any:
    """Return the field of a key of the format: its meaning, and examples of values."""
    return Field(default, description=meaning, examples=list(examples) or None, **more)


class Strict(BaseModel):
    """A model that rejects unknown keys and converts nothing: neither `true` nor `"1"` is a
    number."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=False)

    def given(self) -> dict[str, Any]:
        """Return the values that were given, in the order of the format."""
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set
        }


class Either:
    """A union whose branch is chosen by the kind of the value (text, number, list, mapping, bool),
    so that only one branch reports errors.

    `expects`: all branches, in words, for the message. It is part of the branch's tag, which is all
    that pydantic's error contains of it.
    """

    def __init__(self, expects: str) -> None:
        self.expects = expects

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        tags = {
            _kind(_class_of(member)): f"<{self.expects}>{number}"
            for number, member in enumerate(get_args(source))
        }
        choices = {
            tag: handler.generate_schema(member)
            for tag, member in zip(tags.values(), get_args(source), strict=True)
        }
        chosen: Callable[[Any], str | None] = lambda value: tags.get(_kind(type(value)))  # noqa: E731 - one expression, named for its type
        return core_schema.tagged_union_schema(
            choices,
            discriminator=chosen,
            custom_error_type="expected",
            custom_error_message=self.expects,
        )


def is_tag(part: str | int) -> bool:
    """Return whether a part of pydantic's location is a branch's tag, not a key."""
    return isinstance(part, str) and part.startswith("<")


def _kind(cls: type) -> str:
    """Return the kind of a class: text, bool, number, list, mapping or null."""
    kinds = {
        str: "text",
        bool: "bool",
        int: "number",
        float: "number",
        list: "list",
        tuple: "list",
        dict: "mapping",
        BaseModel: "mapping",
    }
    return next((kind for base, kind in kinds.items() if issubclass(cls, base)), "null")


def _class_of(member: Any) -> type:
    origin = get_origin(member)
    if origin is Annotated:
        return _class_of(get_args(member)[0])
    return type(get_args(member)[0]) if origin is Literal else origin or member


Auto: TypeAlias = Literal["auto"]


DRAWS: tuple[DrawKind, ...] = get_args(DrawKind)
"""The keys that give the source of a tensor's numbers; one tensor has at most one."""

FinitePair = Annotated[list[Finite], Field(min_length=2, max_length=2)]
Bounds = Annotated[list[float], Field(min_length=2, max_length=2)]
"""A pair that may be open-ended: `[0, .inf]`."""


class Sparse(Strict):
    """A sparse tensor; `{}` is COO with half of its elements."""

    layout: SparseLayout = key(
        "How it is stored; all but `coo` have two dimensions.", "csr", default="coo"
    )
    density: Annotated[float, Field(gt=0, le=1)] = key(
        "The share of the elements (of the blocks) that it holds, in random places, at least one; "
        "default 0.5. With `values` and `file` it holds those that are not 0.",
        0.3,
    )
    blocksize: Annotated[
        list[Annotated[int, Field(gt=0, lt=INT64)]], Field(min_length=2, max_length=2)
    ] = key("Rows and columns of a block of `bsr` and `bsc`, which must divide the shape.", [2, 3])
    masked: bool = key(
        "Only the elements that it holds are moved, and gradients elsewhere do not count. `false`: "
        "it holds"
        " all elements of its shape, zeros included, as `torch.sparse.as_sparse_gradcheck` has it.",
        False,
        default=True,
    )


class Nested(Strict):
    """A jagged nested tensor."""

    lengths: Annotated[list[NotNegativeInteger], Field(min_length=1)] = key(
        "How many rows of `shape` each component has; they add up to the first dimension.",
        [2, 0, 3],
        default=...,
    )


class Tensor(Strict):
    """One tensor: `{shape: [2, 3]}` draws a standard normal one."""

    shape: list[NotNegativeInteger] = key(
        "Its shape; `[]` is 0-dim, zero-size dimensions are allowed. Left out with `values` and "
        "`file`.",
        [2, 3],
    )
    normal: FinitePair = key(
        "Drawn from a normal distribution: `[mean, std]`.", [0, 1], default=[0.0, 1.0]
    )
    uniform: FinitePair = key("Drawn uniformly: `[low, high]`.", [0.5, 1.5])
    integers: Annotated[list[Integer], Field(min_length=2, max_length=2)] = key(
        "Whole numbers: `[low, high]`, high excluded; int64 unless `dtype` says otherwise.", [0, 10]
    )
    choice: list[Finite] = key("Each element is one of these numbers.", [-1, 1], min_length=1)
    linspace: FinitePair = key(
        "Evenly spaced from a to b, both included: `[a, b]`; one dimension.", [-3, 3]
    )
    fill: Annotated[float | str, Either("a number, or a complex number such as '1+2j'")] = key(
        "Every element is this number.", 0.5
    )
    values: Numbers = key(
        "The numbers themselves, nested like the tensor, in its `dtype` (whole ones too); complex "
        "ones as text: `'1+2j'`.",
        [[2.0, 1.5], [1.0, 2.0]],
    )
    file: Text = key(
        "A file of numbers, relative to the spec: `.npy`, `.npz#key` or `.pt`; no code in it is "
        "run.",
        "data.npy",
        "data.npz#weight",
    )
    kind: Kind = key("A structured draw, see below.", "spd")
    make: Text = key(
        "Drawn by your own function `(shape, dtype, device, generator) -> Tensor`, called with "
        "float64 (or complex128) and the CPU; its numbers are then cast and moved.",
        "my_ops.testing:make_graph",
    )
    avoid: Annotated[float | list[Finite], Either("a number or a list of numbers")] = key(
        "Redraw elements nearer than `margin` to this number, or to one of these: keeps samples "
        "off kinks.",
        0,
    )
    margin: Positive = key("How near is too near for `avoid`.", 0.1, default=0.1)
    distinct: Positive = key(
        "All elements pairwise at least this far apart (sort, max, top-k).", 0.05
    )
    dtype: Dtype = key(
        "Overrides the check's dtype; integer and boolean types are not differentiated.", "int64"
    )
    device: Device = key("Overrides the check's device.", "cpu")
    requires_grad: bool = key(
        "Whether it is differentiated; default: true for floating and complex tensors.", False
    )
    layout: Layout = key(
        "The same numbers in another memory layout, in every call, see below.",
        "transposed",
        default="contiguous",
    )
    domain: Bounds = key(
        "Where the function is defined; steps stay inside, one-sided at the border. `.inf` for no "
        "bound.",
        [0, 1],
    )
    symmetric: bool = key(
        "The function reads a symmetric (complex: Hermitian) matrix: off-diagonal elements move "
        "in pairs.",
        True,
        default=False,
    )
    sparse: Sparse = key(
        "The function gets a sparse tensor, see below.", {"layout": "csr", "density": 0.3}
    )
    nested: Nested = key(
        "The function gets a jagged nested tensor, see below.", {"lengths": [2, 0, 3]}
    )


def form(value: Any) -> str:
    """Return the branch of an input value: a mapping is a tensor, a list with a mapping in it a
    list of tensors, any other value is passed unchanged."""
    if isinstance(value, dict | Tensor):
        return "<tensor>"
    if isinstance(value, list) and any(isinstance(item, dict | Tensor) for item in value):
        return "<tensors>"
    return "<plain>"


PLAIN = ["null", "boolean", "number", "string", "array"]
# A list with a mapping in it is a list of tensors
Plain = Annotated[Any, WithJsonSchema({"type": PLAIN, "items": {"type": PLAIN}})]
InputValue: TypeAlias = Annotated[
    Annotated[Tensor, Tag("<tensor>")]
    | Annotated[list[Tensor], Tag("<tensors>")]
    | Annotated[Plain, Tag("<plain>")],
    Discriminator(form),
]


Tristate: TypeAlias = Annotated[bool | Auto, Either("auto, true or false")]
Code = Annotated[str, Field(pattern=r"^GV[0-9]{3}$")]
CodePrefix = Annotated[str, Field(pattern=r"^GV[0-9]{0,3}$")]
Requirement = Annotated[str, Field(pattern=r"^(cuda(:[0-9]+)?|module:[A-Za-z_][\w.]*)$")]
TagName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.-]*$")]


class Budget(Strict):
    """What one check may spend: its comparison under `mode: auto`, and rules that vary the call."""

    calls: Annotated[int, Field(gt=0)] = key(
        "Calls at most, after a few dozen that prepare the comparison, whose cheapest form is "
        "always made.",
        2000,
    )
    seconds: Positive = key(
        "Seconds, every call counted as long as the fastest one took.", 10, default=10.0
    )


class Rules(Strict):
    """Which rules run: codes (`GV201`) or prefixes (`GV2`)."""

    select: list[CodePrefix] = key(
        "Only these rules run; none named: all that apply.", ["GV1", "GV201"], default=[]
    )
    ignore: list[CodePrefix] = key("These rules do not run.", ["GV224"], default=[])


class RunSettings(Strict):
    """How one check is run: what `[tool.gradverify.defaults]` may hold."""

    dtype: Floating = key(
        "The dtype of every tensor that names none.", "float32", default="float64"
    )
    device: Device = key(
        "`cpu`, `cuda`, `cuda:1`, or `auto` (CUDA where there is one).", "cuda", default="cpu"
    )
    seed: NotNegativeInteger = key("What every draw starts from.", 0, default=0)
    eps: Annotated[Positive | Auto, Either("a number greater than 0, or auto")] = key(
        "Finite-difference step. A number is used exactly as given (gradcheck's rule); `auto` "
        "chooses it and extrapolates.",
        1e-6,
        default="auto",
    )
    atol: NotNegative = key(
        "Accepted absolute deviation; default 0, with `eps: <number>` 1e-5.", 1e-4
    )
    rtol: NotNegative = key(
        "Accepted relative deviation; default 1e-6 (float32: 1e-3), with `eps: <number>` 1e-3.",
        1e-3,
    )
    mode: ModeSetting = key(
        "`entries`: every element of the Jacobian; `rows`: every output element against random "
        "directions; `blocks`: random projections; `auto`: the strongest that `budget` affords.",
        "entries",
        default="auto",
    )
    budget: Budget = key("What one check may spend; default: 10 seconds.", {"seconds": 10})
    rules: Rules = key("Which rules run; default: all that apply.", {"ignore": ["GV224"]})
    second_order: Tristate = key(
        "Check second derivatives (GV109): `auto` warns where they are silently wrong; `true`: "
        "they must be right, and a backward that refuses them is a finding; `false` not.",
        True,
        default="auto",
    )
    forward_ad: Tristate = key(
        "Check forward mode (GV108): `auto` where it is supported; `true`: a missing `jvp` is a "
        "finding; `false` not.",
        True,
        default="auto",
    )
    vmap: Tristate = key(
        "Check `torch.vmap` (GV110): `auto` where a rule is declared; `true`: a missing one is a "
        "finding; `false` not.",
        True,
        default="auto",
    )
    opcheck: Tristate = key(
        "Test a registered operator as `torch.library.opcheck` does (GV115): `auto` warns where "
        "it is not what its registration says; `true`: that is an error, and so is a missing fake "
        "kernel; `false` not.",
        True,
        default="auto",
    )
    compile: bool = key(
        "Compare the function called through `torch.compile` (backend `aot_eager`) with the eager "
        "one (GV116).",
        True,
        default=False,
    )
    autocast: Literal["bfloat16", "float16"] | None = key(
        "Compare the function inside `torch.autocast` in this dtype with the one outside; needs "
        "`dtype: float32` (GV117).",
        "bfloat16",
        default=None,
    )
    tf32: bool = key(
        "Compare the function with products of float32 in TF32, which checks compute without, "
        "with the one in all bits; needs `dtype: float32` (GV119).",
        True,
        default=False,
    )
    reduced_sums: bool = key(
        "Compare the function with products of 16 bits summed in fewer bits (torch's "
        "`allow_bf16_reduced_precision_reduction` and the like) with the one without; needs "
        "`dtype: bfloat16` or `float16` (GV119).",
        True,
        default=False,
    )
    nondeterminism: NotNegative = key(
        "Largest difference between two identical calls that is accepted.", 0, default=0.0
    )
    deterministic: bool = key(
        "Identical calls must give the same bits: any difference, forward or backward, is an "
        "error (GV205, GV206).",
        True,
        default=False,
    )
    reseed: bool = key(
        "Set torch's generator to the check's seed before every forward, so that random functions "
        "can be checked.",
        True,
        default=True,
    )
    strict: bool = key("Warnings are errors.", True, default=False)
    poison: bool = key(
        "In every call that is compared, and not only in the first ones, uninitialised memory "
        "holds NaN or large numbers, and tensors lie between guard bytes (GV231, GV232).",
        True,
        default=False,
    )
    outputs: Annotated[list[NotNegativeInteger], Field(min_length=1)] = key(
        "Which outputs to check; default: all differentiable.", [0]
    )
    timeout: Positive = key("Seconds for one case.", 300, default=300.0)


class Matrix(Strict):
    """Variables and their values; every combination is one case."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[list[Any], Field(min_length=1)]]

    exclude: list[dict[str, Any]] = key(
        "Combinations to leave out.", [{"rows": 1, "width": 127}], default=[]
    )
    layout: list[Layout] = key(
        "A memory layout for every tensor input.", ["contiguous", "transposed"], min_length=1
    )


class Settings(RunSettings):
    """Everything that `defaults` may hold, and that a check may override."""

    expect: Annotated[
        Literal["pass", "fail"] | Annotated[list[Code], Field(min_length=1)],
        Either("pass, fail or a list of rule codes"),
    ] = key(
        "`pass`, `fail`, or exactly the rules that fail; an expected failure that does not happen "
        "is a failure.",
        ["GV201"],
        default="pass",
    )
    matrix: Matrix = key(
        "Variables and their values; a name that is a setting sets it, any other is written "
        "`$name` where it is used.",
        {"rows": [1, 7], "dtype": ["float64", "float32"]},
    )
    tags: list[TagName] = key("Words to select checks by.", ["slow"], default=[])
    skip: Text = key("Why the check does not run.", "needs the new kernel")
    requires: list[Requirement] = key(
        "What must be there, else the check is skipped.", ["cuda", "module:triton"], default=[]
    )
    sources: list[Text] = key(
        "Files outside Python that the check depends on, as globs relative to the spec: a change "
        "to one of "
        "them affects the check. `**` is any number of folders, a folder means all in it.",
        ["../csrc/*.cu"],
        default=[],
    )


Schema = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"
NUMBERS = {
    "description": "A number, a complex number as text, or lists of them nested like the tensor.",
    "anyOf": [
        {"type": ["number", "boolean"]},
        {"type": "string", "pattern": f"^{COMPLEX_NUMBER.pattern}$"},
        {"type": "array", "items": {"$ref": "#/definitions/numbers"}},
    ],
}
VARIABLE = {
    "type": "string",
    "pattern": r"^\$[A-Za-z_][A-Za-z0-9_]*$",
    "description": "A matrix variable.",
}
# The definitions inside a check, in which `$name` is allowed
OPEN = ("Check", "Tensor", "Sparse", "Nested", "Rules", "Budget")
CLOSED = {"Check": {"name", "matrix"}}  # the keys of those in which it is not
ANNOTATIONS = ("description", "examples", "default")


class AsWritten(GenerateJsonSchema):
    """A generator that keeps the order of keys and examples: inputs are passed in order, so the
    order of an example matters."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value


def published(model: type[BaseModel]) -> Schema:
    """Return the draft-07 schema of a model and all its parts."""
    schema = _draft7(model.model_json_schema(schema_generator=AsWritten))
    definitions = schema.pop("definitions") | {"numbers": NUMBERS, "variable": VARIABLE}
    for name in OPEN:
        keys = definitions[name]["properties"]
        keys |= {
            key: _or_variable(value)
            for key, value in keys.items()
            if key not in CLOSED.get(name, ())
        }
    return {
        "$schema": DIALECT,
        "title": "gradverify spec",
        **schema,
        "definitions": dict(sorted(definitions.items())),
    }


def _draft7(node: Any) -> Any:
    """Return a schema with `$defs` renamed, references without siblings (which draft-07 ignores),
    and without pydantic's titles and null defaults."""
    if isinstance(node, list):
        return [_draft7(item) for item in node]
    if not isinstance(node, dict):
        return node.replace("#/$defs/", "#/definitions/") if isinstance(node, str) else node
    renamed = {
        {"$defs": "definitions", "oneOf": "anyOf"}.get(key, key): _draft7(value)
        for key, value in node.items()
        if not ((key == "title" and isinstance(value, str)) or (key == "default" and value is None))
    }
    if renamed.get("type") == NESTED:
        renamed["$ref"] = "#/definitions/" + renamed.pop("type")
    if "$ref" in renamed and len(renamed) > 1:
        renamed["allOf"] = [{"$ref": renamed.pop("$ref")}]
    return renamed


def _or_variable(schema: Schema) -> Schema:
    """Return a schema that also allows a variable in place of the value or of any part of it;
    descriptions stay at the top, where editors read them."""

    def within(part: Schema) -> Schema:
        opened = {
            key: _or_variable(part[key])
            for key in ("items", "additionalProperties")
            if isinstance(part.get(key), dict)
        }
        return (
            part
            | opened
            | ({"anyOf": [within(each) for each in part["anyOf"]]} if "anyOf" in part else {})
        )

    notes = {key: value for key, value in schema.items() if key in ANNOTATIONS}
    rest = within({key: value for key, value in schema.items() if key not in ANNOTATIONS})
    choices = rest["anyOf"] if set(rest) == {"anyOf"} else [rest]
    variable = {"$ref": "#/definitions/variable"}
    if rest:
        return notes | {"anyOf": [choice for choice in choices if choice != variable] + [variable]}
    return notes


FORMAT_VERSION = 1
Version = Annotated[
    int,
    Field(ge=FORMAT_VERSION, le=FORMAT_VERSION),
    WithJsonSchema({"type": "integer", "const": FORMAT_VERSION}),
]


class Check(Settings):
    """One check: a function, its inputs, what its gradient is compared with, and any setting."""

    name: Text = key("Unique in the file; default: the function's own name.", "linear without bias")
    function: Text = key(
        "A built-in (`linear`), `module:attribute`, `module.attribute`, `file.py:attribute` "
        "relative to the spec, or `torch.ops.lib.op`.",
        "linear",
        "my_ops.act:Swish",
        "../ops/act.py:Swish",
        default=...,
    )
    inputs: Annotated[
        dict[str, InputValue] | list[InputValue],
        Either("a mapping of names to values, or a list of values"),
    ] = key(
        "The arguments, in the order of the function's parameters. A mapping is a tensor, any "
        "other value is passed as it is. A module's parameters may be given here too, by their "
        "names (`layers.0.weight`).",
        {"x": {"shape": [2, 3]}, "n": 4},
    )
    inputs_from: Text = key(
        "A function of `seed, dtype, device` that returns the inputs as a tuple or a dict.",
        "tests/make.py:inputs",
    )
    kwargs: dict[str, InputValue] = key(
        "Arguments by keyword, plain values or tensors: a mapping is a tensor, as in `inputs`, "
        "and is differentiated likewise.",
        {"reduction": "mean", "mask": {"shape": [2, 3]}},
        default={},
    )
    init: dict[str, Any] = key(
        "Arguments that build a `torch.nn.Module` class.", {"in_features": 3}
    )
    reference: Text = key(
        "Another implementation, called with the same arguments (a module's parameters by name), "
        "or a module; its values and gradients are compared too.",
        "my_ops.plain:rms_norm",
    )
    expected: dict[str, Numbers] = key(
        "Gradients of sum(weights * output) as numbers, by input name; weights from `grad_output`.",
        {"x": [2.2, 110.0]},
    )
    grad_output: Numbers = key(
        "The weights of `expected`, nested like the output, or one number; of several outputs a "
        "list with an entry for each; default: ones.",
        [1.0, 0.5],
    )
    gradient: Text = key(
        "A hand-written gradient, in NumPy or torch: `fn(*inputs, grad_output) -> gradients`; "
        "with several outputs a `grad_output` for each.",
        "my_ops.np:mul_backward",
    )
    gradients: dict[str, Attribute] = key(
        "Inputs or parameters whose gradient backward adds to an attribute of the tensor, by name; "
        "it is zero before each backward.",
        {"weight": "main_grad"},
        default={},
    )
    surrogate: Text = key(
        "Another function whose finite differences count: for gradients meant to differ from the "
        "forward's.",
        "my_ops.soft:step",
    )


class Spec(Strict):
    """A file that says which differentiable functions to check, on which inputs, how strictly."""

    gradverify: Version = key("The format's version.", FORMAT_VERSION, default=...)
    path: Annotated[Text | list[Text], Either("a folder or a list of folders")] = key(
        "Folders, relative to the spec, that are importable while it runs.", ["../src"], default=[]
    )
    imports: Annotated[Text | list[Text], Either("a module or a list of modules")] = key(
        "Modules imported first, for operators that register themselves.",
        ["my_ops_extension"],
        default=[],
        alias="import",
    )
    defaults: Settings = key(
        "Settings of every check in the file that says nothing else.", {"dtype": "float64"}
    )
    checks: list[Check] = key(
        "The checks; an empty list is valid and checks nothing.",
        [{"function": "linear"}],
        default=...,
    )


def json_schema() -> dict[str, Any]:
    """Return the format as JSON Schema, draft-07, which `gradverify schema` prints and editors use
    for completion."""
    return published(Spec)
