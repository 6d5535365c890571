"""Hangs: times in which no training step ended, as `traceview capture --on-hang` reports them: since when, who did not come, the stacks.

The conclusion follows who waits for whom, from the main thread to what does not go on. What the main thread does shows in
its stack: the innermost line that is known decides, so that a checkpoint that a callback writes is a checkpoint. Files and
functions are those of TensorFlow 2.15 to 2.21, Keras 2 and 3, JAX 0.4.30 to 0.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from traceview.analysis.measures.context import Analysis
from traceview.analysis.rules.finding import Confidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.sentences import shown_finding
from traceview.analysis.rules.words import Argument, Line, Names, Number, Time
from traceview.base.record import Record
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_NS
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.phrase import Phrase, Sentence, name, names, phrase, plain
from traceview.document.sanitize import dumped, shortened
from traceview.trace.sidecar.hang import Hang, HangThread, HangWorker, Wait, hang_of

Phase: TypeAlias = Literal[
    "checkpoint", "restore", "tracing", "input", "validation", "import", "results", "step", "python"
]
End: TypeAlias = Literal[
    "lock",
    "worker",
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
    "A GPU that waits in a collective of NCCL is busy, and one that has not reached it is idle: look at what its part of the "
    "step does before. If GPUs hang in the first step, look at `NCCL_DEBUG=INFO`, and try `NCCL_P2P_DISABLE=1`."
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
        "native": "A native call holds Python's lock (GIL), or the process was stopped.",
        "worker": (
            "A collective ends when every device of its group has reached it. A worker does not reach it if it does "
            "something else: a checkpoint that only the chief writes, a longer validation, an input that blocks, or data "
            "that ended earlier than that of the others."
        ),
        "input": (
            "Usual reasons are a generator that waits on a queue, a lock or the network, a worker process of the data loader "
            "that died, or a queue that nobody fills."
        ),
    },
    reasons={
        "thread": "its stack did not change, and it hardly computed",
        "slow": "a worker that writes nothing may be slow",
        "said": "the worker itself says where it is",
        "open": "the call is open; which operation of it waits was not recorded",
        "native": "a native call held Python's lock, or the whole process was stopped",
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
        "call": (
            "Record the step that hangs and the one before it: `traceview capture --on-hang 60s` with `--steps`.",
            (
                "[It is step {step}, counted from 0. ]The profile is kept when the process is ended by SIGTERM, and shows the last "
                f"ops of each device. Look for queues, callbacks to Python and waiting ops in the step. {_NO_END} {_NCCL}"
            ),
        ),
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
    """The one conclusion about a hang; none where too little is known. What shows it stands in the section."""
    waits = follow(hang)
    if waits is None:
        return []
    arguments = _arguments(hang, waits)
    if waits.works:
        sure: tuple[Confidence, str] = ("medium", "looks")
        return [LONG_PAUSE.finding(title=waits.works, arguments=arguments, confidence=sure)]
    title, action, notes = str(waits.end), "", [str(waits.end)]
    if waits.end == "worker":
        absent = absent_workers(hang)
        said = any(worker.state != "silent" for worker in absent)
        title, action, sure = (
            absent[0].state,
            "worker",
            ("high", "said") if said else ("medium", "slow"),
        )
    elif waits.end in ("call", "results"):
        action, sure = "call", ("low" if hang.workers else "high", "open")
    elif waits.end == "lock":
        notes, sure = ["native"], ("medium", "native")
    else:
        wait = wait_of(waits.thread) if waits.thread else None
        notes = [wait or "", "input" if "input" in waits.end else ""]
        # That a step waits for its input is concluded: only the wait of a main thread in an iterator is seen.
        is_seen = wait and not (waits.end == "thread-of-input" and hang.step_function)
        sure = ("high" if is_seen else "medium", "thread")
    return [
        HANG.finding(title=title, action=action, notes=notes, confidence=sure, arguments=arguments)
    ]


def _arguments(hang: Hang, waits: Waits) -> dict[str, Argument]:
    """What the sentences name."""
    absent, thread = absent_workers(hang), waits.thread
    innermost = next(iter(thread.frames), None) if thread else None
    line = (thread.user_line if thread else absent[0].line if absent else None) or innermost
    function = hang.other_function if waits.works == "other" else hang.step_function
    known: dict[str, Argument | None] = {
        "waited": None if hang.waited_ns is None else _time(hang.waited_ns),
        "line": Line(line) if line else None,
        "function": Names((function,), "function") if function else None,
        "tasks": Names(tuple(worker.task for worker in absent), "task") if absent else None,
        "without": _time(absent[0].waited_ns or 0) if absent else None,
        "silent": _time(absent[0].silent_ns or 0) if absent else None,
        "step": Number(hang.step_count) if hang.step_count else None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _time(ns: int) -> Time:
    return Time(ns * PS_PER_NS)


# What a report says of it

_MOST_THREADS: Final = 24
_MOST_STACKS: Final = 12
"""Rows, and stacks, in words: what a person reads in a hurry. The JSON report has all."""
_WIDEST_LINE: Final = 90
"""Characters; the middle of a longer line is left out."""
_IN_JSON: Final = "the JSON report"


class Hangs(Record, frozen=True):
    """The hangs of a run.

    Attributes:
        hangs: One per report, in the order of their files.
    """

    hangs: tuple[Hang, ...]


def write_up(facts: Mapping[str, Any]) -> tuple[dict[str, bytes], list[str]]:
    """What the capture writes of a hang: contents by suffix, `.json` and `.md`, and the lines for the terminal.

    The JSON is the report with its `findings`. Raises `msgspec.ValidationError` for facts that are none.
    """
    from traceview.document.markdown import render_section

    hang = hang_of(facts)
    files = {
        ".json": dumped(content_of(hang)),
        ".md": render_section(hang_document(hang)).encode(),
    }
    return files, list(short_lines(hang))


def content_of(hang: Hang) -> dict[str, Any]:
    """The report and its `findings`, as JSON has them."""
    return {**msgspec.to_builtins(hang), "findings": msgspec.to_builtins(diagnose(hang))}


def hangs_section(hangs: Sequence[Hang]) -> doc.Section:
    """The hangs of a run, as a part of its report; the findings stand in their own section there."""
    blocks: list[doc.Block] = []
    for hang in hangs:
        task = _of_task(hang) if len(hangs) > 1 else None
        blocks += doc.notes(phrase(since(hang), task, "."), outcome(hang))
        blocks += _details(hang)
    return doc.Section("hangs", "Hangs", tuple(blocks))


def hang_document(hang: Hang) -> doc.Section:
    """One report as a document of its own: the conclusion, what to do, and what shows it."""
    rules = {rule.code: rule for rule in RULES}
    findings = tuple(
        shown_finding(number, finding, rules[finding.code])
        for number, finding in enumerate(diagnose(hang), 1)
    )
    answer = outcome(hang)
    return doc.Section(
        "hang",
        plain(phrase(f"Hang of process {hang.pid} on ", name(hang.host), _of_task(hang))),
        (
            *((doc.Findings(findings),) if findings else ()),
            *_details(hang),
            *_stacks(hang),
        ),
        lead=f"{since(hang)}." + (f" {answer}" if answer else ""),
        is_folded=False,
    )


def short_lines(hang: Hang) -> Iterator[str]:
    """What a person at the terminal needs, in a few lines."""
    yield plain(phrase(since(hang), _of_task(hang), "."))
    findings = diagnose(hang)
    for finding in findings:
        yield f"{finding.code}: {finding.title}"
    if hang.main is not None:
        yield f"main thread: {plain(place_words(hang.main))}"
    for worker in hang.workers:
        yield f"{worker.task}: {plain(worker_words(worker))}"
    for finding in findings:
        yield f"what to do: {finding.action}"


def since(hang: Hang) -> str:
    """How long no step had ended, and since when: for the first line of a report."""
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


def _clock(ns: int | None) -> str | None:
    """The time of day in UTC."""
    try:
        return (
            None if ns is None else f"{datetime.fromtimestamp(ns / 1e9, timezone.utc):%H:%M:%S} UTC"
        )
    except (OSError, OverflowError, ValueError):
        return None


def worker_words(worker: HangWorker) -> Phrase:
    """What a worker does."""
    steps = "" if not worker.step_count else f" (last step: {worker.step_count - 1})"
    if worker.state == "ended":
        return phrase(f"its script has ended{steps}")
    if worker.state == "silent" and worker.silent_ns is not None:
        ended = numbers.plural(worker.step_count or 0, "step")
        ago = seconds(worker.silent_ns)
        return phrase(f"stopped, gone or cut off: it wrote last {ago} ago, when {ended} had ended")
    if worker.state == "unknown":
        return phrase("where it is, is not known")
    waited = "" if worker.waited_ns is None else f" for {seconds(worker.waited_ns)}"
    return phrase(
        "in the call of a step, " if worker.state == "in-step" else None,
        *(("in ", name(worker.line)) if worker.line else ("outside of its own code",)),
        f", without a step{waited}{steps}",
    )


def place_words(thread: HangThread) -> Phrase:
    """Where a thread is: the line of the user's code, the innermost line, and what it waits for."""
    lines = [thread.user_line] if thread.user_line else []
    if thread.frames and thread.frames[0] != thread.user_line:
        lines.append(thread.frames[0])
    what = f", {WAIT_WORDS[thread.wait]}" if thread.wait else None
    if not lines:
        return phrase("no Python", what)
    return phrase(name(lines[0]), *((" → ", name(lines[1])) if len(lines) > 1 else ()), what)


