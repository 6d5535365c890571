"""The oracle gives the answers worked out by hand and by other scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.cuda_trace import MS
from scripts.scenarios import SCENARIOS
from tests.oracle import recorded_answer, run_answer
from tests.oracle.accessors import ORIGIN_PS, devices_of, holds_identity, window_of


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


# The real traces: numbers of the README beside them

BERT_BUSY = {1: 33792000, 4: 14983622000, 6: 15050451000}
BERT_CLASSES = [
    (1, "h2d", 19, 33792000, 33792000, 3112),
    (4, "compute", 665, 14825385000, 14825385000, None),
    (4, "h2d", 82, 158973000, 135133000, 37447),
    (4, "d2h", 12, 39456000, 23104000, 36944),
    (6, "compute", 665, 14865363000, 14865363000, None),
    (6, "h2d", 101, 201632000, 172960000, 40559),
    (6, "d2h", 12, 37504000, 12128000, 36944),
]
JAX8_BUSY = [
    3995965000,
    3345845000,
    3524285000,
    3403364000,
    3493365000,
    3464884000,
    3403004000,
    3502165000,
]


def _answer(shared_traces: Path, name: str, window: str = "auto") -> dict[str, Any]:
    return recorded_answer(shared_traces / name, window)


def _op_total(answer: dict[str, Any], device: str, cls: str, key: str) -> int:
    rows = [row for row in answer["ops"] if row["device"] == device and row["class"] == cls]
    return sum(row[key] for row in rows)


@pytest.mark.shared
def test_bert_devices(shared_traces: Path) -> None:
    answer = _answer(shared_traces, "bert-8xV100", "devices")
    assert window_of(answer) == ("devices", 1821856661000, 2775193523000)
    devices = devices_of(answer)
    assert list(devices) == [f"GPU:{n}" for n in range(8)]  # one host, though there are two files
    for n in range(8):
        assert devices[f"GPU:{n}"]["busy_ps"] == BERT_BUSY.get(n, 0)
    for n, cls, count, total_ps, exposed_ps, size in BERT_CLASSES:
        row = devices[f"GPU:{n}"]
        assert row["total_ps"][cls] == total_ps
        assert row["compute_ps" if cls == "compute" else f"exposed_{cls}_ps"] == exposed_ps
        assert _op_total(answer, f"GPU:{n}", cls, "count") == count
        if size is not None:
            assert row[f"{cls}_bytes"] == size
    statuses = [devices[f"GPU:{n}"]["status"] for n in range(8)]
    assert statuses == [
        "empty",
        "copy_only",
        "empty",
        "empty",
        "active",
        "empty",
        "active",
        "empty",
    ]
    kernels_ps = sum(_op_total(answer, f"GPU:{n}", "compute", "total_ps") for n in range(8))
    assert kernels_ps == 29690748000
    assert devices["GPU:4"]["copy_count"] == 94
    assert all(row["collective_count"] == row["memset_count"] == 0 for row in devices.values())
    assert [devices[f"GPU:{n}"]["memory_peak_bytes"] for n in (1, 4, 6)] == [
        4013344768,
        6208853760,
        6210111488,
    ]
    assert devices["GPU:0"]["memory_peak_bytes"] is None
    assert holds_identity(answer)


@pytest.mark.shared
def test_bert_step_is_stored(shared_traces: Path) -> None:
    answer = _answer(shared_traces, "bert-8xV100")
    steps = answer["steps"]
    assert (steps["method"], steps["count"]) == ("group", 1)
    start_ps, end_ps = 1921299828000, 2568855601000 + 21310352000
    assert window_of(answer) == ("steps", start_ps, end_ps)
    assert steps["steps"][0]["start_ps"] == start_ps
    assert steps["steps"][0]["duration_ps"] == steps["median_ps"] == end_ps - start_ps
    assert window_of(_answer(shared_traces, "bert-8xV100", "trace")) == (
        "trace",
        128685703000,
        2775279351000,
    )


@pytest.mark.shared
@pytest.mark.parametrize("name", ["jax-8xMI300X", "broken/gzipped", "broken/concatenated-twice"])
def test_jax_on_eight_gpus(shared_traces: Path, name: str) -> None:
    answer = _answer(shared_traces, name, "devices")
    assert window_of(answer) == ("devices", 1611362000, 140082194000)
    devices = devices_of(answer)
    assert [devices[f"GPU:{n}"]["busy_ps"] for n in range(8)] == JAX8_BUSY
    assert all(row["status"] == "active" for row in devices.values())
    gpu0 = devices["GPU:0"]
    assert (gpu0["kernel_count"], gpu0["compute_ps"]) == (25, 3436644000)
    assert (gpu0["copy_count"], gpu0["exposed_d2d_ps"]) == (35, 559321000)
    assert (gpu0["unknown_direction_count"], gpu0["d2d_bytes"]) == (2, None)
    assert sum(row["kernel_count"] + row["copy_count"] for row in devices.values()) == 235
    assert sum(row["total_ps"] for row in answer["ops"]) == 28137077000
    assert holds_identity(answer)


@pytest.mark.shared
def test_jax_on_one_gpu_of_eight(shared_traces: Path) -> None:
    answer = _answer(shared_traces, "jax-gemm-1of8", "devices")
    assert window_of(answer) == ("devices", 1220562000, 10676774000)
    devices = devices_of(answer)
    gpu0 = devices["GPU:0"]
    assert gpu0["busy_ps"] == 3475484000
    assert (gpu0["kernel_count"], gpu0["compute_ps"]) == (30, 3387604000)
    assert gpu0["total_ps"]["d2d"] == 27640000
    assert gpu0["total_ps"]["h2d"] == 60240000
    assert (gpu0["copy_count"], gpu0["unknown_direction_count"]) == (24, 0)
    assert [devices[f"GPU:{n}"]["status"] for n in range(1, 8)] == ["empty"] * 7
    assert all(devices[f"GPU:{n}"]["busy_ps"] == 0 for n in range(1, 8))
    assert window_of(_answer(shared_traces, "jax-gemm-1of8", "trace")) == (
        "trace",
        0,
        13181508000,
    )


@pytest.mark.shared
def test_host_plane_is_not_needed(shared_traces: Path) -> None:
    whole = _answer(shared_traces, "bert-8xV100", "devices")
    devices = devices_of(_answer(shared_traces, "broken/host-plane-missing", "devices"))
    for name, row in devices_of(whole).items():
        without = {"host", "memory_held_bytes", "memory_peak_bytes", "memory_window_peak_bytes"}
        assert {k: v for k, v in devices[name].items() if k not in without} == {
            k: v for k, v in row.items() if k not in without
        }


@pytest.mark.shared
@pytest.mark.parametrize("name", ["broken/empty", "broken/no-device-planes"])
def test_no_device_planes(shared_traces: Path, name: str) -> None:
    answer = _answer(shared_traces, name)
    assert answer["device_time"]["devices"] == []  # bert has `tf_gpu_…` threads: no replicas
    assert window_of(answer)[0] == "trace"


# Cases A to G, worked out by hand: milliseconds over a window of 199.9 ms

# case → device → (status, compute, exposed collective, exposed h2d, exposed d2d, idle)
BY_HAND = {
    "A": {"GPU:0": ("active", 40, 0, 100, 0, 59.9), "GPU:1": ("empty", 0, 0, 0, 0, 199.9)},
    "B": {"GPU:0": ("active", 40, 40, 0, 48, 71.9), "GPU:1": ("active", 40, 40, 0, 0, 119.9)},
    "C": {"GPU:0": ("active", 160, 0, 0, 0, 39.9), "GPU:1": ("marginal", 20, 0, 0, 0, 179.9)},
    "D": {
        "GPU:0": ("active", 160, 0, 0, 0, 39.9),
        **{f"GPU:{n}": ("empty", 0, 0, 0, 0, 199.9) for n in range(1, 8)},
    },
    "E": {"GPU:0": ("active", 180, 0, 0, 0, 19.9)},
    "F": {"GPU:0": ("active", 160, 0, 0, 0, 39.9)},
    "G": {"GPU:0": ("active", 40, 0, 0, 0, 159.9), "GPU:1": ("active", 40, 0, 0, 0, 159.9)},
}


@pytest.mark.parametrize("case", BY_HAND)
def test_cases_of_peers(case: str, tmp_path: Path) -> None:
    answer = run_answer(SCENARIOS[case]().write(tmp_path))
    assert window_of(answer) == ("steps", ORIGIN_PS, ORIGIN_PS + 1999 * MS // 10)
    devices = devices_of(answer)
    assert set(devices) == set(BY_HAND[case])
    for name, (status, *expected_ms) in BY_HAND[case].items():
        row = devices[name]
        parts = ("compute", "exposed_collective", "exposed_h2d", "exposed_d2d", "idle")
        assert row["status"] == status
        assert [row[f"{part}_ps"] for part in parts] == [round(ms * MS) for ms in expected_ms]
    steps = answer["steps"]
    assert (steps["method"], steps["basis"]) == ("marker", "marker")
    assert (steps["count"], steps["used_count"], steps["median_ps"]) == (4, 4, 50 * MS)
    durations = [step["duration_ps"] for step in steps["steps"]]
    assert durations == [50 * MS, 50 * MS, 50 * MS, 499 * MS // 10]
    assert [step["number"] for step in steps["steps"]] == [0, 1, 2, 3]
    assert holds_identity(answer)


def test_details_of_cases(tmp_path: Path) -> None:
    a = devices_of(run_answer(SCENARIOS["A"]().write(tmp_path / "A")))["GPU:0"]
    assert (a["h2d_bytes"], a["copy_count"], a["busy_ps"]) == (400_000_000, 4, 140 * MS)
    b = devices_of(run_answer(SCENARIOS["B"]().write(tmp_path / "B")))["GPU:0"]
    assert (b["d2d_bytes"], b["collective_count"]) == (400, 4)
    answer = run_answer(SCENARIOS["E"]().write(tmp_path / "E"))
    assert [row["total_ps"] for row in answer["ops"]] == [360 * MS]  # a sum; the union is 180
    (row,) = answer["ops"]
    assert (row["op"], row["op_type"], row["count"]) == ("model/dense/MatMul", "MatMul", 8)


def test_window_of_devices_in_cases(tmp_path: Path) -> None:
    answer = run_answer(SCENARIOS["A"]().write(tmp_path), "devices")
    assert window_of(answer) == ("devices", ORIGIN_PS + 2 * MS, ORIGIN_PS + 190 * MS)
    assert devices_of(answer)["GPU:0"]["idle_ps"] == (188 - 140) * MS


def test_steps_option_in_cases(tmp_path: Path) -> None:
    answer = run_answer(SCENARIOS["A"]().write(tmp_path), steps=(1, 3))
    assert window_of(answer) == ("steps", ORIGIN_PS + 50 * MS, ORIGIN_PS + 150 * MS)
    assert [step["number"] for step in answer["steps"]["steps"]] == [1, 2]
    assert devices_of(answer)["GPU:0"]["compute_ps"] == 20 * MS
