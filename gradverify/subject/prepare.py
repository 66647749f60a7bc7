"""Preparation of a Subject from a Case: find the target, make the inputs, bind names to
positions."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from gradverify.model.case import Case, InputRecipe, Layout, TensorRecipe
from gradverify.subject.draw import DIFFERENTIABLE, DTYPES, draw, generator
from gradverify.subject.failure import (
    CODE,
    UserCodeError,
    blamed,
    nearest,
    refuse,
    shown,
    type_name,
)
from gradverify.subject.find import importing
from gradverify.subject.forms import (
    Apart,
    Argument,
    Form,
    Whole,
    admitted,
    dtype_name,
    nested,
    sparse,
    taken,
    taken_apart,
)
from gradverify.subject.layout import laid, layout_of, settled
from gradverify.subject.machine import seeded
from gradverify.subject.modules import cast
from gradverify.subject.subject import Subject
from gradverify.subject.target import Target, callable_target, target
from gradverify.subject.wide import on_two_legs

# ---- Binding of arguments to the parameters of the signature, which gives their order and names
CALLED = "GV002"  # the function was found, but cannot be called with these arguments
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def bind(
    given: Sequence[Argument], found: Target, own: Collection[str], keywords: Collection[str]
) -> list[Argument]:
    """Return the arguments in the order of the signature, those passed by keyword last; a nameless
    one gets its name from the signature.

    `own`: the names of a module's parameters; `keywords`: the names that the spec passes by
    keyword. Raises UserCodeError (GV002) where the arguments do not fit.
    """

    def misfit(
        place: str, text: str, hint: str | None = None, near: Sequence[str] = (), to: str = ""
    ) -> NoReturn:
        raise UserCodeError(CALLED, f"{place}: {text}", hint=nearest(to, near) or hint)

    if inner := next((argument.name for argument in given if "." in argument.name), None):
        misfit(
            f"inputs.{inner}", f"{found.name} has no parameter {inner!r}", near=list(own), to=inner
        )
    if found.parameters is None:
        return [replace(a, name=a.name or str(place)) for place, a in enumerate(given)]
    kinds = {parameter.name: parameter.kind for parameter in found.parameters}
    positional = [parameter for parameter in found.parameters if parameter.kind in _POSITIONAL]
    names = [parameter.name for parameter in positional]
    takes = f"{found.name} takes ({', '.join(names)})"
    variadic = inspect.Parameter.VAR_POSITIONAL in kinds.values()
    by_name = [name for name, kind in kinds.items() if kind in _BY_NAME]
    for name in keywords if _VAR_KEYWORD not in kinds.values() else ():
        key, hint = f"kwargs.{name}", "write it under `inputs`"
        if name in own:
            misfit(key, f"{name!r} is a parameter of the module", hint)
        elif kinds.get(name) is inspect.Parameter.POSITIONAL_ONLY:
            misfit(key, f"{found.name} takes {name!r} by position only", hint)
        elif name not in by_name:
            every = (each for each, kind in kinds.items() if kind in (*_POSITIONAL, *_BY_NAME))
            text = f"there is no parameter {name!r}; {found.name} takes ({', '.join(every)})"
            misfit(key, text, near=by_name, to=name)
    placed, named = [a for a in given if not a.keyword], [a for a in given if a.keyword]
    nameless = all(not argument.name for argument in placed)
    if nameless:
        count = len(placed)
        if count > len(names) and not variadic:
            misfit("inputs", f"{takes}, got {count}")
        for name in names[:count]:
            if name in keywords:
                text = f"{name!r} is an input already: the first {count} of {takes}"
                misfit(f"kwargs.{name}", text)
        every_name = [*names, *map(str, range(len(names), count))]
        placed = [replace(a, name=name) for a, name in zip(placed, every_name, strict=False)]
    at = {argument.name: argument for argument in placed}
    extra = [argument for argument in placed if argument.name not in names]
    if extra and not variadic:
        name, text = extra[0].name, f"there is no parameter {extra[0].name!r}; {takes}"
        if kinds.get(name) is inspect.Parameter.KEYWORD_ONLY:
            text = f"{found.name} takes {name!r} by keyword only"
            misfit(f"inputs.{name}", text, "write it under `kwargs`")
        misfit(f"inputs.{name}", text, near=[*names, *own], to=name)
    ordered = list[Argument]()
    last = max((names.index(name) for name in at if name in names), default=-1)
    # Parameters after this place are passed by keyword
    after = next((place for place, name in enumerate(names) if name in keywords), len(names))
    for place, parameter in enumerate(positional):
        if parameter.name in at:
            ordered.append(replace(at[parameter.name], keyword=place > after))
        elif parameter.name in keywords:
            continue
        elif parameter.default is inspect.Parameter.empty:
            missing = f", got {len(placed)}" if nameless else f"; {parameter.name!r} is missing"
            misfit("inputs", f"{takes}{missing}")
        elif place < min(last, after) or (extra and place < after):
            ordered.append(Argument(parameter.name, parameter.default))
    return sorted([*ordered, *extra, *named], key=lambda argument: argument.keyword)


# ---- Preparation of a Subject from a Case
COMPUTES = ("cpu", "cuda")  # other devices have no float64, as MPS, or are untested, as XPU


def prepare(case: Case) -> Subject:
    """Make the live subject of a case. Raises UserCodeError (GV001) where the target or an input
    cannot be made as the spec describes."""
    # Seeded, as a module draws its parameters when it is built
    with importing(), seeded(case.settings.seed):
        found = target(case.target, case.init, DTYPES[case.settings.dtype])
    return assemble(case, found, drawn_inputs(case))


def drawn_inputs(case: Case) -> list[Argument]:
    """Make all arguments of a case from its recipes, in order. Raises UserCodeError (GV001)."""
    placed = [_make(recipe, place, case) for place, recipe in enumerate(case.inputs)]
    if case.inputs_from:  # a function that makes a tuple, or a mapping by name
        function = callable_target(case.inputs_from, "inputs_from")
        what, settings = f"inputs_from: {case.inputs_from}", case.settings
        device, dtype = torch.device(settings.device), DTYPES[settings.dtype]
        with blamed(CODE, what), importing(), seeded(settings.seed):
            made = function(seed=settings.seed, dtype=dtype, device=device)
        if not isinstance(made, (tuple, list, Mapping)):
            refuse(f"{what} returned a {type_name(made)}, not a tuple or a dict")
        with blamed(CODE, what):
            placed = _all_taken(made, f"{what} made", [made], case.layout)
    named = (_make(recipe, place, case, "kwargs") for place, recipe in enumerate(case.keywords))
    return [*placed, *(replace(argument, keyword=True) for argument in named)]


def redrawn(subject: Subject, seed: int) -> list[Argument]:
    """Draw the arguments of a subject's spec with another seed; return the arguments of a live
    subject, which has no spec, unchanged.

    Raises UserCodeError (GV001).
    """
    case = replace(subject.own.case, settings=replace(subject.own.case.settings, seed=seed))
    if not case.inputs and not case.inputs_from:
        return list(subject.arguments)
    return list(assemble(case, subject.target, drawn_inputs(case)).arguments)


def assemble(case: Case, found: Target, made: Sequence[Argument]) -> Subject:
    """Make the subject of a target and its inputs; a nameless argument gets its name from the
    signature. A container of tensors becomes one argument for each element, named `tensors[0]`,
    `state.h`.

    Raises UserCodeError (GV001) where they do not fit.
    """
    keywords = {**case.kwargs, **{str(recipe.name): recipe for recipe in case.keywords}}
    if keywords and found.kind == "autograd.Function":
        raise UserCodeError(
            CALLED,
            f"kwargs: {case.target} is an autograd Function, whose apply takes positional "
            "arguments only",
            hint="list them under `inputs`, in the order of forward",
        )
    parameters = list[Argument]()
    if found.kind == "module":
        dtype, device = case.settings.dtype, torch.device(case.settings.device)
        for name, value in found.subject.named_parameters():
            admitted(value, f"{case.target}: the parameter {name} is")
        with blamed(CODE, f"moving {case.target} to {dtype} on {device}"):
            named = list(cast(found.subject, DTYPES[dtype], device).named_parameters())
        if lazy := [name for name, value in named if is_lazy(value)]:
            refuse(
                f"{case.target}: the parameter {lazy[0]} has no shape before the first forward (a "
                "lazy module)",
                "name a function that builds the module and runs it once, or use the module "
                "that is not lazy",
            )
        parameters = [
            Argument(name, _point(value), value.requires_grad, parameter=True)
            for name, value in named
        ]
    own = {argument.name for argument in parameters}
    overridden = {a.name: a for a in made if a.name in own and not a.keyword}
    given = [a for a in made if a.name not in overridden]
    # A dict from the user's own function gives no order, and may name keyword-only parameters
    if case.inputs_from:
        kinds = {parameter.name: parameter.kind for parameter in found.parameters or ()}
        every_kind = set(kinds.values())
        takes_all = (
            _VAR_KEYWORD in every_kind and inspect.Parameter.VAR_POSITIONAL not in every_kind
        )
        other = _VAR_KEYWORD if takes_all else None
        by_keyword = inspect.Parameter.KEYWORD_ONLY, _VAR_KEYWORD
        given = [
            replace(
                a, keyword=a.keyword or (a.name != "" and kinds.get(a.name, other) in by_keyword)
            )
            for a in given
        ]
    every = list[Argument]()
    for argument in bind(given, found, own, keywords):
        if isinstance(argument.value, Apart):
            whole = Whole(argument.name, argument.value.built)
            every += [
                replace(each, name=f"{argument.name}{path}", of=whole, keyword=argument.keyword)
                for path, each in argument.value.elements
            ]
        else:
            every.append(argument)
    # Jagged inputs of the same lengths share one form: torch adds only tensors that share their
    # offsets, as those of one model do
    shared = dict[tuple[int, ...], Form]()
    every = [
        replace(a, form=shared.setdefault(a.form.lengths, a.form))
        if a.form and a.form.lengths
        else a
        for a in every
    ]
    for parameter in parameters:
        new = overridden.get(parameter.name)
        if new is not None and (not new.is_tensor or new.value.shape != parameter.value.shape):
            given_shape = list(new.value.shape) if new.is_tensor else shown(new.value)
            refuse(
                f"inputs.{new.name}: the module's parameter has shape "
                f"{list(parameter.value.shape)}, got {given_shape}"
            )
        every.append(parameter if new is None else replace(new, parameter=True))
    differentiated = [argument.name for argument in every if argument.differentiable]
    for name in case.gradients:
        if name not in differentiated:
            refuse(
                f"gradients: there is no differentiated input {name!r}; {case.target} has "
                f"{', '.join(differentiated)}",
                nearest(name, differentiated),
            )
    return on_two_legs(Subject(case, found, every, case.kwargs))


def _make(recipe: InputRecipe, place: int, case: Case, key: str = "inputs") -> Argument:
    name, label = recipe.name or "", recipe.name if recipe.name is not None else str(place)

    def drawn(path: str, of: TensorRecipe) -> Argument:
        """Make a recipe's argument, seeded by its name; it holds several tensors if `make` returns
        a container."""
        own = settled(of, case.layout)
        source = generator(case.settings.seed, case.check, f"{label}{path}")
        device, where = torch.device(own.device or case.settings.device), f"{key}.{label}{path}"
        made = draw(own, case.settings.dtype, device, source, where)
        if isinstance(made, Apart):
            return Argument(
                "", made.of(lambda inside, each: _described(each, own, case, f"{where}{inside}"))
            )
        return _described(made, own, case, where)

    if recipe.tensors:
        elements = ((f"[{n}]", each) for n, each in enumerate(recipe.tensors))
        return Argument(name, Apart(tuple(elements), list).of(drawn))
    if recipe.tensor is None:
        return Argument(name, recipe.value)
    return replace(drawn("", recipe.tensor), name=name)


def _described(value: Any, recipe: TensorRecipe, case: Case, place: str) -> Argument:
    """Return the argument of a drawn tensor, with the properties of its recipe."""
    if not isinstance(value, Tensor):
        return Argument("", value)
    tensor = _point(value)
    if recipe.sparse is None and recipe.nested is None:
        layout = layout_of(tensor, recipe.layout, case.layout, place)
        differentiable = _differentiable(tensor, recipe.requires_grad)
        # Differentiable inputs are laid out in every call
        laid_out = tensor if differentiable else laid(tensor, layout)
        return Argument(
            "",
            laid_out,
            differentiable,
            domain=recipe.domain,
            symmetric=recipe.symmetric,
            layout=layout,
        )
    source = generator(case.settings.seed, case.check, f"{place} pattern")
    try:
        if recipe.sparse is None:
            form = nested(recipe.nested or (), tensor)
        else:
            tensor, form = sparse(recipe.sparse, tensor, recipe.draw in ("values", "file"), source)
    except (RuntimeError, ValueError) as error:
        raise UserCodeError(CODE, f"{place}: {str(error).splitlines()[0]}") from error
    return Argument(
        "", tensor, _differentiable(tensor, recipe.requires_grad), domain=recipe.domain, form=form
    )


def _point(tensor: Tensor) -> Tensor:
    """Return a contiguous copy without history, the point of the check."""
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _differentiable(tensor: Tensor, wanted: bool | None) -> bool:
    able = tensor.is_floating_point() or tensor.is_complex()
    return able if wanted is None else wanted and able


def given(
    inputs: Sequence[Any] | Mapping[str, Any], kwargs: Mapping[str, Any]
) -> tuple[list[Argument], dict[str, Any]]:
    """Return the arguments of a live call, including tensors passed by keyword; and the plain
    values passed by keyword. Raises UserCodeError (GV001)."""
    with blamed(CODE, "the inputs"):
        arguments, by_name = (
            _all_taken(each, "the call gives", [inputs, kwargs]) for each in (inputs, kwargs)
        )
    plain = {a.name: a.value for a in by_name if not isinstance(a.value, Tensor | Apart)}
    named = (replace(a, keyword=True) for a in by_name if a.name not in plain)
    return [*arguments, *named], plain


def _all_taken(
    made: Any, what: str, together: Sequence[Any], layout: Layout | None = None
) -> list[Argument]:
    """Return arguments for a mapping's values by name, or for those of a sequence. If any tensor in
    `together`, all values of the call, requires grad, those that do not are not differentiated.
    `layout`: of all tensors that can have it."""
    flagged = any(
        tensor.requires_grad
        for each in together
        for tensor in _tensors(list(each.values()) if isinstance(each, Mapping) else list(each))
    )
    named = made.items() if isinstance(made, Mapping) else (("", value) for value in made)
    return [_taken(name, value, what, flagged, layout) for name, value in named]


def computed_in(values: Sequence[Any]) -> tuple[str, str]:
    """Return the coarsest dtype of the differentiable tensors among values, and the first device
    other than the CPU, for a check's settings."""
    tensors = [tensor for tensor in _tensors(list(values)) if tensor.dtype in DIFFERENTIABLE]
    names = {name: dtype for name, dtype in DTYPES.items() if dtype in DIFFERENTIABLE}
    coarse = max(
        (tensor.dtype for tensor in tensors),
        key=lambda dtype: (torch.finfo(dtype).eps, dtype.is_complex),
        default=torch.float64,
    )
    device = next((str(tensor.device) for tensor in tensors if tensor.device.type != "cpu"), "cpu")
    return next(name for name, dtype in names.items() if dtype == coarse), device


