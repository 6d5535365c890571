"""How far can the capture be trusted, what did the driver see, and from which files is it?"""

from __future__ import annotations

from traceview.analysis.capture.compute import HostCapture
from traceview.render import numbers
from traceview.render.heading import QUALITY_WORDS
from traceview.render.hosts import clock_remark, drift, method, offset
from traceview.render.html.blocks import (
    Cell,
    Column,
    Section,
    Subheading,
    Table,
    View,
    counts,
    devices,
    names,
    notes,
    numeric,
    shares,
    sizes,
    table,
    times,
    words,
)
from traceview.render.html.shown import name
from traceview.render.outside_view import memory_share, others, power, sm_clock


def capture_section(view: View) -> Section:
    """Problems, analyses that could not be made, the hosts, and the files with their checksums."""
    report, capture = view.report, view.report.capture
    several = len(capture.hosts) > 1
    problems = [
        one.text + (f" (host {name(one.host)})" if several and one.host else "")
        for one in capture.problems[: view.most_rows]
    ]
    left = len(capture.problems) - len(problems)
    more = [f"{numbers.plural(left, 'more problem')}: the JSON report."] if left > 0 else []
    skipped = [f"{one} was not made: {reason}" for one, reason in report.skipped.items()]
    quality = QUALITY_WORDS.get(capture.quality, (capture.quality, ""))[0]
    lead = (
        "Nothing limits it." if capture.quality == "ok" and not problems else f"Quality: {quality}."
    )
    return Section(
        "capture",
        "Capture quality",
        (*notes([*problems, *more, *skipped]), *_hosts(view), *_files(view)),
        lead=lead,
    )


def _hosts(view: View) -> list[Subheading | Table]:
    every = view.report.capture.hosts
    hosts = every[: view.most_rows]
    several = len(every) > 1
    found = table(
        "Hosts",
        [
            names("host", [one.host for one in hosts]),
            words("role", [one.role or "" for one in hosts]),
            times("recorded", [one.duration_ps for one in hosts]),
            counts("events", [one.event_count for one in hosts]),
            counts("on devices", [one.device_event_count for one in hosts]),
            counts("dropped", [one.dropped_event_count for one in hosts]),
            shares("kernels without launch", [one.unlinked_ratio for one in hosts]),
            Column(
                "profiler overhead", tuple(_overhead(view, one) for one in hosts), is_number=True
            ),
            *(
                (
                    words("clock set", [method(one) for one in hosts]),
                    Column(
                        "moved by",
                        tuple(
                            Cell()
                            if one.clock is None
                            else Cell(offset(one.clock), one.clock.offset_ps)
                            for one in hosts
                        ),
                        is_number=True,
                    ),
                    Column("drift", tuple(Cell(drift(one)) for one in hosts), is_number=True),
                    counts("steps missing", [len(one.missing_steps) for one in hosts]),
                )
                if several
                else ()
            ),
        ],
        row_count=len(every),
        rest="the JSON report",
    )
    if not found:
        return []
    remark = f"Hosts: {clock_remark(every)}" if several else "Hosts"
    return [Subheading(remark), *found]


def _overhead(view: View, host: HostCapture) -> Cell:
    """What the profiler adds to a step, where that is more than steps vary by themselves."""
    ratio = host.overhead_ratio
    if ratio is None:
        return Cell(numbers.ABSENT)
    environment = view.report.results.environment
    recorded = environment.hosts if environment else ()
    spreads = [one.overhead.spread_ratio or 0.0 for one in recorded if one.host == host.host]
    if ratio > max(spreads, default=0.0):
        return Cell(numbers.share(ratio), ratio)
    return Cell("too small to measure", 0.0)


def _files(view: View) -> list[Subheading | Table]:
    every = view.report.source.files
    files = every[: view.most_rows]
    found = table(
        "Files",
        [
            names("file", [one.name for one in files]),
            sizes("size", [one.bytes for one in files]),
            counts("events", [one.event_count for one in files]),
            names("sha256", [one.sha256 for one in files]),
            names("same as", [one.duplicate_of for one in files]),
        ],
        row_count=len(every),
        rest="the JSON report",
    )
    return [Subheading("Files"), *found] if found else []


def outside_view_section(view: View) -> Section | None:
    """What NVML said of each GPU beside the trace; nothing where nobody asked it."""
    found = view.report.results.outside_view
    if found is None or not found.devices:
        return None
    rows = found.devices[: view.most_rows]
    overview = table(
        "GPUs as their driver saw them",
        [
            devices(view, [row.device for row in rows]),
            shares("busy by NVML", [row.nvml_busy_ratio for row in rows]),
            shares("by the trace", [row.trace_busy_ratio for row in rows]),
            shares("held back", [row.throttled_ratio for row in rows]),
            words("SM clock", [sm_clock(row) for row in rows]),
            words("power", [power(row) for row in rows]),
            words("memory", [memory_share(row) for row in rows]),
            words("others", [others(row) for row in rows]),
            numeric("samples", [row.sample_count for row in rows], lambda one: f"{one:,.0f}"),
        ],
        row_count=len(found.devices),
        rest="the JSON report",
    )
    reasons = dict.fromkeys(
        reason for row in rows for reason in (row.not_compared, row.others_unknown) if reason
    )
    absent = [f"Not seen from outside: {host}: {reason}." for host, reason in found.absent.items()]
    return Section(
        "outside-view",
        "Seen from outside",
        (*overview, *notes([f"{one}." for one in reasons]), *notes(absent[: view.most_rows])),
        lead="By the driver (NVML), in the whole recording.",
    )
