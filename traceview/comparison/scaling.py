"""Compares runs on different numbers of devices: speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from traceview.base.errors import ComparisonError
from traceview.comparison.build import conditions_of, different_work
from traceview.comparison.sides import Side, batch_size_of, step_time_ps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.report.model import Report

_SCALED: Final = ("batch", "devices", "hosts")
"""Conditions in which the runs may differ."""


class Efficiency(Struct, frozen=True):
    """The runs on one number of devices; of several runs the means.

    `batch_size`, `examples_per_second`: None where not known, and where batches differ. `speedup`: examples per second over
    those of the fewest devices; without batch sizes as if each device had as many examples there. `efficiency_ratio`: the
    speed-up over the ratio of device counts.
    """

    device_count: int
    runs: tuple[str, ...]
    step_ps: int
    batch_size: int | None
    examples_per_second: float | None
    speedup: float
    efficiency_ratio: float


class ScaledRuns(Struct, frozen=True):
    """Runs of one program, a row per number of devices, the fewest first.

    `has_examples`: speed-ups are ratios of examples per second. `left_out`: names of runs without device or step times.
    """

    rows: tuple[Efficiency, ...]
    has_examples: bool
    left_out: tuple[str, ...]


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
        conditions = [row for row in conditions_of(*runs) if row.name not in _SCALED]
        other = different_work(*runs, conditions)
        if other and not force:
            raise ComparisonError(
                f"these runs do different work ({', '.join(other)})",
                hint="--force compares them all the same",
            )
    has_examples = all(batch_size_of(group.reports) is not None for group in groups)
    return ScaledRuns(
        rows=tuple(_row(group, groups[0], has_examples=has_examples) for group in groups),
        has_examples=has_examples,
        left_out=tuple(left_out),
    )


def _device_count(report: Report) -> int:
    return sum(row.is_in_use for row in report.device_times)


def _row(group: Side, fewest: Side, *, has_examples: bool) -> Efficiency:
    step_ps, least_ps = group.step_ps, fewest.step_ps
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
    )


def scaling_section(scaled: ScaledRuns) -> doc.Section:
    """A row for each number of devices."""
    columns = (
        Shown("devices", "device_count", kind="ordinal"),
        Shown("step", "step_ps"),
        Shown("examples/s", "examples_per_second", 1, "number"),
        Shown("speed-up", "speedup", 2, "number"),
        Shown("efficiency", "efficiency_ratio"),
        Shown("batch", "batch_size", 3, "count"),
        Shown("runs", lambda row: numbers.listed(row.runs, 2), 4, "name"),
    )
    fewest, most = scaled.rows[0], scaled.rows[-1]
    left_out = numbers.listed(scaled.left_out)
    notes = (
        "The batch size is not known of every run: efficiency is by step time, as if each device had as many examples."
        if not scaled.has_examples
        else None,
        f"Without step times: {left_out}." if left_out else None,
    )
    return doc.Section(
        "scaling",
        "Scaling",
        (*table("Runs by number of devices", scaled.rows, columns), *doc.notes(*notes)),
        lead=f"{most.device_count} devices are {most.speedup:.3g} times as fast as {fewest.device_count}.",
        is_folded=False,
    )
