"""Reads parts of an answer of the oracle, and compares them with the truth of a scenario."""

from __future__ import annotations

from typing import Any

PARTS = (
    "compute_ps",
    "exposed_collective_ps",
    "exposed_h2d_ps",
    "exposed_d2h_ps",
    "exposed_d2d_ps",
    "exposed_memset_ps",
    "idle_ps",
)


def devices_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["device"]: row for row in answer["device_time"]["devices"]}


def holds_identity(answer: dict[str, Any]) -> bool:
    rows = list(answer["device_time"]["devices"])
    for step in answer["steps"]["steps"]:
        rows += step["devices"]
    return all(
        row["busy_ps"] is None or sum(row[part] for part in PARTS) == row["window_ps"]
        for row in rows
    )


def _contains(found: Any, truth: Any, where: str = "") -> list[str]:
    """What of a nested truth is not found; ratios to three digits."""
    if isinstance(truth, dict) and isinstance(found, dict):
        return [
            line
            for key, value in truth.items()
            for line in _contains(found.get(key, "absent"), value, f"{where}/{key}")
        ]
    if isinstance(truth, float) and isinstance(found, float):
        return [] if abs(found - truth) < 0.0005 else [f"{where}: {found} is not {truth}"]
    return [] if found == truth else [f"{where}: {found} is not {truth}"]


def differences(answer: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    """Where an answer is not the truth of a scenario."""
    steps, result = dict(truth.get("steps", {})), []
    for host, window in truth.get("windows", {}).items():
        (found,) = [row for row in answer["windows"] if row["host"] == host]
        found = {**found, "window_ps": found["end_ps"] - found["start_ps"]}
        result += _contains(found, window, f"windows/{host}")
    rows = answer["steps"]["steps"]
    for key in set(steps) & {"start_ps", "duration_ps", "number", "recorded_number", "kind"}:
        result += _contains([row[key] for row in rows], steps.pop(key), f"steps/{key}")
    result += _contains(answer["steps"], steps, "steps")
    return result + _contains(devices_of(answer), truth.get("device_time", {}), "device_time")
