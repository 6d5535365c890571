"""The sections of topics show what is there: in every width, within their limits, and with the notes that a value calls for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import traceview
from scripts.scenarios import SCENARIOS
from tests.analysis.sections import (
    cells_of,
    facts_of,
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from tests.charts import HOST, MS
from tests.reports import (
    balance_result,
    collective_result,
    environment,
    full_report,
    gradients_result,
    precision_of,
)
from traceview.analysis.exchange.balance import balance_section
from traceview.analysis.exchange.collectives import TRANSFER_REMARK, collectives_section
from traceview.analysis.exchange.gradients import gradients_section
from traceview.analysis.exchange.transfers import (
    DeviceTransfers,
    Direction,
    Transfers,
    transfers_section,
)
from traceview.analysis.machine.capture import (
    capture_section,
    clock_sentence,
    hosts_section,
)
from traceview.analysis.machine.capture_quality import Capture, HostCapture
from traceview.analysis.machine.environment import LONGEST_FACT, job_details, job_facts
from traceview.analysis.machine.nvml import (
    Nvml,
    NvmlRow,
    OtherProcess,
    nvml_section,
)
from traceview.analysis.measures.collectives import CollectiveResult
from traceview.analysis.measures.context import FEW_ROWS
from traceview.analysis.measures.environment import Environment, HostEnvironment
from traceview.analysis.registry import TOPICS
from traceview.analysis.workload.precision import Precision, precision_section
from traceview.document.model import Section
from traceview.report.document import view_of as view_of_report
from traceview.trace.model import HostClock, Problem

BRIEF = view_of(is_brief=True)
OWN = ("exchange", "workload", "machine")


def sections_of(report: Any, **changes: Any) -> Iterator[Section]:
    """The sections of the topics of these rooms."""
    view = replace(view_of_report(report), **changes)
    for topic in TOPICS:
        result = report.capture if topic.name == "capture" else view.result(topic)
        for section_of in topic.sections if result is not None else ():
            if section_of.__module__.split(".")[2] in OWN:
                section = section_of(view, result)
                if section is not None:
                    yield section


# What holds for all of them


@pytest.mark.parametrize(
    "name",
    ["", "hostile_names", "sixteen_hosts_of_eight", "missing_worker", "B", "mixed_models"],
)
def test_every_section_fits_every_width(name: str, tmp_path: Path) -> None:
    report = full_report()
    if name:
        SCENARIOS[name]().write(tmp_path)
        report = traceview.analyze(tmp_path)
    for is_brief in (False, True):
        sections = list(sections_of(report, is_brief=is_brief))
        assert len(sections) >= 1
        for section in sections:
            for width in (40, 60, 80, 120):
                assert lines_of(section, width), section.id
            assert "".join(lines_of(section, 80, unicode=False)).isascii()
            assert section.title in markdown_of(section)


def test_rows_without_room_are_counted_and_a_command_has_them() -> None:
    several = [
        table
        for section in sections_of(full_report(), most_rows=1)
        for table in tables_of(section)
        if table.row_count > 1
    ]
    assert len(several) >= 4
    for table in several:
        assert table.shown_count == 1, table.label
        assert table.hidden_count >= 1, table.label
        assert table.rest.startswith(("traceview ", "the JSON report")), table.label


def test_devices_that_are_alike_are_a_range() -> None:
    alike: dict[str, Any] = {"outliers": ("GPU:0",), "others": ("GPU:1", "GPU:2")}
    made = precision_section(
        view_of(**alike), Precision(0.5, tuple(map(precision_of, ("GPU:0", "GPU:1"))))
    )
    assert values_of(tables_of(made)[0], "device") == ("GPU:0",)
    assert sentences_of(made)[0].startswith("1 other GPU: ")
    one = balance_section(view_of(others=("GPU:0",)), balance_result())
    assert values_of(tables_of(one)[0], "device") == ("GPU:1",)
    assert any(
        text.startswith("1 other device: compute per step 15.0 ms") for text in sentences_of(one)
    )


def test_an_empty_result_has_no_section() -> None:
    assert precision_section(view_of(), Precision(0.0, ())) is None
    assert transfers_section(view_of(), transfers()) is None
    assert nvml_section(view_of(), Nvml((), {HOST: "not installed"})) is None
    assert collectives_section(view_of(), collective_result(count=0, path="none")) is None


def test_gpus_without_tensor_cores_have_none() -> None:
    without = replace(precision_of("GPU:0"), has_tensor_cores=False)
    made = precision_section(view_of(), Precision(0.0, (without,)))
    assert made is not None
    assert made.lead == "The GPUs have no tensor cores."
    assert values_of(tables_of(made)[0], "tensor cores") == ("none",)


# Balance and gradients


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({}, "2 of 6 GPUs compute, 60.0% of the time (20.0% over all 6)."),
        ({"visible_count": 2}, "2 GPUs compute 20.0% of the time."),
        ({"visible_count": 1, "in_use_count": 1}, "1 GPU computes 20.0% of the time."),
        (
            {"visible_count": 1, "in_use_count": 1, "kind": "replica"},
            "The CPU computes 20.0% of the time.",
        ),
    ],
)
def test_the_lead_is_the_share_of_the_time_that_devices_compute(
    changes: dict[str, Any], lead: str
) -> None:
    made = balance_section(view_of(), replace(balance_result(), **changes))
    assert made is not None
    assert made.lead == lead


def test_balance_compares_each_device_with_the_others() -> None:
    made = balance_section(view_of(), balance_result())
    assert made is not None
    assert [(column.heading, column.values) for column in tables_of(made)[0].columns] == [
        ("device", ("GPU:0", "GPU:1")),
        ("compute per step", (15 * MS, 16 * MS)),
        ("vs. others", (-0.0625, 1 / 15)),
        ("waits for others", (MS, 0)),
        ("others wait for it", (0, MS)),
    ]
    one = replace(balance_result(), in_use_count=1)
    assert balance_section(BRIEF, one) is None
    assert tables_of(balance_section(view_of(), one)) == []
    never = balance_section(view_of(), replace(balance_result(), concurrency_ratio=0.0))
    assert never is not None
    assert facts_of(never)[0] == "GPUs never compute at the same time"


def test_parts_of_the_step_are_shown_in_a_terminal_where_devices_differ() -> None:
    result = gradients_result()
    assert gradients_section(BRIEF, result) is None
    first, second = result.devices
    differs = replace(result, devices=(first, replace(second, backward=False)))
    assert gradients_section(BRIEF, differs) is not None
    made = gradients_section(view_of(), result)
    assert values_of(tables_of(made)[0], "backward") == (20 * MS, 20 * MS)


# Collectives


def of_collectives(result: CollectiveResult, **changes: Any) -> Section:
    made = collectives_section(view_of(**changes), result)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({}, "Collective ops sum the gradients through NCCL."),
        ({"library": "rccl"}, "Collective ops sum the gradients through RCCL."),
        ({"path": None}, "The trace does not show which op launches the collectives."),
        ({"path": None, "path_reason": "hosts differ"}, "Hosts differ."),
        (
            {"path": "cpu_bounce", "path_reason": "variables are on the CPU", "count": 0},
            "Gradients are copied to the host and summed on the CPU: variables are on the CPU.",
        ),
    ],
)
def test_the_lead_says_how_devices_reduce(changes: dict[str, Any], lead: str) -> None:
    made = of_collectives(collective_result(**changes))
    assert (made.lead, bool(made.blocks)) == (lead, "count" not in changes)


NO_STEPS: dict[str, Any] = dict.fromkeys(
    (
        "count_per_step",
        "transfer_per_step_ps",
        "communication_per_step_ps",
        "device_wait_per_step_ps",
    )
)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({}, "8 collectives, 2 per step (median)"),
        ({}, "transfers 2.00 ms per step in sum"),
        (NO_STEPS, "transfers 8.00 ms in the window in sum"),
        ({}, "50.0 GB/s over each link; NVLink carries 150 GB/s"),
        ({"library": None, "link_bytes_per_second": None}, "50.0 GB/s per device"),
        ({"incomplete_count": 3}, "3 not recorded on all 2 devices"),
        ({"member_count": 3}, "only 2 of 3 devices recorded: transfer may include waiting"),
        (
            {"link": "pcie", "link_bytes_per_second": 10 * 10**9},
            "50.0 GB/s over each link; PCIe carries 10.0 GB/s, so the devices use another link",
        ),
    ],
)
def test_facts_about_collectives(changes: dict[str, Any], fact: str) -> None:
    facts = facts_of(of_collectives(collective_result(**changes)))
    assert fact in facts
    assert any("expected" in each for each in facts) == ("another link" not in fact)


def test_what_each_device_spends_in_collectives() -> None:
    made = of_collectives(collective_result())
    assert [(column.heading, column.values) for column in tables_of(made)[0].columns] == [
        ("device", ("GPU:0", "GPU:1")),
        ("exposed per step", (3 * MS, 2 * MS)),
        ("communication per step", (2 * MS, 2 * MS)),
        ("waiting per step", (MS, 0)),
        ("last to arrive", (0, 8)),
    ]
    assert sentences_of(made) == []
    table = tables_of(of_collectives(collective_result(**NO_STEPS)))[0]
    assert values_of(table, "waiting") == (4 * MS, 0)
    less = dict.fromkeys(("GPU:0", "GPU:1"), MS)
    assert TRANSFER_REMARK in sentences_of(
        of_collectives(collective_result(communication_per_step_ps=less))
    )
    unclear = of_collectives(collective_result(last_count={"GPU:0": 0, "GPU:1": 5}))
    assert "In 3 of 8 collectives no device was clearly the last." in sentences_of(unclear)


def test_a_table_with_room_for_few_rows_has_the_largest_costs() -> None:
    devices = ("GPU:0", "GPU:1", "GPU:2", "GPU:3")
    exposed = {"GPU:0": MS, "GPU:1": 3 * MS, "GPU:2": 2 * MS, "GPU:3": 0}
    result = collective_result(
        devices,
        communication_per_step_ps=exposed,
        device_wait_per_step_ps=dict.fromkeys(devices, 0),
        exposed_ps=exposed,
        last_count=dict.fromkeys(devices, 0),
    )
    (table, *_) = tables_of(of_collectives(result, most_rows=2))
    # GPU 3 took no part.
    assert values_of(table, "device") == ("GPU:1", "GPU:2")
    assert (table.hidden_count, table.rest) == (1, "traceview show collectives logs")


# Transfers


def direction(count: int, **changes: Any) -> Direction:
    fields: dict[str, Any] = {
        **dict.fromkeys(Direction.__struct_fields__),
        "bytes": count * 1_000_000,
        "count": count,
        "busy_ps": count * MS,
        "exposed_ps": 0,
        "exposed_ps_per_step": 0,
        "exposed_ratio": 0.0,
    }
    return Direction(**fields | changes)


EXPOSED = direction(4, exposed_ps=4 * MS, exposed_ps_per_step=MS, exposed_ratio=0.0625)


def copies_of(h2d: Direction, **changes: Any) -> DeviceTransfers:
    fields: dict[str, Any] = {
        "host": HOST,
        "device": "GPU:0",
        "ordinal": 0,
        "directions": {"h2d": h2d, "d2h": direction(0), "d2d": direction(2)},
        "link_bytes_per_second": None,
        "top_sources": (),
    }
    return DeviceTransfers(**fields | changes)


def transfers(*devices: DeviceTransfers) -> Transfers:
    return Transfers(devices)


@pytest.mark.parametrize(
    ("h2d", "lead", "is_brief"),
    [
        (EXPOSED, "HtoD copies are exposed for 6.2% of the step on GPU:0.", True),
        (direction(4, exposed_ratio=0.049), "HtoD copies are exposed for 4.9%", False),
        (
            direction(4, exposed_ps_per_step=None, exposed_ratio=0.5),
            "HtoD copies are exposed for 50.0% of the window",
            True,
        ),
        (direction(4), "Other work hides all copies.", False),
    ],
)
def test_copies_that_cost_nothing_are_left_out_of_a_brief_document(
    h2d: Direction, lead: str, is_brief: bool
) -> None:
    result = transfers(copies_of(h2d))
    made = transfers_section(view_of(), result)
    assert made is not None
    assert str(made.lead).startswith(lead)
    assert (transfers_section(BRIEF, result) is not None) == is_brief


# Hosts and the capture


def host(name: str = "a", **changes: Any) -> HostCapture:
    fields: dict[str, Any] = {
        "host": name,
        "profile_start_ns": 0,
        "profile_stop_ns": 100_000_000,
        "duration_ps": 100 * MS,
        "event_count": 20,
        "device_event_count": 8,
        "dropped_event_count": 0,
        "unlinked_ratio": 0.0,
        "errors": (),
        "warnings": (),
    }
    return HostCapture(**fields | changes)


@pytest.mark.parametrize(
    ("clocks", "sentence"),
    [
        ((HostClock("collectives", residual_ps=5), HostClock("none")), "Some clocks could not be"),
        ((HostClock("profile_start"),) * 2, "Clocks aligned by the start of each profile"),
        (
            (HostClock("profile_start"), HostClock("collectives", residual_ps=5)),
            "Clocks aligned by the ends of collectives",
        ),
        ((HostClock("profile_start", residual_ps=5),) * 2, "Clocks agree within the spread"),
    ],
)
def test_how_clocks_were_aligned(clocks: tuple[HostClock, ...], sentence: str) -> None:
    hosts = [host(str(number), clock=clock) for number, clock in enumerate(clocks)]
    assert clock_sentence(hosts).startswith(sentence)


def test_hosts_that_lack_steps_come_before_those_with_unusual_devices_and_clocks(
    tmp_path: Path,
) -> None:
    """The slow GPU is on host5, the unused GPU on host9; the clock of host15 was moved most."""
    SCENARIOS["sixteen_hosts_of_eight"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    made = hosts_section(view_of_report(report, is_brief=True), report.capture)
    (table,) = tables_of(made)
    assert {"host5", "host9", "host15"} <= set(values_of(table, "host"))
    places = dict(zip(values_of(table, "host"), cells_of(table, "busy"), strict=True))
    assert places["host9"] == "0–91.8%"
    assert (table.shown_count, table.hidden_count) == (FEW_ROWS, 16 - FEW_ROWS)
    clock = HostClock("collectives", offset_ps=MS)
    many = [host(f"h{index}", clock=clock) for index in range(2 * FEW_ROWS)]
    lacking = host("z", clock=HostClock("profile_start"), missing_steps=(3, 4, 5, 6, 7, 8))
    (table,) = tables_of(hosts_section(BRIEF, Capture("ok", (), (*many, lacking))))
    assert values_of(table, "steps missing")[-1] == "3, 4, 5, 6 and 2 more"
    assert hosts_section(view_of(), Capture("ok", (), (host(),))) is None


def test_problems_are_said_with_their_hosts_and_many_are_cut() -> None:
    problems = tuple(Problem("damaged-file", f"problem {n}", "b") for n in range(13))
    alone = capture_section(BRIEF, Capture("degraded", problems, (host("b"),)))
    assert sentences_of(alone)[0] == "problem 0"
    assert sentences_of(alone)[-1] == f"{13 - FEW_ROWS} more problems: see the JSON report."
    assert len(sentences_of(alone)) == FEW_ROWS + 1
    several = capture_section(BRIEF, Capture("ok", problems[:1], (host("a"), host("b"))))
    assert sentences_of(several) == ["problem 0 (host b)"]
    flawless = Capture("ok", (), (host(unlinked_ratio=0.25),))
    assert capture_section(BRIEF, flawless) is None
    whole = capture_section(view_of(skipped={"outside_view": "not recorded"}), flawless)
    assert "GPU clocks, load and other processes: not recorded" in sentences_of(whole)
    assert cells_of(tables_of(whole)[0], "kernels without launch") == ["25.0%"]


@pytest.mark.parametrize(
    ("ratio", "spread", "sentence", "cell"),
    [
        (0.11, 0.1, "Profiler overhead: 11.0% of a step without it.", 0.11),
        (0.11, None, "Profiler overhead: 11.0% of a step without it.", 0.11),
        (0.1, 0.1, "Profiler overhead: not measurable, because step times vary by 10.0%.", ""),
        (-0.2, 0.1, "Profiler overhead: not measurable, because step times vary by 20.0%.", ""),
    ],
)
def test_overhead_is_said_where_it_exceeds_how_much_steps_vary(
    ratio: float, spread: float | None, sentence: str, cell: float | str
) -> None:
    recorded = environment("a", overhead={"ratio": ratio, "spread_ratio": spread})
    results = {"environment": Environment((recorded,), ())}
    capture = Capture("ok", (), (host(overhead_ratio=ratio),))
    assert sentences_of(capture_section(view_of(results=results, is_brief=True), capture)) == [
        sentence
    ]
    (table,) = tables_of(capture_section(view_of(results=results), capture))
    assert values_of(table, "profiler overhead") == (cell or "not measurable",)


# The job

NOTHING: dict[str, Any] = dict.fromkeys(
    ("command", "versions", "strategy", "batch", "training", "precision", "variables")
)


def job_of(*hosts: HostEnvironment, unknown: tuple[str, ...] = ()) -> list[str]:
    recorded = Environment(hosts, unknown)
    return [*job_facts(recorded), *job_details(recorded)]


def strategy(**fields: Any) -> dict[str, Any]:
    return {"strategy": {"class": "MirroredStrategy", "found_by": "input", **fields}}


def links(**fields: Any) -> dict[str, Any]:
    return {"links": {"gpus": [{"pcie_generation_max": 4, "pcie_width_max": 16, **fields}] * 2}}


@pytest.mark.parametrize(
    ("groups", "facts"),
    [
        ({}, []),
        ({"strategy": {"missing": {"class": "no strategy"}}}, ["no strategy"]),
        (
            strategy(found_by="memory", replicas=2),
            ["MirroredStrategy in the script, not used by the step"],
        ),
        (strategy(), ["MirroredStrategy"]),
        (
            strategy(replicas=2, **{"class": "CollectiveAllReduceStrategy"}),
            ["MultiWorkerMirroredStrategy on 2 replicas"],
        ),
        ({"command": {"script": ["/home/me/runs/train.py", "--lr=1"]}}, ["train.py --lr=1"]),
        ({"batch": {"global": 64}}, ["batch 64"]),
        ({"batch": {"global": 4096, "per_replica": 1024}}, ["batch 4,096 (1,024 per replica)"]),
        ({"training": {"parameters": 641}}, ["641 parameters"]),
        ({"training": {"parameters": 999_949}}, ["999.9 k parameters"]),
        ({"training": {"parameters": 999_950}}, ["1.0 M parameters"]),
        ({"training": {"parameters": 175 * 10**9}}, ["175.0 G parameters"]),
        ({"precision": {"policy": {"a": "float32", "b": "float32"}}}, ["Keras policy float32"]),
        ({"precision": {"policy": {"a": "f32", "b": "f16"}}}, ["a f32, b f16"]),
        (
            {"cluster": {"role": "worker", "index": 1, "sizes": {"worker": 2}}},
            ["worker 1 of 2"],
        ),
        ({"cluster": {"role": "chief", "index": 0}}, ["chief 0"]),
        ({"xla": {"auto_jit": "1"}}, ["XLA auto-clustering on (1)"]),
        ({"devices": {"physical": [{"type": "GPU", "memory_growth": True}]}}, ["memory growth on"]),
        (links(), ["PCIe 4 x16"]),
        (links(nvlinks={"active": 18}), ["PCIe 4 x16 and 18 NVLinks"]),
    ],
)
def test_single_facts(groups: dict[str, Any], facts: list[str]) -> None:
    assert job_of(environment(**{**NOTHING, **groups})) == facts


def test_what_hosts_agree_on_is_said_once_and_the_rest_with_their_names() -> None:
    tasks = [{"role": "worker", "index": number} for number in range(3)]
    hosts = [
        environment(name, cluster=task, batch={"global": batch})
        for name, task, batch in zip("abc", tasks, (64, 64, 32), strict=True)
    ]
    facts = job_of(*hosts, unknown=("d",))
    assert facts[:3] == ["MirroredStrategy on 2 replicas", "batch 64 on a and b", "batch 32 on c"]
    assert facts[-1] == "no sidecar of d"
    only_one = job_of(environment("a"), environment("b", batch=None))
    assert "batch 64 (32 per replica) on a" in only_one
    many = job_of(*(environment(f"h{n}", batch={"global": n}) for n in range(1, 9)))
    assert "5 other values on other hosts" in many


def test_long_texts_and_many_variables_are_cut() -> None:
    variables = {f"NCCL_{n}": "v" * 1000 for n in range(9)}
    facts = job_of(environment(command={"script": ["x" * 1000]}, variables=variables))
    assert max(map(len, facts)) <= LONGEST_FACT
    assert facts[-1] == "5 more environment variables"


# NVML


def gpu(ordinal: int, **changes: Any) -> NvmlRow:
    fields: dict[str, Any] = {
        **dict.fromkeys(NvmlRow.__struct_fields__),
        "host": HOST,
        "device": f"GPU:{ordinal}",
        "ordinal": ordinal,
        "sample_count": 30,
        "throttle_reasons": {},
        "dram_sample_count": 0,
    }
    return NvmlRow(**fields | changes)


def test_what_nvml_measured_of_a_gpu_is_a_row() -> None:
    measured = gpu(
        0,
        nvml_busy_ratio=0.5,
        sm_clock_hz=1_200_000_000,
        sm_clock_max_hz=1_980_000_000,
        power_watts=650.0,
        memory_used_bytes=50 * 10**9,
        memory_total_bytes=100 * 10**9,
        other_processes=(OtherProcess(4242, None, None, None),),
    )
    (table,) = tables_of(nvml_section(view_of(), Nvml((measured, gpu(1)), {})))
    assert {heading: values_of(table, heading) for heading in headings_of(table)} == {
        "device": ("GPU:0", "GPU:1"),
        "NVML busy": (0.5, None),
        "SM clock": ("1200 of 1980 MHz", None),
        "power": ("650 W", None),
        "memory": (0.5, None),
        "memory used": (50 * 10**9, None),
        "other processes": (1, None),
        "samples": (30, 30),
    }


def test_a_reason_is_said_once_for_all_its_gpus() -> None:
    rows = tuple(gpu(n, others_unknown="in a container") for n in range(19))
    made = nvml_section(
        view_of(is_brief=True, most_rows=16),
        Nvml((*rows, gpu(99, sample_count=10)), {"b": "not installed"}),
    )
    assert made is not None
    assert sentences_of(made) == [
        "Other processes unknown on GPU:0–18: in a container.",
        "No samples of b: not installed.",
    ]
    assert str(made.lead).endswith("10 to 30 samples per GPU.")
    (table,) = tables_of(made)
    assert (table.shown_count, table.hidden_count) == (16, 4)
