"""Defines when idle time becomes a finding: a rule per cause that a change to the program can remove.

A rule is applied to the device of each host that is idle least, because its waiting makes steps longer. Ratios are
costs: idle time per used step over the step (docs/method.md, "Cost"), or without steps over the window.
"""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Rule
from traceview.document import numbers
from traceview.trace.cause import Cause
from traceview.trace.host_evidence import BACK_TO_BACK_PS, SCHEDULING_OP_PS


class IdleRule(Rule, frozen=True, kw_only=True):
    """A rule about idle time with the one cause in `idle_causes`.

    `title`: with `{device}`, `{span}` (how much of what) and `{share}`.
    """

    title: str

    @property
    def cause(self) -> Cause:
        """The cause of the idle time."""
        return Cause[self.idle_causes[0].upper()]


D2H_SYNC: Final = IdleRule(
    code="d2h-sync",
    starts_at="{warning_ratio} of the mean step idle while the host waits for a value",
    severities=("warning", "info"),
    limits={"warning_ratio": 0.05},
    meaning=(
        "The host blocks until the device has finished or a value is copied back. Meanwhile nothing is queued, so the "
        "device is idle from the end of its work until the host has launched more."
    ),
    evidence="a synchronize call, or a thread that asked for a copy to the host and paused until it ended",
    advice=(
        "Read results less often, and not in the step: if step % 100 == 0: print(float(loss)). Keep metrics on the device "
        "(tf.keras.metrics) and read them at the end of an epoch."
    ),
    example="GPU:0 is idle 7.10 ms of the mean 61.3 ms step while the host waits for a value (11.6%)",
    idle_causes=("sync",),
    title="{device} is idle {span} while the host waits for a value ({share})",
    jax_advice=(
        "Read results less often, and not in the step: block_until_ready, float(loss) or print of an array "
        "in every 100th step only. JAX then queues the next step while the devices compute."
    ),
)

LAUNCH_BOUND: Final = IdleRule(
    code="launch-bound",
    starts_at="{warning_ratio} of the mean step idle for kernel launches; critical from {critical_ratio} on",
    severities=("warning", "critical", "info"),
    limits={"warning_ratio": 0.10, "critical_ratio": 0.30},
    meaning=(
        "The host launches ops one after the other more slowly than the device runs them: many small kernels, eager "
        "execution, Python between launches, or executor threads that compete."
    ),
    evidence=(
        "the launching thread is in launches, ops or dispatch, with pauses under "
        f"{numbers.time(BACK_TO_BACK_PS)} between them"
    ),
    advice=(
        "Launch fewer and larger kernels: a larger batch per replica, or @tf.function(jit_compile=True) on the function "
        "that computes the gradients of one replica, called inside strategy.run. Around strategy.run, and in compile() "
        "under MirroredStrategy, jit_compile=True fails. Set TF_GPU_THREAD_MODE=gpu_private if executor threads compete."
    ),
    example="GPU:0 waits 30.0 ms of the mean 61.3 ms step for kernel launches (48.9%)",
    idle_causes=("launch",),
    title="{device} waits {span} for kernel launches ({share})",
    jax_advice=(
        "Launch fewer and larger kernels: one jax.jit around the whole step, a larger batch per device, or "
        "jax.lax.scan over several steps in one call."
    ),
)

CPU_HEAVY_OP: Final = IdleRule(
    code="cpu-heavy-op",
    starts_at="{warning_ratio} of the mean step idle for one CPU op",
    severities=("warning", "info"),
    limits={"warning_ratio": 0.05},
    meaning="One op of the step runs on the CPU while the device has nothing to do.",
    evidence="the idle time of the device during the events of that op",
    advice=(
        "Move it into the input pipeline (dataset.map(...)), give it a GPU kernel (dtype float32 and a "
        "tf.device('GPU:0') scope show whether it has one), or take it out of the step."
    ),
    example="GPU:0 waits 13.3 ms of the mean 61.3 ms step for CPU op PyFunc (21.7%)",
    idle_causes=("host_compute",),
    title="{device} waits {span} for CPU op {op} ({share})",
    jax_advice=(
        "Take the work on the CPU out of the step: jax.pure_callback and jax.debug.print inside of jit, and "
        "NumPy between its calls."
    ),
)

CPU_OPS: Final = (
    "The device waits for ops of the step that run on the CPU, because they have no GPU kernel or were placed there. No "
    "single op takes most of the time."
)
"""What host-bound means where there are GPUs."""

OUTSIDE_OF_GRAPHS: Final = "for ops outside of any tf.function"
MANY_SMALL_OPS: Final = "for steps of many small ops on CPU devices"

