"""Makes the table of steps: how long each took, and the states of every device in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from msgspec.structs import replace

from traceview.analysis.gpu_time.steps.section import step_remark
from traceview.analysis.measures.step_report import StepDevice, StepRow, Steps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import STATES, STEP_KINDS
from traceview.ledger.states import KEYS
from traceview.trace.device.table import Table, integers, record_columns, table, texts

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
