"""Makes the table of balance: how each device that computed compares with the others."""

from __future__ import annotations

from typing import Final

from traceview.analysis.balance.gradients import DevicePhases
from traceview.analysis.balance.hardware import DeviceHardware
from traceview.analysis.balance.result import Balance, DeviceBalance
from traceview.trace.table import Table, integers, record_columns, table, texts

_PHASES: Final = ("forward_ps", "backward_ps", "optimizer_ps", "reduction_ps", "backward")


def balance_table(balance: Balance | None) -> Table:
    """A row per device that computed, in the order of hosts and numbers; its cause and cost if the others wait for it."""
    rows = balance.devices if balance else ()
    by_device = {row.device: row for row in balance.gradients.devices} if balance else {}
    late = balance.straggler if balance else None
    waits = [late if late and late.device == row.device else None for row in rows]
    compared = [field for field in DeviceBalance.__struct_fields__ if field != "hardware"]
    return table(
        "balance",
        *record_columns(DeviceBalance, rows, compared),
        texts("straggler_cause", [row.cause if row else None for row in waits]),
        integers(
            "straggler_cost_ps_per_step", [row.cost_ps_per_step if row else None for row in waits]
        ),
        *record_columns(DevicePhases, [by_device[row.device] for row in rows], _PHASES),
        *record_columns(
            DeviceHardware,
            [row.hardware for row in rows],
            ("model", "core_count", "clock_max_hz"),
        ),
    )
