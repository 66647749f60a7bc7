"""The constants that constants.py measures again, each with the question that it answers. Their
names are from `gradverify.numerics`, as altered.py gives them; this is the one place that says
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ROUGH, FAMILIES = "rough", "families"
# A few functions for each
TREADS, TINY, NOISE, FLOAT32 = (("treads",), ("tiny",), ("noise",), ("float32",))


@dataclass(frozen=True)
class Listed:
    """`counted`: a whole number, or rungs: changed by one and two, not by factors. `on`: the checks
    that it is judged by, of judging.py."""

    question: str
    counted: bool = False
    on: tuple[str, ...] = (ROUGH,)


EVERY = (ROUGH, FAMILIES)
LISTED: Mapping[str, Listed] = {
    # steps and bars
    "rungs.Z": Listed("How many standard deviations of noise does an error bar take in?", on=EVERY),
    "rungs.ULP": Listed(
        "By how many roundoffs are operations off where they are rounded at random?"
    ),
    "rungs.RATIO": Listed("By what is each step smaller than the one before?"),
    "rungs.BASE": Listed("How large is the first step, as a fraction of the scale of x?"),
    "rungs.QUICK": Listed("Which steps are tried first?", counted=True),
    "rungs.CLIMB": Listed(
        "How many further steps are tried at a time where the first do not settle it?", counted=True
    ),
    "rungs.RUNGS": Listed("How many steps are there?", counted=True),
    "rungs.NEAR": Listed("Up to which step does a change of f tell a kink or a constant at x?"),
    "rungs.VISIBLE": Listed("From how many roundings on is a change surely seen?"),
    # the verdict
    "tolerance.FLOOR": Listed(
        "Below how many roundings of an output's natural unit is an entry not checked?"
    ),
    "tolerance.NOISE_CAP": Listed("How far may that floor follow a noisy f?"),
    "tolerance.ROUNDED": Listed("How many roundings of its row may a float32 backward lose?"),
    "tolerance.LIFT": Listed(
        "By how much may the largest row of a tensor lift the floor of the others?"
    ),
    "tolerance.SATURATED": Listed(
        "How many roundings of its tensor's values may a dead row in low precision hide?"
    ),
    "tolerance.NOISE_ONLY": Listed(
        "Within how many standard deviations of 0 is an output nothing but noise?"
    ),
    "rungs.RESOLVED": Listed("How many bars above 0 does a derivative stand out?"),
    "rungs.PIECE": Listed(
        "How many numbers at a time do long arrays go through their arithmetic in?"
    ),
    # noise
    "estimate.noise.FLAT": Listed(
        "Within which factor must three orders of differences agree to be the noise?"
    ),
    "estimate.noise.FIRST_DIGIT": Listed("By how much of f may the points of the noise differ?"),
    "estimate.noise.FINE": Listed(
        "How far apart are the points of the noise, as a fraction of the scale?"
    ),
    "estimate.noise.WIDEST": Listed("How far apart may they be at most?"),
    "estimate.noise.POOL_CAP": Listed(
        "Up to which relative noise do outputs take that of their tensor?"
    ),
    # extrapolation, kinks, staircases
    "estimate.ladder.JUMPS": Listed(
        "Of the coarsest change: what must a change shrink to so that it is no jump?"
    ),
    "estimate.ladder.BENDS": Listed(
        "Which ratio of second differences over two steps still is that of a smooth function?"
    ),
    "estimate.ladder.AT_X": Listed("Below which step must a kink show so that it lies at x?"),
    "estimate.ladder.SINKS": Listed("How far above the noise must a kink be seen?"),
    "estimate.ladder.GROWTH": Listed("From which growth a step on is a one-sided slope infinite?"),
    "estimate.ladder.BORDER": Listed("How much wider is a bar where the domain ends?"),
    "estimate.ladder.QUIET": Listed(
        "How far below the noise must differences lie so that the noise was overestimated?"
    ),
    "estimate.ladder.TREAD": Listed(
        "Within how many roundings of f is a tread of a staircase straight?"
    ),
    "estimate.ladder.STAIR_STEP": Listed("Within which step must a staircase move?"),
    "estimate.ladder.HUMP": Listed("From which share of |f| on is a structure the function's own?"),
    "estimate.ladder.ORDERS": Listed("To how many orders is extrapolated?", counted=True),
    "estimate.ladder.CONFIRM": Listed(
        "How many finer steps must agree with a value of a long sequence?", counted=True
    ),
    "estimate.ladder.NOISE_SHARE": Listed("From which share of a bar on is noise what limits it?"),
    "estimate.ladder.NEGLIGIBLE": Listed(
        "Which growth of differences, of a quotient, is underestimated noise?"
    ),
    # before anything is called wrong
    "excuses.insensitive.TINY": Listed(
        "Below which size do small steps of an input prove nothing?", on=TINY
    ),
    "excuses.insensitive.OFF": Listed(
        "How much more than their noise may points between others be off?", on=TINY
    ),
    "excuses.insensitive.SIGNIFICANT": Listed(
        "Of what a quick step moves f by: which noise hides it?", on=TINY
    ),
    "excuses.insensitive.ALIKE": Listed(
        "How well must a gradient add up to what f does where it rounds inside?", on=TINY
    ),
    "excuses.insensitive.AWAY": Listed(
        "How far from tiny inputs is the rounding of f looked at?", on=TINY
    ),
    "excuses.insensitive.APART": Listed("How far apart are the points of that look?"),
    "excuses.insensitive.INNER": Listed(
        "From how many roundings of f on is noise a rounding inside?"
    ),
    "excuses.insensitive.INNERMOST": Listed("And up to how many of them may it be?", on=TINY),
    "excuses.order.NOISE_ROWS": Listed(
        "Of how many rows at a time is that noise looked at?", counted=True
    ),
    "excuses.order.PLACES": Listed(
        "How far away, in sizes of the input, is a grid looked for?", on=TREADS
    ),
    "excuses.order.TWIN": Listed(
        "How near to each of these places is f called once more?", on=TREADS
    ),
    "excuses.order.STILL": Listed("At which share of them must the two calls agree?", on=TREADS),
    "excuses.order.LEVELS": Listed(
        "How many values must an output of the tensor take?", counted=True, on=TREADS
    ),
    "excuses.order.HIGHEST": Listed(
        "From which share of the outputs on are steps the function's own?", on=TREADS
    ),
    "excuses.order.LIBRARY": Listed(
        "How many roundings of its arguments may an operation of backward lose?", on=FLOAT32
    ),
    # columns, rows, blocks
    "screen.SCREEN": Listed("By which share of its norm may a row or block be off?"),
    "screen.SLACK": Listed("How wide may the bar of one be that agrees?"),
    "survey.STRAY": Listed(
        "From how many standard deviations on is a move of a noisy f a dependence?"
    ),
    # a backward that differs in float32
    "rules.low_precision.LEAST": Listed(
        "By which share must a gradient differ in float32?", on=FLOAT32
    ),
    "rules.low_precision.ROUNDINGS": Listed(
        "How far are the inputs nudged to see whether it is steady?", on=FLOAT32
    ),
    # oracles
    "oracles.convergence.FORGOTTEN": Listed("Which share of a row is left of an initial guess?"),
    # what a comparison costs, by which `auto` chooses
    "choose.LENIENT": Listed("How many times the default seconds may a small check take?"),
    "choose.CLIMBED": Listed("Which share of the groups do the first steps leave open?"),
    "choose.CALL_OVERHEAD": Listed("How many seconds does a call cost beside the function's own?"),
    "choose.GRADCHECK_CALL": Listed("How many seconds do gradcheck's calls cost?"),
    "choose.SOLVED": Listed("How many seconds does an element cost?"),
    "choose.PULLED": Listed("How many seconds does a number of a compressed gradient cost?"),
    "rules.derivatives.THOROUGH": Listed(
        "How many seconds does every rung of an element of a second derivative cost?"
    ),
    "choose.RESIDENT": Listed("How many bytes does any comparison take?"),
    "choose.ELEMENT_BYTES": Listed("How many bytes does a coordinate take?"),
    "choose.BLOCKS_BYTES": Listed(
        "How many bytes does a coordinate take where blocks are compared?"
    ),
}
FACTS: Mapping[str, str] = {
    "rungs.U64": "a fact of float64",
    "rungs.U32": "a fact of float32",
    "rungs.U_BF16": "a fact of bfloat16",
    "rungs.WIDE_RUNG": "the place of a step in the sequence",
}
"""Constants of modules that say that theirs were set by measurement, which were not."""
