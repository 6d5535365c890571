"""The numbers of devices by key, as the oracle and the truths of scenarios have them."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from traceview.analysis.measures.device_report import COPIES, ActivityTime, DeviceTimeRow
from traceview.xplane.planes import CLASS_KEYS


def flat_times(row: DeviceTimeRow) -> dict[str, Any]:
    """A row of `device_time` without dictionaries in it."""
    values: dict[str, Any] = to_builtins(row)
    activity = values.pop("activity")
    nothing = dict.fromkeys(ActivityTime.__struct_fields__)
    of = {key: activity[key] if activity else nothing for key in CLASS_KEYS}
    return values | {
        **{f"exposed_{key}_ps": of[key]["exposed_ps"] for key in CLASS_KEYS},
        "total_ps": {key: of[key]["busy_ps"] for key in CLASS_KEYS} if activity else None,
        "kernel_count": of["compute"]["count"],
        "collective_count": of["collective"]["count"],
        "copy_count": sum(activity[key]["count"] for key in COPIES) if activity else None,
        "memset_count": of["memset"]["count"],
        **{f"{key}_bytes": of[key]["bytes"] for key in COPIES},
    }