_WORKERS: Final = (
    Shown("worker", "task", kind="words"),
    Shown("what it does", worker_words),
)
_THREADS: Final = (
    Shown("thread", "name"),
    Shown(
        "is in",
        lambda thread: shortened(thread.user_line or "".join(thread.frames[:1]), _WIDEST_LINE),
        kind="name",
    ),
    Shown("and", lambda thread: WAIT_WORDS.get(thread.wait)),
    Shown("one core", "computing_ratio", priority=1),
)


def _details(hang: Hang) -> Iterator[doc.Block]:
    if hang.main is not None:
        yield from doc.notes(phrase("Main thread: ", place_words(hang.main), "."))
    yield from doc.facts(*_facts(hang))
    yield from table("Workers", hang.workers, _WORKERS)
    yield from table(
        "Threads with a Python stack",
        hang.threads,
        _THREADS,
        most_rows=_MOST_THREADS,
        rest=_IN_JSON,
    )
    yield from doc.notes(
        *(phrase(f"{key}: ", name(reason)) for key, reason in hang.missing.items())
    )


def _facts(hang: Hang) -> Iterator[Sentence]:
    if hang.step_count is not None:
        yield numbers.plural(hang.step_count, "step") + " ended"
    if hang.step_function is not None:
        first = ", its first call" if hang.is_first_call else None
        yield phrase("in the call of ", name(hang.step_function), first)
    if hang.cores is not None:
        yield f"{hang.cores:.1f} cores busy"
    for gpu in hang.gpus:
        yield f"GPU:{gpu.ordinal} {numbers.share(gpu.busy_ratio)} busy"


