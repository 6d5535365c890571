"""Recognizes from its stack what the main thread does where no step ends.

The files and functions are those of TensorFlow 2.15 to 2.21 and Keras 2 and 3. The innermost line that is known
decides: a checkpoint that a callback writes is a checkpoint.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from traceview.trace.sidecar.hang import Hang, HangThread

Phase: TypeAlias = Literal[
    "checkpoint", "restore", "tracing", "input", "validation", "import", "step", "python"
]


class _Place(Struct, frozen=True):
    phase: Phase
    line: re.Pattern[str]


def _place(phase: Phase, file: str, function: str = r".*") -> _Place:
    return _Place(phase, re.compile(rf"(?:.*/)?{file}:\d+ in {function}", re.DOTALL))


_SAVING: Final = (
    r"(?:(?:checkpoint|saved_model|training/saving|saving|trainers)/.{0,200}|training/saver|training|"
    r"callbacks/model_checkpoint|callbacks/backup_and_restore|models/model|orbax/.{0,200})\.py"
)
_PLACES: Final = (
    _place("restore", _SAVING, r"_?(?:restore|load)\w*"),
    _place("checkpoint", _SAVING, r"_?(?:save|write)\w*"),
    _place("input", r"data/ops/iterator_ops\.py", r"(?:__next__|next|_next_internal|get_next\w*)"),
    _place("input", r"distribute/input_lib\.py", r"(?:__next__|get_next\w*|_\w*next\w*)"),
    _place("input", r"ops/data_flow_ops\.py", r"dequeue\w*"),
    _place("input", r"ops/gen_data_flow_ops\.py", r"queue_dequeue\w*"),
    _place("tracing", r"framework/func_graph\.py"),
    _place(
        "tracing", r"polymorphic_function/tracing_compilation\.py", r"_?(?:trace|create|maybe)\w*"
    ),
    _place("validation", r"(?:trainer|training)\w*\.py", r"(?:evaluate|predict)"),
    _place("import", r"<frozen importlib\.[^<>]*>"),
)
_CALL: Final = re.compile(r"(?:.*/)?eager/execute\.py:\d+ in .*", re.DOTALL)
"""Where TensorFlow runs a function or an op."""

_INPUT_THREAD: Final = re.compile(
    r"(?:.*/)?(?:ops/script_ops\.py|data/ops/from_generator_op\.py|py_data_adapter\.py|"
    r"data_adapters/py_dataset_adapter\.py|utils/data_utils\.py):\d+ in .*",
    re.DOTALL,
)
"""Code below which `tf.data` and Keras run the Python of an input pipeline."""

PHASE_WORDS: Final[dict[Phase, str]] = {
    "checkpoint": "a checkpoint is being written",
    "restore": "a checkpoint is being read",
    "tracing": "a function is being traced",
    "input": "the main thread waits for input",
    "validation": "validation or prediction is running",
    "import": "modules are being imported",
    "step": "the main thread is in a call of TensorFlow",
    "python": "the main thread runs Python outside of a step",
}


def phase_of(hang: Hang) -> Phase:
    """What the main thread does."""
    main = hang.main
    is_below_user = True
    for line in main.frames if main else ():
        # A script may run as a whole inside of an import.
        is_below_user = is_below_user and main is not None and line != main.user_line
        for place in _PLACES:
            if place.line.fullmatch(line) and (place.phase != "import" or is_below_user):
                return place.phase
    if hang.is_evaluation:
        return "validation"
    if hang.state == "attached" and main is not None and _CALL.fullmatch((*main.frames, "")[0]):
        return "step"
    return "step" if hang.is_step or hang.step_function is not None else "python"


def input_threads(hang: Hang) -> list[HangThread]:
    """The threads that run Python of the input pipeline, in both looks."""
    return [
        thread
        for thread in hang.threads
        if not thread.is_main and any(_INPUT_THREAD.fullmatch(line) for line in thread.frames)
    ]
