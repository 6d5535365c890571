"""Shows a comparison: below the verdict one table of states, then ops and findings, for every printer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from traceview.analysis.gpu_time.device_states import DeviceStates, anatomy_rows
from traceview.comparison.model import (
    LONGEST_VALUE,
    ComparedRun,
    Comparison,
    DeviceDifference,
    FindingDifference,
    WorkDifference,
)
from traceview.comparison.noise import Direction
from traceview.comparison.verdict import work_words
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import STATES, Look, look_of

_PARTS_CAPTION: Final = "Compute before and after"
_OPS_CAPTION: Final = "Ops and kernels before and after"
MOST_OPS: Final = 30
_BRIEF_ROWS: Final = 5
"""Rows of a table on the first screen of a terminal."""
_BRIEF_OPS: Final = 4
_BRIEF_NOTES: Final = 2
_LEAST_RATIO: Final = 0.005
"""Of the step: what differs by less is not listed; the JSON has it."""
_SHOWN_CONDITIONS: Final = 3

STATUSES: Final = {
    "slower": Look("slower", "slower", ink="red"),
    "faster": Look("faster", "faster", ink="green"),
    "new": Look("new", "new", ink="bold"),
    "gone": Look("gone", "gone", ink="bold"),
    "same": Look("same", "no difference shown", ink="dim"),
}
"""How an op changed."""

_NOISE: Final = {
    "slower": Look("beyond", "beyond", ink="red"),
    "faster": Look("beyond", "beyond", ink="green"),
    "none": Look("within", "within", ink="dim"),
    "unknown": Look("unknown", numbers.ABSENT, ink="dim"),
}
"""Whether a difference is larger than the noise of the steps explains."""


def screen_of(comparison: Comparison) -> tuple[doc.Section, ...]:
    """The screen of a terminal of 24 lines: the verdict, its largest parts and ops, and how far it can be trusted."""
    findings = comparison.findings
    hidden = len(findings) - _BRIEF_NOTES
    more = f"{numbers.plural(hidden, 'more finding')} came, went or changed" if hidden > 0 else None
    return (
        _verdict_section(
            comparison,
            *_state_table(comparison, _BRIEF_ROWS),
            *_brief_work(comparison),
            *doc.notes(*map(_finding_words, findings[:_BRIEF_NOTES]), more),
            *doc.remarks(*map(numbers.sentence, comparison.limits[:_BRIEF_NOTES])),
            *doc.remarks("Everything: `-o comparison.html`, `.md` or `.json`."),
        ),
    )


def sections_of(comparison: Comparison) -> tuple[doc.Section, ...]:
    """Everything, for a ticket: the verdict, then the details."""
    limits = doc.notes(*map(numbers.sentence, comparison.limits))
    return (_verdict_section(comparison, *limits), *_details(comparison))


def _verdict_section(comparison: Comparison, *blocks: doc.Block) -> doc.Section:
    changed = numbers.listed([row.words for row in comparison.conditions], _SHOWN_CONDITIONS)
    facts = doc.facts(*_sides(comparison), f"also changed: {changed}" if changed else None)
    return doc.Section("comparison", comparison.verdict, (*facts, *blocks), is_folded=False)


def document_of(comparison: Comparison) -> doc.Document:
    """The page: both mean steps on one scale, then everything."""
    return doc.Document(
        traceview_version=comparison.traceview_version,
        summary=doc.Summary(
            run=f"{_names(comparison.before)} → {_names(comparison.after)}",
            answer=comparison.verdict,
            remarks=tuple(map(numbers.sentence, comparison.limits)),
            anatomy=tuple(_anatomy(comparison)),
        ),
        sections=tuple(_details(comparison)),
    )


def _names(runs: Sequence[ComparedRun]) -> str:
    first = shortened(runs[0].run, LONGEST_VALUE)
    return f"{first} and {len(runs) - 1} more" if len(runs) > 1 else first


_ONLY: Final = {"before": "gone", "after": "new"}
"""By side the status of what the other one has not."""


def _sides(comparison: Comparison) -> Iterator[str]:
    """`before: logs/a, 12 steps of 2 devices`; of several captures the step of each."""
    has_run = comparison.before[0].logdir == comparison.after[0].logdir
    for name, runs in (("before", comparison.before), ("after", comparison.after)):
        place = shortened(runs[0].logdir, LONGEST_VALUE)
        if has_run:
            place = f"{shortened(runs[0].run, LONGEST_VALUE)} in {place}"
        steps = numbers.plural(sum(run.step_count for run in runs), "step")
        count = sum(each.status in ("both", _ONLY[name]) for each in comparison.devices)
        if more := len(runs) - 1:
            each = numbers.listed([numbers.time(run.step_ps) for run in runs])
            yield f"{name}: {place} and {numbers.plural(more, 'more capture')}, {steps}, mean per capture {each}"
        else:
            yield f"{name}: {place}, {steps}{f' of {count} devices' if count > 1 else ''}"


def _details(comparison: Comparison) -> Iterator[doc.Section]:
    for section in (
        doc.Section(
            "states",
            "States",
            _state_table(comparison, len(comparison.states)),
            lead="The mean steps of the devices by state; the differences sum to that of the steps.",
            is_folded=False,
        ),
        doc.Section(
            "parts",
            "Compute by function and layer",
            _work_table(_PARTS_CAPTION, comparison, comparison.parts, _PARTS),
            lead="Compute per step and device of the functions of Python and the layers that made the ops, without waits for a core.",
            is_folded=False,
        ),
        doc.Section(
            "ops",
            "Ops and kernels",
            _work_table(_OPS_CAPTION, comparison, comparison.ops, _OPS),
            lead="Time per step and device, with waits for a core.",
        ),
        doc.Section(
            "findings-changed",
            "Findings",
            table("Findings that came, went or cost another time", comparison.findings, _FINDINGS),
        ),
        doc.Section(
            "conditions",
            "What else changed",
            table("What else is not the same on both sides", comparison.conditions, _CONDITIONS),
        ),
    ):
        if section.blocks:
            yield section


# Tables


class _StateRow(NamedTuple):
    """States that are shown together, and whether their difference is beyond noise."""

    words: str
    before_ps: int
    after_ps: int
    look: Look


def _state_table(comparison: Comparison, most_rows: int) -> tuple[doc.Table, ...]:
    """The largest differences, what is left together, and the step as their sum."""
    states, step = comparison.states, comparison.step
    if not states:
        return ()
    least = _LEAST_RATIO * max(step.before_ps, step.after_ps)
    large = [row for row in states if max(row.before_ps, row.after_ps) >= least][:most_rows]
    rest = [row for row in states if row not in large]
    rows = [
        _StateRow(
            look_of(STATES, row.state).words,
            row.before_ps,
            row.after_ps,
            _noise(comparison, row.direction),
        )
        for row in large
    ]
    if rest:
        sums = sum(row.before_ps for row in rest), sum(row.after_ps for row in rest)
        rows.append(_StateRow(numbers.plural(len(rest), "other state"), *sums, Look("", "")))
    direction = step.direction if step.measure == "mean" else "none"
    noise = _noise(comparison, direction)
    rows.append(_StateRow("step", step.before_ps, step.after_ps, noise))
    return table("The mean step by state before and after", rows, _STATE_COLUMNS)


def _noise(comparison: Comparison, direction: Direction) -> Look:
    """Of single captures a difference that is not beyond the assumed noise is not within any that was measured either."""
    is_assumed = comparison.step.basis == "assumed" and direction == "none"
    return _NOISE["unknown" if is_assumed else direction]


def _brief_work(comparison: Comparison) -> tuple[doc.Table, ...]:
    """The functions and layers that differ, else the ops; without the columns that leave no room to names."""
    for caption, rows, columns in (
        (_PARTS_CAPTION, comparison.parts, _PARTS),
        (_OPS_CAPTION, comparison.ops, _OPS),
    ):
        shown = [column for column in columns if column.priority <= 1]
        if made := _work_table(caption, comparison, rows, shown, _BRIEF_OPS, "-o FILE"):
            return made
    return ()


def _work_table(
    caption: str,
    comparison: Comparison,
    rows: Sequence[WorkDifference],
    columns: Sequence[Shown],
    most_rows: int = MOST_OPS,
    rest: str = "the JSON",
) -> tuple[doc.Table, ...]:
    """What differs beyond noise."""
    least = _LEAST_RATIO * comparison.step.before_ps
    changed = [
        row
        for row in rows
        if row.status != "same" and max(abs(row.difference_ps), abs(row.path_ps)) >= least
    ]
    return table(caption, changed, columns, most_rows=most_rows, rest=rest)


def _calls(row: WorkDifference) -> str:
    """`1 → 3` where they differ."""
    before, after = (f"{calls:.4g}" for calls in (row.before_calls, row.after_calls))
    return before if before == after else f"{before} → {after}"


def _finding_words(row: FindingDifference) -> str:
    if row.status == "changed":
        return f"changed: {row.title}; before: {numbers.time(row.before_ps)} ({row.code})"
    return f"{'new' if row.status == 'came' else 'gone'}: {row.title} ({row.code})"


_TIMES: Final = (
    Shown("before", "before_ps", 1),
    Shown("after", "after_ps", 1),
    Shown("change", lambda row: row.after_ps - row.before_ps, kind="signed_time"),
)
_STATE_COLUMNS: Final = (
    Shown("state", "words", kind="words"),
    *_TIMES,
    Shown(
        "noise",
        "look",
        1,
        "look",
        "whether the difference is beyond what the noise of the steps explains",
    ),
)
_STATUS: Final = Shown("", lambda row: STATUSES[row.status], 1, "look")
_PARTS: Final = (Shown("function or layer", work_words, kind="name"), *_TIMES, _STATUS)
_OPS: Final = (
    Shown("op or kernel", work_words, kind="name"),
    *_TIMES,
    _STATUS,
    Shown("calls", _calls, 1),
    Shown("kernel", lambda row: row.kernel if row.op else None, 6, "name"),
)
_FINDINGS: Final = (
    Shown("finding", "code"),
    Shown("", "status", kind="words"),
    Shown("title", "title", kind="words"),
    Shown("cost before", "before_ps", 1),
    Shown("cost after", "after_ps", 1),
)
_CONDITIONS: Final = (
    Shown("what", "name", kind="words"),
    Shown("before", "before"),
    Shown("after", "after"),
)


# Both mean steps on one scale


def _anatomy(comparison: Comparison) -> Iterator[doc.AnatomyRow]:
    for side in ("before", "after"):
        runs = comparison.before if side == "before" else comparison.after
        devices = tuple(
            _mean_step(device, side, sum(run.step_count for run in runs))
            for device in comparison.devices
            if device.status in ("both", _ONLY[side])
        )
        for row in anatomy_rows(devices):
            yield replace(row, label=f"{side}: {row.label}")


def _mean_step(device: DeviceDifference, side: str, step_count: int) -> DeviceStates:
    states = {row.state: getattr(row, f"{side}_ps") for row in device.states}
    return DeviceStates(
        host="",
        device=device.device,
        ordinal=0,
        step_count=step_count,
        step_ps=sum(states.values()),
        states={key: ps for key, ps in states.items() if ps},
        waits_for=None,
    )


# Files


def to_markdown(comparison: Comparison) -> str:
    """A page for a ticket or a pull request."""
    from traceview.document.markdown import render_section

    return "\n".join(map(render_section, sections_of(comparison)))


def to_html(comparison: Comparison) -> str:
    """A page for a browser, complete in one file."""
    from traceview.document.html import printer

    page = document_of(comparison)
    return printer.render(lambda _: page)
