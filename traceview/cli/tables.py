"""Lists the tables of `traceview show`: of each what its rows are, and which options have a meaning for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from traceview.document.vocabulary import CLASSES, STATES
from traceview.ledger.states import IDLE_STATES


class TableKind(Struct, frozen=True):
    """A table of a trace.

    `summary`: what its rows are. `states`: what `--state` takes, by key its display name; empty where it has no meaning;
    `state`: the column that holds them, "" where the rows are made for the states. `length`: the column that `--min` bounds,
    or "". `sort`: the column that rows are sorted by. `within`: each value of this column has its own order and its own
    `--top` rows. `things`: columns that together name what `--top` counts and the order is of, where it has several rows;
    such a thing is as large as its largest row. `top`: so many on a terminal. `has_devices`: whether rows are about devices.
    """

    summary: str
    states: Mapping[str, str] = {}
    state: str = ""
    length: str = ""
    sort: str = ""
    things: tuple[str, ...] = ()
    within: str = ""
    top: int | None = None
    has_devices: bool = True


def _words(looks: Mapping[str, Any], keys: Iterable[str] | None = None) -> dict[str, str]:
    """Display names by key."""
    return {key: looks[key].words for key in (looks if keys is None else keys)}


TABLES: Final = {
    "gaps": TableKind(
        "when a device did nothing, and why",
        states=_words(STATES, (state.key for state in IDLE_STATES)),
        length="duration_ps",
        top=20,
    ),
    "steps": TableKind(
        "how long each step took, and what went into it",
        length="duration_ps",
        things=("host", "number"),
        top=40,
    ),
    "devices": TableKind("how busy each device was, and with what"),
    "ops": TableKind(
        "every op and kernel",
        states=_words(CLASSES),
        state="class",
        length="total_ps",
        sort="total_ps",
        within="device",
        top=50,
    ),
    "layers": TableKind(
        "which layers and lines take the compute",
        length="compute_ps_per_step",
        sort="compute_ps_per_step",
        within="device",
        top=50,
    ),
    "efficiency": TableKind("how many FLOP/s each device computes, and how far from its peak"),
    "memory": TableKind(
        "what fills the memory of GPUs at its peak", sort="bytes", within="device", top=50
    ),
    "input": TableKind("the stages of tf.data", length="self_ps", has_devices=False),
    "copies": TableKind(
        "what issues copies between host and GPUs",
        states=_words(CLASSES, ("h2d", "d2h", "d2d")),
        state="direction",
        length="total_ps",
        within="device",
    ),
    "collectives": TableKind(
        "who waits in which collective", length="duration_ps", things=("collective",), top=10
    ),
    "balance": TableKind("how evenly the devices work"),
    "findings": TableKind("what the report concludes", states=_words(STATES)),
}
"""The tables of a trace by name, in the order in which the help shows them. Rows on a terminal: the longest fit on one
screen, with room for the rest of the answer."""