HOST_BOUND: Final = IdleRule(
    code="host-bound",
    starts_at="{warning_ratio} of the mean step idle while the host runs CPU ops, none of them a cpu-heavy-op",
    conditions_of="without GPUs, only with one of these",
    conditions=(
        "{ops_per_step_count} ops per step or more run one by one, outside of any tf.function",
        (
            "the step is a graph, and the replicas are idle for {replica_ratio} of it while the host works for its ops; "
            "information only"
        ),
    ),
    severities=("warning", "info"),
    # On CPU devices each step has some of it: from where a loss is worth a name, see report/verdict.py.
    limits={"warning_ratio": 0.10, "ops_per_step_count": 100, "replica_ratio": 0.03},
    meaning=(
        f"{CPU_OPS} Without GPUs the replicas are CPU devices, and it means that they wait for the host between ops: "
        "because Python calls each op by itself, outside of any tf.function, or because the steps are short and the host "
        "takes as long to dispatch their ops as the ops take to run."
    ),
    evidence=(
        f"ops of {numbers.time(SCHEDULING_OP_PS)} or more on executor threads that launch nothing, while the device is "
        "idle; without GPUs, ops that run outside of any tf.function"
    ),
    advice=(
        "See what was placed on the CPU with tf.debugging.set_log_device_placement(True), move preprocessing into "
        "dataset.map(...), and keep string and lookup ops out of the step."
    ),
    advice_where={
        OUTSIDE_OF_GRAPHS: (
            "Put the step into a graph: run_eagerly=False in Keras, or @tf.function on the function that runs the step."
        ),
        MANY_SMALL_OPS: (
            "Run fewer and larger ops in each step: a larger batch, ops on whole batches instead of tf.map_fn and loops "
            "over rows. Convert large constants once, with tf.constant before the loop."
        ),
    },
    example="GPU:0 waits 8.00 ms of the mean 61.3 ms step while the host runs CPU ops (13.1%)",
    idle_causes=("host_compute",),
    path_causes=("host_compute", "python"),
    title="{device} waits {span} while the host runs CPU ops ({share})",
    jax_advice=(
        "Give the devices more work per call: one jax.jit around the whole step, a larger batch per device, "
        "or jax.lax.scan over several steps in one call."
    ),
)

OPS_BETWEEN_STEPS: Final = "for ops that run one by one between steps"

CALLBACK_STALL: Final = IdleRule(
    code="callback-stall",
    starts_at="{warning_ratio} of the mean step idle between step markers",
    severities=("warning", "info"),
    limits={"warning_ratio": 0.05},
    meaning=(
        "Callbacks, logging, metrics, evaluation or other Python runs between the step markers, while no step is in "
        "flight."
    ),
    evidence="the thread of the markers is outside of any of them; needs explicit markers",
    advice=(
        "Do it less often or elsewhere: if step % 100 == 0: log(...) in a loop, save_freq and update_freq where Keras "
        "callbacks do it, a thread for what needs no device."
    ),
    advice_where={
        OPS_BETWEEN_STEPS: (
            "Put these ops into a graph: @tf.function on the function that runs them, which leaves little more than the "
            "time of the ops themselves. Or run them less often: if step % 100 == 0: …"
        ),
    },
    example="GPU:0 waits 13.7 ms of the mean 61.3 ms step for Python between steps (22.3%); 137 ms in step 14",
    idle_causes=("callback",),
    title="{device} waits {span} for Python between steps ({share})",
    jax_advice="Do it less often or elsewhere: if step % 100 == 0: log(...), a thread for what needs no device.",
)

CHECKPOINT_STALL: Final = IdleRule(
    code="checkpoint-stall",
    starts_at="{warning_ratio} of the mean step idle for checkpoints",
    severities=("warning", "info"),
    limits={"warning_ratio": 0.05},
    meaning=("Variables are saved or restored inside the window, and training waits for it."),
    evidence=(
        "SaveV2, RestoreV2 and similar ops on the launching thread or in the graph that it runs, and the Python between "
        "the same two step markers"
    ),
    advice=(
        "Save less often: if step % 1000 == 0: checkpoint.save(path), or save_freq of Keras' ModelCheckpoint. In custom "
        "loops over tf.Variable, tf.train.CheckpointOptions(enable_async=True) saves in the background; with models of "
        "Keras 3 it fails in TensorFlow 2.21."
    ),
    example="GPU:0 waits 11.9 ms of the mean 61.3 ms step for checkpoints and the Python around them (19.4%): 9.80 ms checkpoints, 2.10 ms Python around them; 59.5 ms each in 2 of 10 steps",
    idle_causes=("checkpoint",),
    path_causes=("checkpoint", "callback"),
    title="{device} waits {span} for checkpoints ({share})",
    jax_advice="Save less often, or in the background: orbax.checkpoint.AsyncCheckpointer.",
)

VALIDATION_STALL: Final = IdleRule(
    code="validation-stall",
    starts_at="{warning_ratio} of the mean step spent on an evaluation between step markers",
    severities=("warning", "info"),
    limits={"warning_ratio": 0.05},
    meaning=(
        "The model is evaluated inside the window, and training waits for it. Tables of device time show what the "
        "devices do in the evaluation, such as compute."
    ),
    evidence=(
        "between two step markers the thread of the markers asks for input and calls a graph, after at most half of the "
        "steps"
    ),
    advice=(
        "Evaluate less often or on less data: validation_freq and validation_steps of Model.fit. To look at training "
        "alone, capture steps without an evaluation: traceview capture --steps 100:110."
    ),
    example="evaluation between steps takes 65.3 ms of the mean 82.6 ms step (79.1%); 223 ms in step 19",
    idle_causes=("callback",),
    title="evaluation between steps takes {span} ({share})",
)

