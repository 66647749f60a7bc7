"""The arguments that a target wants, with all that its signature, its operator schema or its docstring says of them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from gradverify.source.functions import arguments_of
from gradverify.subject.find import returning
from gradverify.subject.lines import source_of
from gradverify.subject.target import Target
from gradverify.torch_private import OverloadPacket, python_behind, schema

# ---- What the body of a forward says about its arguments: how many dimensions one has, whether
# it is an index, a count, a word
INDEXING = {"gather": 1, "index_select": 1, "scatter": 1, "scatter_": 1, "scatter_add": 1, "scatter_add_": 1, "index_add": 1, "index_add_": 1,
            "index_copy": 1, "index_copy_": 1, "index_fill": 1, "scatter_reduce": 1, "scatter_reduce_": 1, "take_along_dim": 0, "take": 0}
"""Methods, and where among their arguments the index stands; in `torch.gather(x, dim, index)` one further."""
INDEXED_BY = {"one_hot": 0, "embedding": 0, "bincount": 0, "nll_loss": 1, "cross_entropy": 1}      # functions, and the place of their indices
COUNTING = {"range", "arange", "zeros", "ones", "empty", "eye", "full", "repeat_interleave"}
RANKS = {"conv1d": 3, "conv2d": 4, "conv3d": 5, "conv_transpose2d": 4, "unfold": 4, "pixel_shuffle": 4, "grid_sample": 4, "max_pool2d": 4,
         "avg_pool2d": 4, "bmm": 3, "mm": 2, "addmm": 2}
"""Functions of torch, and the dimensions of what they take first (convolutions: and second)."""


@dataclass(slots=True)
class Clues:
    """Of one argument. `ranks`: numbers of dimensions that the code unpacks or asserts; `least`: what it indexes needs at least."""

    ranks: set[int] = field(default_factory=set)
    least: int = 0
    tensor: bool = False
    index: bool = False
    whole: bool = False
    truth: bool = False
    optional: bool = False
    called: bool = False
    sequence: bool = False
    words: list[str] = field(default_factory=list)


def clues_of(function: Callable[..., Any]) -> Mapping[str, Clues]:
    """By argument; empty where the source cannot be read."""
    source = source_of(function)
    if source is None:
        return {}
    tree = source.tree
    names = [each.arg for each in ast.walk(tree.args) if isinstance(each, ast.arg)]
    found = {name: Clues() for name in names}
    for node in ast.walk(tree):
        for name, apply in _told(node):
            if name in found:
                apply(found[name])
    return found


Told = tuple[str, Callable[[Clues], None]]


def _told(node: ast.AST) -> Iterator[Told]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, _sets("tensor") if hasattr(Tensor, node.attr) else _nothing
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Assign):
        yield from _of_unpacking(node)
    elif isinstance(node, ast.Subscript):
        yield from _of_subscript(node)
    elif isinstance(node, ast.Compare):
        yield from _of_comparison(node)
    elif isinstance(node, ast.Assert):
        yield from _demanded(node.test, ast.Eq)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        if isinstance(node, ast.If) and any(isinstance(line, ast.Raise) for line in node.body):
            yield from _demanded(node.test, ast.NotEq)
        yield from ((name, _sets("truth")) for name in _bare(node.test))
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield from ((name, _sets("sequence")) for name in _bare(node.iter))
    elif isinstance(node, ast.Starred):
        yield from ((name, _sets("sequence")) for name in _bare(node.value))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield from ((name, _sets("tensor")) for side in (node.left, node.right) for name in _bare(side))


def _sets(what: str) -> Callable[[Clues], None]:
    return lambda clues: setattr(clues, what, True)


def _nothing(clues: Clues) -> None:
    pass


def _at_least(rank: int) -> Callable[[Clues], None]:
    def apply(clues: Clues) -> None:
        clues.least, clues.tensor = max(clues.least, rank), True

    return apply


def _of_rank(rank: int) -> Callable[[Clues], None]:
    def apply(clues: Clues) -> None:
        clues.ranks.add(rank)
        clues.tensor = True

    return apply


def _bare(node: ast.AST) -> Iterator[str]:
    """The name, also below `not`, `and`, `or`."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _bare(node.operand)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _bare(value)


