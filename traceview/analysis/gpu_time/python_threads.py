"""Python threads beside the step: which thread of the script keeps the step waiting, and how long devices wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.analysis.facts.python import PythonShare
from traceview.analysis.facts.python_lock import threads_at_work
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Line, Threads
from traceview.base.record import Hostname, Picoseconds, Record, Share, ThreadName
from traceview.document import model as doc
from traceview.ledger.states import State

PYTHON_THREAD: Final = Rule(
    code="python-thread",
    states=(State.PYTHON_THREAD,),
    title="{who:waits/wait} {loss} for Python's lock, which {thread:keeps/keep}[ in {line}]",
    titles={"awaited": "{who:waits/wait} {loss} for what {thread:makes/make}[ in {line}]"},
    notes={
        "awaited": "For most of that time the thread of the step waits for what the other one makes."
    },
    meaning=(
        "A thread of the script computes in Python while the step runs. Only one thread at a time runs Python, and one that "
        "computes keeps the lock for 5 ms each time. The thread of the step needs the lock after each call of TensorFlow and "
        "for its own Python, and waits."
    ),
    starts_at=(
        "{limit} of the GPU time idle for dispatch, launches and Python while a thread that Python itself started keeps "
        "the lock, as samples of stacks show, and the step waits for the lock; or while the thread of the step waits in "
        "Python, and such a thread computes"
    ),
    action="Move the work to a process of its own: `multiprocessing.get_context('spawn').Process(target=...)`.",
    advice=(
        "Or let the thread sleep between short pieces of work, or call code that releases the lock, such as NumPy on large "
        "arrays."
    ),
    actions={
        "awaited": (
            "Make it in less time, with NumPy on whole arrays, or in several processes: `ProcessPoolExecutor().map(make, parts)`.",
            "One thread makes one after the other, and takes longer than a step. More threads share the lock.",
        )
    },
    metrics={
        "lock_kept_ratio": "share of the window in which it kept the lock",
        "python_line": "line of Python",
    },
    reasons={"": "the processor time of the thread and the wait for the lock agree"},
    example="Both replicas wait 45.8 of 66.0 ms (69%) for Python's lock, which statistics keeps in count, train.py:12",
)


class ThreadBeside(Record, frozen=True):
    """A Python thread that computed beside the step.

    Attributes:
        host: Host.
        thread: Name of the thread in Python.
        kept_ps: Time in the window in which it kept Python's lock from others for long, picoseconds.
        awaited_ps: Time in the window in which it computed while the thread of the step waited in Python, picoseconds.
        kept_ratio: The same as a share of the window.
        python: The Python that it ran meanwhile.
    """

    host: Hostname
    thread: ThreadName
    kept_ps: Picoseconds
    awaited_ps: Picoseconds
    kept_ratio: Share
    python: PythonShare


class PythonThreads(Record, frozen=True):
    """Python threads that computed beside the step.

    Attributes:
        threads: By host those that the step may have waited for longest first.
    """

    threads: tuple[ThreadBeside, ...]


def compute(context: Context) -> PythonThreads | Skipped:
    """The threads of every host that kept the lock."""
    if not context.idle.python:
        return Skipped("no Python stacks were sampled")
    rows = tuple(
        ThreadBeside(
            host=context.trace.hosts[host].name,
            thread=thread.thread,
            kept_ps=thread.kept_ps,
            awaited_ps=thread.awaited_ps,
            kept_ratio=thread.kept_ps / context.selection.windows[host].length_ps,
            python=thread.python,
        )
        for host in context.idle.python
        for thread in threads_at_work(context, host)
    )
    if not rows:
        return Skipped(
            "the samples show no thread of the script that computes in Python beside the step"
        )
    return PythonThreads(rows)


def diagnose(context: Context, result: PythonThreads) -> Iterator[Finding]:
    """The time that devices wait for such a thread, with the one that they may have waited for longest."""
    longest = max(result.threads, key=lambda row: max(row.kept_ps, row.awaited_ps))
    key = "awaited" if longest.awaited_ps > longest.kept_ps else ""
    arguments: dict[str, Argument] = {
        "thread": Threads((longest.thread,)),
        "line": Line(longest.python.line),
    }
    finding = PYTHON_THREAD.of_rows(
        context,
        context.ledger.rows(states=PYTHON_THREAD.states),
        arguments=arguments,
        evidence=(
            *(
                Evidence("lock_kept_ratio", row.kept_ratio, None, row.thread)
                for row in result.threads
            ),
            longest.python.evidence,
        ),
        title=key,
        action=key,
        notes=(key,),
    )
    if finding is not None:
        yield finding


def section(view: View, result: PythonThreads) -> doc.Section:
    """A row per thread."""
    rows = result.threads[: view.most_rows]
    several = len({row.host for row in result.threads}) > 1
    return doc.Section(
        "python-threads",
        "Python threads beside the step",
        doc.table(
            "Threads that kept Python's lock, or that the step waited for",
            (
                doc.names("host", [row.host if several else None for row in rows]),
                doc.names("thread", [row.thread for row in rows]),
                doc.times("kept the lock", [row.kept_ps for row in rows]),
                doc.times("awaited", [row.awaited_ps for row in rows]),
                doc.shares("share of the window", [row.kept_ratio for row in rows]),
                doc.names("line of Python", [row.python.line for row in rows]),
            ),
            row_count=len(result.threads),
        ),
    )


ANALYSIS: Final = Analysis[PythonThreads](
    "python_threads",
    compute=compute,
    rules=(PYTHON_THREAD,),
    diagnose=diagnose,
    sections=(section,),
)
