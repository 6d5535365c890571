"""Are graph and recording shown side by side, and only where there is something to say?"""

from __future__ import annotations

from dataclasses import replace

from rich.cells import cell_len

from tests.reports import environment, full_report, placed, placement
from traceview.analysis.environment.result import Environment
from traceview.analysis.placement import ActiveDevices, HostPlacement, PlacedFunction, Placement
from traceview.document.page import Page
from traceview.render.placement import add_placement


def shown(*hosts: HostPlacement, width: int = 100, sidecars: bool = True) -> str:
    page = Page(width)
    report = full_report()
    known = Environment(tuple(environment(host.host) for host in hosts), ())
    results = replace(
        report.results, placement=Placement(hosts), environment=known if sidecars else None
    )
    add_placement(page, replace(report, results=results))
    return page.render()


def host() -> HostPlacement:
    (one,) = placement().hosts
    return one


def function() -> PlacedFunction:
    (one,) = host().functions
    return one


def test_one_host() -> None:
    assert shown(host()) == (
        "Placement\n"
        "train, 239 ops, 39 of them for no device, the newest of 2 traces\n"
        "device  ops asked  variables  mirrored     size  recorded as  work in\n"
        "GPU:0         100          8         8  4.00 MB  GPU:0        4 of 4 steps\n"
        "GPU:1         100          8         8  4.00 MB  GPU:1        4 of 4 steps\n"
        "GPU:2           0          0         0      0 B  GPU:2        0 of 4 steps\n"
        "  - GPU:0 and GPU:1 ran work in all 4 steps\n"
        "  - evaluate: it has no graph\n"
    )


def test_what_is_not_known_is_a_dash_and_no_zero() -> None:
    unknown = placed(0, op_count=None, variable_count=None, mirrored_count=None)
    unknown = replace(unknown, variable_bytes=None, recorded=None, step_count=None)
    text = shown(replace(host(), functions=(replace(function(), devices=(unknown,)),)))
    assert "GPU:0           –          –         –     –  –            –" in text


def test_without_a_sidecar_only_changes_are_shown() -> None:
    steady = replace(host(), functions=(), missing={"functions": "no sidecar"})
    assert shown(steady, sidecars=False) == ""
    active = (ActiveDevices(0, 1, 2, ("GPU:0",)), ActiveDevices(2, 3, 2, ()))
    changing = replace(steady, active=active, statements=("the devices changed",))
    assert shown(changing, sidecars=False) == "Placement\n  - the devices changed\n"


def test_a_reason_is_shown_where_no_function_has_a_graph() -> None:
    text = shown(replace(host(), functions=(), statements=(), missing={"train": "runs eagerly"}))
    assert text == "Placement\n  - train: runs eagerly\n"


def test_hosts_of_which_the_same_is_to_be_said_stand_together() -> None:
    def of(name: str, ops: int = 100) -> HostPlacement:
        devices = (placed(0, recorded=f"{name}/GPU:0", op_count=ops),)
        return replace(
            host(),
            host=name,
            functions=(replace(function(), devices=devices),),
            statements=(f"{name}/GPU:0 ran work in all 4 steps",),
        )

    text = shown(of("a"), of("b"), of("c", 7))
    assert text.count("Placement") == 2
    assert "Placement  on a and b\n" in text
    assert "Placement  on c\n" in text
    assert text.count("  - GPU:0 ran work in all 4 steps\n") == 2
    many = shown(*(of(f"h{n}", n) for n in range(5)))
    assert many.count("Placement") == 3
    assert many.endswith("2 more hosts: --format json\n")


def test_many_devices_and_functions_are_cut() -> None:
    devices = tuple(placed(n) for n in range(20))
    text = shown(replace(host(), functions=(replace(function(), devices=devices),) * 5))
    assert text.count("4 more devices: --format json") == 3
    assert "2 more functions: --format json" in text


def test_columns_go_where_there_is_no_room() -> None:
    graph = replace(function().graph, step="s" * 300, training_loop="While", jit_compile=True)
    devices = (placed(0, device="d" * 300, recorded="r" * 300),)
    one = replace(host(), functions=(PlacedFunction(graph, devices),))
    for width in (40, 60, 79, 80, 120):
        text = shown(one, width=width)
        assert [line for line in text.splitlines() if cell_len(line) > width] == []
    narrow = shown(one, width=40)
    assert "device ops asked variables dddddd" in " ".join(narrow.split())
    assert "Not shown at 40 columns: mirrored, size," in narrow
    about = "several steps per call (While), compiled by XLA as a whole"
    assert about in " ".join(shown(one, width=120).split())
