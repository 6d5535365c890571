"""Reads parts of an answer of the oracle, for tests."""

from __future__ import annotations

from typing import Any

from scripts.cuda_trace import BASE_NS

ORIGIN_PS = BASE_NS * 1000
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


def window_of(answer: dict[str, Any]) -> tuple[str, int, int]:
    (window,) = answer["windows"]
    return window["kind"], window["start_ps"], window["end_ps"]


def holds_identity(answer: dict[str, Any]) -> bool:
    rows = list(answer["device_time"]["devices"])
    for step in answer["steps"]["steps"]:
        rows += step["devices"]
    return all(
        row["busy_ps"] is None or sum(row[part] for part in PARTS) == row["window_ps"]
        for row in rows
    )