def _stacks(hang: Hang) -> Iterator[doc.Block]:
    """The stacks, the innermost line first; equal ones once."""
    groups: dict[tuple[str, ...], list[HangThread]] = {}
    for thread in hang.threads:
        groups.setdefault(thread.frames, []).append(thread)
    for frames, threads in list(groups.items())[:_MOST_STACKS]:
        of = names([thread.name for thread in threads], most=4)
        yield doc.Subheading(phrase("Stack of ", of))
        yield from doc.table("Stack", (doc.column("name", "innermost line first", frames),))
    more = len(groups) - _MOST_STACKS
    if more > 0:
        yield from doc.remarks(f"{numbers.plural(more, 'more stack')}: {_IN_JSON}.")


def _of_task(hang: Hang) -> Phrase | None:
    return phrase(", ", name(hang.task)) if hang.task else None


def _compute(hangs: tuple[Hang, ...]) -> Hangs | Skipped:
    return Hangs(hangs) if hangs else Skipped("no hang was reported (traceview capture --on-hang)")


ANALYSIS: Final = Analysis[Hangs](
    "hangs",
    lambda context: _compute(context.trace.hangs),
    rules=RULES,
    diagnose=lambda _, result: [each for hang in result.hangs for each in diagnose(hang)],
    sections=(lambda _, result: hangs_section(result.hangs),),
)
