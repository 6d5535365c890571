"""Writes a comparison: the verdict, one table of states, then ops and findings, for every printer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.gpu_time.device_states import DeviceStates, anatomy_rows
from traceview.comparison.model import (
    LONGEST_VALUE,
    ComparedRun,
    Comparison,
    DeviceDifference,
    FindingDifference,
    OpDifference,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import CLASSES, STATES, Look, look_of

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
            *_ops_table(comparison, _BRIEF_OPS, is_brief=True),
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
    facts = doc.facts(*_sides(comparison), *_changed(comparison))
    return doc.Section("comparison", comparison.verdict, (*facts, *blocks), is_folded=False)


def document_of(comparison: Comparison) -> doc.Document:
    """The page: both mean steps on one scale, then everything."""
    return doc.Document(
        traceview_version=comparison.traceview_version,
        summary=doc.Summary(
            run=f"{_names(comparison.before)} → {_names(comparison.after)}",
            answer=comparison.verdict,
            about=(*_sides(comparison), *_changed(comparison)),
            remarks=tuple(map(numbers.sentence, comparison.limits)),
            anatomy=tuple(_anatomy(comparison)),
        ),
        sections=tuple(_details(comparison)),
    )


def _names(runs: Sequence[ComparedRun]) -> str:
    first = shortened(runs[0].run, LONGEST_VALUE)
    return f"{first} and {len(runs) - 1} more" if len(runs) > 1 else first


def _sides(comparison: Comparison) -> tuple[str, ...]:
    """`before: logs/a, 12 steps`."""
    is_same = comparison.before[0].logdir == comparison.after[0].logdir
    return tuple(
        f"{name}: {_place(runs, has_run=is_same)}, {numbers.plural(sum(run.step_count for run in runs), 'step')}"
        for name, runs in (("before", comparison.before), ("after", comparison.after))
    )


def _place(runs: Sequence[ComparedRun], *, has_run: bool) -> str:
    """The log directory of the first capture of a side; `has_run`: and its run, as the other side has the same."""
    first = shortened(runs[0].logdir, LONGEST_VALUE)
    if has_run:
        first = f"{shortened(runs[0].run, LONGEST_VALUE)} in {first}"
    return (
        f"{first} and {numbers.plural(len(runs) - 1, 'more capture')}" if len(runs) > 1 else first
    )


def _changed(comparison: Comparison) -> tuple[str, ...]:
    """Other differences of the sides, in a fact or two."""
    words = [row.words for row in comparison.conditions]
    if not words:
        return ()
    hidden = len(words) - _SHOWN_CONDITIONS
    more = [f"{hidden} more"] if hidden > 0 else []
    return (f"also changed: {'; '.join([*words[:_SHOWN_CONDITIONS], *more])}",)


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
            "ops",
            "Ops and kernels",
            _ops_table(comparison, MOST_OPS),
            lead="Time per step and device; the largest difference on the critical path first.",
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


def _state_table(comparison: Comparison, most_rows: int) -> tuple[doc.Table, ...]:
    """The largest differences, what is left together, and the step as their sum."""
    states, step = comparison.states, comparison.step
    if not states:
        return ()
    least = _LEAST_RATIO * max(step.before_ps, step.after_ps)
    large = [row for row in states if max(row.before_ps, row.after_ps) >= least]
    groups = [[row.state] for row in large[:most_rows]]
    rest = [row.state for row in states if [row.state] not in groups]
    words = [look_of(STATES, key).words for (key,) in groups]
    looks = [_NOISE[row.direction] for row in large[:most_rows]]
    if rest:
        groups.append(rest)
        words.append(numbers.plural(len(rest), "other state"))
        looks.append(Look("", ""))
    groups.append([row.state for row in states])

    def sums(side: str) -> list[int]:
        by_state = {row.state: getattr(row, f"{side}_ps") for row in states}
        return [sum(by_state.get(key, 0) for key in group) for group in groups]

    return doc.table(
        "The mean step by state before and after",
        (
            doc.column("words", "state", [*words, "step"]),
            doc.column("time", "before", sums("before"), priority=1),
            doc.column("time", "after", sums("after"), priority=1),
            doc.column("signed_time", "change", sums("difference")),
            doc.column(
                "look",
                "noise",
                [*looks, _NOISE[step.direction]],
                priority=1,
                meaning="whether the difference is beyond what the noise of the steps explains",
            ),
        ),
    )


def _ops_table(
    comparison: Comparison, most_rows: int, *, is_brief: bool = False
) -> tuple[doc.Table, ...]:
    """The ops that differ beyond noise. A brief table leaves the room to the names."""
    changed = [row for row in comparison.ops if row.status != "same" and _is_large(comparison, row)]
    shown = [column for column in _OPS if not is_brief or column.priority <= 1]
    rest = "-o FILE" if is_brief else "the JSON"
    return table("Ops and kernels before and after", changed, shown, most_rows=most_rows, rest=rest)


def _is_large(comparison: Comparison, row: OpDifference) -> bool:
    least = _LEAST_RATIO * comparison.step.before_ps
    return max(abs(row.difference_ps), abs(row.path_ps)) >= least


def _op_look(row: OpDifference) -> Look:
    """How it changed."""
    look = STATUSES[row.status]
    if row.left_out_ps and row.status in ("new", "gone"):
        side = "before" if row.status == "new" else "after"
        return replace(look, words=f"{row.status}, or below {numbers.time(row.left_out_ps)} {side}")
    return look


def _calls(row: OpDifference) -> str:
    """`1 → 3` where they differ."""
    before, after = (f"{calls:.4g}" for calls in (row.before_calls, row.after_calls))
    return before if before == after else f"{before} → {after}"


def _finding_words(row: FindingDifference) -> str:
    if row.status == "changed":
        return f"changed: {row.title}; before: {numbers.time(row.before_ps)} ({row.code})"
    return f"{'new' if row.status == 'came' else 'gone'}: {row.title} ({row.code})"


_OPS: Final = (
    Shown("op or kernel", lambda row: row.op or row.kernel, kind="name"),
    Shown("before", "before_ps", 1),
    Shown("after", "after_ps", 1),
    Shown("change", "difference_ps", kind="signed_time"),
    Shown("", _op_look, 1, "look"),
    Shown("calls", _calls, 1),
    Shown("class", lambda row: look_of(CLASSES, row.class_), 5, "look"),
    Shown("kernel", lambda row: row.kernel if row.op else None, 6, "name"),
)
_FINDINGS: Final = (
    Shown("finding", "code"),
    Shown("", "status", kind="words"),
    Shown("title", "title", kind="words"),
    Shown("cost before", "before_ps", 1),
    Shown("cost after", "after_ps", 1),
    Shown("of GPU time before", "before_ratio", 2),
    Shown("of GPU time after", "after_ratio", 2),
)
_CONDITIONS: Final = (
    Shown("what", "name", kind="words"),
    Shown("before", "before"),
    Shown("after", "after"),
)


# Both mean steps on one scale


def _anatomy(comparison: Comparison) -> Iterator[doc.AnatomyRow]:
    """Rows of devices that are alike, before and after beside each other."""
    for side in ("before", "after"):
        runs = comparison.before if side == "before" else comparison.after
        devices = tuple(
            _mean_step(device, side, sum(run.step_count for run in runs))
            for device in comparison.devices
            if device.status in ("both", "gone" if side == "before" else "new")
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
