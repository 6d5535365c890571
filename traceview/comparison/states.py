"""Subtracts two ledgers: how much the mean step differs by state, over all devices and on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from traceview.analysis.device_states import DeviceStates
from traceview.analysis.words import Line
from traceview.comparison.captures import CaptureSteps, mean_of, whole
from traceview.comparison.difference import RunSpread, mean_level, part_difference
from traceview.comparison.model import (
    DeviceDifference,
    DeviceState,
    StateDifference,
    interval_ps,
)
from traceview.ledger.states import KEYS
from traceview.report.model import Report


def state_differences(
    reports: Sequence[Sequence[Report]],
    steps: Sequence[Sequence[CaptureSteps]],
    spread: RunSpread | None,
) -> tuple[StateDifference, ...]:
    """The states that occur, the largest difference first; they sum to the mean steps and to their difference.

    `reports`, `steps`: of both sides. Empty where a capture has no ledger: then states would not sum to the step.
    """
    if not all(capture.states for side in steps for capture in side):
        return ()
    means = [mean_of([capture.states for capture in side]) for side in steps]
    old, new = (whole({key: of[key] for key in KEYS if key in of}) for of in means)
    rows = []
    for key in KEYS:
        if key not in old and key not in new:
            continue
        levels = [
            [
                level
                for of in side
                if (level := mean_level(of.state_lengths_ps.get(key, 0 * of.lengths_ps)))
            ]
            for side in steps
        ]
        noise = part_difference(levels[0], levels[1], spread)
        first, second = old.get(key, 0), new.get(key, 0)
        low, high = interval_ps(noise)
        rows.append(
            StateDifference(
                state=key,
                before_ps=first,
                after_ps=second,
                difference_ps=second - first,
                low_ps=low,
                high_ps=high,
                direction=noise.direction,
                line=_line_of(key, reports[0] if first > second else reports[1]),
            )
        )
    return tuple(sorted(rows, key=lambda row: -abs(row.difference_ps)))


def _line_of(state: str, reports: Sequence[Report]) -> str | None:
    """The line of Python that the costliest finding on a state names."""
    lines = [
        (finding.loss.gpu_time_ratio, argument.line)
        for report in reports
        for finding in report.findings
        if finding.loss is not None and state in finding.loss.states
        for argument in finding.arguments.values()
        if isinstance(argument, Line)
    ]
    return max(lines)[1] if lines else None


def device_differences(
    before: Sequence[Report], after: Sequence[Report]
) -> tuple[DeviceDifference, ...]:
    """The devices of both sides in order, those that are gone last; empty where a side recorded none."""
    old, new = _devices(before), _devices(after)
    if not old or not new:
        return ()
    places = dict.fromkeys(
        (*(place for place in new if place in old), *new, *(place for place in old))
    )
    return tuple(_device_difference(old.get(place, []), new.get(place, [])) for place in places)


def _devices(reports: Sequence[Report]) -> dict[tuple[int, str], list[DeviceStates]]:
    """The mean step of each device in use, by the place of its host and its name there: hosts may have other names."""
    devices: dict[tuple[int, str], list[DeviceStates]] = {}
    for report in reports:
        hosts = [host.host for host in report.capture.hosts]
        for row in report.results.ledger.devices if report.results.ledger else ():
            place = hosts.index(row.host) if row.host in hosts else len(hosts)
            devices.setdefault((place, row.device.rpartition("/")[2]), []).append(row)
    return devices


def _device_difference(
    before: Sequence[DeviceStates], after: Sequence[DeviceStates]
) -> DeviceDifference:
    old, new = _mean_step(before), _mean_step(after)
    keys = sorted({*old, *new}, key=lambda key: (-abs(new.get(key, 0) - old.get(key, 0)), key))
    return DeviceDifference(
        device=(*after, *before)[0].device,
        status="both" if before and after else "new" if after else "gone",
        before_ps=sum(old.values()),
        after_ps=sum(new.values()),
        states=tuple(
            DeviceState(key, old.get(key, 0), new.get(key, 0), new.get(key, 0) - old.get(key, 0))
            for key in keys
        ),
    )


def _mean_step(captures: Sequence[DeviceStates]) -> dict[str, int]:
    """Whole picoseconds by state."""
    return whole(
        mean_of([{key: Fraction(ps) for key, ps in row.states.items()} for row in captures])
    )
