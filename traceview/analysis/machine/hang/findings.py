"""Concludes why no step ends: who did not reach a collective, input that does not come, Python, or only a long pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from traceview.analysis.machine.hang.phase import Phase, input_threads, phase_of
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import (
    Argument,
    Devices,
    Functions,
    Line,
    Number,
    Ops,
    Tasks,
    Time,
)
from traceview.base.units import PS_PER_NS
from traceview.trace.sidecar.hang import Hang, HangThread, HangWorker, Wait

_SHOWN: Final = 4
"""Workers or devices that are listed as evidence; the tables have all."""

WAIT_WORDS: Final[Mapping[str, str]] = {
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
"""What a thread does, by what the kernel says."""

_WAITING_FILES: Final[dict[Wait, tuple[str, ...]]] = {
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

_WORKING: Final = frozenset(("checkpoint", "restore", "tracing", "validation", "import"))
"""Phases that take their time."""

_WAITS: Final = {wait: f"The thread {words}." for wait, words in WAIT_WORDS.items()}
HANG_STEP: Final = Rule(
    code="hang-step",
    severity="critical",
    starts_at="no step ends for the time of `--on-hang`, and the step's call computes on less than {idle_cores} cores",
    limits={"idle_cores": 0.2, "busy_ratio": 0.95, "idle_ratio": 0.05},
    title="The step's call[ of {function}] has not returned for {waited}, and hardly computes",
    titles={
        "elsewhere": "{tasks} did not reach a collective: it is[ in {line}] without a step for {without}",
        "ended": "{tasks} did not reach a collective: its script has ended",
        "silent": "{tasks} did not reach a collective: it wrote last {silent} ago",
        "mute": "No answer from {tasks}, and a collective waits for it",
        "device": "{late} did not start {op}; {early:waits/wait} for it",
        "gpu": "{late:idles/idle} while the other GPUs are busy",
    },
    meaning="The step's call does not return. An op of TensorFlow records itself when it ends, so the open one is not known.",
    notes={
        "worker": (
            "A collective ends when every device of its group has reached it. A worker does not reach it if it does "
            "something else: a checkpoint that only the chief writes, a longer validation, an input that blocks, or data "
            "that ended earlier than that of the others."
        ),
        "device": (
            "Within one process a device does not reach a collective if a branch of the step skips it, or if what the "
            "device does before it does not end. A GPU that waits in a collective of NCCL is busy."
        ),
        "peers": "It may wait in one of its {count} for another device or worker.",
        "silent-peers": "Where {unknown} is, is not known: start it with `--on-hang` too.",
    },
    reasons={
        "slow": "a worker that writes nothing may be slow",
        "said": "the worker itself says where it is",
        "mute": "TensorFlow's server in the worker does not answer",
        "profile": "the profile that ran shows which devices started it",
        "busy": "a GPU that waits in a collective of NCCL is busy, and one that has not reached it is idle",
        "open": "the call is open; what it waits for was not recorded",
        "peers": "which collective is open, and who did not reach it, was not recorded",
    },
    action="Record the step that hangs and the one before it: `traceview capture --on-hang 60s` with `--steps`.",
    advice=(
        "[It is step {step}, counted from 0. ]The profile is stopped and kept during the hang, and shows the last ops of "
        "each device. Look for queues, `py_function` and waiting ops in the step. With "
        "`tf.distribute.experimental.CommunicationOptions(timeout_seconds=600)` in the strategy, the job ends with an "
        "error that names the op. If GPUs hang in the first step, look at `NCCL_DEBUG=INFO`, and try "
        "`NCCL_P2P_DISABLE=1`."
    ),
    actions={
        "worker": (
            "Look at what the worker that is missing does: its own report has its stacks.",
            (
                "Give all workers the same number of batches (`repeat()` and `steps_per_epoch`, or `drop_remainder=True`) and "
                "the same callbacks. With `tf.distribute.experimental.CommunicationOptions(timeout_seconds=600)` in the "
                "strategy, the job ends with an error that names the op."
            ),
        ),
        "device": (
            "Look at what the step does on that device before the collective: a branch that waits, or one that skips it.",
            "If GPUs hang in the first step, look at `NCCL_DEBUG=INFO`, and try `NCCL_P2P_DISABLE=1`.",
        ),
    },
    metrics={
        "busy_ratio": "busy by NVML",
        "collective_count": "collectives of the step",
        "cores": "cores busy",
        "has_come": "reached the collective",
        "silent_ns": "wrote last, before the report",
    },
    example="worker 1 did not reach a collective: it is in save, train.py:50 without a step for 60.0 s",
)

HANG_INPUT: Final = Rule(
    code="hang-input",
    severity="critical",
    starts_at=(
        "no step ends for the time of `--on-hang`, and the main thread waits in an iterator, a dataset or a queue; or the "
        "step computes on less than {idle_cores} cores while Python of the input pipeline has not returned"
    ),
    limits={"idle_cores": 0.2},
    title="The main thread has waited {waited} for input[ in {line}]",
    titles={"thread": "The input has not come for {waited}: a thread of its pipeline is in {line}"},
    meaning=(
        "The step cannot begin or end, because its data does not come. Usual reasons are a generator that waits on a "
        "queue, a lock or the network, a worker process of the data loader that died, or a queue of TensorFlow that "
        "nobody fills."
    ),
    notes=_WAITS,
    reasons={
        "main": "the main thread is in the wait for input",
        "pipeline": "Python of the input pipeline has not returned, and the step does not compute",
    },
    action="Look at the line that waits: give each `get()` and each request a timeout.",
    advice=(
        "Let the thread or process that fills the queue report its errors: one that died leaves the reader waiting. A "
        "queue of TensorFlow needs `close()` when its producer ends."
    ),
    metrics={"wait": "what the kernel says of the thread"},
    example="The input has not come for 60.0 s: a thread of its pipeline is in read_batches, data.py:12",
)

HANG_PYTHON: Final = Rule(
    code="hang-python",
    severity="critical",
    other_severities=("warning",),
    starts_at=(
        "no step ends for the time of `--on-hang`, and the main thread is in Python between steps and not known to work, "
        "or no Python can run; a warning where it computes"
    ),
    title="The main thread has been in {line} between steps for {waited}",
    titles={
        "first": "The main thread has been in {line} before the first step for {waited}",
        "unknown": "The main thread has not begun the next step for {waited}",
        "lock": "No Python could run[ for {waited}][: the main thread was in {line}]",
    },
    meaning="The main thread has not begun the next step.",
    notes={
        **_WAITS,
        "inner": "It is in {inner} there.",
        "workers": "It keeps {tasks} waiting in a step.",
        "native": "A native call holds Python's lock (GIL), or the process was stopped.",
    },
    reasons={
        "waits": "its stack did not change, and the kernel says that it waits",
        "computes": "it computes: it may be a loop without an end, or only slow",
        "lock": "a native call held Python's lock, or the whole process was stopped",
    },
    action="Look at the line: give requests and locks a timeout.",
    advice=(
        "Move work that no step needs into a thread, or to one worker of several only if the others do not wait for it."
    ),
    metrics={
        "threads": "threads",
        "wait": "what the kernel says of the thread",
        "waited_ns": "no Python ran for",
    },
    example="The main thread has been in save, train.py:50 between steps for 60.0 s",
)

_PAUSES: Final[Mapping[str, str]] = {
    "checkpoint": "a checkpoint is being written",
    "restore": "a checkpoint is being read",
    "tracing": "a function is being traced",
    "validation": "validation or prediction is running",
    "import": "modules are being imported",
    "step": "the step's call is still running",
    "first": "the first call of {function} traces and compiles, or runs",
    "other": "{function} is being called, which is no training step",
}

LONG_PAUSE: Final = Rule(
    code="long-pause",
    severity="info",
    starts_at=(
        "no step ends for the time of `--on-hang`, and the process works: on {idle_cores} cores or more, with a stack that "
        "moves, in calls of another function, or by writing {written_bytes_per_second} of a checkpoint"
    ),
    limits={"idle_cores": 0.2, "written_bytes_per_second": 1e5},
    title="No step has ended for {waited}, and the process works",
    titles={
        key: f"No step has ended for {{waited}}: {words}[ in {{line}}]"
        for key, words in _PAUSES.items()
    },
    meaning="The process works. It may only be slow.",
    reasons={"looks": "two looks show that the process works, not that it will end"},
    action="Wait, and set `--on-hang` longer than the longest checkpoint, validation or compilation.",
    advice="The report is completed when the next step ends.",
    metrics={"cores": "cores busy"},
    example="No step has ended for 60.0 s: a checkpoint is being written in save, train.py:50",
)

RULES: Final = (HANG_STEP, HANG_INPUT, HANG_PYTHON, LONG_PAUSE)


def diagnose(hang: Hang) -> list[Finding]:
    """The one conclusion about a hang; none where too little is known, as from outside."""
    if hang.state == "attached":
        return []
    if hang.is_lock_held:
        return [_lock_held(hang)]
    main = hang.main
    if main is None:
        return []
    phase = phase_of(hang)
    if phase == "input":
        return [_input(hang, main)]
    if phase in _WORKING and _is_working(hang, main, phase):
        return [_pause(hang, phase)]
    if phase == "python" and hang.calls_in_look and hang.other_function:
        return [_pause(hang, "other")]
    if phase in ("step", "tracing"):
        return [_in_step(hang, main, phase)]
    return [_python(hang, main)]


def _is_working(hang: Hang, main: HangThread, phase: Phase) -> bool:
    """Whether the process makes progress in its phase, as far as two looks show it."""
    limits = LONG_PAUSE.limits
    rate = (hang.written_bytes or 0) / max(hang.look_ns / 1e9, 1e-3)
    return bool(
        main.is_moving
        or (hang.cores or 0.0) >= limits["idle_cores"]
        or (phase == "checkpoint" and rate >= limits["written_bytes_per_second"])
    )


def _waited(hang: Hang) -> dict[str, Argument]:
    return {} if hang.waited_ns is None else {"waited": _time(hang.waited_ns)}


def _time(ns: int) -> Time:
    return Time(ns * PS_PER_NS)


def _line(line: str | None) -> dict[str, Argument]:
    return {} if line is None else {"line": Line(line)}


def _function(name: str | None) -> dict[str, Argument]:
    return {} if name is None else {"function": Functions((name,))}


# In the call of a step


def _in_step(hang: Hang, main: HangThread, phase: Phase) -> Finding:
    """The call of a step has not returned."""
    late = [entry for entry in hang.collectives if entry.has_come is False]
    makers = input_threads(hang)
    making = sum(thread.computing_ratio or 0.0 for thread in makers)
    absent = absent_workers(hang)
    if absent:
        return _worker_absent(absent)
    if late:
        return _device_absent(hang)
    if makers and (hang.cores or 0.0) - making < HANG_INPUT.limits["idle_cores"]:
        return _input(hang, makers[0])
    if hang.cores is None or hang.cores >= HANG_STEP.limits["idle_cores"]:
        return _pause(hang, "first" if hang.is_first_call and hang.step_function else phase)
    limits = HANG_STEP.limits
    idle = [gpu for gpu in hang.gpus if gpu.busy_ratio <= limits["idle_ratio"]]
    if idle and any(gpu.busy_ratio >= limits["busy_ratio"] for gpu in hang.gpus):
        keys = tuple(f"GPU:{gpu.ordinal}" for gpu in idle)
        return HANG_STEP.finding(
            title="gpu",
            action="device",
            notes=["device"],
            arguments={"late": Devices(keys, len(hang.gpus))},
            evidence=[
                Evidence("busy_ratio", gpu.busy_ratio, None, key)
                for gpu, key in zip(idle, keys, strict=True)
            ],
            confidence=("medium", "busy"),
        )
    return _open_call(hang)


def absent_workers(hang: Hang) -> list[HangWorker]:
    """The workers that are known not to be in a step while this one is."""
    return [
        worker
        for worker in hang.workers
        if worker.state in ("elsewhere", "ended", "silent") or worker.is_answering is False
    ]


def _worker_absent(absent: Sequence[HangWorker]) -> Finding:
    first = absent[0]
    is_known = any(worker.state in ("elsewhere", "ended") for worker in absent)
    is_mute = any(worker.is_answering is False for worker in absent)
    title: str = first.state
    if (
        (first.state == "elsewhere" and first.waited_ns is None)
        or first.state not in HANG_STEP.titles
        or (title == "silent" and first.silent_ns is None)
    ):
        title = "mute"
    return HANG_STEP.finding(
        title=title,
        action="worker",
        notes=["worker"],
        arguments={
            "tasks": Tasks(tuple(worker.task for worker in absent)),
            "without": _time(first.waited_ns or 0),
            "silent": _time(first.silent_ns or 0),
            **_line(first.line),
        },
        evidence=[
            Evidence("silent_ns", worker.silent_ns or 0, None, f"{worker.task}, {worker.state}")
            for worker in absent[:_SHOWN]
        ],
        confidence=("high", "said")
        if is_known
        else ("high", "mute")
        if is_mute
        else ("medium", "slow"),
    )


def _device_absent(hang: Hang) -> Finding:
    late = [entry for entry in hang.collectives if entry.has_come is False]
    early = [entry for entry in hang.collectives if entry.has_come] or late
    count = len({entry.device or entry.op for entry in hang.collectives})
    keys = [tuple(dict.fromkeys(row.device or row.op for row in rows)) for rows in (late, early)]
    return HANG_STEP.finding(
        title="device",
        action="device",
        notes=["device"],
        arguments={
            "late": Devices(keys[0], count + 1, "device"),
            "early": Devices(keys[1], count + 1, "device"),
            "op": Ops((early[0].op,)),
        },
        evidence=[Evidence("has_come", "no", None, row.device or row.op) for row in late[:_SHOWN]],
        confidence=("high", "profile"),
    )


def _open_call(hang: Hang) -> Finding:
    """The call waits, and for what is not known: perhaps for others in a collective."""
    devices = {entry.device for entry in hang.collectives if entry.device}
    has_peers = bool(hang.workers) or len(devices) > 1
    unknown = tuple(worker.task for worker in hang.workers if worker.state == "unknown")
    notes = ["peers"] if has_peers and hang.collectives else []
    count = len(hang.collectives)
    return HANG_STEP.finding(
        notes=[*notes, *(["silent-peers"] if unknown else [])],
        arguments={
            **_function(hang.step_function),
            "waited": _time(hang.waited_ns or 0),
            "count": Number(count, "collective"),
            **({"unknown": Tasks(unknown)} if unknown else {}),
            **({"step": Number(hang.step_count)} if hang.step_count else {}),
        },
        evidence=[
            Evidence("cores", round(hang.cores or 0.0, 2), None, hang.host),
            *([Evidence("collective_count", count, None, hang.host)] if has_peers else []),
        ],
        confidence=("low", "peers") if has_peers else ("high", "open"),
    )


# In Python


def _wait_of(thread: HangThread) -> Wait | None:
    """What a thread does, by the kernel, or where that could not be asked by its innermost line."""
    file = (thread.frames[0] if thread.frames else "").partition(":")[0]
    by_line = (wait for wait, files in _WAITING_FILES.items() if file in files)
    return thread.wait or next(by_line, None)


def _input(hang: Hang, thread: HangThread) -> Finding:
    shown = next(iter(input_threads(hang)), thread)
    wait = _wait_of(shown)
    is_certain = thread.is_main
    return HANG_INPUT.finding(
        title="thread" if not shown.is_main else "",
        notes=[wait] if wait else [],
        arguments={
            "waited": _time(hang.waited_ns or 0),
            **_line(shown.user_line or next(iter(shown.frames), "an unknown line")),
        },
        evidence=[Evidence("wait", thread.wait or "not known", None, thread.name)],
        confidence=("high", "main") if is_certain else ("medium", "pipeline"),
    )


def _python(hang: Hang, main: HangThread) -> Finding:
    innermost = next(iter(main.frames), None)
    line = main.user_line or innermost
    wait = _wait_of(main)
    waiting = tuple(worker.task for worker in hang.workers if worker.state == "in-step")
    is_waiting = main.wait not in (None, "computing") and not main.is_moving
    notes = ["inner"] if innermost not in (None, line) else []
    return HANG_PYTHON.finding(
        title="unknown" if line is None else "" if hang.step_count else "first",
        notes=[*notes, *([wait] if wait else []), *(["workers"] if waiting else [])],
        arguments={
            "waited": _time(hang.waited_ns or 0),
            **_line(line),
            **({"inner": Line(innermost)} if innermost else {}),
            **({"tasks": Tasks(waiting)} if waiting else {}),
        },
        evidence=[Evidence("wait", main.wait or "not known", None, main.name)],
        severity=None if is_waiting else "warning",
        confidence=("high", "waits") if is_waiting else ("medium", "computes"),
    )


def _lock_held(hang: Hang) -> Finding:
    main = hang.main
    return HANG_PYTHON.finding(
        title="lock",
        notes=["native"],
        arguments={
            **_waited(hang),
            **_line((main.user_line or next(iter(main.frames), None)) if main else None),
        },
        evidence=[
            Evidence("waited_ns", hang.waited_ns, hang.limit_ns, hang.host)
            if hang.waited_ns is not None
            else Evidence("threads", "stacks that faulthandler wrote", None, hang.host)
        ],
        confidence=("medium", "lock"),
    )


def _pause(hang: Hang, title: str) -> Finding:
    main = hang.main
    return LONG_PAUSE.finding(
        title=title,
        arguments={
            "waited": _time(hang.waited_ns or 0),
            **_function(hang.other_function if title == "other" else hang.step_function),
            **_line(main.user_line if main else None),
        },
        evidence=[Evidence("cores", round(hang.cores or 0.0, 2), None, hang.host)],
        confidence=("medium", "looks"),
    )
