"""Does the model wait for its input, and who is to blame? Runs without a GPU that differ in their pipelines.

All have four steps of 50 ms with `train` markers, and calls of iterators as tf.data records them: `id` is
stored unsigned and `parent_id` signed, so that the two only agree modulo 2**64.
"""

from __future__ import annotations

from scripts.cuda_trace import U64, Line, Name, Value
from scripts.scenarios.model import (
    Scenario,
    Step,
    Truth,
    marked_steps,
    ms,
    new_trace,
    scenario,
)

WORKER = "tf_data_iterator_resource"
FILLER = "tf_data_multi_device_iterator_resource"
SHARD = "tf_data_multi_device_iterator_get_next"


def _call(
    step: Step,
    path: str,
    start_ms: float,
    end_ms: float,
    number: int,
    above: int | None = None,
    thread: Line | None = None,
    **stats: Value,
) -> None:
    """One call of an iterator; `above` is the number of the one that asks for it."""
    own: dict[Name, Value] = {"id": U64(2**63 + number)}
    if above is not None:
        own["parent_id"] = above - 2**63
    name = f"Iterator::{path}"
    step.host(name, start_ms, end_ms, {**own, **stats}, thread=thread)


def _wait(step: Step, start_ms: float, end_ms: float) -> None:
    stats: dict[Name, Value] = {"id": 77, "iter_num": 0, "element_size": 65536}
    step.host("IteratorGetNextOp::DoCompute", start_ms, end_ms, stats)


def slow_map() -> Scenario:
    """A map on one thread holds up the model 30 of 50 ms, although a prefetch works ahead."""
    trace = new_trace()
    worker = trace.thread(WORKER, 40)
    for step in marked_steps(trace):
        _wait(step, 1, 31)
        _call(step, "Root", 1, 31, 1)
        _call(step, "Root::Prefetch", 1.1, 30.9, 2, 1, buffer_limit=2)
        _call(step, "Root::Prefetch::Map", 0.5, 30.5, 3, 2, worker)
        _call(step, "Root::Prefetch::Map::FlatMap[0]::TFRecord", 1, 3, 4, 3, worker)
    # Of the 29.8 ms of Prefetch the map runs until 30.5.
    truth: Truth = {
        "input_ratio": 0.6,
        "wait_ps": ms(120),
        "self_ps": {
            "Root": ms(0.8),
            "Root::Prefetch": ms(119.2),
            "Root::Prefetch::Map": ms(112),
            "Root::Prefetch::Map::FlatMap::TFRecord": ms(8),
        },
        "waiting_ps": {"Root::Prefetch": ms(117.6)},
        "bottleneck": "Root::Prefetch::Map",
        "lacks_prefetch": False,
    }
    return scenario(trace, ["input-bound"], input=truth)


def slow_reading() -> Scenario:
    """Files are read in the thread that waits: 12 of 50 ms, 9 of them in the reader."""
    trace = new_trace()
    for step in marked_steps(trace):
        _wait(step, 1, 13)
        _call(step, "Root", 1, 13, 1)
        _call(step, "Root::BatchV2", 1.5, 12.5, 2, 1)
        _call(step, "Root::BatchV2::TFRecord", 2, 6, 3, 2)
        _call(step, "Root::BatchV2::TFRecord", 7, 12, 3, 2)
    truth: Truth = {
        "input_ratio": 0.24,
        "wait_ps": ms(48),
        "self_ps": {"Root": ms(4), "Root::BatchV2": ms(8), "Root::BatchV2::TFRecord": ms(36)},
        "waiting_ps": {},
        "bottleneck": "Root::BatchV2::TFRecord",
        "lacks_prefetch": True,
    }
    return scenario(trace, ["input-bound"], input=truth)


def healthy_prefetch() -> Scenario:
    """A parallel map fills a prefetch buffer in time: the model takes an element in 50 µs."""
    trace = new_trace()
    worker = trace.thread(WORKER, 40)
    for step in marked_steps(trace):
        _wait(step, 1, 1.05)
        _call(step, "Root", 1, 1.05, 1)
        _call(step, "Root::Prefetch", 1.01, 1.04, 2, 1, buffer_limit=4, buffered_elements=4)
        _call(step, "Root::Prefetch::ParallelMapV2", 2, 42, 3, 2, worker, parallelism=8)
    truth: Truth = {
        "input_ratio": 0.001,
        "wait_ps": ms(0.2),
        "self_ps": {
            "Root": ms(0.08),
            "Root::Prefetch": ms(0.12),
            "Root::Prefetch::ParallelMapV2": ms(160),
        },
        "waiting_ps": {},
        "bottleneck": "Root::Prefetch::ParallelMapV2",
        "lacks_prefetch": False,
    }
    return scenario(trace, must_not=["input-bound"], input=truth)


def _replica(step: Step, shard: int, start_ms: float, end_ms: float) -> None:
    """A replica takes its element: its own iterator, whose generator asks for the shard elsewhere."""
    _wait(step, start_ms, end_ms)
    _call(step, "Root", start_ms, end_ms, 10 + shard)
    limit = {"buffer_limit": 1}
    _call(step, "Root::Prefetch", start_ms, end_ms, 20 + shard, 10 + shard, None, **limit)


def _make(step: Step, shard: int, start_ms: float, end_ms: float) -> None:
    """The element of a shard is made on a thread of the replica's prefetch."""
    worker = step.trace.thread(WORKER, 40 + shard)
    # The second in the order of time has the first number, as in a step function that runs replicas at once.
    name = f"GeneratorDataset:{66 + shard}"
    _call(
        step,
        "Root::Prefetch::Generator",
        start_ms,
        end_ms,
        30 + shard,
        20 + shard,
        worker,
        name=name,
    )
    asks = step.trace.thread(SHARD, 50 + shard)
    stats: dict[Name, Value] = {"shard_num": shard}
    step.host(f"GetNextFromShard{shard}", start_ms, start_ms + 0.02, stats, thread=asks)


def _fill(step: Step, start_ms: float, end_ms: float) -> None:
    """The common source of all shards makes a batch, in a map without a prefetch."""
    filler = step.trace.thread(FILLER, 60)
    _call(step, "Root", start_ms, end_ms, 1, None, filler)
    _call(step, "Root::Map", start_ms, end_ms, 2, 1, filler)


def late_shard() -> Scenario:
    """Shard 1 of two arrives 19.9 ms after shard 0 is taken; shard 0's next was made a step ahead."""
    trace = new_trace()
    for step in marked_steps(trace):
        _replica(step, 0, 1, 1.1)
        _replica(step, 1, 1.2, 21.2)
        _make(step, 0, 1.1, 5)
        _make(step, 1, 1.1, 21.1)
        _fill(step, 1.1, 21)
    truth: Truth = {
        "input_ratio": 0.402,
        "wait_ps": ms(80.4),
        "bottleneck": "Root::Map",
        "lacks_prefetch": False,
    }
    return scenario(trace, ["input-bound"], input=truth)
