"""Holds the rules on the input pipeline: whether devices wait for it, who is late, and why."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Rule
from traceview.analysis.idle.rules import IdleRule
from traceview.document import numbers

_LIMITING_WORK_RATIO: Final = 0.70

WORK_OF_STAGES: Final = (
    "Work is time in the calls of a stage, without waiting for other stages, added up over all threads. Stages that only "
    "hand batches on, such as Root and Prefetch, do not count."
)

INPUT_BOUND: Final = IdleRule(
    code="input-bound",
    starts_at="{warning_ratio} of the mean step lost to input; critical from {critical_ratio} on",
    conditions_of="where prefetch buffers were recorded, only with one of these",
    conditions=(
        "the slowest stage works {work_ratio} of the window, and the buffers are empty in {empty_step_ratio} of the steps",
        "the buffers are empty in {empty_wait_ratio} of the wait, and the slowest stage works {work_ratio} of the wait",
        (
            "a Python generator works {limiting_work_ratio} of the window, and the step waits {lock_wait_ratio} of its time "
            "for Python's lock"
        ),
        (
            "Python of the pipeline, such as a generator or tf.py_function, runs while the step waits for Python's lock, for "
            "{lock_wait_ratio} of the mean step"
        ),
    ),
    severities=("warning", "critical", "info"),
    # The first two are the limits of XProf.
    limits={
        "warning_ratio": 0.05,
        "critical_ratio": 0.20,
        "work_ratio": 0.25,
        "empty_step_ratio": 0.25,
        # A pipeline that fills a buffer from time to time makes few steps wait, and those for long.
        "empty_wait_ratio": 0.5,
        "limiting_work_ratio": _LIMITING_WORK_RATIO,
        # Without a generator it was below 0.001.
        "lock_wait_ratio": 0.02,
    },
    meaning=(
        "The thread that runs the step asks for the next batch and gets it late, with nothing left on the device to "
        "run meanwhile. Or the batch is there in time, but Python of the pipeline keeps Python's lock from the step."
    ),
    evidence=(
        "idle time with cause input, on the device of each host that is idle least. Without devices it is input_ratio "
        "in results.input. Whether the buffers were full is in work_ratio, empty_step_ratio and empty_wait_ratio of the "
        f"host in results.input. A Python generator that works {numbers.share(_LIMITING_WORK_RATIO)} of the window, or Python of the "
        "pipeline that runs while the step waits for Python's lock, also costs time where no wait is recorded. On CPU devices the "
        "cost includes how much longer ops take because the pipeline uses cores"
    ),
    advice=(
        "Let the pipeline run ahead of the step: dataset = dataset.map(f, "
        "num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE). traceview input names the slow stage."
    ),
    example="GPU:0 waits 12.0 ms of the mean 61.3 ms step for input (19.6%)",
    explains=("host-bound", "python-stall"),
    idle_causes=("input",),
    title="{device} waits {span} for input ({share})",
    jax_advice=(
        "Prepare batches in another thread or process, and copy the next one with jax.device_put before the "
        "current step is done: the copy runs in the background."
    ),
)

REPLICA_STARVED: Final = Rule(
    "replica-starved",
    starts_at="a shard is late by at least {late_ratio} of the step, in at least {late_step_ratio} of the steps",
    limits={"late_ratio": INPUT_BOUND.limits["warning_ratio"], "late_step_ratio": 0.60},
    meaning=(
        "A replica gets its shard of the batch later than the earliest replica; the others wait for it in the next "
        "collective."
    ),
    evidence=(
        "Time at which the element for each replica was ready, compared with the earliest; at most the time by which "
        "the replica waited longer: late_per_step_ps in results.input."
    ),
    advice=(
        "Give every replica an equal share: a global batch that divides by the number of replicas, "
        "dataset.batch(global_batch_size, drop_remainder=True)."
    ),
    example="GPU:1 gets its shard of the batch 9.10 ms late in 4 of 4 steps",
    explains=("straggler-gpu", "collective-wait"),
    idle_causes=("input",),
)

SLOW_INPUT_STAGE: Final = Rule(
    "slow-input-stage",
    starts_at=(
        "one stage does at least {share_ratio} of the pipeline's work, and input takes at least {input_ratio} of the step"
    ),
    severities=("info",),
    limits={"share_ratio": 0.50, "input_ratio": INPUT_BOUND.limits["warning_ratio"]},
    meaning=f"One stage of the tf.data pipeline does most of the work for a batch. {WORK_OF_STAGES}",
    evidence="self_ps less waiting_ps of the stage, over that of all stages that the model waits for.",
    advice=(
        "Depends on the stage: num_parallel_calls=tf.data.AUTOTUNE for map, interleave for reading, cache for what "
        "does not change, ops of TensorFlow or several processes instead of a Python generator."
    ),
    example="input stage Map does 95.0% of the pipeline's work",
    idle_causes=("input",),
)

NO_PREFETCH: Final = Rule(
    "no-prefetch",
    starts_at=(
        "the last stage of the pipeline does not work ahead, input takes at least {input_ratio} of the step, and the "
        "slowest stage is no Python generator"
    ),
    severities=("info",),
    limits={"input_ratio": INPUT_BOUND.limits["warning_ratio"]},
    meaning=(
        "The last stage runs on the thread that waits for the batch, so it starts only when the model asks. "
        "TensorFlow often adds a prefetch by itself; here it did not."
    ),
    evidence="Names of the recorded stages: neither Prefetch nor a parallel stage follows the root.",
    advice="End the pipeline with dataset.prefetch(tf.data.AUTOTUNE).",
    example="the input pipeline does not end with prefetch",
    idle_causes=("input",),
)
