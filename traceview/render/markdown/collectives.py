"""How do the devices sum their gradients, what does it cost, and who waits for whom?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.collectives.compute import CollectiveResult
from traceview.render import numbers
from traceview.render.collectives import unrecorded
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report

SHOWN: Final = 64


def collectives_section(report: Report) -> Section | None:
    """The way, the times, and a row per device; nothing for a run without any."""
    found = report.results.collectives
    if found is None or not (found.count or found.path not in (None, "none")):
        return None
    facts = []
    if found.path is not None:
        reason = f": {prose(found.path_reason)}" if found.path_reason else ""
        facts.append(f"path {code(found.path)}{reason}")
    if not found.count:
        return Section("Collectives", (bullets(facts),))
    per_step = found.transfer_per_step_ps is not None and report.results.steps is not None
    each = " per step" if per_step else " in the window"
    transfer = found.transfer_per_step_ps if per_step else found.transfer_ps
    of_step = f", {numbers.count(found.count_per_step)} per step" if found.count_per_step else ""
    facts += [
        numbers.plural(found.count, "collective") + of_step,
        f"transfer {numbers.time(transfer)}{each}",
        f"{plain(numbers.share(found.overlap_ratio))} hidden by compute",
    ]
    if found.expected_ps is not None:
        facts.append(f"{numbers.time(found.expected_ps)} expected of the link")
    if found.bus_bytes_per_second is not None:
        facts.append(f"{numbers.size(found.bus_bytes_per_second)} per second over each link")
    if found.link_bytes_per_second is not None:
        facts.append(f"the link carries {numbers.size(found.link_bytes_per_second)} per second")
    facts += unrecorded(found)
    return Section("Collectives", (bullets(facts), _devices(found, per_step=per_step)))


def _devices(found: CollectiveResult, *, per_step: bool) -> str:
    exposed = (found.exposed_per_step_ps or {}) if per_step else found.exposed_ps
    transfer = (found.exposed_transfer_per_step_ps or {}) if per_step else found.exposed_transfer_ps
    wait = (found.wait_per_step_ps or {}) if per_step else found.wait_ps
    keys = sorted(found.exposed_ps, key=lambda key: -exposed.get(key, 0))[:SHOWN]
    each = " per step" if per_step else ""

    def times(heading: str, of_device: dict[str, int]) -> Column:
        return Column(heading, [numbers.time(of_device.get(key)) for key in keys], right=True)

    return table(
        [
            Column("device", [code(key) for key in keys]),
            times(f"exposed{each}", exposed),
            times("of it transfer", transfer),
            times(f"waited for peers{each}", wait),
            Column(
                "came last", [numbers.count(found.last_count.get(key)) for key in keys], right=True
            ),
        ]
    )
