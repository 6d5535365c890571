"""Hand-made sidecars for the tests of what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LOCAL = "/job:localhost/replica:0/task:0/device:"


def write_sidecar(trace: Path, fields: Any) -> Path:
    """Write the sidecar of a trace file; returns its path."""
    path = trace.with_name(trace.name.replace(".xplane.pb", ".traceview.json"))
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path


def mirrored(*devices: str, found_by: str = "variables") -> dict[str, Any]:
    """The group `strategy` of a MirroredStrategy on local devices such as `GPU:0`."""
    names = [f"{LOCAL}{device}" for device in devices]
    return {
        "class": "MirroredStrategy",
        "found_by": found_by,
        "replicas": len(devices),
        "devices": names,
        "parameter_devices": names,
    }


def graph(
    ops: dict[str, int], *, name: str = "train", without_device: int = 0, alone: int = 0
) -> dict[str, Any]:
    """One function of the group `placement`. `alone`: trainable variables that are not mirrored."""
    return {
        "step": name,
        "name": name,
        "op_count": sum(ops.values()) + without_device,
        "ops_per_device": {
            (device if device.startswith("/") else f"{LOCAL}{device}"): count
            for device, count in ops.items()
        },
        "not_mirrored": alone,
    }
