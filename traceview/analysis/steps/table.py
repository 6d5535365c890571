"""Makes the table of steps: how long each took, and the parts of its time on every device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.activity import Parts
from traceview.analysis.base import Skipped
from traceview.analysis.idle.result import Idle, compute
from traceview.analysis.idle_attribution import attribute_idle_time
from traceview.analysis.selection import Selection
from traceview.analysis.steps.result import StepDevice, StepRow, Steps
from traceview.analysis.steps.section import step_remark
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CAUSES, PARTS, STEP_KINDS
from traceview.trace.cause import Cause
from traceview.trace.model import Trace
from traceview.trace.table import Table, integers, record_columns, table, texts

MOST_STEPS: Final = 40
"""So many steps of a host have a row on a terminal; of more the first and the last are shown."""

LONGEST_BAR: Final = 4
"""A bar ends at so many medians, so that one very long step leaves the others something to see."""

_USED: Final = replace(STEP_KINDS["train"], letter="=", ink="green")
_LEFT_OUT: Final = replace(STEP_KINDS["excluded"], letter="-", ink="dim")


def in_whole_steps(selection: Selection) -> Selection:
    """The same steps in windows that hold each of them to its ends, so that all its idle time has a cause."""
    windows = {
        host: replace(
            window,
            start_ps=min(window.start_ps, *(step.start_ps for step in selection.steps[host])),
            end_ps=max(window.end_ps, *(step.end_ps for step in selection.steps[host])),
        )
        if selection.steps[host]
        else window
        for host, window in selection.windows.items()
    }
    return Selection(windows, selection.steps)


def idle_in_steps(trace: Trace, selection: Selection) -> Idle | None:
    """What devices waited for in whole steps, without single gaps; None where no device recorded an event."""
    whole = in_whole_steps(selection)
    result = compute(trace, whole, attribute_idle_time(trace, whole), 0)
    return None if isinstance(result, Skipped) else result


def step_table(steps: Steps | None, idle: Idle | None, devices: Collection[str]) -> Table:
    """A row per step, in time order, and device of its host that is in `devices`.

    The parts from `compute_ps` to `idle_ps` add up to `duration_ps`, the causes after it to `idle_ps`; causes are
    missing where the device recorded nothing. `python`: the line that the host was in while it kept a device waiting.
    """
    known = {
        (row.device, step.number): step.causes
        for row in (idle.devices if idle else ())
        for step in row.steps
    }
    rows = [
        (step, part)
        for step in (steps.steps if steps else ())
        for part in step.devices
        if part.device in devices
    ]
    causes = [known.get((part.device, step.number)) for step, part in rows]
    of_step = [field for field in StepRow.__struct_fields__ if field not in ("devices", "python")]
    parts = ("device", *Parts.__struct_fields__)
    return table(
        "steps",
        *record_columns(StepRow, [step for step, _ in rows], of_step),
        *record_columns(StepDevice, [part for _, part in rows], parts),
        *(
            integers(
                f"{cause.key}_ps",
                [None if row is None else row.get(cause.key, 0) for row in causes],
            )
            for cause in Cause
        ),
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

    def parts(heading: str, lengths: Sequence[int | None], priority: int = 0) -> doc.Column:
        return doc.shares(heading, map(doc.ratio, lengths, durations), priority=priority)

    copies = [f"exposed_{class_}_ps" for class_ in ("h2d", "d2h", "d2d", "memset")]
    yield doc.words("step", map(str, rows["number"]))
    yield parts(PARTS["compute"].words, rows["compute_ps"])
    yield parts(PARTS["collective"].words, rows["exposed_collective_ps"], 1)
    yield parts("copies", [sum(row) for row in zip(*map(rows.__getitem__, copies), strict=True)], 1)
    yield parts(PARTS["idle"].words, rows["idle_ps"])
    causes = {cause: rows[f"{cause}_ps"] for cause in CAUSES}
    totals = {cause: sum(length or 0 for length in lengths) for cause, lengths in causes.items()}
    ranked = sorted((cause for cause in CAUSES if totals[cause]), key=lambda cause: -totals[cause])
    for priority, cause in enumerate(ranked, start=2):
        yield parts(CAUSES[cause].words, causes[cause], priority)


def _ranges(rows: Table, others: Collection[str], hosts: Collection[str]) -> tuple[doc.Block, ...]:
    """Between which values the devices and hosts lie that have no table."""
    left = rows.where("device", others)
    compute = numbers.share_range(map(doc.ratio, left["compute_ps"], left["duration_ps"]))
    idle = numbers.share_range(map(doc.ratio, left["idle_ps"], left["duration_ps"]))
    names = [host for host in dict.fromkeys(left["host"]) if host not in hosts]
    durations = numbers.time_range(left.where("host", names)["duration_ps"])
    count = numbers.plural(len(set(left["device"])), "device")
    return doc.remarks(
        f"{count}: compute {compute} of a step, idle {idle}. `--device KEY` or `-o FILE.csv` shows them.",
        f"{numbers.plural(len(names), 'other host')}: steps of {durations}." if names else None,
    )
