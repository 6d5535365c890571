"""How busy was each device, and with what?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.device_time.compute import DeviceTimeRow
from traceview.render import numbers
from traceview.render.devices import STATUS_WORDS
from traceview.render.html.blocks import (
    Cell,
    Column,
    Part,
    Section,
    View,
    counts,
    names,
    notes,
    places,
    ratio,
    shares,
    sizes,
    table,
)
from traceview.render.html.places import Place, device_row_ids
from traceview.report.standing_out import standing_out

PARTS: Final = (
    ("compute", "compute", ("compute_ps",)),
    ("communication", "communication", ("exposed_collective_ps",)),
    (
        "copies",
        "copies and fills",
        ("exposed_h2d_ps", "exposed_d2h_ps", "exposed_d2d_ps", "exposed_memset_ps"),
    ),
    ("idle", "idle", ("idle_ps",)),
)
"""How a part of the window looks, what it is, and the keys whose times it is the sum of."""


def devices_section(view: View) -> Section:
    """A row per device whose parts add up to the window."""
    found = view.report.results.device_time
    if found is None or not found.devices:
        reason = view.report.skipped.get("device_time", "No device was recorded.")
        return Section("devices", "Devices", (), lead=reason)
    rows = view.in_order(found.devices)
    occurring = {part.key for row in rows for part in _parts(row)}
    legend = [Part(key, text, 0.0) for key, text, _ in PARTS if key in occurring]
    return Section(
        "devices",
        "Devices",
        (
            *table(
                "Time of each device",
                _columns(view, rows),
                row_ids=device_row_ids(len(rows)),
                row_count=len(found.devices),
                rest=view.command("devices"),
                legend=legend,
            ),
            *notes(_remarks(found.devices)),
            *notes(
                f"Host ops that no replica owns on {one.host}: {numbers.time(one.compute_ps)}."
                for one in found.shared
            ),
        ),
        lead=(
            "Shares are of the window. Communication and copies count only while nothing computes, so that the "
            "parts of a row add up."
            + (" Those that stand out come first." if standing_out(view.report).others else "")
        ),
        terms=("window", "busy", "compute", "exposed", "idle"),
    )


def _columns(view: View, rows: Sequence[DeviceTimeRow]) -> list[Column]:
    def of_window(heading: str, parts: list[int | None]) -> Column:
        ratios = [ratio(part, row.window_ps) for part, row in zip(parts, rows, strict=True)]
        return shares(heading, ratios)

    # What all have in common stands in the first line of the page.
    are_mixed = len({row.model for row in rows}) > 1
    statuses = [STATUS_WORDS.get(row.status, (row.status, ""))[0] for row in rows]
    window = [Place(row.device, 0, row.window_ps) if row.window_ps else None for row in rows]
    return [
        names("device", [row.device for row in rows]),
        Column(
            "status",
            tuple(
                Cell(word, look=f"status-{row.status}")
                for word, row in zip(statuses, rows, strict=True)
            ),
        ),
        places(view, window),
        shares("busy", [row.busy_ratio for row in rows]),
        Column("window", tuple(Cell(parts=_parts(row)) for row in rows)),
        of_window("compute", [row.compute_ps for row in rows]),
        of_window("comm.", [row.exposed_collective_ps for row in rows]),
        *(
            of_window(heading, parts)
            for heading, parts in (
                ("h2d", [row.exposed_h2d_ps for row in rows]),
                ("d2h", [row.exposed_d2h_ps for row in rows]),
                ("d2d", [row.exposed_d2d_ps for row in rows]),
                ("fills", [row.exposed_memset_ps for row in rows]),
            )
            if any(parts)
        ),
        of_window("idle", [row.idle_ps for row in rows]),
        counts("kernels", [row.kernel_count for row in rows]),
        sizes("peak memory", [row.memory_peak_bytes for row in rows]),
        names("model", [row.model if are_mixed else None for row in rows]),
    ]


def _parts(row: DeviceTimeRow) -> tuple[Part, ...]:
    if not row.window_ps or row.idle_ps is None:
        return ()
    of_row = vars(row)
    lengths = {key: sum(of_row[field] or 0 for field in fields) for key, _, fields in PARTS}
    return tuple(
        Part(
            key,
            f"{text} {numbers.share(lengths[key] / row.window_ps)}",
            lengths[key] / row.window_ps,
        )
        for key, text, _ in PARTS
        if lengths[key]
    )


def _remarks(rows: Sequence[DeviceTimeRow]) -> list[str]:
    unknown = sum(row.unknown_direction_count or 0 for row in rows)
    outside = sum(row.outside_window_count or 0 for row in rows)
    return [
        f"{numbers.plural(unknown, 'copy', 'copies')} without a recorded direction: counted as d2d."
        if unknown
        else "",
        f"{numbers.plural(outside, 'event')} outside the window; --window devices takes them in."
        if outside
        else "",
    ]
