"""Follows in the report of a hang who waits for whom, from the main thread to what does not go on.

What the main thread does shows in its stack: the innermost line that is known decides, so that a checkpoint that a
callback writes is a checkpoint. Files and functions are those of TensorFlow 2.15 to 2.21, Keras 2 and 3, JAX 0.4.30 to
0.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from traceview.trace.sidecar.hang import Hang, HangThread, HangWorker, Wait

Phase: TypeAlias = Literal[
    "checkpoint", "restore", "tracing", "input", "validation", "import", "results", "step", "python"
]
End: TypeAlias = Literal[
    "lock",
    "worker",
    "device",
    "gpu",
    "thread-of-step",
    "thread-of-input",
    "input",
    "call",
    "results",
    "python",
]
"""What does not go on, at the end of the waits."""

WORKING_CORES: Final = 0.2
"""Processor time of the process from which on it works, in cores."""
_BUSY_RATIO: Final = 0.95
_IDLE_RATIO: Final = 0.05
"""Of a GPU that waits in a collective of NCCL, and of one that has not come to it."""

_SAVING: Final = (
    r"(?:(?:checkpoint|saved_model|training/saving|saving|trainers)/.{0,200}|training/saver|training|"
    r"callbacks/model_checkpoint|callbacks/backup_and_restore|models/model|orbax/.{0,200})\.py"
)
_CODE: Final[tuple[tuple[Phase, str, str], ...]] = (
    ("restore", _SAVING, r"_?(?:restore|load)\w*"),
    ("checkpoint", _SAVING, r"_?(?:save|write)\w*"),
    ("input", r"data/ops/iterator_ops\.py", r"(?:__next__|next|_next_internal|get_next\w*)"),
    ("input", r"distribute/input_lib\.py", r"(?:__next__|get_next\w*|_\w*next\w*)"),
    ("input", r"ops/data_flow_ops\.py", r"dequeue\w*"),
    ("input", r"ops/gen_data_flow_ops\.py", r"queue_dequeue\w*"),
    ("tracing", r"framework/func_graph\.py", r".*"),
    (
        "tracing",
        r"polymorphic_function/tracing_compilation\.py",
        r"_?(?:trace|create|maybe)\w*",
    ),
    ("tracing", r"jax/_src/(?:compiler|interpreters/(?:partial_eval|mlir))\.py", r".*"),
    ("results", r"jax/_src/array\.py", r"(?:_value|__\w+__)"),
    ("results", r"jax/_src/api\.py", r"(?:block_until_ready|device_get|effects_barrier)"),
    ("validation", r"(?:trainer|training)\w*\.py", r"(?:evaluate|predict)"),
    ("import", r"<frozen importlib\.[^<>]*>", r".*"),
)
_PLACES: Final = tuple(
    (phase, re.compile(rf"(?:.*/)?{file}:\d+ in {function}", re.DOTALL))
    for phase, file, function in _CODE
)
PHASE_WORDS: Final[Mapping[str, str]] = {
    "checkpoint": "a checkpoint is being written",
    "restore": "a checkpoint is being read",
    "tracing": "a function is being traced or compiled",
    "validation": "validation or prediction is running",
    "import": "modules are being imported",
    "step": "the step's call is still running",
    "results": "the devices still compute",
    "first": "the first call of {function} traces and compiles, or runs",
    "other": "{function} is being called, which is no training step",
    "input": "Python of the input pipeline computes",
    "python": "Python runs",
}
"""What a process does that works."""

_OF_INPUT: Final = re.compile(
    r"(?:.*/)?(?:data/ops/from_generator_op|py_data_adapter|data_adapters/py_dataset_adapter|utils/data_utils)\.py:\d+ in .*",
    re.DOTALL,
)
"""Code below which `tf.data` and Keras run the Python of an input pipeline."""
_OF_AN_OP: Final = re.compile(r"(?:.*/)?ops/script_ops\.py:\d+ in .*", re.DOTALL)
"""Code below which TensorFlow runs `tf.py_function`, of the input or of the step."""
_WAITING_FILES: Final[Mapping[Wait, tuple[str, ...]]] = {
    "lock": (
        "threading.py",
        "queue.py",
        "multiprocessing/synchronize.py",
        "multiprocessing/queues.py",
    ),
    "read": ("socket.py", "ssl.py", "http/client.py", "multiprocessing/connection.py"),
    "poll": ("selectors.py", "select.py"),
    "child": ("subprocess.py", "multiprocessing/popen_fork.py"),
}


class Waits(Struct, frozen=True):
    """Where the waits end. `works`: what the process does, a key of `PHASE_WORDS`; empty where nothing goes on.

    `thread`: the one at the end of the waits, None where that is none of Python.
    """

    end: End
    works: str = ""
    thread: HangThread | None = None


def follow(hang: Hang) -> Waits | None:
    """The end of the waits; None where too little is known."""
    main = hang.main
    if hang.is_lock_held:
        return Waits("lock", "", main)
    if main is None:
        return None
    phase = phase_of(hang, main)
    if phase == "input":
        return _input(next(_threads(hang, _OF_INPUT, _OF_AN_OP), main))
    if phase in ("step", "results", "tracing"):
        return _step(hang, main, phase)
    if phase == "python" and hang.calls_in_look and hang.other_function:
        return Waits("python", "other", main)
    is_slow = phase in ("checkpoint", "restore") and main.wait in ("disk", "read", "write")
    is_working = is_slow or _works(main) or (phase != "python" and _has_cores(hang))
    return Waits("python", phase if is_working else "", main)


def _step(hang: Hang, main: HangThread, phase: Phase) -> Waits:
    """The call of a step has not returned, or its results have not come."""
    if absent_workers(hang):
        return Waits("worker")
    if any(not part.has_come for part in hang.collectives):
        return Waits("device")
    makers = [*_threads(hang, _OF_INPUT)]
    runs_python = [thread for thread in _threads(hang, _OF_AN_OP) if thread not in makers]
    own, of_input = (runs_python, makers) if hang.python_ops else ([], makers + runs_python)
    making = sum(thread.computing_ratio or 0.0 for thread in own + of_input)
    if (own or of_input) and (hang.cores or 0.0) - making < WORKING_CORES:
        if not own:
            return _input(of_input[0])
        return Waits("thread-of-step", "step" if _works(own[0]) else "", own[0])
    if hang.cores is None or _has_cores(hang) or (phase == "tracing" and _works(main)):
        is_first = hang.is_first_call and hang.step_function is not None
        return Waits("call", "first" if is_first else phase, main)
    if idle_gpus(hang):
        return Waits("gpu")
    return Waits("results" if phase == "results" else "call", "", main)


def _input(thread: HangThread) -> Waits:
    if thread.is_main:
        return Waits("input", "", thread)
    return Waits("thread-of-input", "input" if _works(thread) else "", thread)


def phase_of(hang: Hang, main: HangThread) -> Phase:
    """What the main thread does."""
    is_below_user = True
    for line in main.frames:
        # A script may run as a whole inside of an import.
        is_below_user = is_below_user and line != main.user_line
        for phase, place in _PLACES:
            if place.fullmatch(line) and (phase != "import" or is_below_user):
                return phase
    return "step" if hang.step_function is not None else "python"


def wait_of(thread: HangThread) -> Wait | None:
    """What a thread does, or where that could not be asked what its innermost line shows."""
    file = (thread.frames[0] if thread.frames else "").partition(":")[0]
    return thread.wait or next((w for w, files in _WAITING_FILES.items() if file in files), None)


def absent_workers(hang: Hang) -> list[HangWorker]:
    """The workers that are known not to be in a step while this one is."""
    return [worker for worker in hang.workers if worker.state in ("elsewhere", "ended", "silent")]


def idle_gpus(hang: Hang) -> list[str]:
    """The GPUs that idle while others are as busy as one that waits in a collective of NCCL."""
    if not any(gpu.busy_ratio >= _BUSY_RATIO for gpu in hang.gpus):
        return []
    return [f"GPU:{gpu.ordinal}" for gpu in hang.gpus if gpu.busy_ratio <= _IDLE_RATIO]


def _threads(hang: Hang, *places: re.Pattern[str]) -> Iterator[HangThread]:
    """The threads that run Python below one of these lines."""
    for thread in hang.threads:
        if not thread.is_main and any(p.fullmatch(line) for p in places for line in thread.frames):
            yield thread


def _works(thread: HangThread) -> bool:
    return bool(thread.is_moving) or thread.wait == "computing"


def _has_cores(hang: Hang) -> bool:
    return (hang.cores or 0.0) >= WORKING_CORES
