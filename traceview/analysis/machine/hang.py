"""Hangs: times in which no training step ended, as `traceview capture --on-hang` reports them: since when, who did not come, the stacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from traceview.analysis.machine.hang_causes import RULES, WAIT_WORDS, diagnose
from traceview.analysis.measures.context import Analysis
from traceview.analysis.rules.finding import Skipped
from traceview.analysis.rules.sentences import shown_finding
from traceview.base.record import Record
from traceview.base.units import PS_PER_NS
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.phrase import Phrase, Sentence, name, names, phrase, plain
from traceview.document.sanitize import dumped, shortened
from traceview.trace.sidecar.hang import Hang, HangThread, HangWorker, hang_of

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
        return (
            f"No Python could run when the stacks were written, at {numbers.date(hang.noticed_ns)}"
        )
    moment = numbers.date(hang.last_step_ns)
    at = f" at {moment}" if moment else ""
    last = f"step {hang.step_count - 1} ended{at}" if hang.step_count else f"the script started{at}"
    waited = numbers.time(hang.waited_ns * PS_PER_NS)
    if hang.is_lock_held:
        return f"No Python ran for {waited}, until {numbers.date(hang.noticed_ns)}"
    return f"No step has ended for {waited} since {last}"


def outcome(hang: Hang) -> str | None:
    """How it ended; None while it is not known to have."""
    if hang.total_ns is None or hang.is_lock_held:
        return None
    if hang.state == "went-on":
        return f"Training went on after {numbers.time(hang.total_ns * PS_PER_NS)}."
    return f"The script ended after {numbers.time(hang.total_ns * PS_PER_NS)} without another step."


def worker_words(worker: HangWorker) -> Phrase:
    """What a worker does."""
    steps = "" if not worker.step_count else f" (last step: {worker.step_count - 1})"
    if worker.state == "ended":
        return phrase(f"its script has ended{steps}")
    if worker.state == "silent" and worker.silent_ns is not None:
        ended = numbers.plural(worker.step_count or 0, "step")
        ago = numbers.time(worker.silent_ns * PS_PER_NS)
        return phrase(f"stopped, gone or cut off: it wrote last {ago} ago, when {ended} had ended")
    if worker.state == "unknown":
        return phrase("where it is, is not known")
    waited = (
        "" if worker.waited_ns is None else f" for {numbers.time(worker.waited_ns * PS_PER_NS)}"
    )
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
