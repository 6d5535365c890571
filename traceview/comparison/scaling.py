"""Compares runs on different numbers of devices: speed-up, efficiency, and which states grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import floor
from typing import Final, Literal

from traceview.analysis.rules.finding import Skipped
from traceview.base.record import (
    Count,
    Picoseconds,
    Ratio,
    Record,
    RunName,
    VersionText,
)
from traceview.base.version import VERSION
from traceview.comparison.build import BLOCKING, facts_among
from traceview.comparison.model import LONGEST_VALUE
from traceview.comparison.sides import Side, batch_size_of, step_time_ps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.figures import Trend, TrendPoint
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import STATES, look_of
from traceview.report.model import Report, why_absent

SCALING_SCHEMA_VERSION: Final = 1

_OTHER_WORK: Final = {*BLOCKING, "precision", "parameters"} - {"batch", "hosts"}
"""Facts in which runs with the same step do not differ."""


class Efficiency(Record, frozen=True):
    """The runs on one number of devices; of several runs the means.

    Attributes:
        device_count: Devices that computed.
        models: Models of the devices, or their kinds.
        runs: Names of the runs.
        step_ps: Mean of the used steps, picoseconds.
        batch_size: Examples of one step; null where not known, and where the runs differ.
        examples_per_second: Examples of all devices; null as batch_size is.
        speedup: Examples per second over those of the fewest devices; without batch sizes as if each device had as many
            examples there.
        efficiency_ratio: The speed-up over the ratio of device counts.
        states_ps: The mean step by state, mean over the devices, picoseconds, longest first; they sum to step_ps; empty in
            runs without a ledger.
    """

    device_count: Count
    models: tuple[str, ...]
    runs: tuple[RunName, ...]
    step_ps: Picoseconds
    batch_size: Count | None
    examples_per_second: Ratio | None
    speedup: Ratio
    efficiency_ratio: Ratio
    states_ps: dict[str, Count]


class ScaledRuns(Record, frozen=True):
    """Runs of one program on different numbers of devices.

    Attributes:
        schema_version: Version of this schema.
        traceview_version: Version of traceview that made it.
        rows: One row per number of devices, the fewest first.
        basis: examples: speed-ups are ratios of examples per second; steps: batch sizes are not known, and speed-ups are
            as if each device had as many examples everywhere.
        remarks: What limits the comparison, in sentences.
    """

    schema_version: Literal[1]
    traceview_version: VersionText
    rows: tuple[Efficiency, ...]
    basis: Literal["examples", "steps"]
    remarks: tuple[str, ...] = ()


def scaled_runs(reports: Sequence[Report]) -> ScaledRuns | Skipped:
    """The runs by their number of devices, each run once; Skipped where fewer than two numbers have step times."""
    given = Side.of(reports)
    remarks = [f"{remark}." for remark in given.remarks]
    by_count: dict[int, list[Report]] = {}
    for report in given.reports:
        count, step_ps = _device_count(report), step_time_ps(report)
        if not count or not step_ps:
            remarks.append(f"{report.source.run} is left out: {_why_left_out(report)}.")
        else:
            by_count.setdefault(count, []).append(report)
    if len(by_count) < 2:
        counts = ", ".join(map(str, by_count)) or "none"
        needed = f"runs on two or more numbers of devices are needed; the number here: {counts}"
        return Skipped(". ".join([needed, *(remark.rstrip(".") for remark in remarks)]))
    groups = [Side.of(by_count[count]) for count in sorted(by_count)]
    for group in groups:
        remarks += _unlike(group.reports)
    remarks += _unlike_groups([group.reports for group in groups])
    has_examples = all(batch_size_of(group.reports) is not None for group in groups)
    fewest = groups[0]
    rows = tuple(_row(group, fewest, has_examples=has_examples) for group in groups)
    without = [of for group in groups for of in group.reports if of.results.ledger is None]
    if without:
        why = why_absent(without[0], "ledger")
        remarks.append(f"What grows is not known: the states of {without[0].source.run}: {why}.")
    if not has_examples:
        remarks.append(
            "The batch size is not known of every run: efficiency is by step time, as if each device had as many examples "
            "everywhere."
        )
    remarks += _interval_words(groups[-1], fewest, rows[-1])
    return ScaledRuns(
        schema_version=SCALING_SCHEMA_VERSION,
        traceview_version=VERSION,
        rows=rows,
        basis="examples" if has_examples else "steps",
        remarks=tuple(remarks),
    )


def _unlike(group: Sequence[Report]) -> Iterator[str]:
    """Name the differences among runs on one number of devices."""
    sizes = sorted({size for report in group if (size := batch_size_of([report])) is not None})
    words = _differing(
        facts_among(group) | ({"batch": list(map(str, sizes))} if len(sizes) > 1 else {})
    )
    if words:
        on = numbers.plural(_device_count(group[0]), "device")
        yield f"The runs on {on} are not alike ({words}): the row is their mean."


def _unlike_groups(groups: Sequence[Sequence[Report]]) -> Iterator[str]:
    """Name the unintended differences between numbers of devices."""
    facts = facts_among([group[0] for group in groups])
    words = _differing({name: facts[name] for name in facts if name in _OTHER_WORK})
    if words:
        yield f"Between the numbers of devices more differs: {words}."


def _differing(facts: Mapping[str, Sequence[str]]) -> str:
    """The facts of several values but the number of devices: `precision: float32 and float16`."""
    return "; ".join(
        f"{name}: {numbers.listed([shortened(value, LONGEST_VALUE) for value in values])}"
        for name, values in facts.items()
        if len(values) > 1 and name != "devices"
    )


def _why_left_out(report: Report) -> str:
    if report.results.device_time is None:
        return f"device times are {why_absent(report, 'device_time')}"
    return "it has no step times" if _device_count(report) else "no device computed"


def _device_count(report: Report) -> int:
    times = report.results.device_time
    return sum(row.is_in_use for row in times.devices) if times else 0


def _row(group: Side, fewest: Side, *, has_examples: bool) -> Efficiency:
    step_ps, least_ps = floor(group.mean_ps), floor(fewest.mean_ps)
    count = _device_count(group.reports[0])
    factor = count / _device_count(fewest.reports[0])
    size, least_size = batch_size_of(group.reports), batch_size_of(fewest.reports)
    of_examples = size / least_size if has_examples and size and least_size else factor
    speedup = of_examples * least_ps / step_ps
    times = [report.results.device_time for report in group.reports]
    states = group.states
    rows = [row for of in times if of for row in of.devices if row.is_in_use]
    return Efficiency(
        device_count=count,
        models=tuple(sorted({row.model or row.kind for row in rows})),
        runs=tuple(report.source.run for report in group.reports),
        step_ps=step_ps,
        batch_size=size,
        examples_per_second=None if size is None else size * 10**12 / step_ps,
        speedup=speedup,
        efficiency_ratio=speedup / factor,
        states_ps={
            key: states[key]
            for key in sorted(states, key=lambda key: (-states[key], key))
            if states[key]
        },
    )


def _interval_words(most: Side, fewest: Side, row: Efficiency) -> Iterator[str]:
    """How sure the efficiency on the most devices is: a share of the step that is uncertain is one of the efficiency."""
    change = fewest.change_to(most)
    if change is None or change.low is None or change.high is None or change.low <= -1:
        return
    low, high = (
        numbers.share(row.efficiency_ratio * (1 + change.value) / (1 + end))
        for end in (change.high, change.low)
    )
    if low != high:
        yield f"95% interval of the efficiency on {row.device_count} devices: {low} to {high}."


_SHOWN_PARTS: Final = 3
_LEAST_GROWTH: Final = 0.01
"""Of the step: what a part has to grow by for a column."""


def headline(scaled: ScaledRuns) -> str:
    """The efficiency on the most devices, and which state grows."""
    fewest, most = scaled.rows[0], scaled.rows[-1]
    slower = "slower than" if most.speedup < 1 else ""
    words = (
        f"{most.device_count} devices are {slower or f'{most.speedup:.3g} times as fast as'} "
        f"{fewest.device_count}: efficiency {numbers.share(most.efficiency_ratio)}"
    )
    for key in growing(scaled)[:1]:
        shares = [numbers.share(_share(key, row)) for row in (fewest, most)]
        words += f"; {look_of(STATES, key).words} grows from {shares[0]} of the step to {shares[1]}"
    return words


def growing(scaled: ScaledRuns) -> list[str]:
    """The states that take a larger share of the step on the most devices than on the fewest, the most first."""
    fewest, most = scaled.rows[0], scaled.rows[-1]
    growth = {key: _share(key, most) - _share(key, fewest) for key in most.states_ps}
    states = [key for key, ratio in growth.items() if fewest.states_ps and ratio >= _LEAST_GROWTH]
    return sorted(states, key=lambda key: -growth[key])


def _share(key: str, row: Efficiency) -> float:
    return row.states_ps.get(key, 0) / row.step_ps


def scaling_section(scaled: ScaledRuns) -> doc.Section:
    """A row for each number of devices, with the states whose share grows most."""
    rows = scaled.rows
    shown = growing(scaled)[:_SHOWN_PARTS]
    columns = (
        Shown("devices", "device_count", kind="ordinal"),
        Shown("step", "step_ps"),
        Shown("examples/s", "examples_per_second", 1, "number"),
        Shown("speed-up", "speedup", 2, "number"),
        Shown("efficiency", "efficiency_ratio"),
        *(Shown(look_of(STATES, key).words, partial(_share, key), kind="share") for key in shown),
        Shown("batch", "batch_size", 3, "count"),
        Shown("runs", lambda row: numbers.listed(row.runs, 2), 4, "name"),
    )
    points = tuple(
        TrendPoint(numbers.plural(row.device_count, "device"), row.efficiency_ratio) for row in rows
    )
    remark = "Shares are of the mean step, over all devices." if shown else None
    return doc.Section(
        "scaling",
        "Scaling",
        (
            Trend("Efficiency by number of devices", "share", points),
            *table("Runs by number of devices", rows, columns),
            *doc.notes(*scaled.remarks),
            *doc.remarks(remark),
        ),
        lead=f"{headline(scaled)}.",
        is_folded=False,
    )
