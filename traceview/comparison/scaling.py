"""Compares runs on different numbers of devices: speed-up, efficiency, and which states grow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import floor
from typing import Final, Literal

from traceview.base.errors import ComparisonError
from traceview.base.record import (
    Count,
    Picoseconds,
    Ratio,
    Record,
    RunName,
    VersionText,
)
from traceview.base.version import VERSION
from traceview.comparison.build import BLOCKING, conditions_of, different_work, facts_among
from traceview.comparison.sides import Side, batch_size_of, step_time_ps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.vocabulary import STATES, look_of
from traceview.report.model import Report

SCALING_SCHEMA_VERSION: Final = 1
_OTHER_WORK: Final = {*BLOCKING, "precision", "parameters"} - {"batch", "devices", "hosts"}
_SHOWN_STATES: Final = 3
_LEAST_GROWTH: Final = 0.01
"""Of the step: what a state has to grow by for a column."""


class Efficiency(Record, frozen=True):
    """The runs on one number of devices; of several runs the means.

    Attributes:
        device_count: Devices that computed.
        runs: Names of the runs.
        step_ps: Mean of the used steps, picoseconds.
        batch_size: Examples of one step; null where not known, and where the runs differ.
        examples_per_second: Examples of all devices; null as batch_size is.
        speedup: Examples per second over those of the fewest devices; without batch sizes as if each device had as many
            examples there.
        efficiency_ratio: The speed-up over the ratio of device counts.
        states_ps: The mean step by state, mean over the devices, picoseconds; empty in runs without a ledger.
    """

    device_count: Count
    runs: tuple[RunName, ...]
    step_ps: Picoseconds
    batch_size: Count | None
    examples_per_second: Ratio | None
    speedup: Ratio
    efficiency_ratio: Ratio
    states_ps: dict[str, Count]

    def share(self, state: str) -> float:
        """The share of the step in a state."""
        return self.states_ps.get(state, 0) / self.step_ps


class ScaledRuns(Record, frozen=True):
    """Runs of one program on different numbers of devices.

    Attributes:
        schema_version: Version of this schema.
        traceview_version: Version of traceview that made it.
        rows: One row per number of devices, the fewest first.
        basis: examples: speed-ups are ratios of examples per second; steps: batch sizes are not known, and speed-ups are
            as if each device had as many examples everywhere.
        left_out: Names of the runs without device or step times.
        differing: What else the runs differ in, that makes their steps other work.
    """

    schema_version: Literal[1]
    traceview_version: VersionText
    rows: tuple[Efficiency, ...]
    basis: Literal["examples", "steps"]
    left_out: tuple[RunName, ...] = ()
    differing: tuple[str, ...] = ()


def scaled_runs(reports: Sequence[Report], *, force: bool = False) -> ScaledRuns:
    """The runs by their number of devices, each once; raises `ComparisonError` without two, or without `force` of other work."""
    by_count: dict[int, list[Report]] = {}
    left_out = []
    for report in Side.of(reports).reports:
        count = _device_count(report)
        if count and step_time_ps(report):
            by_count.setdefault(count, []).append(report)
        else:
            left_out.append(report.source.run)
    if len(by_count) < 2:
        known = numbers.listed(list(map(str, by_count))) or "none"
        raise ComparisonError(
            f"scaling needs runs on two or more numbers of devices, with step times; here: {known}"
        )
    groups = [Side.of(by_count[count]) for count in sorted(by_count)]
    for group in groups[1:]:
        runs = groups[0].reports, group.reports
        other = different_work(*runs, [row for row in conditions_of(*runs) if not row.is_blocking])
        if other and not force:
            raise ComparisonError(
                f"these runs do different work ({', '.join(other)})",
                hint="--force compares them all the same",
            )
    has_examples = all(batch_size_of(group.reports) is not None for group in groups)
    return ScaledRuns(
        schema_version=SCALING_SCHEMA_VERSION,
        traceview_version=VERSION,
        rows=tuple(_row(group, groups[0], has_examples=has_examples) for group in groups),
        basis="examples" if has_examples else "steps",
        left_out=tuple(left_out),
        differing=tuple(
            f"{name}: {numbers.listed(values)}"
            for name, values in facts_among(
                [of for group in groups for of in group.reports]
            ).items()
            if name in _OTHER_WORK and len(values) > 1
        ),
    )


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
    return Efficiency(
        device_count=count,
        runs=tuple(report.source.run for report in group.reports),
        step_ps=step_ps,
        batch_size=size,
        examples_per_second=None if size is None else size * 10**12 / step_ps,
        speedup=speedup,
        efficiency_ratio=speedup / factor,
        states_ps={key: ps for key, ps in group.states.items() if ps},
    )


def growing(scaled: ScaledRuns) -> list[str]:
    """The states that take a larger share of the step on the most devices than on the fewest, the most first."""
    fewest, most = scaled.rows[0], scaled.rows[-1]
    growth = {key: most.share(key) - fewest.share(key) for key in most.states_ps}
    states = [key for key, ratio in growth.items() if fewest.states_ps and ratio >= _LEAST_GROWTH]
    return sorted(states, key=lambda key: -growth[key])


def scaling_section(scaled: ScaledRuns) -> doc.Section:
    """A row for each number of devices, with the states whose share grows most."""
    states = growing(scaled)[:_SHOWN_STATES]
    columns = (
        Shown("devices", "device_count", kind="ordinal"),
        Shown("step", "step_ps"),
        Shown("examples/s", "examples_per_second", 1, "number"),
        Shown("speed-up", "speedup", 2, "number"),
        Shown("efficiency", "efficiency_ratio"),
        *(
            Shown(look_of(STATES, key).words, partial(Efficiency.share, state=key), kind="share")
            for key in states
        ),
        Shown("batch", "batch_size", 3, "count"),
        Shown("runs", lambda row: numbers.listed(row.runs, 2), 4, "name"),
    )
    fewest, most = scaled.rows[0], scaled.rows[-1]
    left_out = numbers.listed(scaled.left_out)
    notes = (
        f"The runs differ in more: {'; '.join(scaled.differing)}." if scaled.differing else None,
        "The batch size is not known of every run: efficiency is by step time, as if each device had as many examples."
        if scaled.basis == "steps"
        else None,
        f"Without step times: {left_out}." if left_out else None,
    )
    return doc.Section(
        "scaling",
        "Scaling",
        (
            *table("Runs by number of devices", scaled.rows, columns),
            *doc.notes(*notes),
            *doc.remarks("Shares are of the mean step, over all devices." if states else None),
        ),
        lead=f"{most.device_count} devices are {most.speedup:.3g} times as fast as {fewest.device_count}.",
        is_folded=False,
    )
