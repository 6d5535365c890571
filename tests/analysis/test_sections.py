"""Sections of topics on what the saved reports of `tests/golden` have not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from scripts.cuda_trace import MS
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.reports import environment, finding, loss
from traceview.analysis.exchange.collectives import collective_rows_section, collective_table
from traceview.analysis.facts.selection import select
from traceview.analysis.gpu_time.idle import gap_table_section
from traceview.analysis.gpu_time.input import Input, InputHost, section
from traceview.analysis.machine.capture import Capture, HostCapture, capture_section
from traceview.analysis.machine.environment import LONGEST_FACT, job_details, job_facts
from traceview.analysis.measures.context import Context, View
from traceview.analysis.measures.device_report import Environment, HostEnvironment
from traceview.analysis.measures.idle_report import gap_table
from traceview.analysis.rules.sentences import RunCommands
from traceview.document import model
from traceview.document.terminal import render_section
from traceview.trace.reading.load import load

HOST = "host0"


def view_of(**changes: Any) -> View:
    """The view of a report without any result or finding; the window of `HOST` starts at 0."""
    fields: dict[str, Any] = {
        "results": {},
        "skipped": {},
        "findings": (),
        "window_start_ps": {HOST: 0},
        "commands": RunCommands("logs", "run1", is_only=True),
    }
    return View(**fields | changes)


# Hosts and the capture


NOISE: Final = (
    "What recording costs is within noise: the time from call to call of the step varies by"
)


@pytest.mark.parametrize(
    ("ratio", "spread", "sentence"),
    [
        (
            0.11,
            0.1,
            "Recorded steps are 11.0% longer than those before, which no profiler recorded.",
        ),
        (0.1, 0.1, f"{NOISE} 10.0%."),
        (-0.2, None, f"{NOISE} 20.0%."),
    ],
)
def test_overhead_is_said_where_it_exceeds_how_much_steps_vary(
    ratio: float, spread: float | None, sentence: str
) -> None:
    recorded = environment("a", overhead={"ratio": ratio, "spread_ratio": spread})
    results = {"environment": Environment((recorded,), ())}
    host = HostCapture(host="a", profile_start_ns=0, dropped_event_count=0, overhead_ratio=ratio)
    capture = Capture("ok", (), (host,))
    made = capture_section(view_of(results=results, is_brief=True), capture)
    assert made is not None
    assert sentence in " ".join(render_section(made, width=80, color=False).split())


@pytest.mark.parametrize(("share", "is_known"), [(0.099, True), (0.1, False)])
def test_what_recording_costs_is_not_known_where_other_processes_cost_much(
    share: float, is_known: bool
) -> None:
    recorded = environment("a", overhead={"ratio": 1.5, "spread_ratio": 0.1})
    results = {"environment": Environment((recorded,), ())}
    others = finding(code="other-processes", loss=loss(share, "no_core"))
    made = capture_section(view_of(results=results, findings=(others,)), Capture("ok", (), ()))
    assert made is not None
    text = " ".join(render_section(made, width=80, color=False).split())
    assert ("Recorded steps are 150% longer than those before" in text) == is_known
    assert ("What recording costs is not known: the recorded steps lose" in text) != is_known


# The job

NOTHING: dict[str, Any] = dict.fromkeys(
    ("command", "versions", "strategy", "batch", "training", "precision", "variables")
)


def job_of(*hosts: HostEnvironment, unknown: tuple[str, ...] = ()) -> list[str]:
    recorded = Environment(hosts, unknown)
    return [*job_facts(recorded), *job_details(recorded)]


def strategy(**fields: Any) -> dict[str, Any]:
    return {"strategy": {"class": "MirroredStrategy", "found_by": "input", **fields}}


@pytest.mark.parametrize(
    ("groups", "facts"),
    [
        ({"strategy": {"missing": {"class": "no strategy"}}}, ["no strategy"]),
        (
            strategy(found_by="memory", replicas=2),
            ["MirroredStrategy in the script, not used by the step"],
        ),
        (
            strategy(replicas=2, **{"class": "CollectiveAllReduceStrategy"}),
            ["MultiWorkerMirroredStrategy on 2 replicas"],
        ),
        ({"command": {"script": ["/home/me/runs/train.py", "--lr=1"]}}, ["train.py --lr=1"]),
        ({"batch": {"global": 4096, "per_replica": 1024}}, ["batch 4,096 (1,024 per replica)"]),
        (strategy(), ["MirroredStrategy"]),
        ({"training": {"parameters": 641}}, ["641 parameters"]),
        ({"training": {"parameters": 999_400}}, ["999 k parameters"]),
        ({"training": {"parameters": 999_950}}, ["1.00 M parameters"]),
        ({"precision": {"policy": {"a": "f32", "b": "f16"}}}, ["a f32, b f16"]),
        ({"xla": {"auto_jit": "1"}}, ["XLA auto-clustering on (1)"]),
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


# Input


@pytest.mark.parametrize(
    ("of_host", "changes", "lead"),
    [
        ({}, {}, "GPU:0 waits 62% of the step for input (high)."),
        ({"wait_per_step_ps": None}, {}, "GPU:0 waits 62% of the window for input (high)."),
        (
            {"device": None},
            {},
            "The thread that runs the steps waits 62% of the step for the next batch (high).",
        ),
        (
            {"keeps_up": True},
            {"input_ratio": 0.01, "verdict": "none"},
            "GPU:0 waits 1.0% of the step for input. The pipeline keeps up: a batch is ready when the model asks.",
        ),
        (
            {"keeps_up": True},
            {},
            "GPU:0 waits 62% of the step for input (high). A batch is ready, but the pipeline holds the GIL, or cores that the step needs.",
        ),
        ({}, {"input_ratio": None, "verdict": None}, "Input wait: unknown."),
    ],
)
def test_the_lead_is_the_verdict(
    of_host: dict[str, Any], changes: dict[str, Any], lead: str
) -> None:
    known: dict[str, Any] = {
        "host": "worker0",
        "device": "GPU:0",
        "wait_ps": 80 * MS,
        "wait_per_step_ps": 20 * MS,
        "input_ratio": 0.616,
        "keeps_up": False,
        **dict.fromkeys(("slowest_stage", "work_ratio", "empty_step_ratio")),
    }
    result: dict[str, Any] = {"input_ratio": 0.616, "verdict": "high", **changes}
    hosts = (InputHost(**known | of_host),)
    made = Input(hosts=hosts, lacks_prefetch=False, stages=(), stage_count=0, **result)
    assert section(view_of(), made).lead == lead


# Tables of rows


def context_of(name: str, folder: Path) -> Context:
    SCENARIOS[name]().write(folder)
    trace = load(folder)
    return Context(trace, select(trace))


def test_of_two_equal_parts_the_earlier_state_is_the_largest(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host("IteratorGetNext:IteratorGetNext", 10, 20)
        step.host("EagerExecute", 20, 30)
        step.kernel(0, 0, 10, launch_ms=0)
        step.kernel(0, 30, 50, launch_ms=30)
    trace.write(tmp_path)
    context = Context(load(tmp_path), select(load(tmp_path)))
    rows, _ = gap_table(context, devices={"GPU:0"})
    assert set(zip(rows["input_ps"], rows["launch_ps"], strict=True)) == {(10 * MS, 10 * MS)}
    assert set(rows["state"]) == {"input"}


def test_a_section_without_rows_is_none(tmp_path: Path) -> None:
    context = context_of("plain", tmp_path)
    gaps, _ = gap_table(context, devices=())
    rows = collective_table(context)
    assert (gap_table_section(gaps, {}), collective_rows_section(rows)) == (None, None)


def test_the_first_row_of_a_collective_has_its_number_and_op(tmp_path: Path) -> None:
    context = context_of("late_by_turns", tmp_path)
    section = collective_rows_section(collective_table(context))
    assert section is not None
    (block, _) = section.blocks
    assert isinstance(block, model.Table)
    by_heading = {column.heading: column.values for column in block.columns}
    assert by_heading["number"][:5] == ("0", "", "", "", "1")
    assert [bool(op) for op in by_heading["op"][:5]] == [True, False, False, False, True]
    assert by_heading[""][:4] == ("last", "", "", "")