def _of_call(node: ast.Call) -> Iterator[Told]:
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    if isinstance(function, ast.Name):
        yield function.id, _sets("called")
    on_torch = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in ("torch", "F", "th")
    if called in INDEXING:
        place = INDEXING[called] + on_torch
        yield from ((name, _sets("index")) for given in node.args[place:place + 1] for name in _bare(given))
        yield from ((name, _sets("whole")) for given in node.args[place - 1:place] for name in _bare(given) if place > on_torch)
    if called in INDEXED_BY:
        raw = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch"
        place = INDEXED_BY[called] + (raw and called == "embedding")        # torch.embedding(weight, indices)
        yield from ((name, _sets("index")) for given in node.args[place:place + 1] for name in _bare(given))
    if called in COUNTING:
        yield from ((name, _sets("whole")) for given in node.args for name in _bare(given))
    if called in ("cat", "stack", "len"):
        yield from ((name, _sets("sequence")) for given in node.args[:1] for name in _bare(given) if called != "len")
    if called in RANKS and not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"):
        given = node.args[:2] if called.startswith("conv") or called in ("bmm", "mm") else node.args[:1]
        yield from ((name, _of_rank(RANKS[called])) for each in given for name in _bare(each))
    if called == "size" and isinstance(function, ast.Attribute) and node.args:
        yield from ((name, _at_least(needed)) for name in _bare(function.value) for needed in _needed(node.args[0]))


def _of_unpacking(node: ast.Assign) -> Iterator[Told]:
    """`b, c, h, w = x.shape`."""
    target = node.targets[0]
    name = _shape_of(node.value)
    if name is not None and isinstance(target, (ast.Tuple, ast.List)):
        starred = any(isinstance(each, ast.Starred) for each in target.elts)
        yield name, _at_least(len(target.elts) - 1) if starred else _of_rank(len(target.elts))


def _shape_of(node: ast.AST) -> str | None:
    """The name whose `.shape` or `.size()` it is."""
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "size") and isinstance(node.value, ast.Name):
        return node.value.id
    return None


def _needed(place: ast.AST) -> Iterator[int]:
    """The dimensions that there must be for one of this number."""
    try:
        number = ast.literal_eval(place)
    except (ValueError, TypeError, SyntaxError):
        return
    if isinstance(number, int):
        yield number + 1 if number >= 0 else -number


def _of_subscript(node: ast.Subscript) -> Iterator[Told]:
    name = _shape_of(node.value)
    if name is not None:
        yield from ((name, _at_least(needed)) for needed in _needed(node.slice))
        return
    places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    yield from ((each.id, _sets("index")) for each in places if isinstance(each, ast.Name))
    if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Tuple):
        whole = [each for each in node.slice.elts if not (isinstance(each, ast.Constant) and each.value in (None, Ellipsis))]
        yield node.value.id, _at_least(len(whole))


