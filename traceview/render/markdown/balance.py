"""How evenly do the devices work, which one is late, and how short could the step be?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.balance.compute import Balance
from traceview.render import numbers
from traceview.render.balance import (
    NOUNS,
    PART_WORDS,
    PARTS_REMARK,
    WHAT_IF_WORDS,
    balance_facts,
    balance_sentences,
    balance_summary,
    common_phases,
    not_bounded,
    part_of_count,
    phases_run,
    prediction_words,
    scaling_summary,
    signed_share,
    worth_showing,
)
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report

SHOWN: Final = 64


def balance_section(report: Report) -> Section | None:
    """What stands out and efficiency, bounds of the step time, and a row per device."""
    found = report.results.balance
    if found is None:
        return None
    facts = [*_facts(found), *_scaling(report)]
    parts = _parts(report)
    return Section("Balance", (bullets(facts), *parts, _bounds(found), _devices(found)))


def _facts(found: Balance) -> list[str]:
    told = [
        balance_summary(found, NOUNS.get(found.kind, found.kind)),
        *balance_facts(found),
        *balance_sentences(found, 0.0),
        *not_bounded(found),
        prediction_words(found),
    ]
    if found.throughput.reason is not None:
        told.append(f"examples per second are not known: {found.throughput.reason}")
    return [prose(one) for one in told]


def _scaling(report: Report) -> list[str]:
    """Beside the run on one device, where one was given."""
    scaling = report.results.scaling
    if scaling is None:
        return []
    this, base = scaling.this, scaling.baseline
    runs = (
        f"step {numbers.time(this.step_ps)} on {numbers.plural(this.device_count, 'device')}; "
        f"{numbers.time(base.step_ps)} on {base.device_count} in the baseline, run {code(base.run)} of "
        f"{code(base.logdir)}"
    )
    return [
        prose(scaling_summary(scaling)),
        runs,
        *([prose(scaling.reason)] if scaling.reason else []),
    ]


def _parts(report: Report) -> list[str]:
    """What the step is made of, beside that of the baseline."""
    scaling = report.results.scaling
    if scaling is None:
        return []
    sides = {
        "baseline": vars(scaling.baseline.parts),
        "this run": vars(scaling.this.parts),
        "more": vars(scaling.parts),
    }
    columns = [Column("part of step", list(PART_WORDS.values()))]
    columns += [
        Column(heading, [numbers.time(side[key]) for key in PART_WORDS], right=True)
        for heading, side in sides.items()
    ]
    return [table(columns), prose(PARTS_REMARK)]


def _bounds(found: Balance) -> str:
    rows = worth_showing(found, 0.0)
    return table(
        [
            Column("with", [WHAT_IF_WORDS.get(row.name) or code(row.name) for row in rows]),
            Column("step, at least", [numbers.time(row.step_bound_ps) for row in rows], right=True),
            Column("saves, at most", [numbers.time(row.saved_ps) for row in rows], right=True),
            Column("because", [prose(row.reasoning) for row in rows]),
        ]
    )


def _devices(found: Balance) -> str:
    rows = found.devices[:SHOWN]
    phases = {row.device: row for row in found.gradients.devices}

    def numeric(heading: str, texts: list[str]) -> Column:
        return Column(heading, [plain(text) for text in texts], right=True)

    columns = [
        Column("device", [code(row.device) for row in rows]),
        numeric("compute per step", [numbers.time(row.compute_ps_per_step) for row in rows]),
        numeric("vs others", [signed_share(row.longer_ratio) for row in rows]),
        numeric("longest in", [part_of_count(row.longest_count, row.step_count) for row in rows]),
    ]
    if found.clock_reason is None:
        columns.append(numeric("starts later by", [numbers.time(row.start_lag_ps) for row in rows]))
        columns.append(numeric("ends earlier by", [numbers.time(row.end_lead_ps) for row in rows]))
    if any(row.collective_count for row in rows):
        texts = [part_of_count(row.last_count, row.collective_count) for row in rows]
        columns.append(numeric("last in, collectives", texts))
    ran = [phases_run(phases.get(row.device)) for row in rows]
    if common_phases(found) is None and any(text != numbers.ABSENT for text in ran):
        columns.append(Column("ran", [plain(text) for text in ran]))
    return table(columns)
