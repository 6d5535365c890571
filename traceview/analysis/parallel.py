"""Computes topics elsewhere: of one host in the process that read it, and on a second thread beside the first.

The processes that read the hosts of a run compute what one host can tell: the causes of idle time, what the input pipelines
deliver, and every topic with a `join`. A host receives what it needs to know of the others (`trace/reading/host_of_run.py`)
and then analyses its own events as if they were a run. Whatever an answer is missing for is computed where the question
came from, as without other processes, so nothing is lost with one. A second thread computes some topics while the first one
computes the others; both meet in the middle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread, get_ident
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.exchange import balance, collectives, gradients, transfers
from traceview.analysis.facts.idle_time import IdleOfHost, joined_idle_time
from traceview.analysis.facts.input_supply import InputSupply, input_supplies
from traceview.analysis.facts.of_hosts import OfHosts
from traceview.analysis.facts.run import idle_time
from traceview.analysis.facts.selection import Selection
from traceview.analysis.gpu_time import idle, path, steps
from traceview.analysis.gpu_time import input as input_topic
from traceview.analysis.machine import capture
from traceview.analysis.measures.context import Analysis, Context, Options, result_key
from traceview.analysis.registry import ANALYSES
from traceview.analysis.rules.finding import Skipped
from traceview.analysis.workload import compute, launches, ops, precision
from traceview.base.errors import WorkerError
from traceview.base.record import Record
from traceview.base.timing import measured_beside
from traceview.trace.model import Step, Trace
from traceview.trace.reading.host_of_run import KnownOfRun, host_of_run, known_by_file
from traceview.trace.reading.load import Readers
from traceview.trace.reading.part import HostFile
from traceview.trace.windows import Window

# Hosts

_JOINED = tuple(topic for topic in ANALYSES if topic.join)


class Question(Struct, frozen=True, eq=False):
    """What to compute of a host: in its window, and for its steps there."""

    known: KnownOfRun
    window: Window
    steps: tuple[Step, ...]
    top: int | None


class Answer(Struct, frozen=True, eq=False):
    """What a host tells; `supply`: None without an input pipeline; `results`: of the topics that can be joined, by name."""

    idle: IdleOfHost
    supply: InputSupply | None
    results: dict[str, Record | Skipped]


def answered(file: HostFile, question: Question) -> Answer | None:
    """The answer of a host; None if its file has changed. It is called where the file was read."""
    trace = host_of_run(file, question.known)
    if trace is None:
        return None
    selection = Selection({0: question.window}, {0: question.steps})
    context = Context(trace, selection, Options(top=question.top))
    return Answer(
        IdleOfHost.of(context.idle),
        context.once(input_supplies).get(0),
        {topic.name: context.result(topic) for topic in _JOINED},
    )


def ask_hosts(context: Context, readers: Readers) -> None:
    """Take over what the hosts of the run answer, if all do that have a window."""
    selection = context.selection
    host_of: dict[int, int] = {}
    questions: dict[int, object] = {}
    for file, (host, known) in known_by_file(context.trace).items():
        window = selection.windows.get(host)
        if window is not None:
            host_of[file] = host
            steps = tuple(replace(step, host=0) for step in selection.steps[host])
            questions[file] = Question(known, replace(window, host=0), steps, context.options.top)
    answers: dict[int, Answer] = {}
    try:
        for file, answer in readers.ask(answered, questions):
            if isinstance(answer, Answer):
                answers[host_of[file]] = answer
    except WorkerError:
        # The cluster is gone, but not what it has read.
        return
    if len(answers) == len(questions):
        _take_over(context, {host: answers[host] for host in sorted(answers)})


def _take_over(context: Context, answers: dict[int, Answer]) -> None:
    trace = context.trace
    idle = {host: answer.idle for host, answer in answers.items()}
    context.take_over(idle_time, joined_idle_time(trace, idle))
    supplies = {host: answer.supply for host, answer in answers.items() if answer.supply}
    context.take_over(input_supplies, supplies)
    for topic in _JOINED:
        results = {host: answer.results[topic.name] for host, answer in answers.items()}
        joined = _joined(trace, topic, results)
        if joined is not None:
            context.take_over(result_key(topic), joined)


def _joined(
    trace: Trace, topic: Analysis[Any], results: dict[int, Record | Skipped]
) -> Record | Skipped | None:
    """The result of a run; None where the reason why it has none is not that of each host."""
    found = {host: result for host, result in results.items() if not isinstance(result, Skipped)}
    if found and topic.join:
        made: Record = topic.join(OfHosts(trace, found))
        return made
    reasons = {result.reason: result for result in results.values() if isinstance(result, Skipped)}
    if len(reasons) == 1 and len(results) == len(trace.hosts):
        return next(iter(reasons.values()))
    return None


# A second thread

_TOPICS: Final[tuple[Analysis[Any], ...]] = (
    ops.ANALYSIS,
    launches.ANALYSIS,
    precision.ANALYSIS,
    gradients.ANALYSIS,
    capture.ANALYSIS,
    balance.ANALYSIS,
    collectives.ANALYSIS,
    transfers.ANALYSIS,
    idle.ANALYSIS,
    steps.ANALYSIS,
    input_topic.ANALYSIS,
    compute.ANALYSIS,
)
"""First those that do without the ledger, which the first thread makes meanwhile. What takes much memory comes late, when the
first thread holds less."""

_FEWEST_EVENTS: Final = 100_000
_FEWEST_PER_DEVICE: Final = 20_000
"""Fewer are analysed in less time than two threads lose by taking turns at Python's lock: they take it for each array."""


def for_first_thread(topics: Sequence[Analysis[Any]]) -> list[Analysis[Any]]:
    """These topics in the order in which the first thread asks for them.

    First the path and others that need the causes and the ledger; last those that the second thread begins with.
    """
    beside = [topic for topic in reversed(_TOPICS) if topic in topics]
    alone = [topic for topic in topics if topic not in beside]
    return [*sorted(alone, key=lambda topic: topic is not path.ANALYSIS), *beside]


@contextmanager
def computed_beside(
    context: Context, is_wanted: Callable[[Analysis[Any]], bool] = lambda _: True
) -> Iterator[None]:
    """Computes topics while the code inside asks for all of them; what fails there fails anew where it is asked for."""
    trace = context.trace
    count = trace.device_columns.count + trace.host_columns.count
    fewest = max(_FEWEST_EVENTS, _FEWEST_PER_DEVICE * len(trace.device_list))
    if count < fewest or (os.cpu_count() or 1) < 2:
        yield
        return
    ended, first = Event(), get_ident()

    def compute_topics() -> None:
        with measured_beside(first):
            with suppress(Exception):
                # The ledger needs it after the causes, which the first thread finds meanwhile.
                _ = context.activities
            for topic in _TOPICS:
                if ended.is_set():
                    return
                with suppress(Exception):
                    if is_wanted(topic):
                        context.result(topic)

    # Ctrl-C does not wait for it.
    thread = Thread(target=compute_topics, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # No more threads may be started, in a container for instance.
        yield
        return
    try:
        yield
    finally:
        ended.set()
