"""The section on collectives says how devices reduce and what it costs, and is left out where they do not reduce."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.sections import (
    facts_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from tests.charts import MS
from tests.reports import collective_result
from traceview.analysis.exchange.collectives import TRANSFER_REMARK, collectives_section
from traceview.analysis.measures.collectives import CollectiveResult
from traceview.document.model import Section, Table


def section(result: CollectiveResult, **changes: Any) -> Section:
    made = collectives_section(view_of(**changes), result)
    assert made is not None
    return made


def by_device(made: Section) -> Table:
    return tables_of(made)[0]


def test_a_step_with_collectives_that_nothing_hides() -> None:
    made = section(collective_result())
    assert made.lead == "Collective ops sum the gradients through NCCL."
    assert facts_of(section(collective_result())) == (
        "8 collectives, 2 per step (median)",
        "transfers 2.00 ms per step in sum",
        "25.0% of the time in collectives hidden by compute",
        "1.00 ms expected at the speed of the link",
        "50.0 GB/s over each link; NVLink carries 150 GB/s",
    )
    table = by_device(made)
    assert [(column.heading, column.values) for column in table.columns] == [
        ("device", ("GPU:0", "GPU:1")),
        ("exposed per step", (3 * MS, 2 * MS)),
        ("communication per step", (2 * MS, 2 * MS)),
        ("waiting per step", (MS, 0)),
        ("last to arrive", (0, 8)),
    ]
    assert sentences_of(made) == []


def test_without_steps_times_are_those_of_the_window() -> None:
    none: dict[str, Any] = dict.fromkeys(
        (
            "count_per_step",
            "transfer_per_step_ps",
            "communication_per_step_ps",
            "device_wait_per_step_ps",
        )
    )
    result = collective_result(**none)
    assert facts_of(section(result))[:2] == (
        "8 collectives",
        "transfers 8.00 ms in the window in sum",
    )
    table = by_device(section(result))
    assert values_of(table, "exposed") == (12 * MS, 8 * MS)
    assert values_of(table, "waiting") == (4 * MS, 0)


def test_what_is_not_known_is_left_out() -> None:
    unknown: dict[str, Any] = dict.fromkeys(
        ("bus_bytes_per_second", "link_bytes_per_second", "link", "expected_ps")
    )
    assert facts_of(section(collective_result(incomplete_count=3, **unknown))) == (
        "8 collectives, 2 per step (median)",
        "transfers 2.00 ms per step in sum",
        "25.0% of the time in collectives hidden by compute",
        "3 not recorded on all 2 devices",
    )


def test_workers_that_were_not_recorded_are_counted() -> None:
    assert facts_of(section(collective_result(member_count=3)))[-1] == (
        "only 2 of 3 devices recorded: transfer may include waiting"
    )


def test_a_link_that_is_too_slow_for_the_measured_speed_is_not_in_use() -> None:
    words = facts_of(section(collective_result(link="pcie", link_bytes_per_second=10 * 10**9)))
    assert words[-1] == (
        "50.0 GB/s over each link; PCIe carries 10.0 GB/s, so the devices use another link"
    )
    assert not any("expected" in fact for fact in words)


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({"library": "rccl"}, "Collective ops sum the gradients through RCCL."),
        ({"path": None}, "The trace does not show which op launches the collectives."),
        (
            {"path": "cpu_bounce", "path_reason": "variables are on the CPU", "count": 0},
            "Gradients are copied to the host and summed on the CPU: variables are on the CPU.",
        ),
        (
            {"path": "one_device", "count": 0},
            "Gradients are copied to one device and summed there.",
        ),
        (
            {"path": None, "path_reason": "hosts reduce in different ways"},
            "Hosts reduce in different ways.",
        ),
    ],
)
def test_the_lead_says_how_devices_reduce(changes: dict[str, Any], lead: str) -> None:
    result = collective_result(**changes)
    assert section(result).lead == lead
    assert bool(section(result).blocks) == bool(result.count)


@pytest.mark.parametrize("path", [None, "none"])
def test_a_run_that_reduces_nothing_has_no_section(path: str | None) -> None:
    assert collectives_section(view_of(), collective_result(count=0, path=path)) is None


def test_without_gpus_there_is_no_link() -> None:
    words = facts_of(section(collective_result(library=None, link_bytes_per_second=None)))
    assert "50.0 GB/s per device" in words


@pytest.mark.parametrize(("transfer_ms", "is_explained"), [(2, False), (1, True)])
def test_transfers_in_sum_and_those_exposed_are_explained(
    transfer_ms: int, is_explained: bool
) -> None:
    exposed = dict.fromkeys(("GPU:0", "GPU:1"), transfer_ms * MS)
    made = section(collective_result(communication_per_step_ps=exposed))
    assert (TRANSFER_REMARK in sentences_of(made)) == is_explained


def test_devices_that_took_no_part_are_left_out() -> None:
    devices = ("GPU:0", "GPU:1", "GPU:2")
    exposed = {"GPU:0": 12 * MS, "GPU:1": 12 * MS, "GPU:2": 0}
    last = {"GPU:0": 0, "GPU:1": 8, "GPU:2": 0}
    made = section(collective_result(devices, exposed_ps=exposed, last_count=last))
    assert values_of(by_device(made), "device") == ("GPU:0", "GPU:1")


def test_many_devices_are_shown_as_a_range() -> None:
    devices = tuple(f"GPU:{ordinal}" for ordinal in range(40))
    exposed = {key: (2 if key == "GPU:5" else 3) * MS for key in devices}
    nothing = dict.fromkeys(devices, 0)
    others = tuple(key for key in devices if key not in ("GPU:0", "GPU:30"))
    result = collective_result(
        devices, communication_per_step_ps=exposed, device_wait_per_step_ps=nothing
    )
    made = section(result, others=others)
    assert values_of(by_device(made), "device") == ("GPU:0", "GPU:30")
    assert sentences_of(made)[-1] == (
        "38 other devices: exposed 2.00 ms to 3.00 ms, waiting 0. "
        "All devices: traceview show collectives logs -o collectives.csv"
    )


def test_a_table_with_room_for_few_rows_has_the_largest_costs() -> None:
    devices = ("GPU:0", "GPU:1", "GPU:2")
    exposed = {"GPU:0": MS, "GPU:1": 3 * MS, "GPU:2": 2 * MS}
    result = collective_result(
        devices,
        communication_per_step_ps=exposed,
        device_wait_per_step_ps=dict.fromkeys(devices, 0),
    )
    made = section(result, most_rows=2)
    table = by_device(made)
    assert values_of(table, "device") == ("GPU:1", "GPU:2")
    assert (table.hidden_count, table.rest) == (1, "traceview show collectives logs")


def test_collectives_without_a_last_device_are_counted() -> None:
    result = collective_result(last_count={"GPU:0": 0, "GPU:1": 5})
    assert "In 3 of 8 collectives no device was clearly the last." in sentences_of(section(result))
    assert not any("last" in sentence for sentence in sentences_of(section(collective_result())))


def test_several_hosts_have_a_row_each_where_there_is_room() -> None:
    one = collective_result()
    (host,) = one.hosts
    result = CollectiveResult(
        **{name: getattr(one, name) for name in one.__struct_fields__ if name != "hosts"},
        hosts=(host, host),
    )
    _, by_host = tables_of(section(result))
    assert values_of(by_host, "transfer per step") == (2 * MS, 2 * MS)
    assert values_of(by_host, "over each link") == (50 * 10**9, 50 * 10**9)
    assert len(tables_of(section(result, is_brief=True))) == 1


@pytest.mark.parametrize("width", [40, 60, 80])
def test_it_fits_a_terminal(width: int) -> None:
    text = "\n".join(lines_of(section(collective_result()), width))
    assert "Collectives" in text
    assert "waiting" in text


def test_it_prints_in_markdown() -> None:
    text = markdown_of(section(collective_result()))
    assert "| `GPU:0` | 3.00 ms | 2.00 ms | 1.00 ms | 0 |" in text
