"""Defines when devices that wait for each other are a finding: a straggler, stages of a pipeline, devices that run one after another."""

from __future__ import annotations

from typing import Final

from traceview.analysis.facts.devices import OF_CHANCE_RATIO
from traceview.analysis.rules.rule import Rule
from traceview.ledger.states import State

LEAST_EXCESS: Final = 0.5
"""Of the waiting beyond what chance gives every device: the least that a straggler is the reason for."""

LEAST_STEADY_EXCESS: Final = 0.3
"""The same of a device that is late steadily. Of 34 healthy recordings three had such a one, with 0.26 of the waiting, or 7% of
the steps and less; a replica with twice the work, beside other processes, had 0.32 to 0.42."""

STRAGGLER: Final = Rule(
    code="straggler-gpu",
    title="{who:waits/wait} {loss} for {late}",
    titles={
        "slower": "{who:waits/wait} {loss} for {late}, slower at the same kernels",
        "work": "{who:waits/wait} {loss} for {late}, which has more work",
        "input": "{who:waits/wait} {loss} for {late}, whose batch comes late",
        "copies": "{who:waits/wait} {loss} for {late}, whose copies take longer",
        "collective": "{who:waits/wait} {loss} for {late}, which leaves the collective later",
        "start": "{who:waits/wait} {loss} for {late}, whose kernels start late",
    },
    meaning="A mirrored step is as fast as its slowest replica: the others wait for this device.",
    action="See what it does while the others wait: `traceview report LOGDIR --open report`.",
    actions={
        "slower": (
            "Compare model, clocks and other jobs: `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE`.",
            "`traceview capture` samples them. If it stays slow, leave it out with `CUDA_VISIBLE_DEVICES`.",
        ),
        "jax-work": "Give all devices equal work: shards of one size, and no branch or loop that takes longer on one of them.",
        "work": (
            "Give all replicas like work: sort examples by length over several batches, so that those of a step are alike.",
            (
                "Padding all to one length makes all as slow. Share ops that only one replica runs among all, or run them outside the step. "
                "`dataset.batch(n, drop_remainder=True)` makes equal batches."
            ),
        ),
        "input": (
            "Prefetch: end the pipeline with `dataset.prefetch(tf.data.AUTOTUNE)`.",
            (
                "`traceview show input LOGDIR` shows the shards. With several workers give each its own files: "
                "`tf.data.experimental.AutoShardPolicy.FILE`."
            ),
        ),
        "copies": (
            "Compare the links of the GPUs: `nvidia-smi topo -m`, `nvidia-smi -q -d PCIE`.",
            "`traceview show copies LOGDIR` shows the copies of each device.",
        ),
        "start": (
            "Let one thread per GPU launch: `TF_GPU_THREAD_MODE=gpu_private`.",
            (
                "`traceview show gaps LOGDIR` shows what the host did before. Launch fewer kernels (a larger batch per replica), "
                "and keep Python out of the step."
            ),
        ),
    },
    notes={
        "slower": "It runs the same kernels as the others and takes longer for them.",
        "kernels": "Most of the difference is in {kernels}.",
    },
    reasons={
        "unsteady": "in so few steps chance alone may make it the last",
    },
    limits={"excess_ratio": LEAST_EXCESS, "steady_excess_ratio": LEAST_STEADY_EXCESS},
    starts_at=(
        "{limit} of the GPU time is spent waiting for one device, and of the waiting beyond the equal share that every device has "
        "{excess_ratio} is for it, or {steady_excess_ratio} if chance does not make it so; of replicas that share cores, where it has more work or its batch comes late"
    ),
    states=(State.DEVICE_WAIT,),
    example="GPU:0, 1 and 3 wait 6.00 of 50.0 ms (12%) for GPU:2, slower at the same kernels",
)

