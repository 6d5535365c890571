"""Holds the words for what a report classifies: activities, causes of idle time, statuses, severities.

Each key of the JSON has one display name, used in terminal, Markdown, HTML and Perfetto alike, with the letter and
the colour that tell it apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, structs

from traceview.base.text import lazy_pattern
from traceview.ledger.states import MEANINGS, State


class Look(Struct, frozen=True):
    """How a key is written and drawn.

    `words`: its display name. `style`: the name of its colour (`COLOURS`) and of its class in the style sheets. `ink`:
    its style in a terminal. `letter`: tells it apart without colour. `meaning`: its definition in half a sentence.
    `is_hatched`: drawn as a hatched grey, for nothing is known or nothing was expected.
    """

    key: str
    words: str
    style: str = ""
    ink: str = ""
    letter: str = ""
    meaning: str = ""
    is_hatched: bool = False


def _by_key(*looks: Look) -> Mapping[str, Look]:
    return {look.key: look for look in looks}


CLASSES: Final = _by_key(
    Look("compute", "compute", "compute", "green", "", "a kernel that is not a collective ran"),
    Look("collective", "communication", "communication", "magenta", "", "a collective ran"),
    Look("h2d", "HtoD copies", "h2d", "cyan", "", "data was copied from the host"),
    Look("d2h", "DtoH copies", "d2h", "cyan", "", "data was copied to the host"),
    Look("d2d", "DtoD copies", "d2d", "cyan", "", "data was copied on or between devices"),
    Look("memset", "fills", "memset", "cyan", "", "memory was filled"),
)
"""Activities of a device, in the order in which exposed time is attributed."""

_FAMILY: Final = {
    State.TURN: State.DEVICE_WAIT,
    State.PYTHON_THREAD: State.PYTHON,
    State.NO_CORE: State.HOST_OPS,
    State.GARBAGE_COLLECTION: State.PYTHON,
    State.BETWEEN_CALLS: State.PYTHON,
    State.EVALUATION: State.BETWEEN,
}
"""States that share a colour with another one of their family, and have a letter of their own."""


def _state(state: State) -> Look:
    known = MEANINGS[state]
    style = _FAMILY.get(state, state).key.replace("_", "-")
    return Look(
        state.key,
        known.name,
        style,
        known.ink,
        known.letter,
        known.meaning,
        is_hatched=known.ink == "dim",
    )


STATES: Final = _by_key(*map(_state, State))
"""States of a device; each instant of it is in one of them."""


PARTS: Final = _by_key(
    structs.replace(CLASSES["compute"], letter="#"),
    structs.replace(CLASSES["collective"], letter="%", words="communication and waits in it"),
    Look("copies", "copies and fills", "copies", "cyan", "=", "data was copied or memory filled"),
    Look("idle", "idle", "idle", "dim", ".", "nothing ran on the device"),
)
"""Parts of a window, where there is no room for every class."""

STEP_KINDS: Final = _by_key(
    Look("train", "step", "step"),
    Look("eval", "evaluation step", "step-eval"),
    Look("excluded", "step left out of statistics", "step-excluded", is_hatched=True),
)

STATUSES: Final = _by_key(
    Look("active", "active"),
    Look("marginal", "marginal", "warning", "yellow"),
    Look("copy_only", "copies, no kernel", "warning", "yellow"),
    Look("memory_only", "memory, no kernel", "critical", "red"),
    Look("empty", "no event", "critical", "red"),
)
"""Statuses of a device in the whole recording."""

SEVERITIES: Final = _by_key(
    Look("critical", "critical", "critical", "bold red"),
    Look("warning", "warning", "warning", "bold yellow"),
    Look("info", "info", "info", "bold blue"),
)

VERDICT_STATUSES: Final = _by_key(
    Look("problem", "problem", "warning", "bold yellow"),
    Look("healthy", "ok", "ok", "bold green"),
    Look("unreliable", "unreliable", "degraded", "bold yellow"),
    Look("unusable", "unusable", "unusable", "bold red"),
)
"""Labels of a headline that no finding leads."""

QUALITIES: Final = _by_key(
    Look("ok", "ok, with remarks", "ok", "green"),
    Look("degraded", "degraded: some numbers are incomplete", "degraded", "yellow"),
    Look(
        "unusable",
        "unusable for what devices did: the trace holds no device event",
        "unusable",
        "red",
    ),
)
"""How far a capture can be trusted."""

DEVICE_KINDS: Final = _by_key(
    Look("gpu", "GPU"), Look("tpu", "TPU"), Look("replica", "replica"), Look("other", "device")
)


STEP_METHODS: Final = _by_key(
    Look("marker", "by explicit markers"),
    Look("keras", "by the markers of Keras"),
    Look("group", "by the step groups in the trace"),
    Look("function", "by a function call that repeats"),
    Look("period", "by a kernel sequence that repeats"),
    Look("mixed", "by several methods"),
)
"""How steps were detected."""

WINDOWS: Final = _by_key(
    Look("steps", "first to last step"),
    Look("devices", "first to last device event"),
    Look("trace", "the whole profile"),
)
"""The time span that times and counts refer to."""

_GROUND_COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "ink": ("#1b2330", "#e4e8ee"),
    "soft": ("#566072", "#9aa5b5"),
    "ground": ("#ffffff", "#14181f"),
    "row": ("#f3f5f8", "#1b212a"),
    "line": ("#d5dae1", "#38414f"),
    "idle": ("#cfd5dd", "#3a4350"),
    "mark": ("#0b57c4", "#7fb2ff"),
}
"""Colours of what is no data: on a light ground, and on a dark one."""

SLICE_COLOURS: Final[Mapping[str, str]] = {
    "compute": "#209c61",
    "communication": "#887db7",
    "copies": "#5b8f92",
    "h2d": "#5b8f92",
    "d2h": "#a4cdce",
    "d2d": "#84a8c0",
    "memset": "#e4d4c3",
    "input": "#d86408",
    "compile": "#e4408b",
    "sync": "#dba50f",
    "checkpoint": "#5683fe",
    "launch": "#fd5767",
    "between": "#f4da00",
    "python": "#c0cf7d",
    "host-ops": "#bad5fd",
    "device-wait": "#bca3ff",
    "dependency": "#75ba90",
    "latency": "#828a94",
    "unknown": "#a9afb8",
    "no-work": "#d5dae0",
    "host": "#aab3bf",
    "step": "#b9c8de",
    "step-eval": "#d9b48f",
    "step-excluded": "#d9d9d4",
    "slow": "#a9b6c8",
    "slice-ink": "#10151c",
    "hatch": "#ffffff",
}
"""Colours of data, and of the text on it: the same on both grounds, so that dark text can be read on every slice.

Chosen by computation: any two that can be neighbours differ for people who see red and green alike, too
(tests/document/test_palette.py). Copies to the device and the wait for one have one colour, as they are one part of a step.
"""

COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    **_GROUND_COLOURS,
    **{style: (colour, colour) for style, colour in SLICE_COLOURS.items()},
}
"""By the style of a look, and by the parts of a chart that are no data: its colour on a light ground, and on a dark one."""


_OF_PYTHON: Final = lazy_pattern(r"traceview|python[\d.]*")
"""A thread that Python started has the name of the program: of the interpreter, or of `traceview capture`."""


def thread_name(name: str | None) -> str | None:
    """The name of a thread in a cell of a table; that of the program says nothing."""
    return "Python thread" if _OF_PYTHON.fullmatch(name or "") else name


def thread_words(name: str | None) -> str:
    """`thread tf_Compute/17`, or `Python thread`."""
    shown = thread_name(name)
    return str(shown) if shown != name else f"thread {name}"


def look_of(looks: Mapping[str, Look], key: str) -> Look:
    """The look of a key; of one that a later version may have added, the key itself."""
    return looks.get(key) or Look(key, key)
