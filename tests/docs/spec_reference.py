"""docs/spec.md from the models: every key with its meaning, type, default and an example, so that
text and program cannot part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradverify.model.case import Json
from gradverify.spec.build import MAX_CASES
from gradverify.spec.fault import flow
from gradverify.spec.schema import (
    AsWritten,
    Budget,
    Check,
    Matrix,
    Nested,
    Rules,
    Settings,
    Sparse,
    Spec,
    Strict,
    Tensor,
)

INTRODUCTION = """
# The spec format, version 1

<!-- Generated from the models in gradverify/spec; edit those. -->

A spec is a YAML file that says which differentiable functions to check, on which inputs, how strictly.
`gradverify schema` prints this format as a JSON Schema, with which an editor completes and checks it.

```yaml
gradverify: 1

defaults:
  dtype: float64

checks:
  - name: linear
    function: linear
    inputs:
      input:  {shape: [2, 3]}
      weight: {shape: [4, 3]}
      bias:   null

  - name: rms norm at every shape the kernel special-cases
    function: my_ops.rms_norm:RMSNorm
    inputs:
      x:      {shape: [$rows, $width]}
      weight: {shape: [$width], uniform: [0.5, 1.5]}
      eps:    1e-5
    matrix:
      rows:   [1, 7]
      width:  [1, 127, 128, 129]
      device: [cpu, cuda]
    reference: my_ops.plain:rms_norm
```
"""

FUNCTION_FORMS = """
### What `function` can name

| form | example |
| --- | --- |
| a built-in (`gradverify list --functions`) | `linear` |
| an attribute of an importable module | `my_ops.act:Swish`, `my_ops.act.Swish`, `torch.nn.functional:gelu` |
| an attribute of a Python file, relative to the spec | `../ops/act.py:Swish` |
| a registered operator, with or without its overload | `torch.ops.my_lib.roi_align`, `torch.ops.aten.mul.Tensor` |

A subclass of `torch.autograd.Function` (called through `.apply`), any callable, a `torch.nn.Module` class (built with `init`; its
parameters become inputs) or an instance. `reference`, `gradient`, `surrogate` and `inputs_from` are written the same way; `reference`
may be a built-in too. While the spec runs, modules are looked for in every `path`, in the spec's folder, in the folder of the nearest
`pyproject.toml` above it, and in the current folder, in this order. Modules there win over
installed ones, but not over Python's own, nor over what is imported already (torch and what it needs): a spec that names such a module
gets GV001, and can name the file instead (`random.py:f`).

A module is cast to the check's dtype: what is complex in it stays complex, of that precision; in a complex check real parameters become
complex too, unless some are complex already. Hooks on modules and those that `register_hook` put on parameters run as in training.

### Inputs

A mapping is a tensor; any other value (`4`, `null`, `true`, `mean`, `[2, 3]`) is passed as it is. Inputs are passed in the order they are
written. A plain list works too: the names are then read from the signature. A list of tensor mappings is a list of tensors (for `torch.cat`
and its like), whose elements are named `tensors[0]`, `tensors[1]`.

`kwargs` passes by keyword: `kwargs: {eps: 1e-5, mask: {shape: [2, 3]}}`. What is written there is read as in `inputs`: a mapping is a tensor and
is differentiated, with all keys of a tensor. An autograd Function has no keywords: its `apply` takes positional arguments.

A function that makes inputs (`inputs_from`, `make`) may put tensors into dicts, lists, tuples, namedtuples and dataclasses, inside one another
too. Each is an input of its own, named by its path: `state.h`, `xs[0]`, `batch.pair[1]`; the function gets the container with the tensors
of each call in it. Tensors inside other objects cannot be taken out: they are not differentiated, which a warning (GV008) says. Where any
tensor that `inputs_from` returns has `requires_grad`, these are the ones differentiated; where none has, all floating and complex ones are.
What it names in a dict and the function takes by keyword only is passed by keyword.
"""

NUMBERS = """
A tensor has at most one of `normal`, `uniform`, `integers`, `choice`, `linspace`, `fill`, `values`, `file`, `kind` and `make`; with none of them
it is a standard normal. A complex number in `fill`, `values` or `expected` is written as text: `'1+2j'`; it needs a complex dtype.

Draws depend on `seed`, the check's name (without its matrix part) and the input's name, on nothing else: not on device, dtype, the order
of checks or the number of workers.
"""

STRUCTURES = """
### Kinds

