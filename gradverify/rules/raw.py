"""Which argument a gradient belongs to that a backward returned: of the checked function, where it can be told."""

from __future__ import annotations

from gradverify.evidence import Evidence
from gradverify.subject.graph import Edge, RawReturn


def edges_by_place(raw: RawReturn) -> dict[int, Edge]:
    """What the engine expects at each place of the returned gradients that needs one."""
    places = (place for place, needed in enumerate(raw.needs) if needed)
    return dict(zip(places, (edge for edge in raw.edges if edge is not None), strict=False))


def input_at(evidence: Evidence, raw: RawReturn, place: int) -> str | None:
    """The argument of the checked function at that place: by its position, or because it is the very leaf. None: something inside the function."""
    positions = evidence.subject.positions
    if raw.cls is evidence.subject.target.subject and place < len(positions) == len(raw.needs):
        return positions[place][0].whole
    edge = edges_by_place(raw).get(place)
    leaves = zip(evidence.forward.leaves, evidence.inputs, strict=True)
    return next((argument.name for leaf, argument in leaves if edge is not None and edge.leaf == id(leaf)), None)