def _tensors(made: Any) -> list[Tensor]:
    apart = taken_apart(made)
    return [each for _, each in apart.elements if isinstance(each, Tensor)] if apart else []


def _taken(
    name: str, value: Any, what: str, flagged: bool, layout: Layout | None = None
) -> Argument:
    """Return the argument of a user's value, a container taken apart; `flagged`: whether some
    tensor of the call requires grad, so that those that do not are not differentiated."""
    if not isinstance(value, Tensor):
        if apart := taken_apart(value):
            value = apart.of(lambda path, item: _taken(path, item, what, flagged, layout))
        return Argument(name, value)
    beginning, wanted = f"{what} {name}:" if name else what, value.requires_grad
    if value.device.type not in COMPUTES and not value.is_meta:
        refuse(
            f"{beginning} a tensor on {value.device}",
            "checks compute on the CPU and on CUDA devices: `.cpu()`",
        )
    value, form = taken(value, beginning)
    admitted(value, beginning)
    differentiable = _differentiable(value, wanted if flagged else None)
    if differentiable and value.dtype not in DIFFERENTIABLE:
        refuse(
            f"{what} a {dtype_name(value)} tensor",
            f"supported are {', '.join(map(dtype_name, DIFFERENTIABLE))}",
        )
    value = _point(value)
    own = layout_of(value, None, layout, name) if form is None else "contiguous"
    return Argument(
        name, value if differentiable else laid(value, own), differentiable, layout=own, form=form
    )
