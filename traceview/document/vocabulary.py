"""Holds the words for what a report classifies: activities, causes of idle time, statuses, severities.

Each key of the JSON has one display name, used in terminal, Markdown, HTML, SVG and Perfetto alike, with the letter and
the colour that tell it apart.
"""

from __future__ import annotations

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
    _cause("input", "I", "red", "input", "the host waited for the next batch of the dataset"),
    _cause(
        "h2d",
        "H",
        "cyan",
        "copies to the device",
        "a blocking copy to the device, or the time from the end of a copy to the kernel that needed it",
    ),
    _cause(
        "compile",
        "T",
        "magenta",
        "tracing and compilation",
        "the host traced a tf.function, compiled with XLA, tuned kernels or loaded a module",
    ),
    _cause(
        "sync",
        "S",
        "yellow",
        "waiting for a value",
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
    _cause("host_compute", "C", "bright_blue", "CPU ops", "the host ran CPU ops of the step"),
    _cause(
        "peer",
        "P",
        "bright_magenta",
        "waiting for another device",
        "another device had not reached the collective that was due",
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
        "l",
        "dim",
        "launch latency",
        "work was queued for less than 20 µs, the ordinary delay of a launch",
    ),
    _cause("unattributed", "?", "dim", "no recorded cause", "the trace shows no cause"),
    _cause("unused", "u", "dim", "no kernel ran", "the device ran no kernel in the window"),
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
}
"""What a critical path consists of: what a device does, and what it waits for."""

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
    Look("unusable", "unusable for devices: it holds no event of any", "unusable", "red"),
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
    Look("no_input_wait", "no waiting for input"),
    Look("no_exposed_collectives", "communication hidden"),
    Look("no_exposed_copies", "copies hidden"),
    Look("concurrent_devices", "all devices computing at once"),
    Look("balanced_devices", "work shared evenly"),
)
"""What would have to change for a step to take no less than a bound."""

COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "ink": ("#1b2330", "#e4e8ee"),
    "soft": ("#566072", "#9aa5b5"),
    "ground": ("#ffffff", "#14181f"),
    "row": ("#f3f5f8", "#1b212a"),
    "line": ("#d5dae1", "#38414f"),
    "compute": ("#1c7c54", "#3aa876"),
    "communication": ("#7b4fb0", "#a57fdb"),
    "copies": ("#1787a8", "#35a9cb"),
    "h2d": ("#1787a8", "#35a9cb"),
    "d2h": ("#4fb3d1", "#86d3ea"),
    "d2d": ("#0c5a78", "#2b7fa0"),
    "memset": ("#8fa6b0", "#71858f"),
    "idle": ("#cfd5dd", "#3a4350"),
    "idle-input": ("#d2500a", "#f07a35"),
    "idle-h2d": ("#2e9ec0", "#3fb4d6"),
    "idle-compile": ("#b3218c", "#d95bb6"),
    "idle-sync": ("#d99a00", "#e6b23a"),
    "idle-checkpoint": ("#3c5fb8", "#6f8fe0"),
    "idle-launch": ("#e8765a", "#f29680"),
    "idle-callback": ("#c9b400", "#d8c83a"),
    "idle-host-compute": ("#6f92d8", "#8daae6"),
    "idle-peer": ("#b691e0", "#c6a8ee"),
    "idle-dependency": ("#6fb5a6", "#7cc4b5"),
    "idle-latency": ("#aeb8c4", "#6b7685"),
    "idle-unattributed": ("#c6ccd4", "#4d5765"),
    "idle-unused": ("#dde1e7", "#2c333e"),
    "step": ("#c9d6ea", "#33445e"),
    "step-eval": ("#d9cfea", "#463a5e"),
    "step-excluded": ("#e3e3e0", "#3b3d3f"),
    "mark": ("#0b57c4", "#7fb2ff"),
}
"""By the style of a look, and by the parts of a chart that are no data: its colour on a light ground, and on a dark one."""


def look_of(looks: Mapping[str, Look], key: str) -> Look:
    """The look of a key; of one that a later version may have added, the key itself."""
    return looks.get(key) or Look(key, key)


TERMS: Final = (
    ("window", "the time span that all times and counts refer to"),
    (
        "step",
        "from the marker of one training step to the marker of the next; this period is the step time",
    ),
    ("busy", "something ran on the device: the union over its streams, never a sum"),
    ("compute", "a kernel that is not a collective ran"),
    (
        "exposed",
        "communication, a copy or a fill while no activity that stands before it in the table ran",
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
