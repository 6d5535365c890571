"""Sections of topics on what the saved reports of `tests/golden` have not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.cuda_trace import MS
from scripts.scenarios.model import marked_steps, new_trace
from tests.reports import environment, finding, loss
from traceview.analysis.facts.selection import select
from traceview.analysis.machine.capture import Capture, capture_section
from traceview.analysis.machine.environment import job_details, job_facts
from traceview.analysis.measures.context import Context, View
from traceview.analysis.measures.device_report import Environment, HostEnvironment
from traceview.analysis.measures.idle_report import gap_table
from traceview.analysis.rules.sentences import RunCommands
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


def job_of(*hosts: HostEnvironment, unknown: tuple[str, ...] = ()) -> list[str]:
    recorded = Environment(hosts, unknown)
    return [*job_facts(recorded), *job_details(recorded)]


def test_what_hosts_agree_on_is_said_once_and_the_rest_with_their_names() -> None:
    tasks = [{"role": "worker", "index": number} for number in range(3)]
    hosts = [
        environment(name, cluster=task, batch={"global": batch})
        for name, task, batch in zip("abc", tasks, (64, 64, 32), strict=True)
    ]
    facts = job_of(*hosts, unknown=("d",))
    assert facts[:3] == ["MirroredStrategy on 2 replicas", "batch 64 on a and b", "batch 32 on c"]
    assert facts[-1] == "no sidecar of d"
    only_one = job_of(environment("a"), environment("b", batch={}))
    assert "batch 64 (32 per replica) on a" in only_one
    many = job_of(*(environment(f"h{n}", batch={"global": n}) for n in range(1, 9)))
    assert "5 other values on other hosts" in many


# Tables of rows


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