| kind | what is drawn |
| --- | --- |
| `spd` | symmetric (complex: Hermitian) positive definite matrices, their eigenvalues at least 1/2; `symmetric` is implied |
| `orthogonal` | orthonormal columns, or rows where there are more columns than rows; complex: unitary |
| `lower_triangular` | zero above the diagonal, at least 1/2 on it |
| `simplex` | rows (of the last dimension) that are positive and add up to one |
| `unit_vector` | rows of length one |
| `permutation` | rows that hold 0 … n − 1 in random order; int64 unless `dtype` says otherwise |
| `one_hot` | rows that hold a single one, in the check's dtype |
| `mask` | booleans, at least one of each row true; `dtype` may say otherwise |

### Layouts

| layout | how it lies in memory |
| --- | --- |
| `contiguous` | row by row, without gaps |
| `transposed` | the last two dimensions the other way round |
| `strided` | every second number of a larger tensor; the gaps hold other numbers |
| `offset` | one element behind the beginning of its storage, so that wide loads are not aligned |
| `expanded` | one slice along the first dimension, repeated with stride 0 |
| `channels_last` | the channels innermost; four or five dimensions |

The elements of an expanded tensor cannot move apart: the Jacobian is measured on a contiguous copy, and the expanded tensor goes through one
forward and one backward. In a matrix, `layout` is that of every input tensor that names none and has the dimensions for it.
"""

FORMS = """
The numbers of a sparse input are drawn as those of a dense one of its shape, and zeros put where it holds nothing; an element has its dense index in
everything that is printed, and in `--element`. The gradient that `backward` returns may be sparse or dense, as autograd takes it: it is read at the
elements that are held. A sparse output is compared as the dense tensor that it represents, a jagged one by its values. Rules on memory layouts and
on other modes of torch (forward mode, double backward, vmap) pass over such checks and say so.

The numbers of a nested input have the `shape`, all rows one after the other: `x[4,1]` is an element of row 4 of all. Inputs of the same lengths share
their offsets, so that they can be added.
"""

MATRIX = """
Every combination of a matrix's values is one case, named `linear[rows=7,width=128]`. A variable that has the name of a setting sets that setting;
any other is written `$name` wherever its value belongs, as a whole value: `shape: [$rows, 3]`, `reference: $reference`. A text that
begins with a dollar sign and looks like a variable is written with two: `$$name`. At most MAX_CASES cases come from one check.

```yaml
gradverify: 1
checks:
  - function: mm
    inputs:
      x: {shape: [$rows, $inner]}
      w: {shape: [$inner, 3]}
    matrix:
      rows:  [1, 7]
      inner: [1, 128]
      dtype: [float64, complex128]
      exclude: [{rows: 1, inner: 1}]
```

Where a setting is given more than once, the later one counts: gradverify's defaults, `[tool.gradverify.defaults]` of pyproject.toml, the spec's
`defaults`, the check, its matrix, the command line. `gradverify check -v` shows for each setting that somebody named which place counts.
"""

CLOSING = """
## YAML as it is read

Numbers are YAML 1.2 numbers: `1e-6` is a number, `010` is ten, `1:30` is text. `no` and `off` are text, only `true` and `false` are booleans.
A file is one UTF-8 document of at most 1 MiB and 100,000 values (aliases expanded). Anchors, aliases and merge keys (`<<`) work; duplicate keys,
tabs as indentation, tags (`!!int`, `!!python/…`) and keys that are not text are errors. Nothing in a spec is evaluated.

## Errors

A spec that cannot be used is reported with every problem of every file: file, line, column, the path inside the document, what was found, what
is allowed, and the nearest valid name for a misspelling. Of one check its `matrix` is read first, then the types of its values, then whether
they make sense together; a later step is left out where an earlier one finds something. The exit code is 2, and nothing runs.

```yaml
# file: wrong.yaml
gradverify: 1
checks:
  - function: mul
    inputs:
      x: {shape: [2, three]}
      y: {shap: [2, 3]}
```

