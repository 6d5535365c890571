"""Shows hangs: since when, who did not come, where each thread is, and the stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.base import Finding
from traceview.analysis.hang.findings import (
    WAIT_WORDS,
    diagnose,
    outcome,
    seconds,
    since,
    worker_words,
)
from traceview.analysis.hang.phase import PHASE_WORDS, phase_of
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import SEVERITIES, look_of
from traceview.trace.hang import Hang, HangThread

_MOST_THREADS: Final = 24
_MOST_COLLECTIVES: Final = 12
_MOST_STACKS: Final = 12
_MOST_NATIVE: Final = 12
"""Rows, and stacks, in words: what a person reads in a hurry. The JSON report has all."""
_LEAST_WRITTEN: Final = 100_000
"""Bytes; the lines of a log are not worth a word."""
_WIDEST_LINE: Final = 90
"""Characters; the middle of a longer line is left out."""
_IN_JSON: Final = "the JSON report"

NOT_SEEN: Final = "Not known: which op of TensorFlow waits, for an op records itself when it ends."


def hangs_section(hangs: Sequence[Hang]) -> doc.Section:
    """The hangs of a run, as a part of its report; the findings stand in their own section there."""
    blocks: list[doc.Block] = []
    for hang in hangs:
        blocks += doc.notes(
            f"{since(hang)}{_of_task(hang) if len(hangs) > 1 else ''}.", outcome(hang)
        )
        blocks += _details(hang)
    return doc.Section("hangs", "Hangs", tuple(blocks))


def hang_document(hang: Hang) -> doc.Section:
    """One report as a document of its own: the conclusion, what to do, and what shows it."""
    found = tuple(_shown(number, finding) for number, finding in enumerate(diagnose(hang), 1))
    answer = outcome(hang)
    return doc.Section(
        "hang",
        f"{'Process' if hang.state == 'attached' else 'Hang of process'} {hang.pid} on {hang.host}{_of_task(hang)}",
        (
            *((doc.Findings(found),) if found else ()),
            *_details(hang),
            *_stacks(hang),
        ),
        lead=f"{since(hang)}." + (f" {answer}" if answer else ""),
        is_folded=False,
    )


def short_lines(hang: Hang) -> Iterator[str]:
    """What a person at the terminal needs, in a few lines."""
    yield f"{since(hang)}{_of_task(hang)}."
    found = diagnose(hang)
    for finding in found:
        yield f"{finding.code}: {finding.title}"
    if hang.main is not None:
        yield f"main thread: {place_words(hang.main)}"
    for worker in hang.workers:
        yield f"{worker.task}: {worker_words(worker)}"
    for finding in found:
        yield f"what to do: {finding.advice}"


def place_words(thread: HangThread) -> str:
    """Where a thread is: the line of the user's code, the innermost line, and what it waits for."""
    lines = [thread.user_line] if thread.user_line else []
    if thread.frames and thread.frames[0] != thread.user_line:
        lines.append(thread.frames[0])
    what = f", {WAIT_WORDS[thread.wait]}" if thread.wait else ""
    return f"{' → '.join(lines) or 'no Python'}{what}"


def _details(hang: Hang) -> Iterator[doc.Block]:
    if hang.main is not None:
        yield from doc.notes(f"Main thread: {place_words(hang.main)}.")
    yield from doc.facts(*_facts(hang))
    yield from doc.table(
        "Workers",
        (
            doc.words("worker", [worker.task for worker in hang.workers]),
            doc.words("what it does", [worker_words(worker) for worker in hang.workers]),
            doc.words("answers", [_yes(worker.is_answering) for worker in hang.workers]),
        ),
    )
    collectives = sorted(hang.collectives, key=lambda entry: entry.has_come is None)
    shown = collectives[:_MOST_COLLECTIVES]
    yield from doc.table(
        "Collectives of the step",
        (
            doc.names("collective", [shortened(entry.op, _WIDEST_LINE) for entry in shown]),
            doc.words("device", [entry.device for entry in shown]),
            doc.words("group", [_key(entry.group_key) for entry in shown], priority=2),
            doc.words("instance", [_key(entry.instance_key) for entry in shown], priority=2),
            doc.words("has come", [_yes(entry.has_come) for entry in shown]),
        ),
        row_count=len(collectives),
        rest=_IN_JSON,
    )
    rows = hang.threads[:_MOST_THREADS]
    yield from doc.table(
        "Threads with a Python stack",
        (
            doc.names("thread", [thread.name for thread in rows]),
            doc.names(
                "is in",
                [
                    shortened(thread.user_line or (thread.frames or ("",))[0], _WIDEST_LINE)
                    for thread in rows
                ],
            ),
            doc.words("and", [WAIT_WORDS[thread.wait] if thread.wait else None for thread in rows]),
            doc.shares("one core", [thread.computing_ratio for thread in rows], priority=1),
        ),
        row_count=len(hang.threads),
        rest=_IN_JSON,
    )
    yield from doc.remarks(NOT_SEEN if hang.is_step and not hang.is_lock_held else None)
    yield from doc.notes(*(f"{name}: {reason}" for name, reason in hang.missing.items()))


