"""Of 128 GPUs on sixteen hosts a terminal shows the outliers, and a file all of them."""

from __future__ import annotations

import pytest

from scripts.scenarios import SCENARIOS
from tests.command import Command

OF_OTHERS = "busy 91.8%, compute 79.8%, communication and waiting 12.0%, exposed copies 0%."
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
        ("show collectives", 45, "125 other devices: exposed per step 6.00 ms, communication per"),
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
