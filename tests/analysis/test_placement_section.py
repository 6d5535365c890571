"""The section on placement shows graph and recording together, and only where there is something to say."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.analysis.sections import (
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from tests.reports import placed, placement
from traceview.analysis.exchange.placement import BRIEF, BRIEF_DEVICES, placement_section
from traceview.analysis.measures.placement import (
    ActiveDevices,
    HostPlacement,
    PlacedFunction,
    Placement,
)
from traceview.document.model import Section, Subheading


def section(*hosts: HostPlacement, has_sidecar: bool = True, **changes: Any) -> Section | None:
    made = Placement(tuple(replace(host, has_sidecar=has_sidecar) for host in hosts))
    return placement_section(view_of(is_brief=True, **changes), made)


def shown(*hosts: HostPlacement, **changes: Any) -> Section:
    made = section(*hosts, **changes)
    assert made is not None
    return made


def host(**changes: Any) -> HostPlacement:
    (recorded,) = placement().hosts
    return replace(recorded, **changes)


def function(**changes: Any) -> PlacedFunction:
    (recorded,) = host().functions
    return replace(recorded, **changes)


def test_a_function_is_a_table_of_its_devices() -> None:
    assert lines_of(shown(host()), 100) == [
        "Placement",
        "",
        "train, 239 ops, 39 of them not assigned to a device, the newest of 2 traces",
        "device  ops placed  variables  mirrored     size  recorded as  work in, of 4 steps",
        "GPU:0          100          8         8  4.00 MB  GPU:0                          4",
        "GPU:1          100          8         8  4.00 MB  GPU:1                          4",
        "GPU:2            0          0         0        0  GPU:2                          0",
        "  - GPU:0 and GPU:1 ran work in all 4 steps",
        "  - evaluate: it has no graph",
    ]
    assert "| `GPU:0` | 100 | 8 | 8 | 4.00 MB | `GPU:0` | 4 |" in markdown_of(shown(host()))


def test_what_is_unknown_is_no_zero() -> None:
    unknown = dict.fromkeys(
        ("op_count", "mirrored_count", "variable_bytes", "recorded", "step_count")
    )
    devices = (placed(0, **unknown), placed(1))
    (table,) = tables_of(shown(host(functions=(function(devices=devices),))))
    for heading in headings_of(table):
        is_known = heading in ("device", "variables")
        assert (values_of(table, heading)[0] is not None) == is_known, heading


def test_without_a_sidecar_only_changes_are_shown() -> None:
    steady = host(functions=(), missing={"functions": "no sidecar"})
    assert section(steady, has_sidecar=False) is None
    active = (ActiveDevices(0, 1, 2, ("GPU:0",)), ActiveDevices(2, 3, 2, ()))
    changing = replace(steady, active=active, statements=("the devices changed",))
    assert sentences_of(shown(changing, has_sidecar=False)) == ["the devices changed"]


def test_a_reason_is_shown_where_no_function_has_a_graph() -> None:
    made = shown(host(functions=(), statements=(), missing={"train": "runs eagerly"}))
    assert sentences_of(made) == ["train: runs eagerly"]


def of_host(name: str, op_count: int = 100) -> HostPlacement:
    devices = (placed(0, recorded=f"{name}/GPU:0", op_count=op_count),)
    return host(
        host=name,
        functions=(function(devices=devices),),
        statements=(f"{name}/GPU:0 ran work in all 4 steps",),
    )


def test_hosts_that_are_alike_stand_together() -> None:
    sentences = sentences_of(shown(of_host("a"), of_host("b"), of_host("c", 7)))
    assert [text for text in sentences if text.startswith("On ")] == ["On a and b", "On c"]
    assert sentences.count("GPU:0 ran work in all 4 steps") == 2


def test_many_different_hosts_are_cut() -> None:
    made = shown(*(of_host(f"h{n}", n) for n in range(BRIEF + 2)))
    headings = [block.text for block in made.blocks if isinstance(block, Subheading)]
    assert sum(str(text).startswith("On ") for text in headings) == BRIEF
    assert sentences_of(made)[-1] == "2 more hosts: see the JSON report."


def test_many_devices_and_functions_are_cut() -> None:
    devices = tuple(placed(n) for n in range(BRIEF_DEVICES + 4))
    made = shown(host(functions=(function(devices=devices),) * (BRIEF + 2)))
    assert [table.hidden_count for table in tables_of(made)] == [4] * BRIEF
    assert "2 more functions: see the JSON report." in sentences_of(made)


@pytest.mark.parametrize("width", [40, 60, 79, 80, 120])
def test_long_names_and_all_remarks_on_a_function_fit(width: int) -> None:
    graph = replace(function().graph, step="s" * 300, training_loop="While", jit_compile=True)
    devices = (placed(0, device="d" * 300, recorded="r" * 300),)
    made = shown(host(functions=(PlacedFunction(graph, devices),)))
    text = " ".join(" ".join(lines_of(made, width)).split())
    assert "several steps per call (While), compiled by XLA as a whole" in text
    assert ("Not shown at 40 columns: mirrored, size," in text) == (width == 40)
