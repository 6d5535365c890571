"""Of 128 GPUs on sixteen hosts a terminal shows the outliers, and a file all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scripts.scenarios import SCENARIOS
from tests.charts import MS
from tests.command import Command
from tests.reports import device, empty_device, finding
from traceview.analysis.measures.device_report import (
    ALIKE_RATIO,
    FEW_DEVICES,
    MOST_ROWS,
    DeviceTimeRow,
    named_devices,
    usual_devices,
)

OF_OTHERS = "busy 91.8%, compute 79.8%, communication 4.0%, waits in ops 8.0%."
pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """GPU 3 of host5 is slower than all others, and GPU 7 of host9 was not used."""
    folder = tmp_path_factory.mktemp("many") / "logs"
    SCENARIOS["sixteen_hosts_of_eight"]().write(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "most", "rest"),
    [
        ("show devices", 15, f"125 other devices: {OF_OTHERS}"),
        ("show balance", 34, "125 other devices: compute per step 39.9 ms, waits for others 4.00"),
        ("show collectives", 45, "host5/GPU:3 comes last to 4 of them"),
        ("show steps", 60, "125 other devices: compute 79.8–80.0% of a step."),
        ("analyze --full", 220, f"125 other devices: {OF_OTHERS}"),
    ],
)
def test_the_outliers_have_rows(
    name: str, most: int, rest: str, command: Command, logs: str
) -> None:
    text = command(*name.split(), logs, "--width", "80").out
    lines = text.splitlines()
    assert len(lines) <= most
    assert max(len(line) for line in lines if "traceview " not in line) <= 80
    assert rest in " ".join(text.split())
    assert "host5/GPU:3" in text
    assert "host14/GPU:6" not in text


@pytest.mark.parametrize(
    ("name", "count"), [("devices", 128), ("balance", 127), ("collectives", 508)]
)
def test_a_file_holds_all_and_a_choice_leaves_the_numbers_of_the_run(
    name: str, count: int, command: Command, logs: str
) -> None:
    heading, *rows = command("show", name, logs, "--format", "csv").out.splitlines()
    assert len(rows) == count
    asked = ("show", name, logs, "--device", "host14/GPU:6")
    chosen = [row for row in rows if ",host14/GPU:6," in f",{row}"]
    assert command(*asked, "--format", "csv").out.splitlines() == [heading, *chosen]
    text = command(*asked, "--width", "100").out
    assert "host14/GPU:6" in text
    assert "host0/GPU:0" not in text


def test_the_screen_has_a_row_for_the_slow_one_and_one_for_all_others(
    command: Command, logs: str
) -> None:
    lines = command("analyze", logs, "--width", "80").out.splitlines()
    rows = [line for line in lines if line.endswith(" ms") and "##" in line]
    assert len(lines) <= 40
    assert [line.split("  ")[0] for line in rows] == [
        "mean of 126 devices on 16 hosts",
        "host5/GPU:3",
    ]


# Those are chosen that a finding names and those that differ, with one typical device


def shown(rows: Sequence[DeviceTimeRow], named: Sequence[str] = ()) -> list[str]:
    """The devices with a row of their own, and those that recorded nothing."""
    usual = usual_devices(rows, named)
    return [row.device for row in rows if row.device not in usual]


SLOW: dict[str, Any] = {"exposed_ps": {"compute": 65 * MS}, "idle_ps": 20 * MS}


def test_outliers_are_shown_with_one_typical_device() -> None:
    rows = [device(n, **SLOW if n in (9, 30) else {}) for n in range(40)]
    assert shown(rows) == ["GPU:0", "GPU:9", "GPU:30"]


@pytest.mark.parametrize(("difference_ps", "is_outlier"), [(1, True), (0, False)])
def test_an_outlier_differs_by_the_limit(difference_ps: int, is_outlier: bool) -> None:
    compute_ps = 60 * MS + round(ALIKE_RATIO * 100 * MS) + difference_ps
    other = device(30, {"compute": compute_ps}, idle_ps=85 * MS - compute_ps)
    rows = [other if n == 30 else device(n) for n in range(40)]
    assert ("GPU:30" in shown(rows)) == is_outlier


def test_a_device_of_another_status_is_an_outlier() -> None:
    rows = [device(n, status="marginal" if n == 17 else "active") for n in range(40)]
    assert shown(rows) == ["GPU:0", "GPU:17"]


def test_a_finding_about_few_devices_shows_them() -> None:
    about_two = finding(devices=("GPU:20", "GPU:21"))
    about_many = finding(devices=tuple(f"GPU:{n}" for n in range(5, 6 + FEW_DEVICES)))
    named = named_devices((about_many, about_two))
    assert named == ["GPU:20", "GPU:21"]
    rows = [device(n) for n in range(40)]
    assert shown(rows, named) == ["GPU:0", "GPU:20", "GPU:21"]


def test_there_are_never_more_rows_than_fit() -> None:
    rows = [device(n, **SLOW if n % 2 else {}) for n in range(200)]
    assert len(shown(rows)) == MOST_ROWS


def test_devices_that_recorded_nothing_are_not_counted() -> None:
    assert usual_devices([*map(device, range(16)), *map(empty_device, range(16, 64))]) == ()


def test_devices_without_known_times_are_alike() -> None:
    unknown = dict.fromkeys(("window_ps", "activity", "idle_ps"))
    assert shown([device(n, **unknown) for n in range(20)]) == ["GPU:0"]
