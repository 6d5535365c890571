"""Explains the difference of the mean steps: by part of the critical path, and by what each device did and waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from traceview.analysis.anatomy.result import DeviceAnatomy
from traceview.comparison.difference import Difference, RunSpread, difference
from traceview.comparison.mean_step import CaptureSteps, mean_of_captures, whole
from traceview.comparison.model import DeviceDifference, DevicePart, PartDifference, interval_ps
from traceview.report.model import Report
from traceview.trace.cause import PATH_KEYS


def part_differences(
    reports: Sequence[Sequence[Report]],
    before: Sequence[CaptureSteps],
    after: Sequence[CaptureSteps],
    spread: RunSpread | None,
) -> tuple[PartDifference, ...]:
    """The parts of the critical path, the largest difference first; they sum to the mean steps and their difference.

    `reports`: of both sides. Empty where a capture has no path: then parts would not sum to the step.
    """
    if not all(capture.parts for capture in (*before, *after)):
        return ()
    old, new = (_whole_parts([capture.parts for capture in side]) for side in (before, after))
    keys = [key for key in PATH_KEYS if key in old or key in new]
    noise = {key: _noise_of(key, before, after, spread) for key in keys}
    rows = []
    for key in keys:
        first, second = old.get(key, 0), new.get(key, 0)
        low, high = interval_ps(noise[key])
        rows.append(
            PartDifference(
                cause=key,
                before_ps=first,
                after_ps=second,
                difference_ps=second - first,
                low_ps=low,
                high_ps=high,
                direction=noise[key].direction,
                python=_line_of(key, reports[0] if first > second else reports[1]),
            )
        )
    return tuple(sorted(rows, key=lambda row: -abs(row.difference_ps)))


def _noise_of(
    key: str,
    before: Sequence[CaptureSteps],
    after: Sequence[CaptureSteps],
    spread: RunSpread | None,
) -> Difference:
    old, new = (
        [capture.part_lengths_ps.get(key, 0 * capture.lengths_ps) for capture in side]
        for side in (before, after)
    )
    return difference(old, new, spread)


def _whole_parts(captures: Sequence[Mapping[str, Fraction]]) -> dict[str, int]:
    exact = mean_of_captures(captures)
    return whole({key: exact[key] for key in PATH_KEYS if key in exact})


def _line_of(cause: str, reports: Sequence[Report]) -> str | None:
    """The line of Python that ran in most of the longest parts of a cause."""
    lines: dict[str, int] = {}
    for report in reports:
        for part in report.results.path.longest if report.results.path else ():
            if part.cause == cause and part.python is not None:
                lines[part.python] = lines.get(part.python, 0) + part.duration_ps
    return max(lines, key=lambda line: lines[line], default=None)


def device_differences(
    before: Sequence[Report], after: Sequence[Report]
) -> tuple[DeviceDifference, ...]:
    """The devices of both sides in order, those that are gone last; empty where a side recorded none."""
    old, new = _devices(before), _devices(after)
    if not old or not new:
        return ()
    both = [place for place in new if place in old]
    others = [place for place in new if place not in old]
    gone = [place for place in old if place not in new]
    return tuple(
        _device_difference(old.get(place, []), new.get(place, []))
        for place in (*both, *others, *gone)
    )


def _devices(reports: Sequence[Report]) -> dict[tuple[int, str], list[DeviceAnatomy]]:
    """The mean step of each device in use, by the place of its host and its name there: hosts may have other names."""
    devices: dict[tuple[int, str], list[DeviceAnatomy]] = {}
    for report in reports:
        anatomy = report.results.anatomy
        hosts = [host.host for host in report.capture.hosts]
        for row in anatomy.devices if anatomy else ():
            place = hosts.index(row.host) if row.host in hosts else len(hosts)
            devices.setdefault((place, row.device.rpartition("/")[2]), []).append(row)
    return devices


def _device_difference(
    before: Sequence[DeviceAnatomy], after: Sequence[DeviceAnatomy]
) -> DeviceDifference:
    old, new = _parts(before), _parts(after)
    keys = sorted({*old, *new}, key=lambda key: -abs(new.get(key, 0) - old.get(key, 0)))
    return DeviceDifference(
        device=(*after, *before)[0].device,
        status="both" if before and after else "new" if after else "gone",
        before_ps=sum(old.values()),
        after_ps=sum(new.values()),
        parts=tuple(
            DevicePart(key, old.get(key, 0), new.get(key, 0), new.get(key, 0) - old.get(key, 0))
            for key in keys
        ),
    )


def _parts(captures: Iterable[DeviceAnatomy]) -> dict[str, int]:
    """Whole picoseconds by part; copies to the device and the wait for them are one part, as on the path."""
    joined = [dict(_summed(row)) for row in captures]
    return whole(mean_of_captures(joined)) if joined else {}


def _summed(row: DeviceAnatomy) -> Iterator[tuple[str, Fraction]]:
    for key in dict.fromkeys((*row.activity, *row.idle)):
        yield key, Fraction(row.activity.get(key, 0) + row.idle.get(key, 0))
