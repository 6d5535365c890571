"""Holds the rules on the input pipeline.

That the step waits for input at all is a rule on idle time, `INPUT_BOUND`; the rules here name who is late and why.
"""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Rule
from traceview.analysis.idle.rules import INPUT_BOUND

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
        "Give every replica an equal share: a global batch that divides by the number of replicas, files of equal "
        "size, and tf.data.Options().experimental_distribute.auto_shard_policy = "
        "tf.data.experimental.AutoShardPolicy.DATA."
    ),
    example="GPU:1 gets its shard of the batch 9.10 ms late in 4 of 4 steps",
    explains=("straggler-gpu", "collective-wait"),
    idle_causes=("input",),
)

SLOW_INPUT_STAGE: Final = Rule(
    "slow-input-stage",
    starts_at=(
        "one stage takes at least {share_ratio} of the pipeline's own time, and input at least {input_ratio} of the step"
    ),
    severities=("info",),
    limits={"share_ratio": 0.50, "input_ratio": INPUT_BOUND.limits["warning_ratio"]},
    meaning=(
        "One stage of the tf.data pipeline takes most of the time that a batch needs. Its own time is its self time "
        "without waiting for its inputs."
    ),
    evidence="self_ps less waiting_ps of the stage, over that of all stages that the model waits for.",
    advice=(
        "Depends on the stage: num_parallel_calls=tf.data.AUTOTUNE for map, interleave for reading, cache for what "
        "does not change, no Python in the pipeline."
    ),
    example="input stage Map takes 95.0% of the pipeline's own time",
    idle_causes=("input",),
)

NO_PREFETCH: Final = Rule(
    "no-prefetch",
    starts_at=(
        "the last stage of the pipeline does not work ahead, and input takes at least {input_ratio} of the step"
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
