"""Lists the states of a device: each has one key, one name, one letter, one colour and one meaning.

A device is in exactly one state at any instant. Flags, legends, sentences, JSON and code use these names and no others.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from traceview.trace.state import KEYS as KEYS
from traceview.trace.state import State as State
from traceview.xplane.planes import ActivityClass


class Meaning(Struct, frozen=True):
    """How a state is written and drawn: `name` in sentences and legends, `letter`, `ink` in a terminal, and what it means.

    `phrase`: completes "GPU:0 waits 3.0 of 10.0 ms …"; empty where nobody waits.
    """

    name: str
    letter: str
    ink: str
    meaning: str
    phrase: str = ""


MEANINGS: Final[dict[State, Meaning]] = {
    State.COMPUTE: Meaning(
        "compute", "#", "green", "a kernel ran that is no collective; on a CPU an op"
    ),
    State.COMMUNICATION: Meaning(
        "communication",
        "%",
        "magenta",
        "a collective transferred data, or all devices waited to meet again, and nothing computed",
    ),
    State.DEVICE_WAIT: Meaning(
        "waiting for a device",
        "W",
        "bright_magenta",
        "another device had not reached a collective, or held up the next work",
        "for another device",
    ),
    State.H2D: Meaning(
        "HtoD copies",
        "=",
        "cyan",
        "data was copied from the host and nothing computed, or work waited for such a copy",
        "for HtoD copies",
    ),
    State.D2H: Meaning(
        "DtoH copies", "<", "cyan", "data was copied to the host and nothing computed"
    ),
    State.D2D: Meaning(
        "DtoD copies", ">", "cyan", "data was copied or filled on devices and nothing computed"
    ),
    State.INPUT: Meaning(
        "input",
        "I",
        "red",
        "the next batch was not ready, or the pipeline took the cores",
        "for input",
    ),
    State.HOST_OPS: Meaning(
        "host ops",
        "C",
        "bright_blue",
        "the host dispatched ops, or ran ops that have no kernel for the device",
        "for host ops",
    ),
    State.LAUNCH: Meaning(
        "kernel launches",
        "L",
        "bright_red",
        "the host launched ops one after the other, slower than the device ran them",
        "for kernel launches",
    ),
    State.PYTHON: Meaning(
        "Python in the step",
        "Y",
        "bright_green",
        "samples or frames show Python on the launching thread",
        "for Python in the step",
    ),
    State.BETWEEN_CALLS: Meaning(
        "between calls",
        "N",
        "green",
        "the launching thread recorded nothing until Python called the next op, function or copy",
        "between recorded calls",
    ),
    State.PYTHON_THREAD: Meaning(
        "another Python thread",
        "G",
        "bright_white",
        "the step waited for another thread of Python: for its lock, for what it makes, or for its core",
        "for another Python thread",
    ),
    State.NO_CORE: Meaning(
        "no core",
        "Q",
        "bright_blue",
        "a thread of the step was ready and other processes had the cores",
        "for a core",
    ),
    State.GARBAGE_COLLECTION: Meaning(
        "garbage collection",
        "M",
        "bright_green",
        "Python collected garbage and kept its lock meanwhile",
        "for Python's garbage collector",
    ),
    State.BETWEEN: Meaning(
        "between steps",
        "B",
        "bright_yellow",
        "the host was between two steps: callbacks, logging, or a wait",
        "between steps",
    ),
    State.EVALUATION: Meaning(
        "evaluation", "E", "yellow", "the host evaluated between two steps", "for an evaluation"
    ),
    State.CHECKPOINT: Meaning(
        "checkpoint", "K", "blue", "variables were saved or restored", "for checkpoints"
    ),
    State.COMPILE: Meaning(
        "tracing and compilation",
        "X",
        "magenta",
        "the host traced a function, compiled with XLA, tuned kernels or loaded a module",
        "for tracing and compilation",
    ),
    State.SYNC: Meaning(
        "sync",
        "S",
        "yellow",
        "the host was blocked until a device had finished or a value was copied back",
        "while the host reads a value",
    ),
    State.TURN: Meaning(
        "another device's turn",
        "V",
        "bright_magenta",
        "the devices run one after another, and another one computed",
        "for the turn of another device",
    ),
    State.DEPENDENCY: Meaning(
        "stream dependency",
        "D",
        "bright_cyan",
        "work was queued behind another stream or an event",
        "for another stream",
    ),
    State.LATENCY: Meaning(
        "launch latency",
        "T",
        "dim",
        "work was queued for less than 20 µs, the ordinary delay of a launch",
        "for launch latency",
    ),
    State.NO_WORK: Meaning(
        "no work recorded",
        "U",
        "dim",
        "the device has no recorded compute, or far less than the others, and they were at work",
        "without recorded work",
    ),
    State.UNKNOWN: Meaning(
        "not known", "?", "dim", "no recorded event shows a cause", "without a recorded cause"
    ),
}

_OF_WORK: Final = (State.COMPUTE, State.COMMUNICATION, State.D2H, State.D2D)
IDLE_STATES: Final = tuple(state for state in State if state not in _OF_WORK)
"""The states that a device can be in while it does nothing."""
BY_KEY: Final = {state.key: state for state in State}

OF_CLASS: Final = {
    ActivityClass.COMPUTE: State.COMPUTE,
    ActivityClass.COLLECTIVE: State.COMMUNICATION,
    ActivityClass.H2D: State.H2D,
    ActivityClass.D2H: State.D2H,
    ActivityClass.D2D: State.D2D,
    ActivityClass.MEMSET: State.D2D,
}
"""The state of a device that is busy, by the class of what it does; waiting inside a collective is found apart."""
