"""What to add to the times of each host, recomputed from the ends of the collectives that hosts share.

As in docs/method.md, "Clocks of several hosts": with recorded profile starts a clock is moved only if the median difference of the ends is more than
three times their robust spread; of fewer than three collectives none is. Parameter servers are not known here.
"""

from __future__ import annotations

from tests.oracle.collectives import Collective, find_collectives
from tests.oracle.model import HostAnswer

MIN_COLLECTIVES = 3
CLEAR = 3
SIGMA = 1.4826


def find_clocks(answers: list[HostAnswer]) -> tuple[dict[str, int], dict[str, int]]:
    """Picoseconds to add and spread of the ends, by name of host; the first host with shared collectives stays."""
    spreads: dict[str, int] = {}
    clocks = {answer.host.name: 0 for answer in answers}
    if len(answers) < 2:
        return clocks, spreads
    ends = [_ends(collective) for collective in find_collectives(answers) if collective.complete]
    placed: list[HostAnswer] = []
    for answer in answers:
        name = answer.host.name
        shared = [end_of for end_of in ends if name in end_of and len(end_of) > 1]
        if len(shared) < MIN_COLLECTIVES:
            continue
        if not placed:
            placed.append(answer)
            continue
        reference = placed[0]
        first = reference.host.name
        pairs = [(end_of[first], end_of[name]) for end_of in shared if first in end_of]
        if len(pairs) < MIN_COLLECTIVES:
            continue
        ahead = [own - other for other, own in pairs]
        middle = _middle(ahead)
        spread = SIGMA * _middle([abs(difference - middle) for difference in ahead])
        spreads[name] = round(spread)
        known = answer.host.start_ns is not None and reference.host.start_ns is not None
        if not known or abs(middle) > CLEAR * spread:
            clocks[name] = -middle
    return clocks, spreads


def _ends(collective: Collective) -> dict[str, int]:
    """The last end of a collective on each host."""
    ends: dict[str, int] = {}
    for part in collective.parts:
        name = part.answer.host.name
        ends[name] = max(part.end, ends.get(name, part.end))
    return ends


def _middle(values: list[int]) -> int:
    """The median in integers, rounded down."""
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low + (high - low) // 2
