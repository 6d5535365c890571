"""Shows the baselines of a folder as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceview.baseline.folder import Baseline
from traceview.comparison.captures import step_time_ps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.report.identity import devices_of, started_ns


def baseline_section(folder: Path, baselines: Sequence[Baseline]) -> doc.Section:
    """A row per baseline: what it was recorded on, its step time, and how large its file is."""
    reports = [baseline.report for baseline in baselines]
    steps = [report.results.steps if report else None for report in reports]
    columns = (
        doc.names("name", [baseline.name for baseline in baselines]),
        doc.words("recorded", [numbers.date(started_ns(report)) for report in reports], priority=2),
        doc.words("devices", [devices_of(report) for report in reports], priority=1),
        doc.times("step", [step_time_ps(report) if report else None for report in reports]),
        doc.counts("steps", [of.used_count if of else None for of in steps], priority=3),
        doc.sizes("size", [baseline.byte_count for baseline in baselines], priority=4),
    )
    damage = [f"{row.name} cannot be read: {row.damage}" for row in baselines if row.damage]
    lead = "" if baselines else f"No baseline in {folder}."
    return doc.Section(
        "baselines",
        "Baselines",
        (*doc.table("Baselines", columns), *doc.notes(*damage)),
        lead=lead,
        is_folded=False,
    )