def _facts(hang: Hang) -> Iterator[str]:
    if hang.state == "attached" and hang.main is not None:
        yield PHASE_WORDS[phase_of(hang)]
    if hang.step_count is not None:
        yield numbers.plural(hang.step_count, "step") + " ended"
    if hang.step_function is not None:
        yield f"in the call of {hang.step_function}" + (
            ", its first call" if hang.is_first_call else ""
        )
    if hang.cores is not None:
        yield f"{hang.cores:.1f} cores busy"
    if (hang.written_bytes or 0) >= _LEAST_WRITTEN:
        yield f"{numbers.size(hang.written_bytes)} written in {seconds(hang.look_ns)}"
    if hang.other_call_count:
        yield f"{numbers.plural(hang.other_call_count, 'call')} of other functions since"
    for gpu in hang.gpus:
        power = f", {gpu.power_watts:.0f} W" if gpu.power_watts is not None else ""
        yield f"GPU:{gpu.ordinal} {numbers.share(gpu.busy_ratio)} busy{power}"


def _stacks(hang: Hang) -> Iterator[doc.Block]:
    """The stacks, the innermost line first; equal ones once."""
    groups: dict[tuple[str, ...], list[HangThread]] = {}
    for thread in hang.threads:
        groups.setdefault(thread.frames, []).append(thread)
    for frames, threads in list(groups.items())[:_MOST_STACKS]:
        names = numbers.listed([thread.name for thread in threads], most=4)
        yield doc.Subheading(f"Stack of {names}")
        yield from doc.table("Stack", (doc.names("innermost line first", frames),))
    more = len(groups) - _MOST_STACKS
    if more > 0:
        yield from doc.remarks(f"{numbers.plural(more, 'more stack')}: {_IN_JSON}.")
    groups_of_native = hang.native[:_MOST_NATIVE]
    yield from doc.table(
        "Threads of the process",
        (
            doc.names("threads", [group.name for group in groups_of_native]),
            doc.counts("count", [group.count for group in groups_of_native]),
            doc.words(
                "what they do",
                [
                    ", ".join(
                        f"{count} × {WAIT_WORDS.get(wait, wait)}"
                        for wait, count in group.waits.items()
                    )
                    for group in groups_of_native
                ],
            ),
            doc.shares("one core", [group.computing_ratio for group in groups_of_native]),
        ),
        row_count=len(hang.native),
        rest=_IN_JSON,
    )


def _shown(number: int, finding: Finding) -> doc.Finding:
    return doc.Finding(
        number=number,
        code=finding.code,
        severity=look_of(SEVERITIES, finding.severity),
        title=numbers.capitalized(finding.title),
        cost="",
        is_cost_in_title=False,
        explanation=finding.explanation,
        evidence="; ".join(
            f"{evidence.metric} {numbers.measured(evidence.metric, evidence.value)} ({evidence.where})"
            for evidence in finding.evidence
        ),
        confidence=finding.confidence,
        confidence_reason=finding.confidence_reason,
        advice=finding.advice,
    )


def _of_task(hang: Hang) -> str:
    return f", {hang.task}" if hang.task else ""


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _key(value: int | None) -> str | None:
    return None if value is None else str(value)