RETRACING: Final = IdleRule(
    code="retracing",
    starts_at="a tf.function traced again after the first recorded step; a first trace is no finding of this kind",
    severities=("warning", "info"),
    meaning=(
        "A tf.function is traced again for every new combination of shapes, dtypes and Python arguments. Tracing runs "
        "in Python and takes as long as many steps; nothing is launched meanwhile."
    ),
    evidence="calls recorded as traced, and how often the function was traced since the start of the process",
    advice=(
        "Give it one signature, @tf.function(input_signature=[tf.TensorSpec([None, 224, 224, 3]), tf.TensorSpec([])]): one "
        "graph then serves every size of the batch, and every Python number, which becomes a tensor. Without it, pass "
        "tf.constant(number) instead of a Python number; where shapes change, reduce_retracing=True, or "
        "dataset.batch(n, drop_remainder=True)."
    ),
    example="train_step traced 1 time after the first step: GPU:0 waits 7.50 ms of the mean 50.0 ms step (15.0%)",
    idle_causes=("compile",),
    title="{functions} traced {times} after the first step: {device} waits {span} ({share})",
    jax_advice=(
        "Give each call the same shapes, dtypes and static arguments. JAX_EXPLAIN_CACHE_MISSES=1 says why a "
        "function was traced again."
    ),
)

COMPILE_IN_WINDOW: Final = IdleRule(
    code="compile-in-window",
    starts_at=(
        "{warning_ratio} of the mean step idle for compilation; not where retracing explains it"
    ),
    severities=("warning", "info"),
    limits={"warning_ratio": 0.05},
    meaning=(
        "A tf.function is traced for the first time, XLA compiles, kernels are tuned or modules are loaded inside the window."
    ),
    evidence="events of tracing, XLA compilation, autotuning and module loading on the launching thread",
    advice=(
        "Capture later, when everything is compiled (traceview capture --steps 100:110); if it recurs, fix shapes: "
        "dataset.batch(n, drop_remainder=True)."
    ),
    example="GPU:0 waits 10.0 ms of the mean 50.0 ms step for compilation (20.0%)",
    idle_causes=("compile",),
    title="{device} waits {span} for compilation ({share})",
    jax_advice=(
        "Record steps after the warm-up: jax.profiler.start_trace('logs') before them, "
        "jax.profiler.stop_trace() after them. If it recurs, give each call the same shapes; "
        "JAX_LOG_COMPILES=1 names what is compiled."
    ),
)

PYTHON_STALL: Final = IdleRule(
    code="python-stall",
    starts_at=(
        "{warning_ratio} of the mean step idle while Python runs on the launching thread; "
        "not where ops outside of any tf.function explain it"
    ),
    severities=("warning", "info"),
    limits={"warning_ratio": 0.10},
    meaning=(
        "Python runs on the thread that launches work, and nothing is queued on the device meanwhile. The thread "
        "records nothing until Python calls the next op, function or copy."
    ),
    evidence="results.idle, cause python; next_event of its gaps is what Python called then",
    advice=(
        "Move what does not need every step out of the loop, let tf.data prepare it (dataset.map), or put it into the "
        "tf.function as ops. traceview gaps LOGDIR --cause python shows what was called before and after."
    ),
    example="GPU:0 waits 13.7 ms of the mean 61.3 ms step while Python runs on the launching thread (22.3%)",
    idle_causes=("python",),
    title="{device} waits {span} while Python runs on the launching thread ({share})",
    jax_advice=(
        "Do less in Python between the calls: one jax.jit around the whole step, batches that a thread "
        "prepares and copies ahead with jax.device_put."
    ),
)

FIRST_CALL: Final = IdleRule(
    code="first-call",
    starts_at="{critical_ratio} of the mean step idle while a graph is prepared for its first call",
    severities=("critical",),
    limits={"critical_ratio": 0.50},
    meaning=(
        "The window holds the first call of a function. Its graph is optimized and its kernels are made, which takes "
        "longer than many steps. Nothing here says how training runs later."
    ),
    evidence="copies of constants (MakeTensorFromProto) to devices, which only the preparation of a graph makes",
    advice="Capture later, after the first steps: traceview capture --steps 100:110.",
    example="the recording holds the first call of a function: GPU:0 waits 596 ms of the mean 669 ms step (89.0%)",
    explains=("unused-gpu", "copy-only-gpu", "few-steps"),
    idle_causes=("compile",),
    title="the recording holds the first call of a function: {device} waits {span} ({share})",
    jax_advice=(
        "Record steps after the warm-up: jax.profiler.start_trace('logs') before them, "
        "jax.profiler.stop_trace() after them."
    ),
)

RULES: Final = (
    D2H_SYNC,
    LAUNCH_BOUND,
    HOST_BOUND,
    CPU_HEAVY_OP,
    CALLBACK_STALL,
    CHECKPOINT_STALL,
    VALIDATION_STALL,
    RETRACING,
    COMPILE_IN_WINDOW,
    PYTHON_STALL,
    FIRST_CALL,
)
