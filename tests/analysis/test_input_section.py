"""Tests that the section on input gives the wait, what the pipeline lacks, and hosts, shards and stages."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.analysis.sections import (
    headings_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from traceview.analysis.facts.input_supply import InputShard
from traceview.analysis.gpu_time.input import (
    BEHIND,
    WORK,
    Input,
    InputHost,
    section,
)
from traceview.analysis.measures.context import FEW_ROWS
from traceview.trace.host.pipeline import InputStage

MS = 10**9


def host(name: str = "worker0", **changes: Any) -> InputHost:
    parts: dict[str, Any] = {
        "host": name,
        "measured_by": "ledger",
        "device": "GPU:0",
        "wait_ps": 80 * MS,
        "wait_per_step_ps": 20 * MS,
        "input_ratio": 0.616,
        "reason": None,
        "slowest_stage": None,
        "work_ps": None,
        "work_ratio": None,
        "share_ratio": None,
        "empty_step_ratio": None,
        "empty_wait_ratio": None,
        "work_of_wait_ratio": None,
        "keeps_up": False,
    }
    return InputHost(**parts | changes)


def stage(name: str = "Iterator::Root::Map", **changes: Any) -> InputStage:
    parts: dict[str, Any] = {
        "host": "worker0",
        "name": name,
        "blocking": True,
        "calls": 4,
        "total_ps": 100 * MS,
        "self_ps": 80 * MS,
        "waiting_ps": 20 * MS,
        "slow_count": 3,
        "parallelism": None,
        "buffer_limit": None,
        "buffered_median": None,
        "empty_ratio": None,
        "threads": "python3",
        "injected": False,
    }
    return InputStage(**parts | changes)


def shard(number: int) -> InputShard:
    return InputShard("worker0", number, f"GPU:{number}", 80 * MS, 20 * MS, number * MS, number, 4)


def input_of(**changes: Any) -> Input:
    stages = (stage(),)
    parts: dict[str, Any] = {
        "input_ratio": 0.616,
        "verdict": "high",
        "reason": None,
        "hosts": (host(),),
        "shards": (),
        "empty_ratio": None,
        "missing": (),
        "stages": stages,
        "stage_count": len(stages),
    }
    return Input(**parts | changes)


CALLS: dict[str, Any] = {"measured_by": "iterator", "device": None}
KEEPS_UP: dict[str, Any] = {"keeps_up": True}


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({}, "GPU:0 waits 62% of the step for input (high)."),
        (
            {"input_ratio": 0.051, "verdict": "moderate"},
            "GPU:0 waits 5.1% of the step for input (moderate).",
        ),
        (
            {"hosts": (host(wait_per_step_ps=None),)},
            "GPU:0 waits 62% of the window for input (high).",
        ),
        (
            {"hosts": (host(**CALLS),)},
            "The thread that runs the steps waits 62% of the step for the next batch (high).",
        ),
        (
            {"hosts": (host(**KEEPS_UP),), "input_ratio": 0.01, "verdict": "none"},
            "GPU:0 waits 1.0% of the step for input. The pipeline keeps up: a batch is ready when the model asks.",
        ),
        (
            {"hosts": (host(**KEEPS_UP),)},
            "GPU:0 waits 62% of the step for input (high). A batch is ready, but the pipeline keeps Python's lock or cores from the step.",
        ),
        (
            {"input_ratio": None, "verdict": None, "reason": "no used step"},
            "Input wait: unknown; no used step.",
        ),
    ],
)
def test_the_lead_is_the_verdict(changes: dict[str, Any], lead: str) -> None:
    assert section(view_of(), input_of(**changes)).lead == lead


def slow_input(**changes: Any) -> Input:
    """An input that lacks much, and whose host the changes are of."""
    slowest: dict[str, Any] = {
        "slowest_stage": "Iterator::Root::Map",
        "work_ps": 60 * MS,
        "share_ratio": 0.933,
    }
    return input_of(
        hosts=(host(**slowest | changes),),
        missing=("prefetch", "cache"),
        empty_ratio=0.5,
    )


def test_notes_on_the_slowest_stage_and_on_what_is_missing() -> None:
    result = slow_input(work_ratio=1.14, empty_step_ratio=0.75)
    assert sentences_of(section(view_of(), result)) == [
        "Slowest stage: Root::Map, works 114% of the window, on more than one thread.",
        "Missing: prefetch at the end of the pipeline, a cache.",
        "In 75.0% of the steps the fullest prefetch buffer between it and the model was empty when asked.",
        WORK,
    ]


@pytest.mark.parametrize(
    ("measures", "who"), [({}, "the devices"), (CALLS, "the thread that runs the steps")]
)
def test_who_hardly_waited_for_an_empty_buffer(measures: dict[str, Any], who: str) -> None:
    result = replace(slow_input(**measures), verdict="none")
    assert (
        f"The model found its input buffer empty in 50.0% of its requests, but {who} hardly waited for it."
    ) in sentences_of(section(view_of(), result))


def test_hosts_have_rows_where_there_are_several() -> None:
    assert len(tables_of(section(view_of(), input_of()))) == 1
    unknown = host(
        "worker1",
        measured_by="iterator",
        device=None,
        wait_ps=None,
        wait_per_step_ps=None,
        input_ratio=None,
        reason="no used step",
    )
    hosts, _ = tables_of(section(view_of(), input_of(hosts=(host(), unknown))))
    assert values_of(hosts, "host") == ("worker0", "worker1")
    assert values_of(hosts, "share of the step") == (0.616, None)
    assert values_of(hosts, "device") == ("GPU:0", None)
    assert values_of(hosts, "measured by") == ("time of the device", "iterator calls")
    assert values_of(hosts, "unknown because") == (None, "no used step")


def test_shards_of_a_distributed_dataset() -> None:
    result = input_of(shards=tuple(map(shard, range(FEW_ROWS + 2))))
    shards, _ = tables_of(section(view_of(is_brief=True), result))
    assert (shards.shown_count, shards.hidden_count) == (FEW_ROWS, 2)
    assert shards.rest == "traceview analyze logs --format json"
    assert values_of(shards, "device")[:2] == ("GPU:0", "GPU:1")
    assert values_of(shards, "time in calls per step")[:2] == (20 * MS, 20 * MS)
    assert values_of(shards, "behind first shard")[:2] == (0, MS)
    assert values_of(shards, "steps 5% behind")[:2] == (0, 1)
    assert BEHIND in sentences_of(section(view_of(), result))
    assert BEHIND not in sentences_of(section(view_of(), input_of()))
    shards, _ = tables_of(section(view_of(), result))
    assert shards.hidden_count == 0


def test_stages() -> None:
    stages = (
        stage(parallelism=2, buffer_limit=8, buffered_median=1, empty_ratio=0.25),
        stage("Iterator::Root", blocking=False, injected=True, buffered_median=3),
        stage("Iterator::Root::TFRecord", host="worker1"),
    )
    (table,) = tables_of(section(view_of(), input_of(stages=stages, stage_count=3)))
    assert values_of(table, "stage") == ("Root::Map", "Root", "Root::TFRecord")
    assert values_of(table, "host") == ("worker0", "worker0", "worker1")
    assert values_of(table, "asked by") == ("model", "background threads", "model")
    assert values_of(table, "work in the window") == (60 * MS,) * 3
    assert values_of(table, "handing over") == (20 * MS,) * 3
    assert values_of(table, "over 50.0 µs") == (3, 3, 3)
    assert values_of(table, "parallel calls") == (2, None, None)
    assert values_of(table, "buffer") == ("1 of 8", "3", None)
    assert values_of(table, "calls with empty buffer") == (0.25, None, None)
    assert values_of(table, "added by") == ("", "TensorFlow", "")
    (table,) = tables_of(section(view_of(), input_of()))
    assert headings_of(table) == [
        "stage",
        "work in the window",
        "handing over",
        "calls",
        "over 50.0 µs",
    ]


def test_the_stage_that_works_most_comes_first() -> None:
    stages = (stage("Iterator::Root::Prefetch", waiting_ps=79 * MS), stage())
    (table,) = tables_of(section(view_of(), input_of(stages=stages, stage_count=2)))
    assert values_of(table, "stage") == ("Root::Map", "Root::Prefetch")
