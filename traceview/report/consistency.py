"""Checks that the parts of a saved report fit together where a document relies on it.

Every report that traceview wrote passes. A report that was changed by hand may not, and its documents would be wrong or
fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from math import isclose
from typing import Final, TypeAlias

from traceview.analysis.collectives.result import CollectiveTimes
from traceview.analysis.path.result import CriticalPath
from traceview.document.chart import Lane, Lanes
from traceview.report import claims
from traceview.report.absent import is_lost
from traceview.report.disagreement import Disagreement
from traceview.report.model import Report
from traceview.report.recoverable import typical_step_ps
from traceview.robust import median_ps
from traceview.trace.cause import PATH_KEYS, Cause
from traceview.xplane.planes import ActivityClass

_Check: TypeAlias = Callable[[Report], Iterator[Disagreement]]


def first_disagreement(report: Report) -> Disagreement | None:
    """The first disagreement in the order of the report; None if all parts fit."""
    return next((problem for check in CHECKS for problem in check(report)), None)


def _windows(report: Report) -> Iterator[Disagreement]:
    for place, window in enumerate(report.windows):
        if window.end_ps < window.start_ps:
            yield Disagreement(f"$.windows[{place}].end_ps", "is before start_ps")


def _device_time(report: Report) -> Iterator[Disagreement]:
    times = report.results.device_time
    if times is None:
        return
    yield from _each_once("$.results.device_time.devices", (row.device for row in times.devices))
    for place, row in enumerate(times.devices):
        parts = (
            row.compute_ps,
            row.exposed_collective_ps,
            row.exposed_h2d_ps,
            row.exposed_d2h_ps,
            row.exposed_d2d_ps,
            row.exposed_memset_ps,
            row.idle_ps,
        )
        known = [part for part in parts if part is not None]
        where = f"$.results.device_time.devices[{place}]"
        if len(known) == len(parts) and sum(known) != row.window_ps:
            yield Disagreement(where, "compute, exposed parts and idle do not add up to window_ps")


def _steps(report: Report) -> Iterator[Disagreement]:
    steps = report.results.steps
    for place, step in enumerate(steps.steps if steps else ()):
        yield from _each_once(
            f"$.results.steps.steps[{place}].devices", (part.device for part in step.devices)
        )


def _timeline(report: Report) -> Iterator[Disagreement]:
    """Every part has as many slices as the strip."""
    timeline = report.results.timeline
    if timeline is None:
        return
    yield from _each_once(
        "$.results.timeline.devices", (strip.device for strip in timeline.devices)
    )
    for place, strip in enumerate(timeline.devices):
        parts = (strip.compute_ps, strip.collective_ps, strip.copy_ps, strip.idle_ps)
        if {len(part) for part in parts} != {timeline.slice_count}:
            yield Disagreement(
                f"$.results.timeline.devices[{place}]", f"expected {timeline.slice_count} slices"
            )


def _idle(report: Report) -> Iterator[Disagreement]:
    idle = report.results.idle
    if idle is None:
        return
    yield from _each_once("$.results.idle.devices", (row.device for row in idle.devices))
    for place, row in enumerate(idle.devices):
        if sum(row.causes.values()) != row.idle_ps:
            yield Disagreement(
                f"$.results.idle.devices[{place}].causes", "do not add up to idle_ps"
            )


def _between_steps(report: Report) -> Iterator[Disagreement]:
    between = report.results.between_steps
    for place, host in enumerate(between.hosts if between else ()):
        where = f"$.results.between_steps.hosts[{place}]"
        if not host.count:
            yield Disagreement(f"{where}.count", "is 0, and such a host has no entry")
        if sum(host.parts_ps.values()) != host.total_ps:
            yield Disagreement(f"{where}.parts_ps", "do not add up to total_ps")


def _collectives(report: Report) -> Iterator[Disagreement]:
    collectives = report.results.collectives
    if collectives is None:
        return
    yield from _of_same_devices("$.results.collectives", collectives)
    for place, host in enumerate(collectives.hosts):
        yield from _of_same_devices(f"$.results.collectives.hosts[{place}]", host)


def _of_same_devices(place: str, times: CollectiveTimes) -> Iterator[Disagreement]:
    """All numbers by device are of the same devices; only devices with a used step have numbers per step."""
    for name in _BY_DEVICE:
        by_device: dict[str, int] | None = getattr(times, name)
        devices = times.exposed_ps.keys()
        if by_device is not None and not (
            by_device.keys() <= devices if "per_step" in name else by_device.keys() == devices
        ):
            yield Disagreement(f"{place}.{name}", "has other devices than exposed_ps")


def _path(report: Report) -> Iterator[Disagreement]:
    """The parts of each step sum to it, and the results about all steps follow from them."""
    path = report.results.path
    if path is None:
        return
    if not path.steps:
        yield Disagreement("$.results.path.steps", "is empty")
        return
    whole = sum(step.duration_ps for step in path.steps)
    for place, step in enumerate(path.steps):
        where = f"$.results.path.steps[{place}]"
        if sum(step.by_cause.values()) != step.duration_ps:
            yield Disagreement(f"{where}.by_cause", "does not add up to duration_ps")
        listed_ps = sum(part.duration_ps for part in step.parts)
        if len(step.parts) > step.part_count or listed_ps > step.duration_ps:
            yield Disagreement(f"{where}.parts", "are more than the path has")
    for cause in PATH_KEYS:
        of_steps = [step.by_cause.get(cause, 0) for step in path.steps]
        total = sum(of_steps)
        if path.by_cause.get(cause, 0) != median_ps(of_steps):
            yield Disagreement("$.results.path.by_cause", f"{cause} is not the median of the steps")
        if path.mean_by_cause.get(cause, 0) != total // len(of_steps):
            yield Disagreement(
                "$.results.path.mean_by_cause", f"{cause} is not the mean of the steps"
            )
        if not isclose(path.share_by_cause.get(cause, 0.0) * whole, total, abs_tol=1):
            yield Disagreement(
                "$.results.path.share_by_cause", f"{cause} is not its share of the steps"
            )
    unexplained = path.share_by_cause.get(Cause.UNATTRIBUTED.key, 0.0)
    if not isclose(path.unexplained_ratio, unexplained):
        yield Disagreement("$.results.path.unexplained_ratio", "is not in share_by_cause")
    yield from _path_of_steps(report, path)


def _anatomy(report: Report) -> Iterator[Disagreement]:
    """The parts of each mean step sum to it, and it is the mean of the used steps of its device."""
    anatomy, steps = report.results.anatomy, report.results.steps
    if anatomy is None:
        return
    yield from _each_once("$.results.anatomy.devices", (row.device for row in anatomy.devices))
    balance = report.results.balance
    of_balance = {row.device: row for row in balance.devices} if balance else {}
    windows = {window.host: window for window in report.windows}
    for place, row in enumerate(anatomy.devices):
        where = f"$.results.anatomy.devices[{place}]"
        if sum(row.activity.values()) + sum(row.idle.values()) != row.step_ps:
            yield Disagreement(where, "activity and idle do not add up to step_ps")
        if (row.waits_for is None) != (row.waits_for_ratio is None):
            yield Disagreement(f"{where}.waits_for", "is there without its ratio, or the reverse")
        window = windows.get(row.host)
        used = (
            [step for step in steps.steps if step.used and step.host == row.host] if steps else []
        )
        if (
            not row.step_count
            or len(used) != row.step_count
            or window is None
            or any(step.start_ps < window.start_ps for step in used)
            or any(step.start_ps + step.duration_ps > window.end_ps for step in used)
        ):
            continue  # steps that the window cuts are not whole here
        if row.step_ps != sum(step.duration_ps for step in used) // len(used):
            yield Disagreement(f"{where}.step_ps", "is not the mean of the used steps")
        if not any(step.devices for step in used):
            continue  # a reduced report
        compute_ps = sum(
            device.compute_ps
            for step in used
            for device in step.devices
            if device.device == row.device
        )
        if row.activity.get("compute", 0) != compute_ps // len(used):
            yield Disagreement(f"{where}.activity", "has other compute than the used steps")
        compared = of_balance.get(row.device)
        if (
            compared is not None
            and compared.step_count == len(used)
            and compared.mean_compute_ps_per_step not in (None, compute_ps // len(used))
        ):
            yield Disagreement(f"{where}.activity", "has other compute than results.balance")


def _path_of_steps(report: Report, path: CriticalPath) -> Iterator[Disagreement]:
    """No path is longer than its step, and no bound is above both the path without the problem and the compute."""
    steps = report.results.steps
    if is_lost(report, "steps"):
        yield Disagreement("$.results.steps", "is missing, and results.path is about its steps")
        return
    rows = {(row.host, row.number): row for row in steps.steps if row.used} if steps else {}
    by_place = {(step.host, step.step): step for step in path.steps if step.step is not None}
    for place, step in enumerate(path.steps):
        if step.step is None:
            continue
        row = rows.get((step.host, step.step))
        if row is None or step.duration_ps > row.duration_ps:
            yield Disagreement(
                f"$.results.path.steps[{place}]", "is no used step, or longer than it"
            )
            return
    if not _has_comparable_bounds(report) or by_place.keys() != rows.keys():
        return
    assert report.results.balance is not None
    for place, bound in enumerate(report.results.balance.what_if):
        causes = _WITHOUT.get(bound.name, ())
        least = [
            max(
                row.duration_ps - sum(by_place[key].by_cause.get(cause, 0) for cause in causes),
                max((device.compute_ps for device in row.devices), default=0),
            )
            for key, row in rows.items()
        ]
        if causes and bound.step_bound_ps > (median_ps(least) or 0):
            yield Disagreement(
                f"$.results.balance.what_if[{place}].step_bound_ps",
                f"is above the path without {', '.join(causes)}",
            )


def _input_bound(report: Report) -> Iterator[Disagreement]:
    """Without waits for input a step saves what any device and the path wait, at least, and all of them at most."""
    balance, idle, steps = report.results.balance, report.results.idle, report.results.steps
    if balance is None or idle is None or steps is None or not _has_comparable_bounds(report):
        return
    waits = [
        {step.number: step.causes.get(Cause.INPUT.key, 0) for step in row.steps}
        for row in idle.devices
    ]
    path = report.results.path
    of_path = {step.step: step.by_cause.get("input", 0) for step in path.steps} if path else {}
    used = [step for step in steps.steps if step.used]
    window = report.windows[0]
    if (
        len(waits) != balance.in_use_count
        or not used
        or any(step.start_ps < window.start_ps for step in used)
        or any(step.start_ps + step.duration_ps > window.end_ps for step in used)
    ):
        return  # of steps that the window cuts only a part is known
    least = most = 0
    for step in used:
        of_devices = [of_steps.get(step.number, 0) for of_steps in waits]
        longest_ps = max((device.compute_ps for device in step.devices), default=0)
        lost_ps = max(of_path.get(step.number, 0), *of_devices)
        least += min(lost_ps, step.duration_ps - longest_ps)
        most += min(sum(of_devices), step.duration_ps)
    for place, bound in enumerate(balance.what_if):
        saved_ps = bound.mean_saved_ps
        if bound.name != "no_input_wait" or saved_ps is None:
            continue  # written by an earlier version
        if not least // len(used) <= saved_ps <= most // len(used):
            yield Disagreement(
                f"$.results.balance.what_if[{place}].mean_saved_ps",
                "is not between what one device waits for input and what all wait together",
            )


def _has_comparable_bounds(report: Report) -> bool:
    """Whether bounds and path are of the same devices: all of one host and kind, each of them at work."""
    balance, times, steps = (
        report.results.balance,
        report.results.device_time,
        report.results.steps,
    )
    if balance is None or times is None or len(report.windows) != 1:
        return False
    if steps is not None and not any(step.devices for step in steps.steps):
        return False  # a reduced report
    return len(times.devices) == balance.visible_count == balance.in_use_count


def _costs(report: Report) -> Iterator[Disagreement]:
    """No finding costs more than a step, and the verdict names what costs most."""
    verdict = report.verdict
    if verdict.devices is None:
        return  # written by an earlier version
    most_ps = typical_step_ps(report.results.steps)
    known = {finding.code for finding in report.findings} | set(report.left_out_findings)
    if verdict.finding is not None and verdict.finding not in known:
        yield Disagreement("$.verdict.finding", "is no finding of the report")
    is_costliest = verdict.cost_ratio is not None and verdict.cause != Cause.UNATTRIBUTED.key
    for place, finding in enumerate(report.findings):
        where = f"$.findings[{place}]"
        if most_ps is not None and (finding.cost_ps_per_step or 0) > most_ps:
            yield Disagreement(f"{where}.cost_ps_per_step", "is more than a step")
        if finding.cost_statistic is not None and (finding.cost_ratio or 0) > 1:
            yield Disagreement(f"{where}.cost_ratio", "is more than a step")
        counts = finding.severity != "info" and finding.code != "unexplained-idle"
        if is_costliest and counts and (finding.cost_ratio or 0) > (verdict.cost_ratio or 0):
            yield Disagreement(f"{where}.cost_ratio", "is more than that of the verdict")
    path = report.results.path
    if path is not None and verdict.unexplained_ratio != path.unexplained_ratio:
        yield Disagreement("$.verdict.unexplained_ratio", "is not that of results.path")


def _balance(report: Report) -> Iterator[Disagreement]:
    balance = report.results.balance
    if balance is None:
        return
    yield from _each_once("$.results.balance.devices", (row.device for row in balance.devices))
    if balance.gradients.is_single and len(balance.gradients.computed) != 1:
        yield Disagreement(
            "$.results.balance.gradients.is_single", "is true, and computed is not one device"
        )


def _lanes(report: Report) -> Iterator[Disagreement]:
    """A timeline is drawn from columns of one length, of which nothing goes beyond the window."""
    lanes = report.results.lanes
    if lanes is None:
        return
    yield from _each_once("$.results.lanes.hosts", (host.host for host in lanes.hosts), "host")
    yield from _each_once("$.results.lanes.devices", (device.device for device in lanes.devices))
    lengths: dict[str, int] = {}
    for place, host in enumerate(lanes.hosts):
        where = f"$.results.lanes.hosts[{place}]"
        if host.end_ps < host.start_ps:
            yield Disagreement(f"{where}.end_ps", "is before start_ps")
        lengths[host.host] = host.end_ps - host.start_ps
        for row, lane in enumerate(host.lanes):
            yield from _lane(f"{where}.lanes[{row}]", lanes, lane, lengths[host.host], _OF_HOST)
    for place, device in enumerate(lanes.devices):
        where = f"$.results.lanes.devices[{place}]"
        if device.host not in lengths:
            yield Disagreement(f"{where}.host", "has no entry in hosts")
        length = lengths.get(device.host, 0)
        for row, lane in enumerate(device.lanes):
            yield from _lane(f"{where}.lanes[{row}]", lanes, lane, length, _OF_DEVICE)


def _lane(
    where: str, lanes: Lanes, lane: Lane, window_ps: int, kinds: dict[str, frozenset[str]]
) -> Iterator[Disagreement]:
    if not set(lane.classes) <= kinds.get(lane.kind, frozenset()):
        yield Disagreement(f"{where}.classes", f"are not those of {lane.kind}")
    count = len(lane.length_ps)
    if {len(lane.before_ps), len(lane.class_), len(lane.name)} != {count}:
        yield Disagreement(where, "has columns of other lengths than length_ps")
        return
    if {len(lane.merged_count), len(lane.merged_hole_ps)} != {len(lane.merged)}:
        yield Disagreement(where, "has columns of other lengths than merged")
        return
    if {len(lane.other_class), len(lane.other_ps)} != {len(lane.other_slice)}:
        yield Disagreement(where, "has columns of other lengths than other_slice")
        return
    if max((*lane.class_, *lane.other_class), default=-1) >= len(lane.classes):
        yield Disagreement(where, "has a class that is not in classes")
    if lane.kind != "steps" and max(lane.name, default=-1) >= len(lanes.names):
        yield Disagreement(f"{where}.name", "is not in names")
    if max(sum(lane.merged), sum(lane.other_slice)) > max(count - 1, 0) or (
        not count and (lane.merged or lane.other_slice)
    ):
        yield Disagreement(where, "refers to a slice that it does not have")
        return
    if sum(lane.before_ps) + sum(lane.length_ps) > window_ps:
        yield Disagreement(where, "goes beyond the window")
    left = list(lane.length_ps)
    for place, hole in zip(accumulate(lane.merged), lane.merged_hole_ps, strict=True):
        left[place] -= hole
    for place, part in zip(accumulate(lane.other_slice), lane.other_ps, strict=True):
        left[place] -= part
    if min(left, default=0) < 0:
        yield Disagreement(where, "has a slice that is shorter than its parts")


def _each_once(place: str, names: Iterable[str], key: str = "device") -> Iterator[Disagreement]:
    known: set[str] = set()
    for row, name in enumerate(names):
        if name in known:
            yield Disagreement(f"{place}[{row}].{key}", "is there twice")
        known.add(name)


_BY_DEVICE: Final = (
    "wait_ps",
    "wait_per_step_ps",
    "exposed_per_step_ps",
    "exposed_transfer_ps",
    "exposed_transfer_per_step_ps",
    "exposed_wait_per_step_ps",
    "mean_exposed_transfer_per_step_ps",
    "mean_exposed_wait_per_step_ps",
    "last_count",
)

_WITHOUT: Final[Mapping[str, tuple[str, ...]]] = {
    "no_input_wait": ("input",),
    "no_exposed_collectives": ("collective",),
    "no_exposed_copies": ("h2d", "d2h", "d2d"),
}
"""What a bound takes away wherever it occurs, so also on the path; bounds that share out compute have no such part."""

_CAUSES: Final = frozenset(cause.key for cause in Cause)
_ACTIVITIES: Final = frozenset(class_.name.lower() for class_ in ActivityClass)
_OF_HOST: Final = {"steps": frozenset({"train", "eval", "excluded"}), "thread": _CAUSES}
_OF_DEVICE: Final = {
    "compute": _ACTIVITIES,
    "communication": _ACTIVITIES,
    "copies": _ACTIVITIES,
    "idle": _CAUSES,
}
"""The classes in lanes of hosts and of devices, by the kind of the lane."""

CHECKS: Final[tuple[_Check, ...]] = (
    _windows,
    _device_time,
    _steps,
    _timeline,
    _idle,
    _between_steps,
    _collectives,
    _path,
    _anatomy,
    _input_bound,
    _costs,
    _balance,
    _lanes,
    claims.step_times,
    claims.titles,
    claims.bounds,
    claims.evidence,
    claims.costless,
    claims.straggler,
    claims.parts,
    claims.longest,
    claims.spread,
    claims.profiler,
    claims.most,
    claims.tables,
    claims.verdict,
)
