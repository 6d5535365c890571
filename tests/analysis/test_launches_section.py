"""Tests that the section on launches has a row per GPU, and a note on each kind of unusual launches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.sections import (
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from traceview.analysis.workload.launches import (
    Contention,
    DeviceLaunches,
    GraphLaunches,
    Launches,
    LaunchThread,
    XlaKernels,
)
from traceview.analysis.workload.launches import launches_section as section
from traceview.document.model import Section

MS = 10**9
US = 10**6


def launches_of(device: str = "GPU:0", **changes: Any) -> DeviceLaunches:
    """600 kernels per step, launched one by one from the thread of the GPU."""
    parts: dict[str, Any] = {
        "host": "worker0",
        "device": device,
        "ordinal": int(device[-1]),
        "kernel_count": 1234,
        "kernels_per_step": 600,
        "kernel_median_ps": 12 * US,
        "unlinked_count": 0,
        "call_count": 1200,
        "call_median_ps": 6 * US,
        "delay_p50_ps": 45 * US,
        "delay_p95_ps": 2 * MS,
        "negative_delay_count": 0,
        "short_kernel_ratio": 0.25,
        "blocked_call_count": 0,
        "thread_mode": "gpu_private",
        "threads": (LaunchThread("tf_gpu_private_0/7", 1200),),
        "contention": Contention(1, 0.0, ()),
        "eager_call_count": 0,
        "graphs": GraphLaunches(0, 0, None, 0, 0),
        "xla": XlaKernels(0, 0.0, 0.0, (), 0),
    }
    return DeviceLaunches(**parts | changes)


def shown(*rows: DeviceLaunches, **changes: Any) -> Section:
    result = section(view_of(**changes), Launches(rows))
    assert result is not None
    return result


def test_a_row_for_each_gpu() -> None:
    (table,) = tables_of(shown(launches_of(), launches_of("GPU:1", thread_mode=None)))
    assert values_of(table, "device") == ("GPU:0", "GPU:1")
    assert values_of(table, "kernels per step") == (600, 600)
    assert values_of(table, "median kernel") == (12 * US, 12 * US)
    assert values_of(table, "median call") == (6 * US, 6 * US)
    assert values_of(table, "median delay") == (45 * US, 45 * US)
    assert values_of(table, "p95 delay") == (2 * MS, 2 * MS)
    assert values_of(table, "kernels shorter than launch") == (0.25, 0.25)
    assert values_of(table, "thread mode") == ("gpu_private", None)
    assert sentences_of(shown(launches_of())) == []
    (table,) = tables_of(shown(launches_of(thread_mode=None)))
    assert "thread mode" not in headings_of(table)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"blocked_call_count": 36},
            "Blocked launches on GPU:0: 3.0% of the calls took more than 100 µs.",
        ),
        ({"blocked_call_count": 11}, None),
        (
            {"contention": Contention(3, 0.2, ("GPU:1",))},
            "Up to 3 threads launch the kernels of GPU:0, two or more at once for 20.0% of the time in launch calls.",
        ),
        ({"contention": Contention(3, 0.009, ())}, None),
        ({"contention": Contention(0, None, ())}, None),
        ({"eager_call_count": 1}, "Eager ops made 1 launch on GPU:0, outside of any graph."),
        ({"eager_call_count": None}, None),
        (
            {"graphs": GraphLaunches(2, 34, 17, 1, MS)},
            "2 CUDA graphs launched on GPU:0; 1 recorded without kernels.",
        ),
        ({"graphs": GraphLaunches(1, 17, 17, 0, 0)}, "1 CUDA graph launched on GPU:0."),
        (
            {"xla": XlaKernels(123, 0.1, 0.12, ("cluster_0",), 1)},
            "XLA programs take 12.0% of the compute on GPU:0.",
        ),
        ({"call_count": 0, "blocked_call_count": 0}, None),
    ],
)
def test_notes_on_unusual_launches(changes: dict[str, Any], note: str | None) -> None:
    assert sentences_of(shown(launches_of(**changes))) == ([note] if note else [])


def test_a_note_is_about_all_devices_that_have_it() -> None:
    rows = (
        launches_of(blocked_call_count=36),
        launches_of("GPU:1", blocked_call_count=120),
        launches_of("GPU:2"),
    )
    assert sentences_of(shown(*rows)) == [
        "Blocked launches on GPU:0, 1: 3.0–10.0% of the calls took more than 100 µs."
    ]


def test_of_many_devices_those_that_are_alike_are_a_range() -> None:
    rows = (
        launches_of(),
        launches_of("GPU:1"),
        launches_of("GPU:2", delay_p50_ps=50 * US),
    )
    document = shown(*rows, outliers=("GPU:0",), others=("GPU:1", "GPU:2"))
    (table,) = tables_of(document)
    assert values_of(table, "device") == ("GPU:0",)
    assert sentences_of(document) == ["2 other GPUs: median delay 45.0 µs to 50.0 µs."]


def test_rows_that_have_no_room_are_counted() -> None:
    (table,) = tables_of(shown(launches_of(), launches_of("GPU:1"), most_rows=1))
    assert (table.hidden_count, table.rest) == (1, "traceview analyze logs --format json")


def test_it_prints() -> None:
    document = shown(launches_of())
    lines = lines_of(document)
    assert lines[2].split()[:3] == ["kernels", "median", "median"]
    assert lines[3].split()[:4] == ["device", "per", "step", "kernel"]
    assert lines[4].split()[:4] == ["GPU:0", "600", "12.0", "µs"]
    assert (
        "| `GPU:0` | 600 | 1,234 | 12.0 µs | 6.00 µs | 45.0 µs | 2.00 ms | 25.0% | `gpu_private` |"
        in (markdown_of(document))
    )


def test_without_kernels_there_is_no_section() -> None:
    assert section(view_of(), Launches(())) is None
