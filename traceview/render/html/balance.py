"""How evenly do the devices work, which one is late, and how short could the step be?"""

from __future__ import annotations

from collections.abc import Sequence

from traceview.analysis.balance.compute import Balance, DeviceBalance
from traceview.analysis.scaling import Scaling
from traceview.render import numbers
from traceview.render.balance import (
    NOUNS,
    PART_WORDS,
    WHAT_IF_WORDS,
    balance_facts,
    balance_sentences,
    balance_summary,
    common_phases,
    not_bounded,
    phases_run,
    prediction_words,
    scaling_summary,
    signed_share,
    worth_showing,
)
from traceview.render.html.blocks import (
    Column,
    Section,
    Subheading,
    Table,
    View,
    counts,
    devices,
    facts,
    notes,
    numeric,
    table,
    times,
    words,
)
from traceview.render.html.shown import sentence


def balance_section(view: View) -> Section | None:
    """Skew, straggler and efficiency, a row per device, bounds of the step time, and the baseline."""
    found = view.report.results.balance
    if found is None:
        return None
    noun = NOUNS.get(found.kind, found.kind)
    scaling = view.report.results.scaling
    return Section(
        "balance",
        "Balance",
        (
            *facts(*balance_facts(found)),
            *notes([sentence(text) for text in _told(found)]),
            *_devices(view, found),
            *_bounds(found),
            *(_scaling(scaling) if scaling else ()),
        ),
        lead=f"{balance_summary(found, noun)}.",
    )


def _told(found: Balance) -> tuple[str, ...]:
    return (*balance_sentences(found, 0.0), *not_bounded(found), prediction_words(found))


def _devices(view: View, found: Balance) -> list[Table]:
    rows = view.in_order(found.devices)
    told = [
        times("compute per step", [row.compute_ps_per_step for row in rows]),
        numeric("beside the others", [row.longer_ratio for row in rows], signed_share),
        counts("longest in, steps", [row.longest_count for row in rows]),
        *_moments(found, rows),
        counts("last, collectives", [row.last_count for row in rows]),
        *_ran(found, rows),
    ]
    if not table("", told):
        return []
    return table(
        "Balance by device",
        [devices(view, [row.device for row in rows]), *told],
        row_count=len(found.devices),
        rest=view.command("balance"),
    )


def _moments(found: Balance, rows: Sequence[DeviceBalance]) -> list[Column]:
    """When the devices begin and end beside each other, where their clocks can be compared."""
    if found.clock_reason is not None:
        return []
    return [
        times("starts later by", [row.start_lag_ps for row in rows]),
        times("ends earlier by", [row.end_lead_ps for row in rows]),
    ]


def _ran(found: Balance, rows: Sequence[DeviceBalance]) -> list[Column]:
    """Which parts of the step each device ran, unless all ran the same, which is among the facts."""
    phases = {row.device: row for row in found.gradients.devices}
    told = [phases_run(phases.get(row.device)) for row in rows]
    return [] if common_phases(found) is not None else [words("ran", told)]


def _bounds(found: Balance) -> list[Subheading | Table]:
    rows = worth_showing(found, 0.0)
    if not rows:
        return []
    return [
        Subheading("What a step could be, at the least"),
        *table(
            "Bounds of the step time",
            [
                words("with", [WHAT_IF_WORDS.get(row.name, row.name) for row in rows]),
                times("step, at least", [row.step_bound_ps for row in rows]),
                times("saves, at most", [row.saved_ps for row in rows]),
                words("because", [row.reasoning for row in rows]),
            ],
        ),
    ]


def _scaling(found: Scaling) -> list[Subheading | Table]:
    ours, theirs, more = vars(found.this.parts), vars(found.baseline.parts), vars(found.parts)
    keys = list(PART_WORDS)
    step = numbers.time(found.baseline.step_ps)
    return [
        Subheading(f"{scaling_summary(found)}; its step: {step}"),
        *table(
            "Parts of the step beside those of the baseline",
            [
                words("part of the step", [PART_WORDS[key] for key in keys]),
                times("baseline", [theirs[key] for key in keys]),
                times("this run", [ours[key] for key in keys]),
                times("more", [more[key] for key in keys]),
            ],
        ),
    ]
