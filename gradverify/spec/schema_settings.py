"""The format of the settings: those of one run of a check, and those that select and judge it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from gradverify.model.dtypes import Floating
from gradverify.model.mode import Asked
from gradverify.spec.schema_inputs import Layout
from gradverify.spec.values import UNSAID, Auto, Device, Either, NotNegative, NotNegativeInteger, Positive, Strict, Text

Tristate: TypeAlias = Annotated[bool | Auto, Either("auto, true or false")]
Code = Annotated[str, Field(pattern=r"^GV[0-9]{3}$")]
CodePrefix = Annotated[str, Field(pattern=r"^GV[0-9]{0,3}$")]
Requirement = Annotated[str, Field(pattern=r"^(cuda(:[0-9]+)?|module:[A-Za-z_][\w.]*)$")]
TagName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.-]*$")]


class Budget(Strict):
    """What one check may spend: its comparison under `mode: auto`, and the rules that vary the call."""

    calls: Annotated[int, Field(gt=0)] = Field(
        UNSAID, description="Calls at most, after a few dozen that prepare the comparison, whose cheapest form is always made.", examples=[2000])
    seconds: Positive = Field(10.0, description="Seconds, every call counted as long as the fastest one took.", examples=[10])


class Rules(Strict):
    """Which rules run: codes (`GV201`) or prefixes (`GV2`)."""

    select: list[CodePrefix] = Field([], description="Only these rules run; none named: all that apply.", examples=[["GV1", "GV201"]])
    ignore: list[CodePrefix] = Field([], description="These rules do not run.", examples=[["GV224"]])


class RunSettings(Strict):
    """How one check is run: what `[tool.gradverify.defaults]` may hold."""

    dtype: Floating = Field("float64", description="The dtype of every tensor that names none.", examples=["float32"])
    device: Device = Field("cpu", description="`cpu`, `cuda`, `cuda:1`, or `auto` (CUDA where there is one).", examples=["cuda"])
    seed: NotNegativeInteger = Field(0, description="What every draw starts from.", examples=[0])
    eps: Annotated[Positive | Auto, Either("a number greater than 0, or auto")] = Field(
        "auto", description="Finite-difference step. A number is used exactly as given (gradcheck's rule); `auto` chooses it and extrapolates.",
        examples=[1e-6])
    atol: NotNegative = Field(
        UNSAID, description="Accepted absolute deviation; default 0, with `eps: <number>` 1e-5.", examples=[1e-4])
    rtol: NotNegative = Field(
        UNSAID, description="Accepted relative deviation; default 1e-6 (float32: 1e-3), with `eps: <number>` 1e-3.", examples=[1e-3])
    mode: Asked = Field(
        "auto", description="`entries`: every element of the Jacobian; `rows`: every output element against random directions; "
        "`blocks`: random projections; `auto`: the strongest that `budget` affords.", examples=["entries"])
    budget: Budget = Field(UNSAID, description="What one check may spend; default: 10 seconds.", examples=[{"seconds": 10}])
    rules: Rules = Field(UNSAID, description="Which rules run; default: all that apply.", examples=[{"ignore": ["GV224"]}])
    second_order: Tristate = Field(
        "auto", description="Check second derivatives (GV109): `auto` warns where they are silently wrong; `true`: they must be right, and a "
        "backward that refuses them is a finding; `false` not.", examples=[True])
    forward_ad: Tristate = Field(
        "auto", description="Check forward mode (GV108): `auto` where it is supported; `true`: a missing `jvp` is a finding; `false` not.",
        examples=[True])
    vmap: Tristate = Field(
        "auto", description="Check `torch.vmap` (GV110): `auto` where a rule is declared; `true`: a missing one is a finding; `false` not.",
        examples=[True])
    opcheck: Tristate = Field(
        "auto", description="Test a registered operator as `torch.library.opcheck` does (GV115): `auto` warns where it is not what its registration "
        "says; `true`: that is an error, and so is a missing fake kernel; `false` not.", examples=[True])
    compile: bool = Field(
        False, description="Compare the function called through `torch.compile` (backend `aot_eager`) with the eager one (GV116).", examples=[True])
    autocast: Literal["bfloat16", "float16"] | None = Field(
        None, description="Compare the function inside `torch.autocast` in this dtype with the one outside; needs `dtype: float32` (GV117).",
        examples=["bfloat16"])
    tf32: bool = Field(
        False, description="Compare the function with products of float32 in TF32, which checks compute without, with the one in all bits; needs "
        "`dtype: float32` (GV119).", examples=[True])
    reduced_sums: bool = Field(
        False, description="Compare the function with products of 16 bits summed in fewer bits (torch's `allow_bf16_reduced_precision_reduction` and "
        "the like) with the one without; needs `dtype: bfloat16` or `float16` (GV119).", examples=[True])
    streams: bool = Field(
        False, description="Compare the function on another CUDA stream, while streams are busy, with the default stream (GV120).", examples=[True])
    nondeterminism: NotNegative = Field(
        0.0, description="Largest difference between two identical calls that is accepted.", examples=[0])
    deterministic: bool = Field(
        False, description="Identical calls must give the same bits: any difference, forward or backward, is an error (GV205, GV206).",
        examples=[True])
    reseed: bool = Field(
        True, description="Set torch's generator to the check's seed before every forward, so that random functions can be checked.", examples=[True])
    witness: bool | Literal["always"] = Field(
        True, description="Ask torch's own derivative of the forward where the finite difference leaves elements undecided; `always`: also say of "
        "gradients that it decides whether that agrees.", examples=[False, "always"])
    strict: bool = Field(False, description="Warnings are errors.", examples=[True])
    outputs: Annotated[list[NotNegativeInteger], Field(min_length=1)] = Field(
        UNSAID, description="Which outputs to check; default: all differentiable.", examples=[[0]])
    timeout: Positive = Field(300.0, description="Seconds for one case.", examples=[300])


class Matrix(Strict):
    """Variables and their values; every combination is one case."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[list[Any], Field(min_length=1)]]

    exclude: list[dict[str, Any]] = Field([], description="Combinations to leave out.", examples=[[{"rows": 1, "width": 127}]])
    layout: list[Layout] = Field(
        UNSAID, description="A memory layout for every tensor input.", examples=[["contiguous", "transposed"]], min_length=1)


class Settings(RunSettings):
    """Everything that `defaults` may hold, and that a check may override."""

    expect: Annotated[Literal["pass", "fail"] | Annotated[list[Code], Field(min_length=1)], Either("pass, fail or a list of rule codes")] = Field(
        "pass", description="`pass`, `fail`, or exactly the rules that fail; an expected failure that does not happen is a failure.",
        examples=[["GV201"]])
    matrix: Matrix = Field(
        UNSAID, description="Variables and their values; a name that is a setting sets it, any other is written `$name` where it is used.",
        examples=[{"rows": [1, 7], "dtype": ["float64", "float32"]}])
    tags: list[TagName] = Field([], description="Words to select checks by.", examples=[["slow"]])
    skip: Text = Field(UNSAID, description="Why the check does not run.", examples=["needs the new kernel"])
    requires: list[Requirement] = Field([], description="What must be there, else the check is skipped.", examples=[["cuda", "module:triton"]])
    sources: list[Text] = Field(
        [], description="Files outside Python that the check depends on, as globs relative to the spec: a change to one of them affects "
        "the check. `**` is any number of folders, a folder means all in it.", examples=[["../csrc/*.cu"]])
