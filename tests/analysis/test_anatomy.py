"""The mean step of hand-made traces fits in the head; of every trace it is what the oracle gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import ms
from tests.analysis.test_path import written
from tests.charts import HOST
from traceview.analysis.anatomy.groups import anatomy_rows
from traceview.analysis.anatomy.result import Anatomy, DeviceAnatomy, mean_parts
from traceview.document.model import AnatomyRow
from traceview.report.build import analyze


def device(name: str, waits_for: str | None = None, **parts: int) -> DeviceAnatomy:
    """A step of these parts; those of activity are named, all others are causes."""
    busy = ("compute", "collective", "collective_wait", "h2d")
    return DeviceAnatomy(
        host=HOST,
        device=name,
        ordinal=0,
        step_count=2,
        step_ps=sum(parts.values()),
        activity={key: ps for key, ps in parts.items() if key in busy},
        idle={key.removeprefix("idle_"): ps for key, ps in parts.items() if key not in busy},
        waits_for=waits_for,
        waits_for_ratio=None if waits_for is None else 0.5,
    )


def parts_of(row: AnatomyRow) -> dict[str, int]:
    return {part.words: part.duration_ps for part in row.parts}


def test_the_example_of_the_method(tmp_path: Path) -> None:
    """GPU:0 is in a collective from 20 to 46 ms; GPU:1 computes until 40 ms and then only transfers."""
    report = written(
        tmp_path,
        [("kernel", 0, 20), ("nccl", 20, 46)],
        [("kernel", 10, 40), ("nccl", 40, 46)],
    )
    anatomy = report.results.anatomy
    assert anatomy is not None
    first, second = anatomy.devices
    assert first.activity == {
        "compute": ms(20),
        "collective": ms(6),
        "collective_wait": ms(20),
    }
    assert (first.waits_for, first.waits_for_ratio) == ("GPU:1", 1.0)
    assert second.activity == {"compute": ms(30), "collective": ms(6)}
    assert (second.waits_for, second.waits_for_ratio) == (None, None)
    for row in anatomy.devices:
        assert sum(row.activity.values()) + sum(row.idle.values()) == row.step_ps == ms(50)
    assert [row.step_count for row in anatomy.devices] == [2, 2]


def test_a_device_does_not_wait_for_itself(tmp_path: Path) -> None:
    """GPU:1 comes last and stays longest, as where the ends are not equal: 10 ms of its 20 are no transfer."""
    report = written(tmp_path, [("nccl", 20, 30)], [("nccl", 25, 45)])
    assert report.results.anatomy is not None
    _, second = report.results.anatomy.devices
    assert second.activity["collective_wait"] == ms(10)
    assert (second.waits_for, second.waits_for_ratio) == (None, None)


def test_without_steps_it_is_the_window(tmp_path: Path) -> None:
    SCENARIOS["no_steps"]().write(tmp_path)
    report = analyze(tmp_path)
    assert report.results.anatomy is not None
    assert report.results.device_time is not None
    (row,), (times,) = report.results.anatomy.devices, report.results.device_time.devices
    assert (row.step_count, row.step_ps) == (0, times.window_ps)
    assert sum(row.idle.values()) == times.idle_ps


def test_devices_that_ran_nothing_have_none(tmp_path: Path) -> None:
    SCENARIOS["D"]().write(tmp_path)
    anatomy = analyze(tmp_path).results.anatomy
    assert anatomy is not None
    assert [row.device for row in anatomy.devices] == ["GPU:0"]


@pytest.mark.parametrize(
    ("total", "count", "mean"),
    [
        ([1, 1, 1], 3, [0, 0, 1]),
        ([10, 10, 10], 3, [3, 3, 4]),
        ([7, 0, 0], 2, [3, 0, 0]),
        ([], 2, []),
    ],
)
def test_means_sum_to_the_mean(total: list[int], count: int, mean: list[int]) -> None:
    assert mean_parts(total, count) == mean
    assert sum(mean) == sum(total) // count


# Devices that are alike


def test_alike_devices_share_a_row() -> None:
    """2 % of a step of 100 are 2."""
    result = Anatomy(
        (
            device("GPU:0", compute=60, idle_input=40),
            device("GPU:1", compute=62, idle_input=38),
            device("GPU:2", compute=63, idle_input=37),
        )
    )
    alike, other = anatomy_rows(result)
    assert (alike.label, alike.devices) == ("GPU:0, 1", ("GPU:0", "GPU:1"))
    assert parts_of(alike) == {"compute": 61, "waiting for input": 39}
    assert (other.label, parts_of(other)) == ("GPU:2", {"compute": 63, "waiting for input": 37})


def test_waiting_in_a_collective_names_the_device_and_is_told_from_idle_time() -> None:
    result = Anatomy((device("GPU:0", "GPU:1", compute=50, collective_wait=20, peer=30),))
    (row,) = anatomy_rows(result)
    assert parts_of(row) == {
        "compute": 50,
        "waiting in collectives (for GPU:1)": 20,
        "another device still busy": 30,
    }
    assert [part.look.key for part in row.parts] == ["compute", "collective_wait", "peer"]


def test_devices_that_wait_for_each_other_name_none() -> None:
    result = Anatomy(
        (
            device("GPU:0", "GPU:1", compute=50, collective_wait=50),
            device("GPU:1", "GPU:0", compute=50, collective_wait=50),
        )
    )
    (row,) = anatomy_rows(result)
    assert parts_of(row) == {"compute": 50, "waiting in collectives": 50}


def test_a_row_does_not_wait_for_a_device_of_its_own() -> None:
    result = Anatomy(
        (
            device("GPU:0", "GPU:1", compute=99, collective_wait=1),
            device("GPU:1", compute=100),
        )
    )
    (row,) = anatomy_rows(result)
    assert [part.words for part in row.parts] == ["compute", "waiting in collectives"]


def test_copies_and_waiting_for_copies_are_one_part() -> None:
    result = Anatomy((device("GPU:0", compute=50, h2d=20, idle_h2d=30),))
    (row,) = anatomy_rows(result)
    assert parts_of(row) == {"compute": 50, "copies to the device and waits for them": 50}


def test_many_different_devices_fit_into_few_rows() -> None:
    """100 devices from 0 to 99 % compute: the limit doubles until 8 rows are enough."""
    devices = tuple(
        device(f"GPU:{number}", compute=number, idle_input=100 - number) for number in range(100)
    )
    rows = anatomy_rows(Anatomy(devices))
    assert len(rows) <= 8
    assert sorted(key for row in rows for key in row.devices) == sorted(d.device for d in devices)
    assert rows[0].label == "GPU:0–16"
    for row in rows:
        assert sum(part.duration_ps for part in row.parts) == row.step_ps


@pytest.mark.parametrize(
    ("keys", "label"),
    [
        (["a/GPU:0", "b/GPU:0"], "GPU:0 on 2 hosts"),
        (["a/GPU:0", "a/GPU:1", "a/GPU:2", "b/GPU:0", "b/GPU:1", "b/GPU:2"], "GPU:0–2 on 2 hosts"),
        (["a/GPU:0", "b/GPU:1"], "2 devices on 2 hosts"),
    ],
)
def test_devices_of_several_hosts_have_a_short_name(keys: list[str], label: str) -> None:
    (row,) = anatomy_rows(Anatomy(tuple(device(key, compute=1) for key in keys)))
    assert row.label == label
