"""Makes the table of devices: how busy each was, with what, and how it compares with the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from traceview.analysis.balance import Balance
from traceview.analysis.balance.hardware import DeviceHardware
from traceview.analysis.balance.result import DeviceBalance
from traceview.analysis.device_time.result import DeviceTime, DeviceTimeRow
from traceview.analysis.placement import Placement
from traceview.analysis.placement.section import device_changes
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import STATUSES, look_of
from traceview.trace.table import Table, flags, integers, record_columns, table, texts
from traceview.xplane.planes import ActivityClass

_FIELDS: Final = DeviceTimeRow.__struct_fields__
_TOTALS: Final = _FIELDS.index("total_ps")
_COMPARED: Final = (
    "compute_ps_per_step",
    "mean_compute_ps_per_step",
    "longer_ratio",
    "mean_longer_ratio",
    "longest_count",
    "step_count",
    "start_lag_ps",
    "end_lead_ps",
    "last_count",
    "collective_count",
)
_HARDWARE: Final = ("core_count", "clock_max_hz", "clock_hz", "throttled_ratio")


def device_table(result: DeviceTime | None, balance: Balance | None) -> Table:
    """A row per device in the order of hosts and numbers; without a comparison for those that did not compute."""
    rows = result.devices if result else ()
    by_device = {row.device: row for row in balance.devices} if balance else {}
    compared = [by_device.get(row.device) for row in rows]
    hardware = [row.hardware if row else None for row in compared]
    phases = {row.device: row.backward for row in balance.gradients.devices} if balance else {}
    late = balance.straggler if balance else None
    models = [
        row.model or (of.model if of else None) for row, of in zip(rows, hardware, strict=True)
    ]
    columns = (
        *record_columns(DeviceTimeRow, rows, _FIELDS[:_TOTALS]),
        *(
            integers(
                f"{key}_total_ps",
                [None if row.total_ps is None else row.total_ps[key] for row in rows],
            )
            for key in (class_.name.lower() for class_ in ActivityClass)
        ),
        *record_columns(DeviceTimeRow, rows, _FIELDS[_TOTALS + 1 :]),
        *record_columns(
            DeviceBalance, compared, _COMPARED, {"collective_count": "matched_collective_count"}
        ),
        texts(
            "straggler_cause",
            [late.cause if late and late.device == row.device else None for row in rows],
        ),
        flags("backward", [phases.get(row.device) for row in rows]),
        *record_columns(DeviceHardware, hardware, _HARDWARE),
    )
    return table(
        "devices",
        *(texts("model", models) if column.name == "model" else column for column in columns),
    )


def device_table_section(
    rows: Table, others: Collection[str] = (), placement: Placement | None = None
) -> doc.Section:
    """A row per device; of `others`, devices that are much alike, only the range of their parts."""
    shown = rows.at([at for at, device in enumerate(rows["device"]) if device not in others])
    alike = rows.where("device", others)
    return doc.Section(
        "devices",
        "Devices",
        (
            *doc.table("Devices", _columns(shown)),
            *doc.remarks(_ranges(alike) if alike.count else None),
            *doc.notes(*(device_changes(placement) if placement else ())),
        ),
        lead="" if rows.count else "The trace holds no device.",
    )


def _columns(rows: Table) -> Iterator[doc.Column]:
    windows = rows["window_ps"]

    def of_window(heading: str, parts: Sequence[int | None], priority: int) -> doc.Column:
        return doc.shares(heading, map(doc.ratio, parts, windows), priority=priority)

    yield doc.devices("device", rows["device"])
    yield doc.looks("status", [look_of(STATUSES, status) for status in rows["status"]], priority=2)
    yield doc.shares("busy", rows["busy_ratio"])
    yield doc.shares("compute", rows["compute_ratio"])
    yield of_window("communication and waiting", rows["exposed_collective_ps"], 4)
    yield of_window("exposed copies", _copies_ps(rows), 5)
    yield of_window("idle", rows["idle_ps"], 1)
    yield doc.times("compute per step", rows["mean_compute_ps_per_step"], priority=6)
    yield doc.signed_shares("vs. others", rows["mean_longer_ratio"], priority=3)
    yield doc.counts("kernels", rows["kernel_count"], priority=8)
    yield doc.times("start delay", rows["start_lag_ps"], priority=9)
    yield doc.sizes("peak memory", rows["memory_window_peak_bytes"], priority=7)
    answers = {True: "yes", False: "no", None: None}
    yield doc.words("gradients", [answers[value] for value in rows["backward"]], priority=10)
    yield doc.names("model", rows["model"], priority=11)


def _copies_ps(rows: Table) -> list[int | None]:
    """The exposed time of copies and fills of each device."""
    classes = (ActivityClass.H2D, ActivityClass.D2H, ActivityClass.D2D, ActivityClass.MEMSET)
    parts = zip(*(rows[f"exposed_{class_.name.lower()}_ps"] for class_ in classes), strict=True)
    return [None if None in row else sum(row) for row in parts]


def _ranges(rows: Table) -> str:
    ratios = {
        "busy": rows["busy_ratio"],
        "compute": rows["compute_ratio"],
        "communication and waiting": map(
            doc.ratio, rows["exposed_collective_ps"], rows["window_ps"]
        ),
        "exposed copies": map(doc.ratio, _copies_ps(rows), rows["window_ps"]),
    }
    parts = ", ".join(f"{name} {numbers.share_range(values)}" for name, values in ratios.items())
    return f"{numbers.plural(rows.count, 'other device')}: {parts}. `-o FILE.csv` has all."
