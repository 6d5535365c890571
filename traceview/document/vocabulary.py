"""Holds the words for what a report classifies: activities, causes of idle time, statuses, severities.

Each key of the JSON has one display name, used in terminal, Markdown, HTML, SVG and Perfetto alike, with the letter and
the colour that tell it apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, structs


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


def _cause(key: str, letter: str, ink: str, words: str, meaning: str) -> Look:
    style = f"idle-{key.replace('_', '-')}"
    return Look(key, words, style, ink, letter, meaning, is_hatched=ink == "dim")


CAUSES: Final = _by_key(
    _cause(
        "input",
        "I",
        "red",
        "waiting for input",
        "the host waited for the next batch of the dataset",
    ),
    _cause(
        "h2d",
        "H",
        "cyan",
        "waiting for a copy",
        "a blocking copy to the device, or the time from the end of a copy to the kernel that needed it",
    ),
    _cause(
        "compile",
        "X",
        "magenta",
        "tracing and compilation",
        "the host traced a tf.function, compiled with XLA, tuned kernels or loaded a module",
    ),
    _cause(
        "sync",
        "S",
        "yellow",
        "host waiting for a value",
        "the host was blocked until a device had finished or a value was copied back",
    ),
    _cause("checkpoint", "K", "blue", "checkpoints", "variables were saved or restored"),
    _cause(
        "launch",
        "L",
        "bright_red",
        "kernel launches",
        "the host launched or scheduled ops one after the other, slower than the device ran them",
    ),
    _cause(
        "callback",
        "B",
        "bright_yellow",
        "Python between steps",
        "the host was between two steps: callbacks, logging, evaluation",
    ),
    _cause(
        "host_compute",
        "C",
        "bright_blue",
        "host work for ops",
        "the host dispatched ops of the step, or ran ops that have no kernel for the device",
    ),
    _cause(
        "python",
        "Y",
        "bright_green",
        "Python between calls",
        "the thread recorded nothing until Python called the next op, function or copy",
    ),
    _cause(
        "peer",
        "P",
        "bright_magenta",
        "another device still busy",
        "another replica still worked, or another GPU was still in the collective before the next kernel",
    ),
    _cause(
        "dependency",
        "D",
        "bright_cyan",
        "stream dependency",
        "work was queued behind another stream or an event",
    ),
    _cause(
        "latency",
        "T",
        "dim",
        "launch latency",
        "work was queued for less than 20 µs, the ordinary delay of a launch",
    ),
    _cause("unattributed", "?", "dim", "no recorded cause", "the trace shows no cause"),
    _cause("unused", "U", "dim", "no kernel ran", "the device ran no kernel in the window"),
)
"""What an idle device waited for, in the order in which one cause is preferred to the next."""

CLASSES: Final = _by_key(
    Look("compute", "compute", "compute", "green", "", "a kernel that is not a collective ran"),
    Look("collective", "communication", "communication", "magenta", "", "a collective ran"),
    Look("h2d", "copies to the device", "h2d", "cyan", "", "data was copied from the host"),
    Look("d2h", "copies from the device", "d2h", "cyan", "", "data was copied to the host"),
    Look(
        "d2d", "copies between devices", "d2d", "cyan", "", "data was copied on or between devices"
    ),
    Look("memset", "fills", "memset", "cyan", "", "memory was filled"),
)
"""What a device does, in the order in which exposed time is attributed."""

PATH_PARTS: Final[Mapping[str, Look]] = {
    **CAUSES,
    **{
        key: structs.replace(look, letter=letter)
        for (key, look), letter in zip(CLASSES.items(), "#%=<>+", strict=True)
    },
    "h2d": structs.replace(
        CLASSES["h2d"], words="copies to the device and waits for them", letter="="
    ),
}
"""What a critical path consists of: what a device does, and what it waits for; a copy and the wait for it are one part."""

STEP_PARTS: Final[Mapping[str, Look]] = {
    **PATH_PARTS,
    "collective_wait": Look(
        "collective_wait",
        "waiting in collectives",
        "idle-peer",
        "bright_magenta",
        "W",
        "the device was in a collective that another device had not reached",
    ),
}
"""What the mean step of a device consists of: as the path, and the waiting inside collectives apart from their transfer.

