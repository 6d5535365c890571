"""Concludes why no step ends: a collective that waits, input that does not come, Python, or only a long pause."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from traceview.analysis.base import Confidence, Evidence, Finding
from traceview.analysis.hang.phase import PHASE_WORDS, Phase, input_threads, phase_of
from traceview.analysis.hang.rules import (
    ANY_STEPS,
    HANG_COLLECTIVE,
    HANG_INPUT,
    HANG_PYTHON,
    HANG_STEP,
    LONG_PAUSE,
    TIMEOUT_ADVICE,
)
from traceview.document import numbers
from traceview.trace.hang import Hang, HangThread, HangWorker, Wait

_SHOWN: Final = 4
"""Workers or devices that a title names; the tables have all."""
_LEAST_CORES: Final = 0.05
"""What rounds to a tenth of a core; less is not worth a word."""

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
            f"come to the collective. {TIMEOUT_ADVICE}"
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
        advice=f"{_step_advice(hang)} {TIMEOUT_ADVICE}",
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
        advice=_step_advice(hang),
    )


def _step_advice(hang: Hang) -> str:
    """What records the step that hangs; steps are counted from 0."""
    if not hang.step_count:
        return HANG_STEP.advice
    steps = f"{max(hang.step_count - 1, 1)}:{hang.step_count + 1}"
    return HANG_STEP.advice.replace(ANY_STEPS, f"traceview capture --steps {steps} --on-hang 60s")


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
