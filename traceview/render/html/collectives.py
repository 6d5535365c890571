"""How do the devices sum their gradients, what does it cost, and who waits for whom?"""

from __future__ import annotations

from traceview.analysis.collectives.compute import CollectiveResult
from traceview.render import numbers
from traceview.render.collectives import speed, unrecorded, way
from traceview.render.html.blocks import (
    Section,
    Table,
    View,
    counts,
    devices,
    facts,
    table,
    times,
)
from traceview.render.html.shown import sentence


def collectives_section(view: View) -> Section | None:
    """The way, the times, and a row per device; nothing for a run without any."""
    found = view.report.results.collectives
    if found is None or not (found.count or found.path not in (None, "none")):
        return None
    told_way = way(found)
    lead = sentence(told_way) if told_way else ""
    if not found.count:
        return Section("collectives", "Collectives", (), lead=lead)
    per_step = found.transfer_per_step_ps is not None and view.report.results.steps is not None
    each = "per step" if per_step else "in the window"
    transfer = found.transfer_per_step_ps if per_step else found.transfer_ps
    of_step = f", {numbers.count(found.count_per_step)} per step" if found.count_per_step else ""
    told = facts(
        numbers.plural(found.count, "collective") + of_step,
        f"transfer {numbers.time(transfer)} {each}",
        f"{numbers.share(found.overlap_ratio)} hidden by compute",
        ""
        if found.expected_ps is None
        else f"{numbers.time(found.expected_ps)} expected of the link",
        "" if found.bus_bytes_per_second is None else speed(found),
        *unrecorded(found),
    )
    return Section(
        "collectives",
        "Collectives",
        (*told, *_devices(view, found, per_step=per_step)),
        lead=lead,
        terms=("exposed",),
    )


def _devices(view: View, found: CollectiveResult, *, per_step: bool) -> list[Table]:
    exposed = (found.exposed_per_step_ps or {}) if per_step else found.exposed_ps
    transfer = (found.exposed_transfer_per_step_ps or {}) if per_step else found.exposed_transfer_ps
    wait = (found.wait_per_step_ps or {}) if per_step else found.wait_ps
    # With room for some only: those that lose most, in their order.
    costly = set(sorted(found.exposed_ps, key=lambda key: -exposed.get(key, 0))[: view.most_rows])
    keys = [key for key in found.exposed_ps if key in costly]
    each = " per step" if per_step else ""
    return table(
        "Collectives by device",
        [
            devices(view, keys),
            times(f"exposed{each}", [exposed.get(key) for key in keys]),
            times("of it transfer", [transfer.get(key) for key in keys]),
            times(f"waited for peers{each}", [wait.get(key) for key in keys]),
            counts("came last", [found.last_count.get(key) for key in keys]),
        ],
        row_count=len(found.exposed_ps),
        rest=view.command("collectives"),
    )