```console
$ gradverify validate wrong.yaml
wrong.yaml:6:22: checks[0].inputs.x.shape[1]: expected an integer, got 'three'
          x: {shape: [2, three]}
                         ^
wrong.yaml:7:11: checks[0].inputs.y.shap: unknown key 'shap'; did you mean 'shape'?
          y: {shap: [2, 3]}
              ^
1 spec, 0 checks: 2 problems
```
"""


Schema = Mapping[str, Any]
LIMITS = {"exclusiveMinimum": "> {}", "minimum": "≥ {}"}
INPUTS = "mapping of names to tensors or plain values, or list of them"
MANY = {
    "integer": "integers",
    "number": "numbers",
    "text": "texts",
    "check": "checks",
    "mapping": "mappings",
}
HUGE = 2**62  # a bound beyond it is int64's own, and says nothing to a reader


def reference() -> str:
    """The whole reference as Markdown."""
    sections = (
        INTRODUCTION,
        _section("The file", Spec),
        _section("A check", Check, without=tuple(Settings.model_fields)),
        FUNCTION_FORMS,
        _section("A tensor input", Tensor),
        NUMBERS,
        STRUCTURES,
        _section("`sparse`", Sparse, level=3),
        _section("`nested`", Nested, level=3),
        FORMS,
        _section("Settings", Settings),
        _section("`rules`", Rules, level=3),
        _section("`budget`", Budget, level=3),
        _section("`matrix`", Matrix, level=3),
        MATRIX.replace("MAX_CASES", f"{MAX_CASES:,}"),
        CLOSING,
    )
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _section(
    title: str,
    model: type[Strict],
    *,
    without: tuple[str, ...] = (),
    level: int = 2,
) -> str:
    schema = model.model_json_schema(schema_generator=AsWritten)
    keys = {name: body for name, body in schema["properties"].items() if name not in without}
    rows = [_row(name, body, schema) for name, body in keys.items()]
    head = ("| key | value | default | meaning | example |", "| --- | --- | --- | --- | --- |")
    return "\n".join((f"{'#' * level} {title}", "", schema["description"], "", *head, *rows))


def _row(name: str, body: Schema, schema: Schema) -> str:
    required = name in schema.get("required", ())
    default = (
        "required"
        if required
        else "–"
        if body.get("default") in (None, [], {})
        else _code(body["default"])
    )
    meaning = body.get("description", "")
    example = _code(body["examples"][0]) if "examples" in body else ""
    words = INPUTS if name == "inputs" else _type(body, schema)
    return (
        "| "
        + " | ".join(_cell(text) for text in (f"`{name}`", words, default, meaning, example))
        + " |"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(value: Json) -> str:
    """A value as it is written in YAML's flow style."""
    return f"`{_flow(value)}`"


def _flow(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return value if isinstance(value, str) else flow(value)


def _type(body: Schema, schema: Schema) -> str:
    """What a key accepts, in words."""
    return ", or ".join(dict.fromkeys(_words(body, schema)))


def _words(body: Schema, schema: Schema) -> Iterator[str]:
    branches = body.get("anyOf") or body.get("oneOf") or body.get("allOf")
    if branches:
        for branch in branches:
            yield from _words(branch, schema)
    elif "$ref" in body:
        yield body["$ref"].rsplit("/", 1)[-1].lower()
    elif "enum" in body or "const" in body:
        yield ", ".join(_code(value) for value in body.get("enum", [body.get("const")]))
    else:
        yield _plain_words(body, schema)


def _many(items: Schema, schema: Schema) -> str:
    first, *rest = _type(items, schema).split(" ") if items else ["values"]
    return " ".join((MANY.get(first, first), *rest))


def _plain_words(body: Schema, schema: Schema) -> str:
    kind = body.get("type", "any value")
    if isinstance(kind, list):
        return "plain value"
    if kind == "array":
        count = (
            f"{body['minItems']} "
            if body.get("minItems") == body.get("maxItems") and "minItems" in body
            else ""
        )
        return f"list of {count}{_many(body.get('items', {}), schema)}"
    if kind == "object":
        inner = body.get("additionalProperties")
        return (
            f"mapping of names to {_type(inner, schema)}" if isinstance(inner, dict) else "mapping"
        )
    limits = [
        text.format(body[key])
        for key, text in LIMITS.items()
        if key in body and abs(body[key]) < HUGE
    ]
    words = {
        "string": "text",
        "boolean": "`true`, `false`",
        "number": "number",
        "integer": "integer",
        "numbers": "nested numbers",
    }
    return " ".join((words.get(str(kind), str(kind)), *limits))
