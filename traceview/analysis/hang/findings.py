"""Concludes why no step ends: a collective that waits, input that does not come, Python, or only a long pause."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from traceview.analysis.base import Confidence, Evidence, Finding, Rule
from traceview.analysis.hang.phase import PHASE_WORDS, Phase, input_threads, phase_of
from traceview.document import numbers
from traceview.trace.hang import Hang, HangThread, HangWorker, Wait

_SHOWN: Final = 4
"""Workers or devices that a title names; the tables have all."""
_LEAST_CORES: Final = 0.05
"""What rounds to a tenth of a core; less is not worth a word."""

_TIMEOUT: Final = (
    "With tf.distribute.experimental.CommunicationOptions(timeout_seconds=600) in the strategy, the job ends with an "
    "error that names the op. If GPUs hang in the first step, look at NCCL_DEBUG=INFO, and try NCCL_P2P_DISABLE=1."
)

HANG_COLLECTIVE: Final = Rule(
    "hang-collective",
    starts_at=(
        "no step ends for the time of --on-hang, the call of the step computes on less than {idle_cores} cores, and "
        "a worker or a device has not come to a collective"
    ),
    conditions_of="one of these shows that",
    conditions=(
        "the report of a worker, or the collectives that were recorded",
        "one GPU is busy for at least {busy_ratio} of the time, and another for at most {idle_ratio}",
        "all that is known is that the step has collectives; confidence is low then",
    ),
    limits={"idle_cores": 0.2, "busy_ratio": 0.95, "idle_ratio": 0.05},
    meaning=(
        "A collective ends when every device of its group has come to it. Here some have, and wait. A worker does "
        "not come if it does something else: a checkpoint that only the chief writes, a longer validation, an input "
        "that blocks, or data that ended earlier than that of the others. Within one process a device does not come "
        "if a branch of the step skips the collective, or if what the device does before it does not end."
    ),
    evidence="workers, collectives and gpus in results.hangs: what each one says, and has_come of each device",
    advice=(
        "Look at what the worker or device that did not come does: its own report has its stacks. Give all workers the "
        "same number of batches (repeat() and steps_per_epoch, or drop_remainder=True) and the same callbacks. "
        f"{_TIMEOUT}"
    ),
    example="worker 0 waits in train_step; worker 1 did not come: in train.py:50 in save, without a step for 60 s",
    severities=("critical",),
)

HANG_INPUT: Final = Rule(
    "hang-input",
    starts_at=(
        "no step ends for the time of --on-hang, and the main thread waits in an iterator, a dataset or a queue; or "
        "the step computes on less than {idle_cores} cores while Python of the input pipeline has not returned"
    ),
    limits={"idle_cores": 0.2},
    meaning=(
        "The step cannot begin or end, because its data does not come. Usual reasons are a generator that waits on a "
        "queue, a lock or the network, a worker process of the data loader that died, or a queue of TensorFlow that "
        "nobody fills."
    ),
    evidence="threads in results.hangs: the stacks of the main thread and of the threads that make the input",
    advice=(
        "Look at the line that waits. Give each get() and each request a timeout, and let the thread or process that "
        "fills the queue report its errors: one that died leaves the reader waiting. A queue of TensorFlow needs "
        "close() when its producer ends."
    ),
    example="the input does not come: data.py:12 in read_batches waits for a lock or a queue",
    severities=("critical",),
)

HANG_PYTHON: Final = Rule(
    "hang-python",
    starts_at=(
        "no step ends for the time of --on-hang, and the main thread is in Python between steps and not known to "
        "work, or no Python can run"
    ),
    meaning=(
        "The main thread has not come to the next step: it waits for a lock, the network, a file or another process, "
        "or it loops. Where no Python can run, a native call holds Python's lock (GIL), or the process was stopped."
    ),
    evidence="threads in results.hangs: the stack of the main thread, and what the kernel says it waits for",
    advice=(
        "Look at the line: give requests and locks a timeout, and move work that no step needs into a thread, or to "
        "one worker of several only if the others do not wait for it."
    ),
    example="the main thread is in train.py:50 in save between steps, and waits for the network or a pipe",
    severities=("critical", "warning"),
)

HANG_STEP: Final = Rule(
    "hang-step",
    starts_at=(
        "no step ends for the time of --on-hang, the call of the step computes on less than {idle_cores} cores, and "
        "neither input nor a collective explains it"
    ),
    limits={"idle_cores": 0.2},
    meaning=(
        "The call of the step does not return, and the process hardly computes. What TensorFlow waits for inside of "
        "it is not visible from outside: an op records itself when it ends."
    ),
    evidence="cores, threads, native and gpus in results.hangs",
    advice=(
        "If it hangs at the same step every time, record that step: traceview capture --steps A:B --on-hang 60s, with "
        "A one step before it. The profile is stopped and kept during the hang, and shows the last ops of each "
        "device. Look for queues, py_function and waiting ops in the step."
    ),
    example="train_step has not returned for 60 s, and the process hardly computes",
    severities=("critical",),
)

LONG_PAUSE: Final = Rule(
    "long-pause",
    starts_at=("no step ends for the time of --on-hang, and the process works"),
    conditions_of="one of these shows that",
    conditions=(
        "it computes on {idle_cores} cores or more",
        "its stack moves in a checkpoint, validation, tracing or import",
        "it calls a tf.function that is no step",
        "it writes a checkpoint at {written_bytes_per_second} or more",
    ),
    limits={"idle_cores": 0.2, "written_bytes_per_second": 1e5},
    meaning="No step has ended, but the process works. It may only be slow.",
    evidence="cores, written_bytes, other_call_count and threads in results.hangs",
    advice=(
        "Wait, and set --on-hang longer than the longest checkpoint, validation or compilation. The report is completed "
        "when the next step ends."
    ),
    example="no step has ended for 60 s: a checkpoint is being written (train.py:50 in save)",
    severities=("info",),
)

RULES: Final = (HANG_COLLECTIVE, HANG_INPUT, HANG_PYTHON, HANG_STEP, LONG_PAUSE)

WAIT_WORDS: Final = {
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


def since(hang: Hang) -> str:
    """How long no step had ended, and since when: for the first line of a report."""
    if hang.state == "attached":
        return "Seen from outside: whether steps end is not known"
    if hang.waited_ns is None:
        return f"No Python could run when the stacks were written, at {_clock(hang.noticed_ns)}"
    moment = _clock(hang.last_step_ns)
    at = f" at {moment}" if moment else ""
    last = f"step {hang.step_count - 1} ended{at}" if hang.step_count else f"the script started{at}"
    waited = seconds(hang.waited_ns)
    if hang.is_lock_held:
        return f"No Python ran for {waited}, until {_clock(hang.noticed_ns)}"
    return f"No step has ended for {waited} since {last}"


def seconds(ns: int) -> str:
    """A time in whole seconds: `83 s`, `12 min`."""
    value = ns / 1e9
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def outcome(hang: Hang) -> str | None:
    """How it ended; None while it is not known to have."""
    if hang.total_ns is None or hang.is_lock_held:
        return None
    if hang.state == "went-on":
        return f"Training went on after {seconds(hang.total_ns)}."
    return f"The script ended after {seconds(hang.total_ns)} without another step."


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
        return [_pause(hang, phase)]
    if phase in ("step", "tracing"):
        return [_in_step(hang, main)]
    return [_python(hang, main, phase)]


def _is_working(hang: Hang, main: HangThread, phase: Phase) -> bool:
    """Whether the process makes progress in its phase, as far as two looks show it."""
    limits = LONG_PAUSE.limits
    rate = (hang.written_bytes or 0) / max(hang.look_ns / 1e9, 1e-3)
    return bool(
        main.is_moving
        or (hang.cores or 0.0) >= limits["idle_cores"]
        or (phase == "checkpoint" and rate >= limits["written_bytes_per_second"])
    )


def _in_step(hang: Hang, main: HangThread) -> Finding:
    """The call of a step has not returned."""
    absent = absent_workers(hang)
    late = [entry for entry in hang.collectives if entry.has_come is False]
    makers = input_threads(hang)
    making = sum(thread.computing_ratio or 0.0 for thread in makers)
    if absent:
        return _worker_absent(hang, absent)
    if late:
        return _device_absent(hang)
    if makers and (hang.cores or 0.0) - making < HANG_INPUT.limits["idle_cores"]:
        return _input(hang, makers[0], is_certain=False)
    if hang.cores is None or hang.cores >= HANG_STEP.limits["idle_cores"]:
        return _pause(hang, "tracing" if phase_of(hang) == "tracing" else "step")
    idle, busy = _uneven_gpus(hang)
    if idle and busy:
        return _gpu_idle(hang, idle)
    devices = {entry.device for entry in hang.collectives if entry.device}
    if hang.workers or len(devices) > 1:
        return _collective_suspected(hang, len(devices))
    return _step(hang)


def absent_workers(hang: Hang) -> list[HangWorker]:
    """The workers that are known not to be in a step while this one is."""
    return [
        worker
        for worker in hang.workers
        if worker.state in ("elsewhere", "ended", "silent") or worker.is_answering is False
    ]


def worker_words(worker: HangWorker) -> str:
    """What a worker does."""
    steps = "" if not worker.step_count else f" (last step: {worker.step_count - 1})"
    if worker.state == "ended":
        return f"its script has ended{steps}"
    if worker.state == "silent" and worker.silent_ns is not None:
        ended = numbers.plural(worker.step_count or 0, "step")
        ago = seconds(worker.silent_ns)
        return f"stopped, gone or cut off: it wrote last {ago} ago, when {ended} had ended"
    if worker.state == "unknown" and worker.is_answering is False:
        return "it does not answer"
    if worker.state == "unknown":
        return "where it is, is not known"
    where = f"in {worker.line}" if worker.line else "outside of its own code"
    call = "in the call of a step, " if worker.state == "in-step" else ""
    waited = "" if worker.waited_ns is None else f" for {seconds(worker.waited_ns)}"
    return f"{call}{where}, without a step{waited}{steps}"


def _worker_absent(hang: Hang, absent: Sequence[HangWorker]) -> Finding:
    tasks = numbers.listed([worker.task for worker in absent], most=_SHOWN)
    sure: tuple[Confidence, str] = ("medium", "a worker that writes nothing may be slow")
    if any(worker.state in ("elsewhere", "ended") for worker in absent):
        sure = ("high", "the worker itself says where it is")
    elif any(worker.is_answering is False for worker in absent):
        sure = ("high", "TensorFlow's server in the worker does not answer")
    return HANG_COLLECTIVE.finding(
        f"{_task(hang)} waits in {hang.step_function or 'its step'}; {tasks} did not come: {worker_words(absent[0])}",
        [
            Evidence("silent_ns", worker.silent_ns or 0, None, f"{worker.task}, {worker.state}")
            for worker in absent[:_SHOWN]
        ],
        confidence=sure,
    )


def _device_absent(hang: Hang) -> Finding:
    late = [entry for entry in hang.collectives if entry.has_come is False]
    came = [entry for entry in hang.collectives if entry.has_come]
    devices = numbers.listed(list(dict.fromkeys(e.device or e.op for e in late)), most=_SHOWN)
    waiting = numbers.listed(list(dict.fromkeys(e.device or e.op for e in came)), most=_SHOWN)
    first = came[0] if came else late[0]
    group = "" if first.group_key is None else f" (group {first.group_key})"
    return HANG_COLLECTIVE.finding(
        f"{devices} did not come to {first.op}{group}, in which {waiting} waits",
        [Evidence("has_come", "no", None, entry.device or entry.op) for entry in late[:_SHOWN]],
        confidence=("high", "the profile that ran shows which devices started it"),
        advice=(
            "Look at what the step does on that device before the collective: a branch that waits, or one that does not "
            f"come to the collective. {_TIMEOUT}"
        ),
    )


def _gpu_idle(hang: Hang, idle: Sequence[int]) -> Finding:
    names = numbers.listed([f"GPU:{ordinal}" for ordinal in idle], most=_SHOWN)
    return HANG_COLLECTIVE.finding(
        f"{names} idles while the other GPUs are busy: a collective probably waits for it",
        [
            Evidence(
                "busy_ratio",
                gpu.busy_ratio,
                None,
                f"GPU:{gpu.ordinal}",
            )
            for gpu in hang.gpus
            if gpu.ordinal in idle
        ],
        confidence=(
            "medium",
            "a GPU that waits in a collective of NCCL is busy, and one that has not come is idle",
        ),
    )


def _uneven_gpus(hang: Hang) -> tuple[list[int], list[int]]:
    limits = HANG_COLLECTIVE.limits
    idle = [gpu.ordinal for gpu in hang.gpus if gpu.busy_ratio <= limits["idle_ratio"]]
    busy = [gpu.ordinal for gpu in hang.gpus if gpu.busy_ratio >= limits["busy_ratio"]]
    return idle, busy


def _collective_suspected(hang: Hang, device_count: int) -> Finding:
    count = len(hang.collectives)
    unknown = [worker.task for worker in hang.workers if worker.state == "unknown"]
    if hang.workers and not unknown:
        who = "all workers are in the call of a step"
        where = "the workers"
    elif unknown:
        who = f"{numbers.listed(unknown, most=_SHOWN)} does not say where it is: start it with --on-hang too"
        where = "the workers"
    else:
        who = f"its {numbers.plural(count, 'collective')} on {device_count} devices can wait for each other"
        where = f"{device_count} devices"
    return HANG_COLLECTIVE.finding(
        f"{hang.step_function or 'the step'} has not returned for {seconds(hang.waited_ns or 0)}, and may wait in a "
        f"collective of {where}: {who}",
        [Evidence("collective_count", count, None, hang.step_function or "the step")],
        confidence=("low", "which collective is open, and who did not come, was not recorded"),
        advice=f"{HANG_STEP.advice} {_TIMEOUT}",
    )


def _input(hang: Hang, thread: HangThread, *, is_certain: bool = True) -> Finding:
    makers = input_threads(hang)
    shown = makers[0] if makers else thread
    line = shown.user_line or (shown.frames[0] if shown.frames else "an unknown line")
    does = _does(shown)
    waiter = (
        ""
        if shown.is_main
        else f", and {'the main thread' if is_certain else 'the step'} waits for it"
    )
    if shown.is_main and hang.step_function is None:
        waiter = ": the main thread waits for the next batch"
    elif shown.is_main:
        waiter = f": the main thread waits for it in {hang.step_function}"
    return HANG_INPUT.finding(
        f"the input does not come: {line} {does}{waiter}"
        if not shown.is_main
        else f"the input does not come ({line}){waiter}",
        [Evidence("wait", thread.wait or "not known", None, thread.name)],
        confidence=("high", "the main thread is in the wait for input")
        if is_certain
        else (
            "medium",
            "Python of the input pipeline has not returned, and the step does not compute",
        ),
    )


def _python(hang: Hang, main: HangThread, phase: Phase) -> Finding:
    line = main.user_line or (main.frames[0] if main.frames else "an unknown line")
    inner = main.frames[0] if main.frames and main.frames[0] != line else None
    does = _does(main)
    below = f" (in {inner})" if inner else ""
    waiting = [worker.task for worker in hang.workers if worker.state == "in-step"]
    keeps = (
        f"; it keeps {numbers.listed(waiting, most=_SHOWN)} waiting in a step" if waiting else ""
    )
    where = "between steps" if hang.step_count else "before the first step"
    during = f", while {PHASE_WORDS[phase]}" if phase in _WORKING else ""
    is_waiting = main.wait not in (None, "computing") and not main.is_moving
    return HANG_PYTHON.finding(
        f"the main thread is in {line}{below} {where}, and {does}{during}{keeps}",
        [Evidence("wait", main.wait or "not known", None, main.name)],
        severity="critical" if is_waiting else "warning",
        confidence=("high", "its stack did not change, and the kernel says that it waits")
        if is_waiting
        else ("medium", "it computes: it may be a loop without an end, or only slow"),
    )


def _lock_held(hang: Hang) -> Finding:
    main = hang.main
    line = main and (main.user_line or (main.frames[0] if main.frames else None))
    waited = "" if hang.waited_ns is None else f" for {seconds(hang.waited_ns)}"
    where = f": the main thread was in {line}" if line else ""
    return HANG_PYTHON.finding(
        f"no Python could run{waited}{where}",
        [
            Evidence("waited_ns", hang.waited_ns, hang.limit_ns, hang.host)
            if hang.waited_ns is not None
            else Evidence("threads", "stacks that faulthandler wrote", None, hang.host)
        ],
        confidence=("medium", "a native call held Python's lock, or the whole process was stopped"),
    )


def _step(hang: Hang) -> Finding:
    return HANG_STEP.finding(
        f"{hang.step_function or 'the step'} has not returned for {seconds(hang.waited_ns or 0)}, and the process "
        "hardly computes",
        [Evidence("cores", round(hang.cores or 0.0, 2), None, hang.host)],
        confidence=("high", "the call is open; what it waits for is not known"),
    )


def _pause(hang: Hang, phase: Phase) -> Finding:
    main = hang.main
    line = main.user_line if main else None
    where = f" ({line})" if line else ""
    words = PHASE_WORDS[phase]
    if phase in ("step", "tracing") and hang.is_first_call:
        words = f"the first call of {hang.step_function} traces and compiles, or runs"
    elif phase == "python":
        calls = numbers.plural(hang.other_call_count or hang.calls_in_look, "call")
        words = f"{hang.other_function} is being called, which is no training step ({calls} so far)"
    elif phase == "step":
        words = f"{hang.step_function or 'the step'} is still running"
    cores = f", on {hang.cores:.1f} cores" if (hang.cores or 0.0) >= _LEAST_CORES else ""
    return LONG_PAUSE.finding(
        f"no step has ended for {seconds(hang.waited_ns or 0)}: {words}{where}{cores}",
        [Evidence("cores", round(hang.cores or 0.0, 2), None, hang.host)],
        confidence=("medium", "two looks show that the process works, not that it will end"),
    )


def _does(thread: HangThread) -> str:
    wait = thread.wait or _wait_of_line(thread.frames[0] if thread.frames else "")
    if wait is not None:
        return WAIT_WORDS[wait]
    return "has not returned" if not thread.is_moving else "is still running"


def _wait_of_line(line: str) -> Wait | None:
    """What a line of the standard library waits for, where the kernel could not be asked."""
    file = line.partition(":")[0]
    return next((wait for wait, files in _WAITING_FILES.items() if file in files), None)


def _task(hang: Hang) -> str:
    return hang.task or "this process"


def _clock(ns: int | None) -> str | None:
    """The time of day in UTC."""
    try:
        return (
            None if ns is None else f"{datetime.fromtimestamp(ns / 1e9, timezone.utc):%H:%M:%S} UTC"
        )
    except (OSError, OverflowError, ValueError):
        return None
