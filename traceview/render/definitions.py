"""What do the words of a report mean? For a reader who was not there when it was made."""

from __future__ import annotations

from typing import Final

TERMS: Final = (
    ("window", "the span of time that all times and counts speak of"),
    ("step", "from the marker of one training step to that of the next; its time is this period"),
    ("busy", "something ran on the device: the union over its streams, never a sum"),
    ("compute", "a kernel that is not a collective ran"),
    (
        "exposed",
        "communication, a copy or a fill while nothing before it in the order of the table ran",
    ),
    ("idle", "the rest of the window: compute, what is exposed, and idle add up to it exactly"),
    ("gap", "a span in which a device did nothing"),
    (
        "cost",
        "what a finding takes of each step; costs overlap, so they do not add up",
    ),
    (
        "confidence",
        "how directly the trace shows it: high is recorded, medium is concluded, low is a guess from little",
    ),
)
"""Word and meaning, in the order in which a page needs them."""

CAUSES: Final = {
    "input": "the host waited for the next element of a dataset",
    "h2d": "a blocking copy to the device, or the time from the end of a copy to the kernel that needed it",
    "compile": "tracing of a tf.function, XLA, autotuning or loading of a module",
    "sync": "the host was blocked until a device or a value was ready",
    "checkpoint": "variables were saved or restored",
    "launch": "the host was launching or scheduling ops, one after the other",
    "callback": "the host was between two steps: callbacks, logging, evaluation",
    "host_compute": "the host ran CPU ops of the step",
    "peer": "another device had not come to the collective that was due",
    "dependency": "queued behind another stream or event",
    "latency": "queued for less than 20 µs, the ordinary delay of a launch",
    "unattributed": "nothing recorded shows a cause",
    "unused": "the device ran no kernel in the window",
}
"""What a device waited for, by the key of the cause."""
