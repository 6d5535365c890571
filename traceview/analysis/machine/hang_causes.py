"""Concludes from the report of a hang who waits for whom, from the main thread to what does not go on, and what to do.

What the main thread does shows in its stack: the innermost line that is known decides, so that a checkpoint that a
callback writes is a checkpoint. Files and functions are those of TensorFlow 2.15 to 2.21, Keras 2 and 3, JAX 0.4.30 to
0.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from traceview.analysis.rules.finding import Confidence, Evidence, Finding
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Devices, Line, Names, Number, Quantity
from traceview.base.record import TextKind
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_NS
from traceview.trace.sidecar.hang import Hang, HangThread, HangWorker, Wait

Phase: TypeAlias = Literal[
    "checkpoint", "restore", "tracing", "input", "validation", "import", "results", "step", "python"
]
End: TypeAlias = Literal[
    "lock",
    "worker",
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
    (phase, lazy_pattern(rf"(?:.*/)?{file}:\d+ in {function}", re.DOTALL))
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

_OF_INPUT: Final = lazy_pattern(
    r"(?:.*/)?(?:data/ops/from_generator_op|py_data_adapter|data_adapters/py_dataset_adapter|utils/data_utils)\.py:\d+ in .*",
    re.DOTALL,
)
"""Code below which `tf.data` and Keras run the Python of an input pipeline."""
_OF_AN_OP: Final = lazy_pattern(r"(?:.*/)?ops/script_ops\.py:\d+ in .*", re.DOTALL)
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
"""Files of Python in which a thread waits, and for what: the kernel does not say it in every container."""


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


# The rules

WAIT_WORDS: Final[Mapping[Wait, str]] = {
    "child": "waits for another process",
    "computing": "computes",
    "disk": "waits for a disk or a file system",
    "lock": "waits for a lock, a condition or a queue",
    "poll": "waits for the network or a pipe",
    "read": "reads from the network, a pipe or a file",
    "sleep": "sleeps",
    "stopped": "is stopped",
    "write": "writes to the network, a pipe or a file",
    "other": "waits",
}
"""What a thread does."""

_TIMEOUTS: Final = "Look at the line: give each `get()`, lock and request a timeout."
_NCCL: Final = (
    "If GPUs hang in the first step, look at `NCCL_DEBUG=INFO`, and try `NCCL_P2P_DISABLE=1`."
)
_NO_END: Final = (
    "With `tf.distribute.experimental.CommunicationOptions(timeout_seconds=600)` in the strategy, the job ends with an "
    "error that names the op."
)

HANG: Final = Rule(
    code="hang",
    severity="critical",
    starts_at=(
        "no step ends for the time of `--on-hang`, and who waits for whom ends in something that does not go on: it neither "
        "moves nor computes, and a call of the step computes on less than {working_cores} cores"
    ),
    limits={"working_cores": WORKING_CORES},
    title="The step's call[ of {function}] has not returned for {waited}, and hardly computes",
    titles={
        "elsewhere": "{tasks} did not reach a collective: it is[ in {line}] without a step for {without}",
        "ended": "{tasks} did not reach a collective: its script has ended",
        "silent": "{tasks} did not reach a collective: it wrote last {silent} ago",
        "gpu": "{idle:idles/idle} while the other GPUs are busy",
        "results": "The results of the devices have not come for {waited}[: the main thread waits in {line}]",
        "input": "The main thread has waited {waited} for input[ in {line}]",
        "thread-of-input": "The input has not come for {waited}: a thread of its pipeline is in {line}",
        "thread-of-step": "The step has waited {waited} for its own Python[ in {line}]",
        "python": "The main thread has been[ in {line}] for {waited}",
        "lock": "No Python could run[ for {waited}][: the main thread was in {line}]",
    },
    meaning="No step ends: everything waits for one thread, worker or call that does not go on.",
    notes={
        **{wait: f"The thread {words}." for wait, words in WAIT_WORDS.items()},
        "inner": "It is in {inner} there.",
        "workers": "It keeps {tasks} waiting in a step.",
        "native": "A native call holds the GIL, or the process was stopped.",
        "worker": (
            "A collective ends when every device of its group has reached it. A worker does not reach it if it does "
            "something else: a checkpoint that only the chief writes, a longer validation, an input that blocks, or data "
            "that ended earlier than that of the others."
        ),
        "device": (
            "Within one process a device does not reach a collective if a branch of the step skips it, or if what the "
            "device does before it does not end. A GPU that waits in a collective of NCCL is busy."
        ),
        "unknown": "Where {unknown} is, is not known: start it with `--on-hang` too.",
        "input": (
            "Usual reasons are a generator that waits on a queue, a lock or the network, a worker process of the data loader "
            "that died, or a queue that nobody fills."
        ),
    },
    reasons={
        "thread": "its stack did not change, and it hardly computed",
        "slow": "a worker that writes nothing may be slow",
        "said": "the worker itself says where it is",
        "busy": "a GPU that waits in a collective of NCCL is busy, and one that has not reached it is idle",
        "open": "the call is open; which operation of it waits was not recorded",
        "native": "a native call held the GIL, or the whole process was stopped",
    },
    action=_TIMEOUTS,
    advice=(
        "Let the thread or process that fills a queue report its errors: one that died leaves the reader waiting. Move work "
        "that no step needs into a thread, or to one worker of several only if the others do not wait for it."
    ),
    actions={
        "worker": (
            "Look at what the worker that is missing does: its own report has its stacks.",
            (
                "Give all workers the same number of batches (`repeat()` and `steps_per_epoch`, or `drop_remainder=True`) "
                f"and the same callbacks. {_NO_END}"
            ),
        ),
        "device": (
            "Look at what the step does on that device before the collective: a branch that waits, or one that skips it.",
            _NCCL,
        ),
        "call": (
            "Record the step that hangs and the one before it: `traceview capture --on-hang 60s` with `--steps`.",
            (
                "[It is step {step}, counted from 0. ]The profile is kept when the process is ended by SIGTERM, and shows the last "
                f"ops of each device. Look for queues, callbacks to Python and waiting ops in the step. {_NO_END} {_NCCL}"
            ),
        ),
    },
    metrics={
        "busy_ratio": "busy by NVML",
        "silent_ns": "wrote last, before the report",
        "wait": "what the thread does",
        "waited_ns": "no Python ran for",
    },
    example="worker 1 did not reach a collective: it is in save, train.py:50 without a step for 60.0 s",
)

LONG_PAUSE: Final = Rule(
    code="long-pause",
    severity="info",
    starts_at=(
        "no step ends for the time of `--on-hang`, and what stands at the end of the waits works: it computes, its stack "
        "moves, other functions are called, or a checkpoint is written or read"
    ),
    title="No step has ended for {waited}, and the process works",
    titles={
        key: f"No step has ended for {{waited}}: {words}[ in {{line}}]"
        for key, words in PHASE_WORDS.items()
    },
    meaning="The process still works. It may just be slow.",
    reasons={"looks": "two looks show that the process works, not that it will end"},
    action="Wait, and set `--on-hang` longer than the longest checkpoint, validation or compilation.",
    advice="The report is completed when the next step ends.",
    example="No step has ended for 60.0 s: a checkpoint is being written in save, train.py:50",
)

RULES: Final = (HANG, LONG_PAUSE)


def diagnose(hang: Hang) -> list[Finding]:
    """The one conclusion about a hang; none where too little is known."""
    waits = follow(hang)
    if waits is None:
        return []
    arguments = _arguments(hang, waits)
    evidence = [Evidence("cores", round(hang.cores or 0.0, 2), None, hang.host)]
    rule, title, action = HANG, str(waits.end), ""
    notes: list[str] = [waits.end]
    sure: tuple[Confidence, str]
    if waits.works:
        rule, title, notes, sure = LONG_PAUSE, waits.works, [], ("medium", "looks")
    elif waits.end == "worker":
        absent = absent_workers(hang)
        said = any(worker.state != "silent" for worker in absent)
        title, action = absent[0].state, "worker"
        sure = ("high", "said") if said else ("medium", "slow")
        evidence = [
            Evidence(
                "silent_ns", worker.silent_ns or 0, None, worker.task, worker.state, where_is="task"
            )
            for worker in absent[:4]
        ]
    elif waits.end == "gpu":
        action, notes, sure = "device", ["device"], ("medium", "busy")
        busy = {f"GPU:{gpu.ordinal}": gpu.busy_ratio for gpu in hang.gpus}
        evidence = [Evidence("busy_ratio", busy[gpu], None, gpu) for gpu in idle_gpus(hang)]
    elif waits.end in ("call", "results"):
        action, notes = "call", ["unknown"] if "unknown" in arguments else []
        sure = ("low" if hang.workers else "high", "open")
    elif waits.end == "lock":
        notes, sure = ["native"], ("medium", "native")
        stacks = "stacks that faulthandler wrote"
        evidence = [
            Evidence("threads", stacks, None, hang.host, value_is="words")
            if hang.waited_ns is None
            else Evidence("waited_ns", hang.waited_ns, hang.limit_ns, hang.host)
        ]
    else:
        notes, sure, evidence = _of_thread(hang, waits, arguments)
    return [
        rule.finding(
            title=title,
            action=action,
            notes=notes,
            confidence=sure,
            evidence=evidence,
            arguments=arguments,
        )
    ]


def _of_thread(
    hang: Hang, waits: Waits, arguments: Mapping[str, Argument]
) -> tuple[list[str], tuple[Confidence, str], list[Evidence]]:
    """Of a thread that does not go on the keys of notes, how sure it is, and the evidence."""
    thread = waits.thread
    wait = wait_of(thread) if thread else None
    notes = [
        *(["inner"] if "inner" in arguments else []),
        *([wait] if wait else []),
        *(["workers"] if waits.end == "python" and "tasks" in arguments else []),
        *(["input"] if "input" in waits.end else []),
    ]
    where_is: TextKind = "thread" if thread else "device"
    where = thread.name if thread else hang.host
    shown = Evidence("wait", wait or "not known", None, where, value_is="words", where_is=where_is)
    # That a step waits for its input is concluded: only the wait of a main thread in an iterator is seen.
    is_seen = wait is not None and not (waits.end == "thread-of-input" and hang.step_function)
    return notes, ("high" if is_seen else "medium", "thread"), [shown]


def _arguments(hang: Hang, waits: Waits) -> dict[str, Argument]:
    """What the sentences name."""
    absent, thread = absent_workers(hang), waits.thread
    others = absent or [worker for worker in hang.workers if worker.state == "in-step"]
    unknown = [worker.task for worker in hang.workers if worker.state == "unknown"]
    innermost = next(iter(thread.frames), None) if thread else None
    line = (thread.user_line if thread else absent[0].line if absent else None) or innermost
    function = hang.other_function if waits.works == "other" else hang.step_function
    idle = tuple(idle_gpus(hang))
    known: dict[str, Argument | None] = {
        "waited": None if hang.waited_ns is None else _time(hang.waited_ns),
        "line": Line(line) if line else None,
        "inner": Line(innermost) if innermost and innermost != line else None,
        "function": Names((function,), "function") if function else None,
        "tasks": Names(tuple(worker.task for worker in others), "task") if others else None,
        "without": _time(absent[0].waited_ns or 0) if absent else None,
        "silent": _time(absent[0].silent_ns or 0) if absent else None,
        "unknown": Names(tuple(unknown), "task") if unknown else None,
        "step": Number(hang.step_count) if hang.step_count else None,
        "idle": Devices(idle, len(hang.gpus), "device") if idle else None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _time(ns: int) -> Quantity:
    return Quantity(ns * PS_PER_NS, "ps")
