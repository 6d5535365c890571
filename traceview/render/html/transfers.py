"""Which copies between the host and the GPUs cost time, how fast are they, and who issues them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceview.analysis.transfers.compute import DeviceTransfers
from traceview.render import numbers
from traceview.render.html.blocks import (
    Section,
    Subheading,
    Table,
    View,
    counts,
    devices,
    names,
    notes,
    shares,
    sizes,
    table,
    times,
    words,
)
from traceview.render.transfers import round_trip

SHOWN_TRIPS = 12


def transfers_section(view: View) -> Section | None:
    """A row per device and direction, what issued the copies, and ops on the CPU between two of them."""
    found = view.report.results.transfers
    if found is None or not found.devices:
        return None
    every = [
        (row, name, one)
        for row in found.devices
        for name, one in vars(row.directions).items()
        if one.count
    ]
    if not every:
        return Section("transfers", "Transfers", (), lead="No copies in the window.")
    lines = every[: view.most_rows]
    found_ones = [one for _, _, one in lines]
    of = "step" if view.report.results.steps else "window"
    overview = table(
        "Copies by device and direction",
        [
            devices(view, [row.device for row, _, _ in lines]),
            words("copies", [name for _, name, _ in lines]),
            shares(f"exposed, of the {of}", [one.exposed_ratio for one in found_ones]),
            times("exposed per step", [one.exposed_ps_per_step for one in found_ones]),
            times("busy", [one.busy_ps for one in found_ones]),
            counts("count", [one.count for one in found_ones]),
            counts("under 64 KiB", [one.small_count for one in found_ones]),
            sizes("size", [one.bytes for one in found_ones]),
            sizes("pageable", [one.pageable_bytes for one in found_ones]),
            sizes("per second", [one.bytes_per_second for one in found_ones]),
            sizes("link carries", [row.link_bytes_per_second for row, _, _ in lines]),
        ],
        row_count=len(every),
        rest=view.command("transfers"),
    )
    return Section(
        "transfers",
        "Transfers",
        (*overview, *notes(_remarks(found.devices)), *_sources(view, found.devices)),
        lead=f"Exposed: nothing else runs meanwhile, as a share of the {of}.",
        terms=("exposed",),
    )


def _remarks(rows: Sequence[DeviceTransfers]) -> Iterator[str]:
    trips = []
    for row in rows:
        if row.blocking_reads.count:
            copies = numbers.plural(row.blocking_reads.count, "copy", "copies")
            wait = numbers.time(row.blocking_reads.wait_ps)
            yield f"{row.device}: the host waited {wait} for {copies} from it."
        trips += [f"{row.device}: {round_trip(trip)}." for trip in row.round_trips]
    yield from trips[:SHOWN_TRIPS]
    if len(trips) > SHOWN_TRIPS:
        yield f"{numbers.plural(len(trips) - SHOWN_TRIPS, 'more op')} like that."


def _sources(view: View, rows: Sequence[DeviceTransfers]) -> list[Subheading | Table]:
    every = [source for row in rows for source in row.top_sources]
    found = sorted(every, key=lambda one: (-one.exposed_ps, -one.total_ps))[: view.most_rows]
    if not found:
        return []
    return [
        Subheading("What issued them"),
        *table(
            "Copies by the op and thread that issued them",
            [
                devices(view, [one.device for one in found]),
                words("copies", [one.direction for one in found]),
                names("op", [one.op for one in found]),
                names("thread", [one.thread for one in found]),
                counts("count", [one.count for one in found]),
                sizes("size", [one.bytes for one in found]),
                times("exposed", [one.exposed_ps for one in found]),
            ],
            row_count=sum(row.source_count for row in rows),
            rest=view.command("transfers"),
        ),
    ]