def _of_comparison(node: ast.Compare) -> Iterator[Told]:
    right = node.comparators[0]
    for name in _bare(node.left):
        if isinstance(right, ast.Constant) and right.value is None:
            yield name, _sets("optional")
        values = [right] if isinstance(right, ast.Constant) else right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []
        words = [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if words:
            yield name, lambda clues, words=words: clues.words.extend(word for word in words if word not in clues.words)  # type: ignore[misc]


def _demanded(test: ast.expr, operator: type[ast.cmpop]) -> Iterator[Told]:
    """`assert x.dim() == 4`; `if x.dim() != 4: raise`."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], operator):
            name, right = _rank_asked(node.left), node.comparators[0]
            if name is not None and isinstance(right, ast.Constant) and isinstance(right.value, int):
                yield name, _of_rank(right.value)


def _rank_asked(node: ast.AST) -> str | None:
    """The name whose `.dim()` or `.ndim` it is, or the length of its shape."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
        return _shape_of(node.args[0])
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in ("dim", "ndim", "ndimension") and isinstance(node.value, ast.Name):
        return node.value.id
    return None


# ---- The arguments that a target wants, with all that its signature, its operator schema or its
# docstring says of them
UNSAID = inspect.Parameter.empty
COUNTS = (2, 1, 3)      # how many tensors `*tensors` is tried with


@dataclass(frozen=True, slots=True)
class Wanted:
    """One argument. `annotation`: the type as text, without module names; `default` UNSAID where it must be given; `init`: of a module's
    constructor; `variadic`: one of `*arguments`."""

    name: str
    annotation: str = ""
    default: Any = UNSAID
    keyword: bool = False
    init: bool = False
    variadic: bool = False
    clues: Clues = field(default_factory=Clues)

    @property
    def required(self) -> bool:
        return self.default is UNSAID


def wanted(found: Target, variadic: int) -> list[Wanted] | None:
    """In the order of the signature, `*arguments` as so many; None where nothing says what the target takes."""
    parameters: Sequence[inspect.Parameter] | None = found.parameters
    types: dict[str, str] = {}
    if found.kind == "operator":
        parameters, types = _of_schema(found.subject)
    elif parameters is None:
        return _of_docstring(found.subject)
    clues = clues_of(_body(found))
    given: list[Wanted] = []
    for parameter in parameters or ():
        given += _wanted(parameter, types.get(parameter.name, _text(parameter.annotation)), clues.get(parameter.name, Clues()), variadic)
    return given


def takes_any_number(found: Target) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in found.parameters or ())