PIPELINE: Final = Rule(
    code="pipeline-bubble",
    title="{who:waits/wait} {loss} for what another device sends[, {line}]",
    meaning=(
        "A device that receives (`ppermute`, `ncclSendRecv`) must wait for its sender, and for the "
        "sender of that. So stages of a pipeline are idle while the first batch has not reached them, and after the last has left."
    ),
    notes={"batches": "The {sends} of a step are about {batches} on {stages}."},
    # Two stages with 1, 2, 4, 8 micro-batches took 39, 20, 17, 38 ms: each also copies weights (two CPU devices, JAX 0.10).
    action="Split the batch into twice as many micro-batches as the pipeline has stages, or more, and give all stages equal work.",
    advice=(
        "With n micro-batches each of s stages waits for (s-1)/(n+s-1) of the time: with one batch on two stages for half. The "
        "slowest stage sets the pace."
    ),
    reasons={"cores": "replicas share the cores of their host"},
    limits={"batches_per_stage": 2},
    metrics={"batch_count": "micro-batches per step"},
    starts_at=(
        "{limit} of the GPU time is spent waiting for devices, at least half of that for what each sends to another, in a step with "
        "fewer than {batches_per_stage} micro-batches per stage, and no device is a straggler"
    ),
    states=(State.DEVICE_WAIT,),
    example="Both GPUs wait 12.0 of 50.0 ms (24%) for what another device sends, train.py:42",
)

LATE_BY_TURNS: Final = Rule(
    code="late-by-turns",
    title="the {all} wait for each other in turns: {loss} in collectives",
    meaning=(
        "In each step another device reaches the collectives last, and the others wait there. No device is late steadily: "
        "the work of a step varies from replica to replica."
    ),
    action="Even out the work of a step: sequences of one length per batch, input ready in time on all replicas.",
    advice="`traceview show collectives LOGDIR` shows who came last. Fewer, larger steps (gradient accumulation) average it out.",
    starts_at=(
        "{limit} of the GPU time is spent waiting for devices, and none is the reason for most of it; not of replicas on the "
        "CPU, which take its cores from each other"
    ),
    states=(State.DEVICE_WAIT,),
    example="The 4 GPUs wait for each other in turns: 4.50 of 50.0 ms (9.0%) in collectives",
)

SERIAL: Final = Rule(
    code="serial-gpus",
    title="the {all} run one after another: each idles at least {loss}[, in {line}]",
    titles={
        "section": "{who:waits/wait} {loss} for a replica in a critical section[, {line}]",
        "function": "{who:waits/wait} {loss} for {other}, which alone computes between steps[: {function}][ in {line}]",
    },
    meaning=(
        "Each device idles while another one computes, so several are no faster than one. Independent devices would overlap "
        "far more. In parallel they would take as long as the slowest of them, so the idle time of this one is lost."
    ),
    action="Run the step on all replicas at once: `strategy.run(step, args=(batch,))` inside one `tf.function`.",
    advice=(
        "A Python loop over `tf.device` scopes runs them one by one. In model parallelism split the batch into "
        "micro-batches, so that stages overlap."
    ),
    actions={
        "jax": (
            "Hand each device its work before you wait for another: move `block_until_ready` and reads of results behind the last call.",
            "Calls of jitted functions return at once, so devices work beside each other until Python waits for a result.",
        ),
        "section": "Keep out of `tf.CriticalSection.execute` what touches no shared state: compute it before or after.",
        "function": (
            "Run this on all replicas, each with its part of the batch: `strategy.run`. Or call it less often.",
            "What a script calls outside of `strategy.run` runs on the first replica. A function with fewer examples than replicas is quicker there.",
        ),
        "dependent_ops": (
            "Let no part of the step wait for one on another device that it does not need: no `tf.control_dependencies` between them.",
            "Where one device needs what another one computes, split the batch into micro-batches, so that both overlap.",
        ),
    },
    notes={
        "section": "A `tf.CriticalSection` lets one replica at a time run what is inside. The loss holds what the others wait later.",
    },
    reasons={"cores": "replicas share the cores of their host"},
    metrics={"concurrency_ratio": "compute overlap of the possible"},
    limits={"of_chance_ratio": OF_CHANCE_RATIO},
    starts_at=(
        "compute overlap below {of_chance_ratio} of what chance would give, in enough steps to rule chance out, and {limit} of "
        "the GPU time lost to it; or so much lost to `tf.CriticalSection`, or while one replica computes what is called between steps"
    ),
    states=(State.TURN,),
    explains=("straggler-gpu", "pipeline-bubble", "late-by-turns"),
    example="The 4 GPUs run one after another: each idles at least 33.2 of 44.2 ms (75%)",
)
