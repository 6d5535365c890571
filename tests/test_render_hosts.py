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
                "Hosts  clocks set by the ends of collectives: spread 0 ps, at most 0 ps",
                "host   devices  steps   busy  clock set         moved by",
                "host0        1      4  89.8%  by profile start      0 ps",
                "host1        1      4  89.8%  by collectives    -7.00 ms",
            ],
        ),
        (
            "drifting_clock",
            [
                "Hosts  clocks set by the ends of collectives: spread 11.1 µs, at most 12.5 µs",
                "host   devices  steps   busy  clock set         moved by       drift",
                "host0        1     11  89.8%  by profile start      0 ps           –",
                "host1        1     11  89.8%  by collectives    -5.00 ms  +50.0 µs/s",
            ],
        ),
        (
            "missing_worker",
            [
                "Hosts  clocks agree within the spread of collective ends, 0 ps, at most 0 ps",
                "host   role      steps   busy  clock set         moved by  steps missing",
                "host0  worker 0      4  89.8%  by profile start      0 ps",
                "host1  worker 1      4  89.8%  by profile start      0 ps",
                "host3  worker 3      3  89.9%  by profile start      0 ps  3",
                "Not shown at 80 columns: devices; --width 81 shows all.",
                "Not recorded: worker 2.",
            ],
        ),
        (
            "parameter_servers",
            [
                "Hosts  clocks set by the start of each profile: no collective shows how far they",
                "are apart",
                "host       role      devices  steps   busy  clock set         moved by",
                "vm_chief0  chief 0         1      4  60.0%  by profile start      0 ps",
                "vm_w0      worker 0        1      4  60.0%  by profile start      0 ps",
                "vm_w1      worker 1        1      4  84.0%  by profile start      0 ps",
                "Not recorded: ps 0.",
            ],
        ),
    ],
)
def test_whole_table(name: str, lines: list[str], tmp_path: Path) -> None:
    assert section(tmp_path, name, "Hosts") == lines


@pytest.mark.parametrize(
    ("name", "headline", "problem", "quality"),
    [
        (
            "missing_worker",
            "3 of 3 GPUs ran kernels; worker 2 was not recorded.",
            "worker 2 of the cluster was not recorded",
            "degraded",
        ),
        (
            "parameter_servers",
            "3 of 3 GPUs ran kernels.",
            "ps 0 of the cluster was not recorded; it makes no step together with the others",
            "ok",
        ),
    ],
)
def test_who_was_not_recorded_is_named(
    name: str, headline: str, problem: str, quality: str, tmp_path: Path
) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.verdict.headline == headline
    assert problem in [one.text for one in report.capture.problems]
    assert report.capture.quality == quality
    assert problem in " ".join(render(report, width=120, color=False, top=5).split())


def test_of_many_hosts_those_are_shown_that_were_moved_most(tmp_path: Path) -> None:
    _, _, *rows, rest = section(tmp_path, "sixteen_skewed_clocks", "Hosts")
    assert [row.split()[0] for row in rows] == [f"host{index}" for index in range(8, 16)]
    assert rest == ("8 others: busy 89.8%, moved by -7.50 ms to +8.75 ms; --format json has all.")


def test_hosts_that_stand_out_come_before_those_moved_most(tmp_path: Path) -> None:
    """The slow GPU is on host5, the unused one on host9, and both are moved less than host15."""
    _, _, *rows = section(tmp_path, "sixteen_hosts_of_eight", "Hosts", width=120)
    assert [row.split()[0] for row in rows[:8]] == [
        "host5",
        "host9",
        *(f"host{index}" for index in range(10, 16)),
    ]
    assert rows[1].split()[3] == "0–91.8%"


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