def wanted_to_build(module: type[torch.nn.Module]) -> list[Wanted]:
    """What a module class has to be built with; what has a default is left at it."""
    try:
        parameters = list(inspect.signature(module).parameters.values())
    except (TypeError, ValueError):
        return []
    clues = clues_of(module.__init__)
    needed = [each for each in parameters if each.default is UNSAID and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return [Wanted(each.name, _text(each.annotation), init=True, clues=clues.get(each.name, Clues())) for each in needed]


def _wanted(parameter: inspect.Parameter, annotation: str, clues: Clues, variadic: int) -> list[Wanted]:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return []
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return [Wanted(f"{parameter.name}{place}", annotation, variadic=True) for place in range(variadic)]
    return [Wanted(parameter.name, annotation, parameter.default, parameter.kind is inspect.Parameter.KEYWORD_ONLY, clues=clues)]


def _body(found: Target) -> Any:
    """The function whose code uses the arguments."""
    if found.kind == "autograd.Function":
        return found.subject.forward
    if found.kind == "module":
        module: Any = found.subject if inspect.isclass(found.subject) else type(found.subject)
        return module.forward
    return python_behind(found.subject)


def _text(annotation: Any) -> str:
    """`Optional[Tensor]`, `list[int]`, `float | None`."""
    if annotation is UNSAID:
        return ""
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    text = annotation if isinstance(annotation, str) else annotation.__name__ if plain else str(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text.replace("jaxtyping.", "")).replace("NoneType", "None")


def _of_schema(operator: Any) -> tuple[Sequence[inspect.Parameter], dict[str, str]]:
    """Of a registered operator: the first of its overloads that returns its result."""
    overload = getattr(operator, returning(operator)[0]) if isinstance(operator, OverloadPacket) else operator
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    arguments = schema(overload).arguments
    parameters = [inspect.Parameter(each.name, kinds[each.kwarg_only], default=each.default_value if each.has_default_value() else UNSAID)
                  for each in arguments]
    return parameters, {each.name: str(each.type).replace("number", "float") for each in arguments}


def _of_docstring(function: Any) -> list[Wanted] | None:
    """What compiled functions say of themselves, `linear(arg0: torch.Tensor, arg1: float = 1.0) -> torch.Tensor`; without what has a default, of
    which such texts do not tell whether it goes by position."""
    text = inspect.getdoc(function) or ""
    match = re.search(r"\w+\((?P<arguments>[^)]*(?:\([^)]*\)[^)]*)*)\) *->", text)
    if match is None:
        return None
    try:
        tree = ast.parse(f"def f({match['arguments'].replace('::', '.')}): pass").body[0]
    except SyntaxError:
        return None
    taken = arguments_of(tree, 0) if isinstance(tree, ast.FunctionDef) else ()
    return [Wanted(each.name, _pybind_type(each.annotation or "")) for each in taken
            if each.kind == "positional" and each.default is None and each.name != "self"]


def _pybind_type(text: str) -> str:
    bare = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
    return re.sub(r"\bSupports(Int|Float)\b", lambda found: found[1].lower(), bare)


# ---- What an argument may be, the likeliest first: by annotation, default, the forward's code,
# and its name
Kind = Literal["default", "tensor", "index", "mask", "tensors", "float", "int", "bool", "word", "ints", "none", "unwritable"]


def _word(text: str, before: str = r"(^|_)", behind: str = r"(_|\d|$)") -> re.Pattern[str]:
    """Any of these words (separated by blanks) as a part of a name."""
    return re.compile(f"{before}({'|'.join(text.split())}){behind}")


GOAL = _word("labels? targets? tgt")
INDEX = _word("index indices indexes idx ids? inds? classes tokens? segments? positions offsets lengths seqlens? perm argmax assignments? edges? "
              "neighbou?rs batch edge_index")
MASK = _word("mask masks masked")
TRUTH = re.compile(_word("is use has with return do should need ensure keep enable add no", "^", "_").pattern + "|" + _word(
    "causal training train inplace keepdims? bidirectional align_corners interleaved affine normalized reverse transposed? upper flag largest sorted "
    "deterministic", behind="$").pattern)
COUNT = re.compile(_word(
    r"dims? axis ndim num size stride padding pad dilation groups? heads? kernel_size k n steps? iters? iterations? window block chunk channels? "
    r"features? hidden length seq_len depth width height order degree rank n_\w+ num_\w+ \w+_size \w+_dim bits? rows cols level offset d_model "
    r"padding_idx ignore_index", behind="$").pattern + "|^(n|num|max_n|nb)_")
NUMBER = re.compile(_word(
    "eps epsilon alpha beta gamma lam lambd lambda_? slope negative_slope temperature temp tau t scale scaling factor coeffs? momentum p prob "
    "dropout dropout_p rate lr threshold thresh margin delta power exponent min max low high lower upper bound clip value weight_decay sigma std "
    "width "
    "sharpness strength smoothing eta tol constant const softcap logit_scale sm_scale", behind="$").pattern + "|" + _word(
    "eps scale factor alpha value prob rate", "_", "$").pattern)
TENSOR = re.compile(_word(
    r"[a-z] inputs? input_ inputs_ output logits? weights? bias src data feat(ure)?s? grad\w* query key value cos sin embeddings? images? "
    r"hidden_states? states? memory mem mat matrix theta points? values? kernel filters? residual gate up params?", "^", r"\d*$").pattern
    + "|_(weight|bias|tensor|states?|input|logits|proj|emb)$|tensor")
WORD = _word("mode reduction reduce method type kind activation act norm_type padding_mode layout name fn_name approximate format", behind="$")


def kinds(wanted: Wanted) -> list[Kind]:
    """At least one, without repeats."""
    found = [*_by_annotation(wanted), *_by_default(wanted)] or [*_by_code(wanted), *_by_name(wanted)]
    left_out: list[Kind] = ["none"] if wanted.default is None and "none" in found else []     # first without: optional ones are given later
    return list(dict.fromkeys([*left_out, *found]))


def _by_annotation(wanted: Wanted) -> list[Kind]:
    text = wanted.annotation
    optional: list[Kind] = ["none"] if re.search(r"Optional|None", text) else []
    if "Callable" in text or "Generator" in text or re.fullmatch(r"(\w+)?(dtype|device|Module|ProcessGroup|Group)", text):
        return ["default"] if not wanted.required else ["unwritable"]
    if "Tensor" in text:
        many = re.search(r"(?i)(list|sequence|iterable|tuple)\[.*Tensor", text) and not wanted.variadic
        numbers: list[Kind] = ["float", "int"] if _scalar_too(text) else []
        return ["tensors", *optional] if many else [*_tensors(wanted), *numbers, *optional]
    if re.search(r"Literal|\bstr\b", text):
        return _with_default(wanted, ["word", *optional])
    if re.search(r"(?i)(list|sequence|tuple|size)\[?.*int|\bSize\b|torch.Size", text) and not text.startswith(("Union[int", "int |")):
        return _with_default(wanted, ["ints", *optional])
    for name, kind in (("bool", "bool"), ("int", "int"), ("SymInt", "int"), ("float", "float"), ("Scalar", "float")):
        if re.search(rf"\b{name}\b", text):
            return _with_default(wanted, [kind, *(["float"] if kind == "int" else []), *optional])       # type: ignore[list-item]
    return []


def _scalar_too(text: str) -> bool:
    return bool(re.search(r"\b(float|int|Number|Scalar)\b", text))


def _with_default(wanted: Wanted, given: list[Kind]) -> list[Kind]:
    return given if wanted.required else ["default", *given]


def _tensors(wanted: Wanted) -> list[Kind]:
    """What a tensor holds: by its name and by what it is used for."""
    if wanted.clues.index:
        return ["index", "mask", "tensor"]
    if MASK.search(wanted.name):
        return ["mask", "tensor"]
    if GOAL.search(wanted.name):
        return ["tensor", "index"]
    if INDEX.search(wanted.name):
        return ["index", "tensor"]
    return ["tensor", "index", "mask"]


def _by_default(wanted: Wanted) -> list[Kind]:
    if wanted.required:
        return []
    value: Any = wanted.default
    if value is None:
        if wanted.clues.words or WORD.search(wanted.name):
            return ["none", "word"]
        if TRUTH.search(wanted.name):
            return ["none", "bool"]
        by_name = any(pattern.search(wanted.name) for pattern in (TENSOR, MASK, INDEX)) and not COUNT.search(wanted.name)
        like_tensor = wanted.clues.tensor or by_name
        return [*_tensors(wanted), "none"] if like_tensor else ["none", *_by_name(wanted)]
    if isinstance(value, bool):
        return ["default", "bool"]
    if isinstance(value, (int, float)):
        return ["default", "int" if isinstance(value, int) else "float"]
    return ["default", "word"] if isinstance(value, str) else ["default", "ints"]


def _by_code(wanted: Wanted) -> list[Kind]:
    clues = wanted.clues
    if clues.called:
        return ["unwritable"]
    if clues.words:
        return ["word"]
    if clues.index:
        return ["index", "int", "mask"]
    if clues.ranks or clues.least or (clues.tensor and not clues.sequence):
        return _tensors(wanted)
    if clues.whole:
        return ["int"]
    if clues.sequence:
        return ["tensors", "tensor", "ints"]
    if clues.truth and not clues.optional and not TENSOR.search(wanted.name):
        return ["bool", "tensor"]
    return []


def _by_name(wanted: Wanted) -> list[Kind]:
    name = wanted.name.lower()
    optional: list[Kind] = ["none"] if wanted.clues.optional else []
    many: list[Kind] = ["tensors"] if wanted.clues.sequence else []
    if MASK.search(name):
        return ["mask", "tensor", *optional]
    if GOAL.search(name):
        return ["tensor", "index", *optional]
    if INDEX.search(name) and not COUNT.search(name):
        return ["index", "tensor", "int", *optional]
    if TRUTH.search(name):
        return ["bool", "tensor", "float"]
    if WORD.search(name):
        return ["word", *optional]
    if wanted.variadic or TENSOR.search(name):
        return ["tensor", *optional, "float", "index", "int", *many]
    if COUNT.search(name):
        return ["int", "tensor", "ints", "float", *optional]
    if NUMBER.search(name):
        return ["float", "tensor", "int", *optional]
    return ["tensor", "float", "int", "index", "bool", *optional, *many, "mask"]
