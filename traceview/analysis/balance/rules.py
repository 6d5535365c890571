"""Defines when findings about the balance of the devices are made, what they mean, and what to do about them."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Rule

STRAGGLER: Final = Rule(
    code="straggler-gpu",
    starts_at=(
        "one device delays the others by {warning_ratio} of the median step; critical from {critical_ratio} on"
    ),
    conditions_of="needs condition 4, and one of 1 to 3",
    conditions=(
        (
            "it computes {longer_ratio} longer than the median of the others, in the mean and the median step, and longest "
            "of all in {steps_ratio} of the steps, or {deviations} robust standard deviations longer than that median"
        ),
        "it is last to {steps_ratio} of the collectives, and the others wait {wait_ratio} of the median step",
        (
            "replicas that share cores: it computes {replica_longer_ratio} longer than the median of the others, in the mean "
            "and the median step, and longest of all in {replica_steps_ratio} of the steps"
        ),
        (
            "the delay is at least {spreads}× its interquartile range over the steps: {spreads_of_few_steps}× with fewer than "
            "{many_steps_count} steps, {spreads_of_3_steps}× with 3, {spreads_of_2_steps}× with 2"
        ),
    ),
    limits={
        "longer_ratio": 0.05,
        # Equal replicas on shared cores differ by up to 0.2 for whole recordings, as the cores are dealt out.
        "replica_longer_ratio": 0.25,
        "steps_ratio": 0.60,
        "replica_steps_ratio": 0.90,
        "deviations": 3.5,
        "wait_ratio": 0.05,
        # Chance makes few steps alike: with these limits it names a straggler in at most 1 of 20 runs.
        "spreads": 1.0,
        "many_steps_count": 8,
        "spreads_of_few_steps": 2.0,
        "spreads_of_3_steps": 4.0,
        "spreads_of_2_steps": 13.0,
        "warning_ratio": 0.01,
        "critical_ratio": 0.20,
    },
    severities=("warning", "critical"),
    meaning=(
        "A mirrored step is as fast as its slowest replica: the others wait for this device. Either it is slower at "
        "the same kernels (slower_device), has more to do (more_work), gets its part of the batch late (input), or the "
        "host starts its kernels late (late_start). Devices that compute little and no gradients are not compared; "
        "devices that take turns are serial-gpus. Replicas on one CPU take its cores from each other, so a replica "
        "never counts as started late."
    ),
    evidence=(
        "straggler and devices in results.balance; kernels by name for slower_device and more_work, collectives and "
        "idle time for input for the others"
    ),
    advice=(
        "slower_device: compare clocks and other jobs on the GPU, nvidia-smi -q -d CLOCK,PERFORMANCE. more_work: equal "
        "batches, drop_remainder=True. input: traceview input LOGDIR. late_start: TF_GPU_THREAD_MODE=gpu_private."
    ),
    example=(
        "GPU:2 computes 9.10 ms longer per step (+20.0% vs. the others), 16.7% of the mean 54.6 ms step; "
        "GPU:0, 1 and 3 wait for it"
    ),
    explains=("collective-wait",),
    path_causes=("compute",),
)

MIXED: Final = Rule(
    code="mixed-gpus",
    starts_at="different models, numbers of cores or clocks among the devices in use; a warning if one is a straggler",
    severities=("info", "warning"),
    meaning=(
        "Replicas of a mirrored step get equal parts of a batch and wait for each other, so all of them are as slow as "
        "the slowest kind."
    ),
    evidence="hardware in results.balance, from the trace or the sidecar",
    advice="Train on one kind of device at a time: choose with CUDA_VISIBLE_DEVICES.",
    example="the GPUs differ: 80 cores, 1530 MHz (GPU:0) and 40 cores, 1590 MHz (GPU:1)",
)

SERIAL: Final = Rule(
    code="serial-gpus",
    starts_at=(
        "compute overlap below {of_chance_ratio} of what chance would give, and {deviations} standard deviations below it"
    ),
    # So far below the mean lies 1 of 20 values that chance gives.
    limits={"of_chance_ratio": 0.5, "deviations": 1.64},
    severities=("critical", "info"),
    meaning=(
        "The devices compute in turns: each waits while another one works, so several are no faster than one."
    ),
    evidence="concurrency_ratio and chance_ratio in results.balance",
    advice=(
        "Run the step on all replicas at once: strategy.run(step, args=(batch,)) inside one tf.function, not a Python "
        "loop over tf.device scopes. In model parallelism split the batch into micro-batches, so that stages overlap."
    ),
    example="2 GPUs run serially: 0% of the possible overlap",
    explains=("straggler-gpu", "collective-wait"),
    path_causes=("dependency", "peer"),
)

SINGLE: Final = Rule(
    code="single-gpu-gradients",
    is_of_absence=True,
    starts_at=(
        "a backward pass, {backward_ratio} of the named compute or more, on only one of several devices that are in "
        "use or belong to the strategy"
    ),
    limits={"backward_ratio": 0.05},
    severities=("critical", "info"),
    meaning=(
        "Every replica of a mirrored step computes gradients of its own part of the batch. Here one device computes "
        "all of them. Possible reasons: the model was built outside strategy.scope(), the strategy has one device, the "
        "batch does not reach all replicas, tf.device pins ops, GPUs are hidden or taken by another process. The "
        "finding names the reasons that evidence shows."
    ),
    evidence=(
        "gradients in results.balance: ops by their names, beside strategy, variables, batch, devices and other "
        "processes on the GPUs from the sidecar"
    ),
    advice=(
        "Build model and optimizer under strategy.scope(), and call strategy.run(step, args=(batch,)); print "
        "strategy.num_replicas_in_sync. traceview capture records what shows the reason."
    ),
    example="only GPU:0 computes gradients",
    explains=("straggler-gpu",),
)
