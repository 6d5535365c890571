"""What does each finding mean? The text behind `traceview explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class FindingKind:
    """One code: where it starts, its severity, what it means, the evidence, the advice, an example title."""

    code: str
    starts_at: str
    severity: str
    meaning: str
    evidence: str
    advice: str
    example: str


_KINDS: Final = (
    FindingKind(
        "no-gpu-plane",
        "a host without any device plane, though GPUs were expected; on a plain CPU run it is only said",
        "critical; info on a CPU run",
        "The GPU tracer did not start, so the trace says nothing about GPUs. TensorFlow leaves no other sign "
        "of this in the file. On a run without GPUs the replicas on the host are reported instead.",
        "no plane /device:GPU:n, while threads are named after GPUs or the profiler reported an error",
        "Check that CUPTI loads, that the driver does not restrict profiling to administrators, and that no "
        "other profiler (nsys, Nsight Compute, DCGM) is attached.",
        "no GPU plane was recorded on host0, though GPUs were in use",
    ),
    FindingKind(
        "gpu-planes-empty",
        "GPU planes, none with an event",
        "critical",
        "The tracer listed the GPUs and recorded nothing on any: nothing ran there, or every event was lost.",
        "planes /device:GPU:n without activity on all of them",
        "Capture while steps run and for more than one step; look for CUPTI errors in the log.",
        "the GPU planes of host0 hold no event",
    ),
    FindingKind(
        "unused-gpu",
        "status empty or memory_only beside active devices",
        "critical from half of the visible GPUs on, else warning",
        "A GPU that the process can see recorded neither kernel nor copy in the whole recording.",
        "status of the device in results.device_time",
        "Let MirroredStrategy take all GPUs, or hide those that should stay free with CUDA_VISIBLE_DEVICES.",
        "5 of 8 visible GPUs recorded no event",
    ),
    FindingKind(
        "copy-only-gpu",
        "status copy_only",
        "warning",
        "Data went to or from the GPU and no kernel ran on it: a replica that did not get to its step in the "
        "capture, or data placed where nothing uses it.",
        "status of the device, and the memory it holds",
        "Capture more steps; check which devices the strategy uses and what tf.device scopes pin.",
        "GPU:1 copied data and ran no kernel",
    ),
    FindingKind(
        "marginal-gpu",
        "compute below 20 % of the busiest device's",
        "warning",
        "Replicas of a mirrored step do equal work; this device does far less than another.",
        "compute_ps of the device over that of the busiest one, whole recording",
        "Check the global batch size, that the step runs under strategy.run, and tf.device scopes.",
        "GPU:1 computes 12.5% of what GPU:0 does",
    ),
    FindingKind(
        "memory-held-idle-gpu",
        "status memory_only with at least 256 MB held",
        "warning",
        "TensorFlow's allocator holds memory on a GPU on which nothing ran, so no other job can use it.",
        "memory_held_bytes of the device",
        "Set CUDA_VISIBLE_DEVICES or tf.config.set_visible_devices to the GPUs that train.",
        "4.01 GB of memory held on 1 GPU that ran nothing",
    ),
    FindingKind(
        "d2h-sync",
        "sync cause from 5 % of the step on",
        "warning",
        "The host blocked until a device had finished, or until a value was copied back. Meanwhile nothing is "
        "queued, so the device is idle from the end of its work until the host has launched more.",
        "a synchronise call, or a thread that asked for a copy to the host and was still until it ended",
        "Read values every hundredth step, and keep metrics on the device: if step % 100 == 0: "
        "print(float(loss)).",
        "GPU:0 is idle 7.1 ms of each 61.3 ms step while the host waits for a value (12%)",
    ),
    FindingKind(
        "launch-bound",
        "launch cause from 10 % of the step on",
        "critical from 30 % on, else warning",
        "The host launches ops one after the other more slowly than the device runs them. The device waits for "
        "each launch: many small kernels, eager execution, or executor threads that compete.",
        "the launching thread was in launches, ops or dispatch, with holes under 100 µs between them",
        "Compile the step with @tf.function(jit_compile=True), make batches larger, or set "
        "steps_per_execution in compile().",
        "GPU:0 waits 30.0 ms of each 61.3 ms step for launches (49%)",
    ),
    FindingKind(
        "host-bound",
        "host_compute cause from 10 % of the step on, no single op most of it",
        "warning",
        "Ops of the step that have no GPU kernel, or were placed on the CPU, run before the device can go on.",
        "ops on executor threads that launch nothing and take 50 µs or more, while the device is idle; without a "
        "GPU: hundreds of ops that run one by one, outside of any tf.function",
        "Look at the placement with tf.debugging.set_log_device_placement(True) and move preprocessing into "
        "dataset.map(...).",
        "GPU:0 waits 8.0 ms of each 61.3 ms step for CPU ops (13%)",
    ),
    FindingKind(
        "cpu-heavy-op",
        "one op on the CPU keeps the device idle for 5 % of the step",
        "warning",
        "One op of the step runs on the CPU while the device has nothing to do.",
        "the idle time of the device under the events of that op",
        "Move the op into the input pipeline, or give it a GPU kernel.",
        "GPU:0 waits 13.3 ms of each 61.3 ms step for CPU op PyFunc (22%)",
    ),
    FindingKind(
        "callback-stall",
        "callback cause from 5 % of the step on, on average",
        "warning",
        "The host was between step markers while the device was idle: Python callbacks, logging, metrics, "
        "evaluation.",
        "the thread of the markers was outside of any; needs explicit markers",
        "Do it less often, or on a thread of its own: if step % 100 == 0: log(...).",
        "GPU:0 is idle 13.7 ms per 61.3 ms step between steps (22%)",
    ),
    FindingKind(
        "checkpoint-stall",
        "checkpoint cause from 5 % of the step on, on average",
        "warning",
        "Variables were saved or restored inside the window, and training waited for it.",
        "SaveV2, RestoreV2 and their kin on the launching thread or in the graph it runs",
        "Save less often, or with tf.train.CheckpointOptions(enable_async=True).",
        "GPU:0 is idle 11.9 ms per 61.3 ms step for checkpoints (19%)",
    ),
    FindingKind(
        "retracing",
        "a tf.function traced in the window after the first recorded step",
        "warning",
        "A tf.function is traced again for every new combination of shapes, dtypes and Python arguments. "
        "Tracing runs in Python and takes as long as many steps; nothing is launched meanwhile.",
        "calls recorded as traced, and how often the function was traced since the start of the process",
        "Fix the shapes (drop_remainder=True), give an input_signature, pass tensors instead of Python numbers.",
        "train_step traced 1 times after the first step, 7.5 ms per 50.0 ms step",
    ),
    FindingKind(
        "compile-in-window",
        "compile cause from 5 % of the window on, not explained by retracing",
        "warning",
        "XLA compiled, kernels were tuned or modules loaded inside the window.",
        "events of XLA compilation, autotuning and module loading on the launching thread",
        "Capture later; if it recurs, keep shapes fixed so that what is compiled can be reused.",
        "GPU:0 is idle 10.0 ms per 50.0 ms step for compilation (20%)",
    ),
    FindingKind(
        "events-dropped",
        "any",
        "warning",
        "The tracer's buffers were full, so times and counts are too low from that moment on.",
        "the tracer's warning in the trace",
        "Capture fewer steps.",
        "the tracer dropped 1200 events",
    ),
    FindingKind(
        "profiler-error",
        "any",
        "warning",
        "The profiler wrote an error into the trace; what it could not record is missing.",
        "the message",
        "Read the message: missing privileges and a second profiler are the usual reasons.",
        "the profiler reported 1 error",
    ),
    FindingKind(
        "damaged-file",
        "any",
        "warning",
        "A trace file is cut off or damaged. What is readable was used, and the report is incomplete.",
        "file and byte offset",
        "Copy the file again, or let the profiler finish before copying.",
        "the trace of host1 is damaged in 1 place; what is readable was used",
    ),
    FindingKind(
        "duplicate-host-file",
        "any",
        "warning",
        "Two host files hold the same bytes. They are one host and were counted once.",
        "file names and their SHA-256",
        "Remove the copy; if two hosts were meant, one overwrote the other's trace.",
        "one host's trace is in the run twice",
    ),
    FindingKind(
        "missing-host",
        "any",
        "warning",
        "TF_CONFIG names more processes that train together than the run has files of, so what their devices did is "
        "not known. Known for runs of traceview capture.",
        "sizes of the cluster and tasks of the hosts in the sidecars",
        "Capture on all processes at the same steps into one folder, or copy the missing files beside the others.",
        "1 of 4 processes of the cluster was not recorded: worker 3",
    ),
    FindingKind(
        "gpu-shared",
        "another process with at least 5 % of the GPU's memory or of its time",
        "warning",
        "While the profile ran, a process that is not of this job was on the GPU. A trace holds nothing of it: its "
        "kernels show only as kernels of this job that are slow or late. Known for runs of traceview capture "
        "where NVML was sampled and the process ids it gives are those of this system.",
        "other_processes in results.outside_view: memory_ratio and utilization_ratio of each",
        "See with nvidia-smi what it is; give each job GPUs of its own.",
        "GPU:1 shared with another process holding 21.50 GB",
    ),
    FindingKind(
        "gpu-throttled",
        "something held the clocks back in at least 10 % of the samples",
        "warning",
        "The driver lowered the clocks for power, heat or another limit, so that all kernels took longer. An idle "
        "GPU and clocks that somebody set do not count.",
        "throttled_ratio and throttle_reasons in results.outside_view",
        "For a power cap look at its limit, for heat at cooling and neighbours, with nvidia-smi -q.",
        "GPU:2 held back for 43% of the time: hardware thermal slowdown",
    ),
    FindingKind(
        "nvml-disagrees",
        "NVML and the trace differ by at least 0.2 in how busy a GPU was",
        "warning",
        "NVML counts the time with a kernel, whoever runs it and whatever the tracer lost. It is set beside what the "
        "trace holds in the same periods, of kernels and of all activity; the nearer one counts. What a process "
        "of gpu-shared explains is said there.",
        "nvml_busy_ratio, trace_busy_ratio and difference_ratio in results.outside_view",
        "Look for dropped events and for other processes, and capture again with fewer steps.",
        "GPU:0 was busy 93% of the time by NVML and 20% by the trace",
    ),
    FindingKind(
        "h2d-exposed",
        "exposed host-to-device copies take at least 5 % of the median step; critical from 20 % on",
        "warning; critical",
        "A GPU at work does nothing but receive data from the host for part of each step. Copies under compute or "
        "communication do not count.",
        "exposed_ratio of directions.h2d in results.transfers",
        "Overlap the copies with the step: dataset.prefetch(tf.data.AUTOTUNE) at the end of the pipeline, "
        "strategy.experimental_distribute_dataset(dataset), or tf.data.experimental.prefetch_to_device.",
        "copies to GPU:0 take 50.0% of the step while nothing else runs on it",
    ),
    FindingKind(
        "h2d-pageable",
        "at least 10 % of the bytes to the GPU from pageable memory, and exposed copies at least 2 % of the step",
        "warning",
        "Data in pageable memory, such as NumPy arrays, goes through a buffer of the driver, slower and with the "
        "host waiting; a GPU reads pinned memory by itself.",
        "pageable_bytes over bytes of directions.h2d in results.transfers",
        "Take batches from tf.data, distributed with "
        "tf.distribute.InputOptions(experimental_fetch_to_device=True), not from NumPy arrays.",
        "100.0% of the bytes copied to GPU:0 come from pageable memory",
    ),
    FindingKind(
        "h2d-small-copies",
        "at least 100 copies below 64 KiB per step, and exposed copies at least 2 % of the step",
        "warning",
        "Many small tensors go to the GPU one by one. Each takes microseconds to launch, whatever its size.",
        "small_count_per_step of directions.h2d in results.transfers, and top_sources",
        "Concatenate features in the pipeline, batch before map, make constants once outside the step.",
        "400 copies below 64 KiB to GPU:0 per step",
    ),
    FindingKind(
        "h2d-slow-link",
        "copies at less than 50 % of what the link carries, exposed for at least 5 % of the step",
        "warning",
        "The bytes per second of the copies are far below those of the PCIe link, which traceview capture wrote "
        "down: pageable memory, small copies, a shared switch, or memory of another NUMA node.",
        "bytes_per_second of directions.h2d against link_bytes_per_second in results.transfers",
        "Look at the link with nvidia-smi -q -d PCIE, bind the process to the NUMA node of its GPU, and "
        "copy large batches from pinned memory.",
        "copies to GPU:0 run at 4.00 GB per second, 25.4% of what its link carries",
    ),
    FindingKind(
        "input-bound",
        "5 % of the step spent waiting for input; critical from 20 % on",
        "warning; critical",
        "The step waits for the next batch with nothing left to do meanwhile.",
        "idle time of the device that waits most with cause input, or without device planes the calls of "
        "IteratorGetNext that hold up the step, over its duration: input_ratio in results.input",
        "Let the pipeline work ahead, dataset.prefetch(tf.data.AUTOTUNE), and make its slowest stage faster: "
        "traceview input names it.",
        "60.0% of the step is spent waiting for input",
    ),
    FindingKind(
        "replica-starved",
        "a shard is late by 5 % of the step in at least 60 % of the steps",
        "warning",
        "One replica waits for its part of the batch when the earliest part is there already; in the next "
        "collective all others wait for it.",
        "when the element that each replica's own iterator waits for was made, beside the earliest, at most by "
        "what it waited longer: late_per_step_ps in results.input",
        "Give every replica an equal share of the data: global batches that divide by the number of replicas, "
        "files of equal size, AutoShardPolicy.DATA.",
        "shard 1 of the distributed dataset is late in 4 of 4 steps",
    ),
    FindingKind(
        "slow-input-stage",
        "half of the pipeline's own time in one stage, and input from 5 % of the step on",
        "info",
        "One stage of the tf.data pipeline takes most of the time that batches need, without the time of its "
        "inputs and without waiting for them.",
        "self_ps less waiting_ps of the stage over that of all stages that the model waits for",
        "Depends on the stage: num_parallel_calls=tf.data.AUTOTUNE for map, interleave for reading, cache for "
        "what does not change, no Python in the pipeline.",
        "Map takes 95.0% of the input pipeline's own time",
    ),
    FindingKind(
        "no-prefetch",
        "the stage at the root does not work ahead, and input from 5 % of the step on",
        "info",
        "The stage at the root runs in the thread that waits for it, so its part of each batch is made only when "
        "the model asks. TensorFlow often adds a prefetch by itself; here it did not.",
        "the names of the recorded stages: neither Prefetch nor a parallel stage below the root",
        "End the pipeline with dataset.prefetch(tf.data.AUTOTUNE).",
        "the root of the input pipeline does not work ahead of the model",
    ),
    FindingKind(
        "low-precision-unused",
        "below 10 % of the compute in 16 bits or less, on GPUs with tensor cores",
        "info",
        "Tensor cores multiply 16-bit numbers several times faster than float32, and 16-bit tensors take half the "
        "memory traffic. Nothing is said where the names of the kernels leave more than half of the compute open.",
        "low_precision_ratio and precision_ps in results.precision, read from the names of the kernels; the "
        "products off the tensor cores in ordinary_kernels",
        'Train in mixed precision: tf.keras.mixed_precision.set_global_policy("mixed_bfloat16"), on GPUs before '
        'compute capability 8 "mixed_float16".',
        "0.0% of the compute of GPU:0 is in 16 bits or less",
    ),
    FindingKind(
        "opaque-cuda-graph",
        "any",
        "info",
        "The tracer recorded a CUDA graph as one event. It counts as compute; its kernels, ops, collectives and "
        "precision are not in the trace.",
        "opaque_count and opaque_ps of graphs in results.launches",
        "Capture once without graphs: XLA_FLAGS=--xla_gpu_enable_command_buffer= switches those of XLA off.",
        "12 CUDA graphs recorded as one event each",
    ),
    FindingKind(
        "collective-exposed",
        "the exposed transfer of collectives from 10 % of the step on",
        "critical from 30 % on, else warning",
        "Devices exchange gradients while no kernel runs on them. Only the transfer counts here, the shortest time "
        "that any device was in each collective; waiting for a late device is another finding.",
        "exposed_transfer_per_step_ps of results.collectives over the median step",
        "Fewer and larger calls: tf.distribute.NcclAllReduce(num_packs=1), CommunicationOptions(bytes_per_pack=...); "
        "fewer bytes: mixed precision, a larger batch per GPU.",
        "collectives take 24.0% of the step on GPU:0 while nothing is computed",
    ),
    FindingKind(
        "collective-wait",
        "exposed waiting for other devices in collectives from 5 % of the step on, not explained by a straggler "
        "or a late input shard",
        "warning",
        "A collective ends on all devices together, so those that come early wait in it for the last one.",
        "exposed_wait_per_step_ps of results.collectives over the median step; last_count tells who came last",
        "Equal work for all replicas: dataset.batch(n, drop_remainder=True), input ready for all, GPUs of one model.",
        "GPU:2 waits 12.0% of the step in collectives for other devices",
    ),
    FindingKind(
        "reduction-off-gpu",
        "path cpu_bounce, or one_device with at least 3 GPUs, for gradients",
        "warning",
        "Gradients are not summed by NCCL over the links between GPUs: they go to the CPU and back, or all to one "
        "GPU. A scalar loss that is summed so is normal and does not count.",
        "path and path_ops of results.collectives: copies as large as gradients, and sums that no replica owns",
        "MirroredStrategy without cross_device_ops takes NCCL; create variables under strategy.scope() and outside "
        "of tf.device('/CPU:0'); do not divide GPUs into virtual devices.",
        "the gradients of 4 GPUs of host0 are summed on one GPU",
    ),
    FindingKind(
        "straggler-gpu",
        "compute 5 % over the median of the others and longest in 60 % of the steps (or 3.5 robust standard deviations "
        "over it); else last to 60 % of the collectives, while its peers wait 5 % of the step; either by twice what it "
        "varies by from step to step (of three steps by 4 times, of two by 13 times that); replicas that share cores in "
        "90 %; and it costs 1 % of the step",
        "warning; critical if it costs 20 % of the step",
        "A mirrored step is as fast as its slowest replica: the others wait for this device. It is slower at the same "
        "kernels (slower_device), has more to do (more_work), gets its part of the batch late (input), or its kernels "
        "are started late (late_start). Devices that compute little are marginal-gpu and not compared; devices that "
        "take turns are serial-gpus. Replicas on one CPU take its cores from each other, so that a late start is none.",
        "straggler and devices in results.balance; kernels by name for the first two causes, collectives and the idle "
        "time for input for the others",
        "slower_device: look at clocks and neighbours, nvidia-smi -q -d CLOCK,PERFORMANCE. more_work: equal batches, "
        "drop_remainder=True. input: traceview input LOGDIR. late_start: TF_GPU_THREAD_MODE=gpu_private.",
        "GPU:2 computes 20.0% longer than the others in every step",
    ),
    FindingKind(
        "serial-gpus",
        "less than half of the concurrency that chance would give, and so that chance gives as little in one of 20 runs",
        "critical; info with fewer than 2 used steps",
        "The devices compute one after the other: each waits while another works, so that several are no faster "
        "than one.",
        "concurrency_ratio and chance_ratio in results.balance",
        "Run all replicas at once with strategy.run inside one tf.function; in model parallelism split the batch "
        "into micro-batches.",
        "the 2 GPUs in use compute one after the other: 0.0% of what could run at once does",
    ),
    FindingKind(
        "single-gpu-gradients",
        "gradient ops on one device only, of several that are in use or belong to the strategy",
        "critical; info with fewer than 2 used steps",
        "Every replica computes gradients of its part of the batch. Here one device does all of it: the model was "
        "built outside strategy.scope(), the strategy has one device, the batch does not reach all replicas, ops are "
        "pinned by tf.device, GPUs are hidden or taken by another process. The finding names what evidence shows.",
        "gradients in results.balance: ops by their names, beside the sidecar's strategy, variables, batch, devices and "
        "the other processes on the GPUs",
        "Build model and optimizer in with strategy.scope(): and call strategy.run(step, args=(batch,)).",
        "only GPU:0 computes gradients",
    ),
    FindingKind(
        "mixed-gpus",
        "different models, numbers of cores or clocks among the devices in use",
        "info; warning if one of them is a straggler",
        "Replicas get equal parts of a batch and wait for each other, so all are as slow as the slowest kind.",
        "hardware in results.balance, from the planes of the trace or the sidecar",
        "Train on one kind at a time, chosen with CUDA_VISIBLE_DEVICES.",
        "the devices in use are of 2 kinds: 80 cores, 1530 MHz (GPU:0) and 40 cores, 1590 MHz (GPU:1)",
    ),
    FindingKind(
        "poor-scaling",
        "the devices in use compute less than half of the time, and no other finding says why",
        "info",
        "So many devices that compute all the time would do the same work.",
        "effective_gpus and in_use_efficiency_ratio in results.balance",
        "Compare with a run on one GPU: traceview analyze LOGDIR --baseline LOGDIR_OF_ONE.",
        "8 GPUs do the work of 2.10 that compute all the time",
    ),
    FindingKind(
        "few-steps",
        "fewer than 3 used steps",
        "info",
        "Too few steps to tell a typical one from an exception.",
        "used_count in results.steps",
        "Capture at least five steps after the warm-up.",
        "only 1 step to judge by",
    ),
    FindingKind(
        "unsteady-steps",
        "a robust spread of 10 % of the step, or one step of twice the median; no other finding explains it",
        "info; warning if the mean step takes 5 % more than the median one",
        "Steps of one loop should take equally long, and these do not.",
        "1.4826 times the median absolute deviation over the median, and the longest step",
        "Compare a slow step with a usual one: traceview gaps LOGDIR --steps A:B.",
        "step 14 took 2.3 times the median step",
    ),
    FindingKind(
        "no-step-marker",
        "no explicit marker",
        "info",
        "Steps were inferred from what repeats, or not found at all.",
        "method in results.steps",
        "Mark steps with tf.profiler.experimental.Trace('train', step_num=i, _r=1).",
        "6 steps found from repeated function calls, without an explicit marker",
    ),
    FindingKind(
        "options-ignored",
        "any",
        "info",
        "TensorFlow recorded with other tracer levels than the capture asked for: 2.20 and 2.21 accept profiler "
        "options and use their defaults.",
        "levels asked for in the sidecar, beside those in force in the sidecar or the trace; where these are not "
        "recorded, a Python tracer that left no event",
        "Leave the options at their defaults with TensorFlow 2.20 and 2.21; 2.19 honours them.",
        "TensorFlow ignored 1 profiler option: python_tracer_level",
    ),
)

FINDINGS: Final[dict[str, FindingKind]] = {kind.code: kind for kind in _KINDS}
"""Every finding by its code, in the order in which they are explained."""
