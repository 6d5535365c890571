"""Draws steps: the chart of step times, and the table of each step with the states of every device in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.measures.context import View
from traceview.analysis.measures.step_report import (
    SLOW_RATIO,
    SlowSteps,
    StepDevice,
    StepRow,
    Steps,
    slow_steps,
    state_growth,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.figures import StepBar, StepTimes
from traceview.document.vocabulary import STATES, STEP_KINDS, Look, look_of
from traceview.ledger.states import KEYS
from traceview.trace.device.table import Table, integers, record_columns, table, texts

_NAMED_STEPS: Final = 8
"""Slow steps that the sentence below the chart names; the chart marks all."""


def step_times(view: View, steps: Steps) -> StepTimes | None:
    """A bar per step, of several hosts the longest, of those that count if any does; None where no step counts."""
    if steps.median_ps is None:
        return None
    slow = slow_steps(steps)
    longest: dict[int, StepRow] = {}
    for row in steps.steps:
        known = longest.get(row.number)
        if known is None or (row.used, row.duration_ps) > (known.used, known.duration_ps):
            longest[row.number] = row
    bars = []
    for row in sorted(longest.values(), key=lambda row: row.number):
        is_slow = slow is not None and row.number in slow.numbers
        bars.append(
            StepBar(
                number=row.number,
                duration_ps=row.duration_ps,
                look=STEP_KINDS[row.kind if row.used else "excluded"],
                excess_ps=row.duration_ps - slow.typical_ps if slow and is_slow else 0,
                cause=_grown_state(steps, (row.number,), slow) if slow and is_slow else None,
                span=_span_of_devices(view, row),
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


def _span_of_devices(view: View, row: StepRow) -> doc.Span | None:
    """The step on the devices of its host."""
    span = step_span(view, row)
    return span and replace(span, devices=tuple(part.device for part in row.devices[1:]))


def _lead(steps: Steps, slow: SlowSteps | None, used_ps: Sequence[int]) -> str:
    median_ps = steps.median_ps or 0
    median = numbers.time(median_ps)
    if slow is None and max(used_ps) - median_ps >= SLOW_RATIO * median_ps:
        return f"Step times vary without a clear outlier: {numbers.time_range(used_ps)}, median {median}."
    if slow is None and len(used_ps) < 2:
        return f"Only 1 step to look at: {median}."
    if slow is None:
        return f"No slow step: {numbers.time_range(used_ps)}, median {median}."
    named = numbers.beginning([str(number) for number in slow.numbers], _NAMED_STEPS)
    which = "Step" if len(slow.numbers) == 1 else "Steps"
    takes = "takes" if len(slow.numbers) == 1 else "take"
    every = f", every {numbers.ordinal(slow.period)} step" if slow.period else ""
    times = numbers.part_of(slow.slow_ps, slow.usual_ps, "instead of")
    state = _grown_state(steps, slow.numbers, slow)
    cause = f" Most of the extra time: {state.words}." if state else ""
    return f"{which} {named} {takes} {times}{every}.{cause}"


def step_remark(kind: str, excluded: str | None) -> str:
    """What is special about a step; mostly nothing."""
    words_of_kind = "" if kind == "train" else look_of(STEP_KINDS, kind).words
    return "; ".join(filter(None, (words_of_kind, excluded and f"left out: {excluded}")))


def step_span(view: View, row: StepRow) -> doc.Span | None:
    """The step on the first device of its host."""
    if not row.devices or row.host not in view.window_start_ps:
        return None
    begin_ps = row.start_ps - view.window_start_ps[row.host]
    return doc.Span(row.devices[0].device, begin_ps, begin_ps + row.duration_ps)


# The table

MOST_STEPS: Final = 40
"""So many steps of a host have a row on a terminal; of more the first and the last are shown."""

LONGEST_BAR: Final = 4
"""A bar ends at so many medians, so that one very long step leaves the others something to see."""

_USED: Final = replace(STEP_KINDS["train"], letter="=", ink="green")
_LEFT_OUT: Final = replace(STEP_KINDS["excluded"], letter="-", ink="dim")


def step_table(steps: Steps | None, devices: Collection[str]) -> Table:
    """A row per step, in time order, and device of its host that is in `devices`.

    The states from `compute_ps` to `unknown_ps` add up to the part of the step inside the window. `python`: the line that
    the host was in while it kept a device waiting.
    """
    rows = [
        (step, part)
        for step in (steps.steps if steps else ())
        for part in step.devices
        if part.device in devices
    ]
    of_step = [field for field in StepRow.__struct_fields__ if field not in ("devices", "python")]
    return table(
        "steps",
        *record_columns(StepRow, [step for step, _ in rows], of_step),
        *record_columns(StepDevice, [part for _, part in rows], ("device",)),
        *(integers(f"{key}_ps", [part.states.get(key, 0) for _, part in rows]) for key in KEYS),
        texts("python", [step.python.line if step.python else None for step, _ in rows]),
    )


# On a terminal


def first_and_last(rows: Table) -> Table:
    """The rows of the first and the last steps of each host, `MOST_STEPS` of each in all."""
    kept: set[tuple[str, int]] = set()
    places = list(zip(rows["host"], rows["number"], strict=True))
    for host in dict.fromkeys(rows["host"]):
        steps = [place for place in dict.fromkeys(places) if place[0] == host]
        few = len(steps) <= MOST_STEPS
        kept.update(steps if few else (*steps[: MOST_STEPS // 2], *steps[-MOST_STEPS // 2 :]))
    return rows.at([at for at, place in enumerate(places) if place in kept])


def step_sections(rows: Table, others: Collection[str] = ()) -> Iterator[doc.Section]:
    """For each host the times of its steps, then for each device what they are made of.

    Of `others`, devices that are much alike, and of hosts that have no other device only ranges are shown.
    """
    hosts = [
        host
        for host in dict.fromkeys(rows["host"])
        if not set(rows.where("host", (host,))["device"]) <= set(others)
    ]
    for host in hosts:
        of_host = rows.where("host", (host,))
        shown = first_and_last(of_host)
        hidden = [n for n in dict.fromkeys(of_host["number"]) if n not in set(shown["number"])]
        yield doc.Section(
            f"steps-{host}",
            f"Step times of {host}",
            (
                *doc.table("Step times", _time_columns(shown)),
                *doc.remarks(
                    f"Steps {hidden[0]} to {hidden[-1]} are not shown: `--steps A:B` shows some, `-o steps.csv` has all."
                    if hidden
                    else None
                ),
            ),
        )
        for device in dict.fromkeys(shown["device"]):
            if device not in others:
                of_device = shown.where("device", (device,))
                yield doc.Section(
                    f"steps-{device}", device, doc.table(device, _part_columns(of_device))
                )
    if others:
        yield doc.Section("other-devices", "Other devices", _ranges(rows, others, hosts))


def _time_columns(rows: Table) -> Iterator[doc.Column]:
    first = list(
        dict(zip(reversed(rows["number"]), range(rows.count - 1, -1, -1), strict=True)).values()
    )
    steps = rows.at(sorted(first))
    lengths = steps["duration_ps"]
    median_ps = sorted(lengths)[len(lengths) // 2] if lengths else 0
    full_ps = min(max(lengths, default=0), LONGEST_BAR * median_ps) or 1
    looks = [_USED if used else _LEFT_OUT for used in steps["used"]]
    yield doc.words("step", map(str, steps["number"]))
    yield doc.times("time", lengths)
    yield doc.bars(
        "",
        [
            doc.Bar((doc.Part(look, 1.0),), min(length_ps / full_ps, 1.0))
            for look, length_ps in zip(looks, lengths, strict=True)
        ],
    )
    if any(steps["python"]):
        yield doc.names("line of Python", steps["python"], priority=1)
    yield doc.words("", map(step_remark, steps["kind"], steps["excluded"]), priority=1)


def _part_columns(rows: Table) -> Iterator[doc.Column]:
    durations = rows["duration_ps"]
    states = {key: rows[f"{key}_ps"] for key in KEYS}
    totals = {key: sum(lengths) for key, lengths in states.items()}
    ranked = sorted((key for key in KEYS if totals[key]), key=lambda key: -totals[key])
    yield doc.words("step", map(str, rows["number"]))
    for priority, key in enumerate(ranked):
        shares = map(doc.ratio, states[key], durations)
        yield doc.shares(STATES[key].words, shares, priority=priority)


def _ranges(rows: Table, others: Collection[str], hosts: Collection[str]) -> tuple[doc.Block, ...]:
    """Between which values the devices and hosts lie that have no table."""
    left = rows.where("device", others)
    compute = numbers.share_range(map(doc.ratio, left["compute_ps"], left["duration_ps"]))
    names = [host for host in dict.fromkeys(left["host"]) if host not in hosts]
    durations = numbers.time_range(left.where("host", names)["duration_ps"])
    count = numbers.plural(len(set(left["device"])), "device")
    return doc.remarks(
        f"{count}: compute {compute} of a step. `--device KEY` or `-o FILE.csv` shows them.",
        f"{numbers.plural(len(names), 'other host')}: steps of {durations}." if names else None,
    )