Both kinds of waiting for another device have one colour and two letters.
"""

PARTS: Final = _by_key(
    structs.replace(CLASSES["compute"], letter="#"),
    structs.replace(CLASSES["collective"], letter="%"),
    Look("copies", "copies and fills", "copies", "cyan", "=", "data was copied or memory filled"),
    Look("idle", "idle", "idle", "dim", ".", "nothing ran on the device"),
)
"""What a window is made of, where there is no room for every class."""

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
"""What a device did in the whole recording."""

SEVERITIES: Final = _by_key(
    Look("critical", "critical", "critical", "bold red"),
    Look("warning", "warning", "warning", "bold yellow"),
    Look("info", "info", "info", "bold blue"),
)

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
    Look("iterator", "by an input iterator that repeats"),
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

VERDICTS: Final = _by_key(
    Look("high", "high", "critical", "red"),
    Look("moderate", "moderate", "warning", "yellow"),
    Look("none", "low"),
)
"""How much of the step is lost, to input or to exposed copies."""

BOUNDS: Final = _by_key(
    Look("no_input_wait", "recorded waits for input removed"),
    Look("no_exposed_collectives", "communication hidden"),
    Look("no_exposed_copies", "copies hidden"),
    Look("concurrent_devices", "compute fully overlapped"),
    Look("balanced_devices", "overlapped and shared evenly"),
)
"""What would have to change for a step to take no less than a bound."""

_GROUND_COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "ink": ("#1b2330", "#e4e8ee"),
    "soft": ("#566072", "#9aa5b5"),
    "ground": ("#ffffff", "#14181f"),
    "row": ("#f3f5f8", "#1b212a"),
    "line": ("#d5dae1", "#38414f"),
    "idle": ("#cfd5dd", "#3a4350"),
    "mark": ("#0b57c4", "#7fb2ff"),
}
"""What is no data: on a light ground, and on a dark one."""

SLICE_COLOURS: Final[Mapping[str, str]] = {
    "compute": "#209c61",
    "communication": "#887db7",
    "copies": "#5b8f92",
    "h2d": "#5b8f92",
    "d2h": "#a4cdce",
    "d2d": "#84a8c0",
    "memset": "#e4d4c3",
    "idle-input": "#d86408",
    "idle-h2d": "#5b8f92",
    "idle-compile": "#e4408b",
    "idle-sync": "#dba50f",
    "idle-checkpoint": "#5683fe",
    "idle-launch": "#fd5767",
    "idle-callback": "#f4da00",
    "idle-python": "#c0cf7d",
    "idle-host-compute": "#bad5fd",
    "idle-peer": "#bca3ff",
    "idle-dependency": "#75ba90",
    "idle-latency": "#828a94",
    "idle-unattributed": "#a9afb8",
    "idle-unused": "#d5dae0",
    "host": "#aab3bf",
    "step": "#b9c8de",
    "step-eval": "#d9b48f",
    "step-excluded": "#d9d9d4",
    "slow": "#a9b6c8",
    "slice-ink": "#10151c",
    "hatch": "#ffffff",
}
"""What is data, and the text on it: the same on both grounds, so that dark text can be read on every slice.

Chosen by computation: any two that can be neighbours differ for people who see red and green alike, too
(tests/document/test_palette.py). Copies to the device and the wait for one have one colour, as they are one part of a step.
"""

COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    **_GROUND_COLOURS,
    **{style: (colour, colour) for style, colour in SLICE_COLOURS.items()},
}
"""By the style of a look, and by the parts of a chart that are no data: its colour on a light ground, and on a dark one."""


_OF_PYTHON: Final = re.compile(r"traceview|python[\d.]*")
"""A thread that Python started has the name of the program: of the interpreter, or of `traceview capture`."""


def thread_words(name: str | None) -> str:
    """`thread tf_Compute/17`; `Python thread` for one that bears the name of the program, which says nothing."""
    return "Python thread" if _is_of_python(name) else f"thread {name}"


def a_thread(name: str | None) -> str:
    """The same inside of a sentence: `a Python thread`."""
    return f"a {thread_words(name)}" if _is_of_python(name) else thread_words(name)


def thread_name(name: str | None) -> str | None:
    """The name of a thread in a cell of a table."""
    return thread_words(name) if _is_of_python(name) else name


def _is_of_python(name: str | None) -> bool:
    return _OF_PYTHON.fullmatch(name or "") is not None


def look_of(looks: Mapping[str, Look], key: str) -> Look:
    """The look of a key; of one that a later version may have added, the key itself."""
    return looks.get(key) or Look(key, key)


TERMS: Final = (
    ("window", "the time span that all times and counts refer to"),
    (
        "step",
        "from the marker of one training step to the marker of the next; this period is the step time",
    ),
    (
        "busy",
        (
            "something ran on the device: the union over its streams, never a sum. A collective runs while it waits for "
            "another device, too"
        ),
    ),
    ("compute", "a kernel that is not a collective ran"),
    (
        "exposed",
        "communication while nothing computes, a copy while neither runs, a fill while nothing else runs",
    ),
    ("idle", "nothing ran; compute, exposed time and idle time add up to the window exactly"),
    ("gap", "a span in which a device did nothing"),
    ("cost", "the time that a finding takes of each step; costs overlap, so they do not add up"),
    (
        "confidence",
        "how directly the trace shows it: high is recorded, medium is concluded, low is a guess from little data",
    ),
    (
        "critical path",
        "the chain of activity and waiting, followed from device to device, that made a step as long as it was",
    ),
    (
        "recoverable",
        (
            "the largest cost of a finding, saving of a bound or loss on the critical path, and all idle time of the "
            "path without a recorded cause, at most the step: an upper bound of what one change can save. Costs overlap, "
            "so they are not added up"
        ),
    ),
)
"""Words of every document with their definitions; docs/method.md has them in full."""
