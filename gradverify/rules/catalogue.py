"""The rule book: one table of what every rule declares, in the order in which rules are asked.

Its pages are in pages/; no rule is imported for either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from gradverify.model.result import Calls
from gradverify.model.rule import RuleInfo

PAGES = Path(__file__).parent / "pages"
_TABLE = (
    RuleInfo("GV001", "import-failed", asked=False, verdict="error", stops=True),
    RuleInfo("GV002", "forward-raised", asked=False, rank=10, verdict="error", stops=True),
    RuleInfo("GV003", "backward-raised", asked=False, rank=10, verdict="error", stops=True),
    RuleInfo("GV004", "crashed", asked=False, verdict="error"),
    RuleInfo("GV005", "timed-out", asked=False, verdict="error"),
    RuleInfo("GV232", "written-beside", file="written", catches="writes_one_too_many", rank=4,
             stops=True),
    RuleInfo("GV231", "unwritten-memory", file="written", catches="leaves_half_unwritten", rank=6,
             stops=True),
    RuleInfo("GV008", "nothing-checked", file="unjudged", verdict="error", stops=True),
    RuleInfo("GV006", "non-finite", file="unjudged", rank=10, verdict="error", stops=True),
    RuleInfo("GV205", "forward-deterministic", file="repeated",
             catches="draws_from_its_own_generator", rank=20, method="forward"),
    RuleInfo("GV216", "unused-backward", file="returned", catches="bypasses_backward",
             method="apply"),
    RuleInfo("GV212", "gradient-metadata", file="returned", catches="returns_float32_gradient",
             rank=30, refused=True, line=True),
    RuleInfo("GV217", "integer-gradient", file="returned", catches="gives_index_a_gradient",
             refused=True, line=True),
    RuleInfo("GV221", "empty", file="returned", catches="stacks_no_rows", refused=True),
    RuleInfo("GV206", "backward-deterministic", file="repeated",
             catches="decays_every_twentieth_call", rank=20, price=Calls(0, 2), worth=100),
    RuleInfo("GV202", "grad-output-modified", file="written", catches="relu_modifies_grad_output",
             rank=60, spreads=True, method="backward"),
    RuleInfo("GV203", "input-modified", file="written", catches="centres_its_input_in_place",
             rank=60, spreads=True),
    RuleInfo("GV204", "saved-modified", file="written", catches="squares_its_output_in_place",
             rank=60, spreads=True, method="backward"),
    RuleInfo("GV219", "output-alias", file="saved", severity="warning",
             catches="returns_its_inputs_memory", apart=True, method="forward"),
    RuleInfo("GV224", "saved-unused", file="saved", severity="warning", catches="add_saves_unused",
             apart=True, method="saving"),
    RuleInfo("GV227", "single-backward", file="repeated", severity="warning",
             catches="drops_its_mask_in_backward", price=Calls(0, 2), worth=200, apart=True),
    RuleInfo("GV201", "backward-linear", catches="mul_ignores_grad_output", rank=50, line=True,
             causes="linearity", kills="values"),
    RuleInfo("GV213", "gradient-alias", file="returned", catches="returns_what_it_saved", rank=70,
             price=Calls(0, 3), worth=210),
    RuleInfo("GV207", "reentrant", file="repeated", catches="keeps_its_mask_on_the_class", rank=80,
             price=Calls(2, 3), worth=180, kills="memory"),
    RuleInfo("GV220", "accumulation", file="repeated", catches="returns_two_views", rank=90,
             price=Calls(1, 2), worth=130),
    RuleInfo("GV208", "input-subset", file="variants", catches="skips_weight_with_its_input",
             rank=100, price=Calls(1, 1), worth=170),
    RuleInfo("GV218", "grad-mode", file="variants", catches="approximates_without_gradients",
             rank=110, price=Calls(2, 1), worth=140),
    RuleInfo("GV230", "global-state", file="written", severity="warning",
             catches="seeds_torch_for_its_mask", apart=True),
    RuleInfo("GV215", "stale-saved", file="saved", severity="warning",
             catches="saves_without_a_version", price=Calls(1, 2), worth=150, apart=True,
             method="saving"),
    RuleInfo("GV214", "kept-alive", file="saved", severity="warning",
             catches="keeps_its_output_on_ctx", price=Calls(1, 1), worth=40, apart=True,
             method="saving"),
    RuleInfo("GV209", "unused-output", file="variants", catches="needs_both_outputs", rank=120,
             price=Calls(1, 1), worth=160, method="backward"),
    RuleInfo("GV210", "cotangent-layout", file="variants",
             catches="takes_grad_output_for_contiguous", rank=120, price=Calls(0, 2), worth=110,
             layout=True, method="backward"),
    RuleInfo("GV211", "input-layout", file="variants", catches="takes_input_for_contiguous",
             rank=120, price=Calls(1, 1), worth=120, layout=True),
    RuleInfo("GV225", "autocast", file="variants", catches="casts_under_autocast",
             price=Calls(1, 2), worth=50, apart=True),
    RuleInfo("GV226", "narrow-dtype", file="low_precision", catches="forgets_in_float32",
             price=Calls(1, 1), worth=60, apart=True),
    RuleInfo("GV107", "expected-gradient", file="opinions", catches="averages_over_features",
             rank=140, line=True, causes="given numbers", kills="values"),
    RuleInfo("GV106", "reference-gradient", file="opinions", catches="forgets_the_scale", rank=140,
             line=True, causes="reference", kills="values"),
    RuleInfo("GV105", "reference-value", file="opinions", catches="forgets_the_offset", rank=135,
             apart=True, method="forward"),
    RuleInfo("GV101", "jacobian", file="values", catches="drops_factor", rank=150, line=True,
             causes="finite differences", kills="values"),
    RuleInfo("GV111", "parameters", file="values", catches="averages_weight_gradient", rank=150,
             line=True, causes="finite differences", kills="values"),
    RuleInfo("GV102", "missing-gradient", file="values", catches="forgets_second_gradient", rank=40,
             line=True, kills="values"),
    RuleInfo("GV103", "non-finite-gradient", file="values", catches="sinc_divides_by_zero", rank=40,
             line=True, kills="values"),
    RuleInfo("GV112", "low-precision", file="low_precision", catches="forgets_in_bfloat16",
             own_dtype=True),
    RuleInfo("GV104", "not-a-subgradient", file="values", catches="counts_both_branches", rank=130,
             line=True, kills="values"),
    RuleInfo("GV114", "small-deviation", file="values", severity="warning",
             catches="rounds_a_constant", rank=150, line=True, causes="deviations"),
    RuleInfo("GV108", "forward-mode", file="forward_mode", catches="jvp_forgets_a_tangent",
             price=Calls(2, 2), worth=80, apart=True, method="jvp"),
    RuleInfo("GV109", "double-backward", file="double_backward", catches="keeps_an_intermediate",
             price=Calls(2, 6), worth=10, apart=True),
    RuleInfo("GV110", "vmap", file="vmapped", catches="vmap_ignores_in_dims", price=Calls(6, 6),
             worth=70, apart=True, method="vmap"),
    RuleInfo("GV222", "precision-inside", file="low_precision", severity="warning",
             catches="computes_in_float32", method="forward"),
    RuleInfo("GV223", "duplicate-indices", catches="overwrites_repeated_rows", price=Calls(3, 1),
             worth=90, apart=True, line=True, takes_over="repeated index overwritten"),
    RuleInfo("GV113", "second-point", catches="keeps_the_first_mask", price=Calls(3, 1), worth=190,
             apart=True, line=True, kills="elsewhere"),
    RuleInfo("GV228", "unbatchable", file="vmapped", severity="warning",
             catches="asks_grad_output_for_a_number", price=Calls(0, 2), worth=20, apart=True),
    RuleInfo("GV229", "inert-input", file="returned", severity="warning",
             catches="forgets_its_gain", price=Calls(3, 0), worth=30, apart=True),
    RuleInfo("GV115", "opcheck", catches="misstates_its_shape", price=Calls(3, 0), worth=30,
             apart=True, method="forward"),
    RuleInfo("GV116", "compiled", file="variants", catches="forgets_a_factor_when_compiled",
             price=Calls(4, 4), worth=60, apart=True),
    RuleInfo("GV117", "under-autocast", file="low_precision",
             catches="forgets_the_scale_in_16_bits", price=Calls(8, 8), worth=55, apart=True),
    RuleInfo("GV118", "devices", file="variants", catches="forgets_a_factor_on_cuda", apart=True,
             price=Calls(2, 2), worth=60),
    RuleInfo("GV009", "could-not-fail", file="unjudged", severity="warning", last=True,
             verdict="error"),
    RuleInfo("GV119", "fewer-bits", file="low_precision", catches="subtracts_squares_in_tf32",
             price=Calls(6, 6), worth=58, apart=True),
    RuleInfo("GV007", "undecided", file="unjudged", last=True, verdict="undecided"),
)


def codes() -> tuple[str, ...]:
    """All rule codes in order."""
    return tuple(sorted(info.code for info in _TABLE))


def names() -> tuple[str, ...]:
    """All rule names in the order of their codes."""
    return tuple(info.name for info in sorted(_TABLE, key=lambda info: info.code))


@cache
def book() -> Mapping[str, RuleInfo]:
    """The rules by code, in the order of the codes, with their pages."""
    return {info.code: _with_page(info) for info in sorted(_TABLE, key=lambda info: info.code)}


def rules() -> tuple[RuleInfo, ...]:
    """The whole book in the order of the codes."""
    return tuple(book().values())


@cache
def asked() -> tuple[RuleInfo, ...]:
    """The rules that look at a subject, in the order in which they are asked."""
    return tuple(book()[info.code] for info in _TABLE if info.asked)


def rule(code: str) -> RuleInfo | None:
    """One rule by its code or by its name; None where there is none."""
    wanted = code.strip().lower().replace("_", "-")
    return next((info for info in rules() if wanted in (number := info.code.lower(), info.name, f"{number}-{info.name}")), None)


def _with_page(info: RuleInfo) -> RuleInfo:
    page = (PAGES / f"{info.module}.md").read_text(encoding="utf-8").rstrip("\n")
    return replace(info, page=page, message=page.partition("\n")[0].partition(": ")[2])
