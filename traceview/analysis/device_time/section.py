"""Shows how busy each device was and with what: a row per device whose parts add up to the window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from traceview.analysis.base import LEAST_SHOWN_RATIO
from traceview.analysis.context import View
from traceview.analysis.device_time.result import MARGINAL_RATIO, DeviceTime, DeviceTimeRow
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CLASSES, DEVICE_KINDS, PARTS, STATUSES, look_of

TITLE: Final = "Devices"
FOLD_FROM: Final = 4
"""So many devices that recorded nothing are named in a remark instead of a row each."""

_PARTS_ADD_UP: Final = (
    "Shares are of the window. Communication with the waiting in it, copies and fills count only while nothing "
    "computes; with compute and idle they add up to the window."
)


def devices_section(view: View, result: DeviceTime) -> doc.Section | None:
    """A row per device; of very many devices the outliers, and the range of the others."""
    if not result.devices:
        return doc.Section("devices", TITLE, (), lead="The trace holds no device.", is_folded=False)
    empty = _without_record(result.devices)
    folded = empty if len(empty) >= FOLD_FROM else []
    others = [row for row in result.devices if row.device in view.others]
    rows = [row for row in result.devices if row not in folded and row not in others]
    shown = rows[: view.most_rows]
    return doc.Section(
        "devices",
        TITLE,
        (
            *doc.table(
                "Time of each device",
                _columns(view, shown),
                row_count=len(rows),
                rest=view.command("devices"),
                anchors=[doc.device_anchor(row.device) for row in shown],
            ),
            *doc.remarks(*_folded_sentences(folded)),
            *_range_of(view, others),
            *doc.remarks(
                _unknown_directions(result.devices),
                _outside_window(result.devices),
                *_shared(result),
                _peaks(shown),
                _marginal(shown),
                _PARTS_ADD_UP if shown else None,
            ),
        ),
        lead=f"{device_list(result.devices)}.",
        terms=("window", "busy", "compute", "exposed", "idle"),
        is_folded=False,
    )


def device_list(rows: Sequence[DeviceTimeRow]) -> str:
    """`4 GPUs, Tesla V100; 1 TPU`: how many devices there are of each kind, and their models."""
    if len(rows) == 1 and rows[0].kind == "replica":
        return f"The CPU, as {rows[0].device}"
    kinds = []
    for kind in dict.fromkeys(row.kind for row in rows):
        same = [row for row in rows if row.kind == kind]
        models = " and ".join(dict.fromkeys(row.model for row in same if row.model))
        count = numbers.plural(len(same), look_of(DEVICE_KINDS, kind).words)
        hosts = len({row.device.rpartition("/")[0] for row in same})
        where = f" on {numbers.plural(hosts, 'host')}" if kind == "replica" else ""
        kinds.append(f"{count}{where}" + (f", {models}" if models else ""))
    return "; ".join(kinds)


def _without_record(rows: Sequence[DeviceTimeRow]) -> list[DeviceTimeRow]:
    """Devices without an event and without a word on their memory."""
    return [
        row
        for row in rows
        if row.status == "empty" and row.memory_held_bytes is row.memory_peak_bytes is None
    ]


# Columns


def _columns(view: View, rows: Sequence[DeviceTimeRow]) -> Iterator[doc.Column]:
    def of_window(heading: str, parts: Sequence[int | None], **options: int) -> doc.Column:
        ratios = [doc.ratio(part, row.window_ps) for part, row in zip(parts, rows, strict=True)]
        return doc.shares(heading, ratios, **options)

    yield doc.devices("device", [row.device for row in rows])
    yield doc.looks("status", [look_of(STATUSES, row.status) for row in rows], priority=6)
    windows = [row.window_ps for row in rows]
    yield doc.spans(
        "",
        [
            doc.Span(row.device, 0, length) if length else None
            for row, length in zip(rows, windows, strict=True)
        ],
    )
    yield doc.shares("busy", [row.busy_ratio for row in rows])
    if not view.is_brief:
        yield doc.bars("window", [_bar(row) for row in rows], priority=11)
    yield doc.times("busy time", [row.busy_ps for row in rows], priority=5)
    yield of_window("compute", [row.compute_ps for row in rows], priority=1)
    yield of_window(
        "communication and waiting", [row.exposed_collective_ps for row in rows], priority=2
    )
    by_class = {} if view.is_brief else _copies_by_class(rows)
    if len(by_class) > 1:
        for class_, parts in by_class.items():
            yield of_window(CLASSES[class_].words, parts, priority=10)
    else:
        yield of_window("exposed copies", list(map(copies_ps, rows)), priority=3)
    yield of_window("idle", [row.idle_ps for row in rows])
    are_replicas = all(row.kind == "replica" for row in rows)
    yield doc.counts(
        "ops" if are_replicas else "kernels", [row.kernel_count for row in rows], priority=8
    )
    yield doc.sizes("peak memory", [row.memory_window_peak_bytes for row in rows], priority=7)
    if any(row.memory_peak_bytes != row.memory_window_peak_bytes for row in rows):
        yield doc.sizes("peak since start", [row.memory_peak_bytes for row in rows], priority=9)
    # The lead of the section names a model that all devices share.
    are_mixed = len({row.model for row in rows}) > 1
    yield doc.names("model", [row.model if are_mixed else None for row in rows], priority=9)


def _copies_by_class(rows: Sequence[DeviceTimeRow]) -> dict[str, list[int | None]]:
    """The exposed time of copies and fills by class, of those that take a share of the window that shows."""
    by_class: dict[str, list[int | None]] = {
        "h2d": [row.exposed_h2d_ps for row in rows],
        "d2h": [row.exposed_d2h_ps for row in rows],
        "d2d": [row.exposed_d2d_ps for row in rows],
        "memset": [row.exposed_memset_ps for row in rows],
    }
    windows = [row.window_ps or 0 for row in rows]
    return {
        class_: parts
        for class_, parts in by_class.items()
        if any(
            part and part >= LEAST_SHOWN_RATIO * window_ps
            for part, window_ps in zip(parts, windows, strict=True)
        )
    }


def copies_ps(row: DeviceTimeRow) -> int | None:
    """Exposed copies and fills of a device; None where they are not known."""
    parts = (row.exposed_h2d_ps, row.exposed_d2h_ps, row.exposed_d2d_ps, row.exposed_memset_ps)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _bar(row: DeviceTimeRow) -> doc.Bar | None:
    parts = (row.compute_ps, row.exposed_collective_ps, copies_ps(row), row.idle_ps)
    if not row.window_ps:
        return None
    return doc.Bar(
        tuple(
            doc.Part(look, length / row.window_ps)
            for look, length in zip(PARTS.values(), parts, strict=True)
            if length
        )
    )


# Remarks


def _folded_sentences(rows: Sequence[DeviceTimeRow]) -> Iterator[str]:
    for _, of_host in groupby(rows, key=lambda row: row.host):
        same = list(of_host)
        keys = numbers.joined_devices([row.device for row in same])
        if any(row.busy_ps is not None for row in same):
            yield f"{keys} recorded no event."
        else:
            yield f"{keys}: no device of this host was recorded, so nothing is known of them."


def _range_of(view: View, rows: Sequence[DeviceTimeRow]) -> Iterator[doc.Remark]:
    """Between which shares the devices without a row lie."""
    if not rows:
        return
    parts = {
        "busy": [row.busy_ratio for row in rows],
        "compute": [row.compute_ratio for row in rows],
        "communication and waiting": [
            doc.ratio(row.exposed_collective_ps, row.window_ps) for row in rows
        ],
        "exposed copies": [doc.ratio(copies_ps(row), row.window_ps) for row in rows],
    }
    ranges = ", ".join(f"{name} {numbers.share_range(ratios)}" for name, ratios in parts.items())
    count = numbers.plural(len(rows), "other device")
    yield doc.Remark(
        f"{count}: {ranges}. All devices:", f"{view.command('devices')} -o devices.csv"
    )


def _peaks(rows: Sequence[DeviceTimeRow]) -> str | None:
    """Of what time the peaks of memory are."""
    if not any(row.memory_peak_bytes for row in rows):
        return None
    if all(row.memory_peak_bytes == row.memory_window_peak_bytes for row in rows):
        return "Peak memory is the most in use in the window; it was never more since the process started."
    return "Peak memory is the most in use in the window, the peak since start the most since the process started."


def _marginal(rows: Sequence[DeviceTimeRow]) -> str | None:
    """What the status says, which is no fault of the device where another one has more to do."""
    if all(row.status != "marginal" for row in rows):
        return None
    words = look_of(STATUSES, "marginal").words
    return f"Status {words}: computes less than {numbers.share(MARGINAL_RATIO)} of what the busiest device does."


def _unknown_directions(rows: Sequence[DeviceTimeRow]) -> str | None:
    unknown = sum(row.unknown_direction_count or 0 for row in rows)
    copies = numbers.plural(sum(row.copy_count or 0 for row in rows), "copy", "copies")
    if not unknown:
        return None
    return f"{numbers.count(unknown)} of {copies}: direction not recorded, counted as copies between devices."


def _outside_window(rows: Sequence[DeviceTimeRow]) -> str | None:
    counted = [
        f"{numbers.plural(row.outside_window_count, 'event')} of {row.device}"
        for row in rows
        if row.outside_window_count
    ]
    if not counted:
        return None
    of_status = ""
    if any(row.status == "copy_only" and not row.busy_ps for row in rows):
        of_status = ", which only the status counts"
    return f"Outside the window: {numbers.listed(counted)}{of_status}; use --window devices to include them."


def _shared(result: DeviceTime) -> Iterator[str]:
    for shared in result.shared:
        where = f" on {shared.host}" if len(result.shared) > 1 else ""
        yield f"Host ops that belong to no replica{where}: {numbers.time(shared.compute_ps)}."
