"""Draws steps: the chart of step times, and the table of each step with the states of every device in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from traceview.analysis.measures.context import View
from traceview.analysis.measures.step_report import (
    SLOW_RATIO,
    SlowSteps,
    StepDevice,
    StepRow,
    Steps,
    longest_by_number,
    slow_steps,
    state_growth,
)
from traceview.document import columns, numbers
from traceview.document import model as doc
from traceview.document.columns import Shown
from traceview.document.figures import StepBar, StepTimes
from traceview.document.vocabulary import STATES, STEP_KINDS, Look, look_of
from traceview.ledger.states import KEYS
from traceview.trace.device.table import Table, integers, record_columns, table, texts

MOST_STEPS: Final = 40
"""So many steps of a host have a row on a terminal; of more the first and the last are shown."""

_NAMED_STEPS: Final = 8
"""Slow steps that the sentence below the chart names; the chart marks all."""


def step_times(view: View, steps: Steps) -> StepTimes | None:
    """A bar per step, of several hosts the longest, of those that count if any does; None where no step counts."""
    if steps.median_ps is None:
        return None
    slow = slow_steps(steps)
    longest = longest_by_number(steps.steps)
    bars = []
    for number in sorted(longest):
        row = longest[number]
        is_slow = slow is not None and number in slow.numbers
        bars.append(
            StepBar(
                number=number,
                duration_ps=row.duration_ps,
                look=STEP_KINDS[row.kind if row.used else "excluded"],
                excess_ps=row.duration_ps - slow.typical_ps if slow and is_slow else 0,
                cause=_grown_state(steps, (number,), slow) if slow and is_slow else None,
                span=step_span(view, row, tuple(part.device for part in row.devices[1:])),
            )
        )
    used = [row.duration_ps for row in longest.values() if row.used]
    return StepTimes(tuple(bars), steps.median_ps, _lead(steps, slow, used))


def _grown_state(steps: Steps, numbers_: Sequence[int], slow: SlowSteps) -> Look | None:
    """The state that devices are in for longer than in usual steps, by most; None where there is none."""
    growth = state_growth(steps.steps, numbers_, slow.usual)
    total = {state: sum(of_device.values()) for state, of_device in growth.items()}
    state = max(total, key=lambda state: total[state], default=None)
    return look_of(STATES, state) if state is not None and total[state] > 0 else None


def _lead(steps: Steps, slow: SlowSteps | None, used_ps: Sequence[int]) -> str:
    median_ps = steps.median_ps or 0
    median = numbers.time(median_ps)
    if slow is None:
        if len(used_ps) < 2:
            return f"Only 1 step to look at: {median}."
        varies = max(used_ps) - median_ps >= SLOW_RATIO * median_ps
        which = "Step times vary without a clear outlier" if varies else "No slow step"
        return f"{which}: {numbers.time_range(used_ps)}, median {median}."
    named = numbers.beginning([str(number) for number in slow.numbers], _NAMED_STEPS)
    which = "Step" if len(slow.numbers) == 1 else "Steps"
    takes = "takes" if len(slow.numbers) == 1 else "take"
    every = f", every {numbers.ordinal(slow.period)} step" if slow.period else ""
    times = numbers.part_of(slow.slow_ps, slow.usual_ps, "instead of")
    state = _grown_state(steps, slow.numbers, slow)
    cause = f" Most of the extra time: {state.words}." if state else ""
    return f"{which} {named} {takes} {times}{every}.{cause}"


def step_remark(kind: str, excluded: str | None) -> str:
    """A remark on a step; mostly none."""
    words_of_kind = "" if kind == "train" else look_of(STEP_KINDS, kind).words
    return "; ".join(filter(None, (words_of_kind, excluded and f"left out: {excluded}")))


def step_span(view: View, row: StepRow, others: tuple[str, ...] = ()) -> doc.Span | None:
    """The step on the first device of its host; `others`: devices that are shown with it."""
    if not row.devices or row.host not in view.window_start_ps:
        return None
    begin_ps = row.start_ps - view.window_start_ps[row.host]
    return doc.Span(row.devices[0].device, begin_ps, begin_ps + row.duration_ps, others)


# The table


def step_table(steps: Iterable[StepRow], devices: Collection[str]) -> Table:
    """A row per step, in time order, and device of its host that is in `devices`; one without a device if the host has none.

    The states from `compute_ps` to `unknown_ps` add up to the part of the step inside the window. `python`: the line that
    the host was in while it kept a device waiting.
    """
    rows = [
        (step, part)
        for step in steps
        for part in step.devices or (None,)
        if part is None or part.device in devices
    ]
    of_step = [field for field in StepRow.__struct_fields__ if field not in ("devices", "python")]
    return table(
        "steps",
        *record_columns(StepRow, [step for step, _ in rows], of_step),
        *record_columns(StepDevice, [part for _, part in rows], ("device",)),
        *(
            integers(f"{key}_ps", [part.states.get(key, 0) if part else None for _, part in rows])
            for key in KEYS
        ),
        texts("python", [step.python.line if step.python else None for step, _ in rows]),
    )


def first_and_last(rows: Table, most_steps: int = MOST_STEPS) -> Table:
    """The rows of the first and the last steps of each host, so many steps of each in all."""
    kept: set[tuple[str, int]] = set()
    places = list(zip(rows["host"], rows["number"], strict=True))
    for host in dict.fromkeys(rows["host"]):
        steps = [place for place in dict.fromkeys(places) if place[0] == host]
        kept.update(steps[: most_steps - most_steps // 2] + steps[-(most_steps // 2) :])
    return rows.at([at for at, place in enumerate(places) if place in kept])


def step_blocks(view: View, rows: Table, most_rows: int | None = None) -> tuple[doc.Block, ...]:
    """A row per step and device with the share of each state; of devices that are much alike only a range.

    `most_rows`: of so many rows the first and the last steps are shown; without it `MOST_STEPS` of them.
    """
    own = rows.at([at for at, key in enumerate(rows["device"]) if key not in view.others])
    device_count = len({*own["device"]}) or 1
    kept = first_and_last(
        own, MOST_STEPS if most_rows is None else max(most_rows // device_count, 2)
    )
    shown = list(kept.rows())
    hidden = sorted({*rows["number"]} - {*kept["number"]})
    left = rows.where("device", view.others)
    compute = list(map(doc.ratio, left["compute_ps"], left["duration_ps"]))
    others = numbers.plural(len({*left["device"]}), "other device")
    command = f"{view.command('show steps')} -o steps.csv"
    remarks = [
        f"Steps {hidden[0]} to {hidden[-1]} are not shown. All steps:" if hidden else "",
        f"{others}: compute {numbers.share_range(compute)} of a step. All devices:"
        if compute
        else "",
    ]
    return (
        *columns.table("Steps", shown, _columns(view, shown)),
        *(doc.Remark(remark, command) for remark in remarks if remark),
    )


def _columns(view: View, rows: Sequence[Mapping[str, Any]]) -> Iterator[Shown]:
    """What a step is, and the share of each state that occurs, the largest first."""
    # The key of a device names its host.
    yield Shown("host", lambda row: None if row["device"] else row["host"], 3, "name")
    yield Shown("step", itemgetter("number"), kind="ordinal")
    yield Shown("recorded as", _recorded_as, 4, "ordinal", "the number in the marker")
    yield Shown("device", itemgetter("device"), kind="device")
    yield Shown("", lambda row: _span(view, row), kind="span")
    yield Shown("time", itemgetter("duration_ps"), kind="time")
    totals = {key: sum(row[f"{key}_ps"] or 0 for row in rows) for key in KEYS}
    for priority, key in enumerate(sorted(filter(totals.get, KEYS), key=lambda key: -totals[key])):
        yield _share_of(key, priority)
    yield Shown("line of Python", itemgetter("python"), 1, "name")
    yield Shown("remark", lambda row: step_remark(row["kind"], row["excluded"]), 1)


def _recorded_as(row: Mapping[str, Any]) -> int | None:
    return None if row["recorded_number"] == row["number"] else row["recorded_number"]


def _span(view: View, row: Mapping[str, Any]) -> doc.Span | None:
    if row["device"] is None or row["host"] not in view.window_start_ps:
        return None
    begin_ps = row["start_ps"] - view.window_start_ps[row["host"]]
    return doc.Span(row["device"], begin_ps, begin_ps + row["duration_ps"])


def _share_of(key: str, priority: int) -> Shown:
    def share(row: Mapping[str, Any]) -> float | None:
        return doc.ratio(row[f"{key}_ps"], row["duration_ps"])

    return Shown(STATES[key].words, share, priority, "share")
