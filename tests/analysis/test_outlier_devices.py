"""Of many devices those that a finding names and those that differ have a row, with one that is like the rest."""

from __future__ import annotations

from typing import Any

from tests.reports import MS, device, empty_device
from traceview.analysis.outlier_devices import outlier_devices

SLOW: dict[str, Any] = {"compute_ps": 65 * MS, "compute_ratio": 0.65, "idle_ps": 20 * MS}


def test_few_devices_are_all_shown() -> None:
    chosen = outlier_devices([device(n) for n in range(16)])
    assert chosen.shown == tuple(f"GPU:{n}" for n in range(16))
    assert chosen.others == ()


def test_what_differs_is_shown_with_one_that_does_not() -> None:
    chosen = outlier_devices([device(n, **SLOW if n in (9, 30) else {}) for n in range(40)])
    assert chosen.shown == ("GPU:0", "GPU:9", "GPU:30")
    assert len(chosen.others) == 37
    assert "GPU:9" in chosen
    assert "GPU:10" not in chosen


def test_a_difference_of_less_than_two_points_is_none() -> None:
    rows = [device(n, compute_ps=60 * MS + n * MS // 25) for n in range(40)]
    assert outlier_devices(rows).shown == ("GPU:0",)


def test_another_status_stands_out() -> None:
    rows = [device(n, **{"status": "marginal"} if n == 17 else {}) for n in range(40)]
    assert outlier_devices(rows).shown == ("GPU:0", "GPU:17")


def test_devices_of_a_finding_are_shown() -> None:
    chosen = outlier_devices([device(n) for n in range(40)], ("GPU:20", "GPU:21"))
    assert chosen.shown == ("GPU:0", "GPU:20", "GPU:21")


def test_there_are_never_more_rows_than_asked_for() -> None:
    rows = [device(n, **SLOW if n % 2 else {}) for n in range(200)]
    chosen = outlier_devices(rows, most=8)
    assert len(chosen.shown) == 8
    assert len(chosen.others) == 192


def test_devices_that_recorded_nothing_are_neither_shown_nor_counted() -> None:
    chosen = outlier_devices([*map(device, range(16)), *map(empty_device, range(16, 64))])
    assert chosen.others == ()
    assert chosen.shown == tuple(f"GPU:{n}" for n in range(16))


def test_nothing_known_of_any_device() -> None:
    unknown = dict.fromkeys(("window_ps", "compute_ps", "idle_ps"))
    assert outlier_devices([device(n, **unknown) for n in range(20)]).shown == ("GPU:0",)
