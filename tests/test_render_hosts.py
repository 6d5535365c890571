"""Does a stranger see of several hosts what they are, and how far their clocks and steps can be compared?"""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from traceview.render.terminal import render


def section(folder: Path, name: str, title: str, width: int = 80) -> list[str]:
    SCENARIOS[name]().write(folder)
    text = render(traceview.analyze(folder), width=width, color=False, top=5)
    assert max(map(len, text.splitlines())) <= width
    return next((part.splitlines() for part in text.split("\n\n") if part.startswith(title)), [])


def test_one_host_has_no_table_of_hosts(tmp_path: Path) -> None:
    assert section(tmp_path, "plain", "Hosts") == []


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "skewed_clocks",
            [
                "Hosts  clocks set by the ends of collectives, which then spread by 0 ps",
                "host   devices  steps  clock set         moved by",
                "host0        1      4  by profile start      0 ps",
                "host1        1      4  by collectives    -7.00 ms",
            ],
        ),
        (
            "drifting_clock",
            [
                "Hosts  clocks set by the ends of collectives, which then spread by 0 ps",
                "host   devices  steps  clock set         moved by       drift",
                "host0        1     11  by profile start      0 ps           –",
                "host1        1     11  by collectives    -5.00 ms  +50.0 µs/s",
            ],
        ),
        (
            "missing_worker",
            [
                "Hosts  clocks agree within the spread of collective ends, 0 ps",
                "host   role      devices  steps  clock set         moved by  steps missing",
                "host0  worker 0        1      4  by profile start      0 ps",
                "host1  worker 1        1      4  by profile start      0 ps",
                "host3  worker 3        1      3  by profile start      0 ps  3",
            ],
        ),
        (
            "parameter_servers",
            [
                "Hosts  clocks set by the start of each profile: no collective shows how far they",
                "are apart",
                "host       role      devices  steps  clock set         moved by",
                "vm_chief0  chief 0         1      4  by profile start      0 ps",
                "vm_w0      worker 0        1      4  by profile start      0 ps",
                "vm_w1      worker 1        1      4  by profile start      0 ps",
            ],
        ),
    ],
)
def test_whole_table(name: str, lines: list[str], tmp_path: Path) -> None:
    assert section(tmp_path, name, "Hosts") == lines


def test_of_many_hosts_those_are_shown_that_were_moved_most(tmp_path: Path) -> None:
    _, _, *rows, rest = section(tmp_path, "sixteen_skewed_clocks", "Hosts")
    assert [row.split()[0] for row in rows] == [f"host{index}" for index in range(8, 16)]
    assert rest == "8 other hosts: --format json lists all."


def test_a_step_of_many_hosts_is_one_row(tmp_path: Path) -> None:
    _, _, *rows = section(tmp_path, "missing_worker", "Steps")
    assert rows == [
        "step   hosts  shortest  longest  on",
        "   0       3   50.0 ms  50.0 ms  –",
        "   1       3   50.0 ms  50.0 ms  –",
        "   2       3   49.9 ms  50.0 ms  –",
        "   3  2 of 3   49.9 ms  49.9 ms  –",
    ]


def test_a_step_of_two_hosts_stands_in_neighbouring_rows(tmp_path: Path) -> None:
    _, _, _, *rows = section(tmp_path, "two_hosts", "Steps")
    assert [row.split()[:2] for row in rows] == [
        [str(number), host] for number in range(4) for host in ("host0", "host1")
    ]


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_page_keeps_what_matters(width: int, tmp_path: Path) -> None:
    lines = section(tmp_path, "missing_worker", "Hosts", width)
    assert any("moved by" in line for line in lines)
