"""Shows the hosts of a run with their clocks, and what limits the capture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from traceview.analysis.machine.capture.result import Capture, HostCapture
from traceview.analysis.measures.context import View
from traceview.analysis.measures.device_report import DeviceTime, named_devices
from traceview.analysis.measures.environment import Environment
from traceview.analysis.measures.step_report import Steps
from traceview.base.text import enumerated
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import QUALITIES, look_of

BRIEF_HOSTS: Final = 8
"""Hosts with a row in a brief document; those with a problem come first."""
BRIEF_PROBLEMS: Final = 10
"""The worst come first; a damaged run may have hundreds."""

_SHOWN_STEPS: Final = 4
"""Numbers of steps that are listed; more of them are counted."""
_SHOWN_TASKS: Final = 8
"""Tasks that are named, a usual cluster whole; more of them are counted."""
_IN_JSON: Final = "the JSON report"
LEAST_SPREAD_RATIO: Final = 0.02
"""Where steps vary by less than this, an overhead within their spread is small."""
_CLOCK_METHODS: Final = {
    "collectives": "by collectives",
    "profile_start": "by profile start",
    "none": "not comparable",
}
_TOPICS: Final = {
    "input": "input pipeline",
    "lanes": "events of the timeline",
    "outside_view": "GPU clocks, load and other processes",
    "scaling": "scaling against one device",
    "idle": "idle time",
}
"""What results are called where their key does not say it."""


# Hosts


def hosts_section(view: View, result: Capture) -> doc.Section | None:
    """A row per host of a run of several: its task, its steps, and how its clock was aligned."""
    hosts = result.hosts
    if len(hosts) < 2:
        return None
    shown = _worth_showing(view, hosts, BRIEF_HOSTS if view.is_brief else view.most_rows)
    others = [host for host in hosts if host not in shown]
    absent = numbers.listed(result.unrecorded_tasks, _SHOWN_TASKS)
    return doc.Section(
        "hosts",
        "Hosts",
        (
            *doc.table("Hosts", _host_columns(view, shown)),
            *doc.notes(f"Not recorded: {absent}." if absent else None),
            *doc.remarks(_range_of(view, others) if others else None),
        ),
        lead=clock_sentence(hosts),
    )


def clock_sentence(hosts: Sequence[HostCapture]) -> str:
    """How the clocks of the hosts were aligned, and how well the ends of collectives agree."""
    clocks = [host.clock for host in hosts if host.clock is not None]
    if any(clock.method == "none" for clock in clocks):
        return "Some clocks could not be aligned: times of those hosts cannot be compared with the others'."
    spreads = [clock.residual_ps for clock in clocks if clock.residual_ps is not None]
    if not spreads:
        return "Clocks aligned by the start of each profile; no collective shows how far they are apart."
    most = max(clock.residual_max_ps or 0 for clock in clocks)
    spread = f"{numbers.time(max(spreads))}, at most {numbers.time(most)}"
    if any(clock.method == "collectives" for clock in clocks):
        return f"Clocks aligned by the ends of collectives: spread {spread}."
    return f"Clocks agree within the spread of collective ends: {spread}."


def _worth_showing(view: View, hosts: Sequence[HostCapture], most: int) -> list[HostCapture]:
    """Hosts that lack steps, then hosts with unusual devices or a finding, then those with the largest offset."""
    if len(hosts) <= most:
        return list(hosts)
    times = view.record("device_time", DeviceTime)
    rows = times.devices if times else ()
    statuses = [row.status for row in rows]
    usual = max(statuses, key=statuses.count, default="")
    named = set(named_devices(view.findings))
    unusual = {row.host for row in rows if row.status != usual or row.device in named}
    first = sorted(
        hosts,
        key=lambda host: (
            not host.missing_steps,
            host.host not in unusual,
            -abs(_offset(host) or 0),
        ),
    )[:most]
    return [host for host in hosts if host in first]


def _host_columns(view: View, hosts: Sequence[HostCapture]) -> Iterator[doc.Column]:
    times_ = view.record("device_time", DeviceTime)
    steps_ = view.record("steps", Steps)
    device_hosts = [row.host for row in (times_.devices if times_ else ())]
    step_hosts = [row.host for row in (steps_.steps if steps_ else ())]
    yield doc.names("host", [host.host for host in hosts])
    yield doc.names("role", [host.role for host in hosts], priority=1)
    yield doc.counts("devices", [device_hosts.count(host.host) for host in hosts], priority=6)
    yield doc.counts("steps", [step_hosts.count(host.host) for host in hosts], priority=5)
    yield doc.shares("busy", [_busy(view, [host]) for host in hosts], priority=3)
    methods = [host.clock and _CLOCK_METHODS[host.clock.method] for host in hosts]
    yield doc.words("clock aligned", methods, priority=2)
    yield doc.times(
        "clock moved by",
        [_offset(host) for host in hosts],
        meaning="what collectives added to the times of the host",
    )
    yield doc.times(
        "drift per second",
        [host.clock and host.clock.drift_ps_per_s for host in hosts],
        priority=4,
        meaning="what its clock gained on that of the reference",
    )
    yield doc.words("steps missing", [_missing_steps(host) for host in hosts])


def _offset(host: HostCapture) -> int | None:
    """What collectives added to the times of a host; None where its clock is not comparable."""
    return None if host.clock is None or host.clock.method == "none" else host.clock.offset_ps


def _busy(view: View, hosts: Sequence[HostCapture]) -> str:
    """Between which shares the devices of the hosts are busy."""
    times = view.record("device_time", DeviceTime)
    keys = {host.host for host in hosts}
    return numbers.share_range(
        row.busy_ratio for row in (times.devices if times else ()) if row.host in keys
    )


def _missing_steps(host: HostCapture) -> str:
    return enumerated([str(step) for step in host.missing_steps], _SHOWN_STEPS)


def _range_of(view: View, hosts: Sequence[HostCapture]) -> str:
    """Between which values the hosts without a row lie."""
    sentence = f"{numbers.plural(len(hosts), 'other host')}: busy {_busy(view, hosts)}"
    offsets = sorted(offset for host in hosts if (offset := _offset(host)) is not None)
    if offsets:
        sentence += f", clock moved by {_signed(offsets[0])} to {_signed(offsets[-1])}"
    return f"{sentence}; {_IN_JSON} has all hosts."


def _signed(ps: int) -> str:
    return f"{'-' if ps < 0 else '+' if ps else ''}{numbers.time(abs(ps))}"


# Quality


def capture_section(view: View, result: Capture) -> doc.Section | None:
    """What limits the capture, which results are absent and why, and what each host recorded."""
    is_limited = bool(result.problems) or result.quality != "ok"
    overhead = _overhead_sentence(view, result.hosts)
    if view.is_brief and not is_limited and not overhead:
        return None
    blocks: tuple[doc.Block, ...] = (
        *_problems(view, result),
        *doc.remarks(overhead, _python_sentence(result.hosts)),
    )
    if not view.is_brief:
        blocks = (*blocks, *_absent_results(view.skipped), *_recordings(view, result.hosts))
    quality = look_of(QUALITIES, result.quality).words
    lead = f"The capture is {quality}." if is_limited else "Nothing limits the capture."
    return doc.Section("capture", "Capture quality", blocks, lead=lead)


def _problems(view: View, result: Capture) -> tuple[doc.Block, ...]:
    shown = result.problems[: BRIEF_PROBLEMS if view.is_brief else view.most_rows]
    has_several_hosts = len(result.hosts) > 1
    sentences = [
        problem.text + (f" (host {problem.host})" if has_several_hosts and problem.host else "")
        for problem in shown
    ]
    more = len(result.problems) - len(shown)
    rest = f"{numbers.plural(more, 'more problem')}: see {_IN_JSON}." if more else None
    return (*doc.notes(*sentences), *doc.remarks(rest))


def _overhead_sentence(view: View, hosts: Sequence[HostCapture]) -> str | None:
    """The largest overhead of the profiler that exceeds how much steps vary; it cannot make them shorter."""
    ratios = {host.host: host.overhead_ratio for host in hosts if host.overhead_ratio is not None}
    if not ratios:
        return None
    spreads = _step_spreads(view)
    measured = measured_overhead(view, hosts)
    if measured is not None:
        return f"Profiler overhead: {numbers.share(measured)} of a step without it."
    variation, host = max(
        (_variation(ratio, spreads.get(host, 0.0)), host) for host, ratio in ratios.items()
    )
    if variation < LEAST_SPREAD_RATIO:
        return "Profiler overhead: too small to measure."
    if variation > spreads.get(host, 0.0):
        return f"Profiler overhead: not measurable, because steps with it were {numbers.share(variation)} shorter."
    return f"Profiler overhead: less than the spread of step times with and without it (mean IQR {numbers.share(variation)})."


def _variation(overhead: float, spread: float) -> float:
    """How much steps vary: where they were shorter with the profiler, by that at least."""
    return max(spread, -overhead)


def measured_overhead(view: View, hosts: Sequence[HostCapture]) -> float | None:
    """The largest overhead that exceeds how much the steps of its host vary; None where none does."""
    spreads = _step_spreads(view)
    measured = [
        host.overhead_ratio
        for host in hosts
        if host.overhead_ratio is not None and host.overhead_ratio > spreads.get(host.host, 0.0)
    ]
    return max(measured, default=None)


def _python_sentence(hosts: Sequence[HostCapture]) -> str | None:
    """The largest cost of sampling Python."""
    ratios = [host.python_cost_ratio for host in hosts if host.python_cost_ratio is not None]
    if not ratios:
        return None
    return f"Sampling Python stacks took {numbers.share(max(ratios))} of one core."


def _step_spreads(view: View) -> dict[str, float]:
    """By host how much its steps vary without the profiler, as a share of a step."""
    recorded = view.record("environment", Environment)
    return {
        host.host: host.overhead.spread_ratio
        for host in (recorded.hosts if recorded else ())
        if host.overhead.spread_ratio is not None
    }


def _absent_results(skipped: Mapping[str, str]) -> tuple[doc.Block, ...]:
    sentences = [
        f"{_TOPICS.get(name, name.replace('_', ' '))}: {reason}" for name, reason in skipped.items()
    ]
    return (doc.Subheading("Not in this report"), *doc.notes(*sentences)) if sentences else ()


def _recordings(view: View, hosts: Sequence[HostCapture]) -> tuple[doc.Block, ...]:
    shown = hosts[: view.most_rows]
    spreads = _step_spreads(view)
    recordings = doc.table(
        "What each host recorded",
        (
            doc.names("host", [host.host for host in shown]),
            doc.times("recorded", [host.duration_ps for host in shown]),
            doc.counts("events", [host.event_count for host in shown]),
            doc.counts("on devices", [host.device_event_count for host in shown], priority=1),
            doc.counts("dropped", [host.dropped_event_count for host in shown]),
            doc.shares(
                "kernels without launch", [host.unlinked_ratio for host in shown], priority=2
            ),
            doc.shares(
                "profiler overhead",
                [_overhead(host, spreads.get(host.host, 0.0)) for host in shown],
                priority=3,
                meaning="how much longer a step took with the profiler",
            ),
        ),
        row_count=len(hosts),
        rest=_IN_JSON,
    )
    return (doc.Subheading("Recorded by each host"), *recordings) if recordings else ()


def _overhead(host: HostCapture, spread: float) -> float | str | None:
    ratio = host.overhead_ratio
    if ratio is None or ratio > spread:
        return ratio
    is_small = _variation(ratio, spread) < LEAST_SPREAD_RATIO
    return "too small to measure" if is_small else "less than the spread of the step times"
