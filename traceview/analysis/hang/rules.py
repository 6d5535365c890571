"""The rules about hangs: what each finding means, when it is made, and what to do."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Rule

TIMEOUT_ADVICE: Final = (
    "With tf.distribute.experimental.CommunicationOptions(timeout_seconds=600) in the strategy, the job ends with an "
    "error that names the op. If GPUs hang in the first step, look at NCCL_DEBUG=INFO, and try NCCL_P2P_DISABLE=1."
)

HANG_COLLECTIVE: Final = Rule(
    "hang-collective",
    starts_at=(
        "no step ends for the time of --on-hang, the call of the step computes on less than {idle_cores} cores, and "
        "a worker or a device has not come to a collective"
    ),
    conditions_of="one of these shows that",
    conditions=(
        "the report of a worker, or the collectives that were recorded",
        "one GPU is busy for at least {busy_ratio} of the time, and another for at most {idle_ratio}",
        "all that is known is that the step has collectives; confidence is low then",
    ),
    limits={"idle_cores": 0.2, "busy_ratio": 0.95, "idle_ratio": 0.05},
    meaning=(
        "A collective ends when every device of its group has come to it. Here some have, and wait. A worker does "
        "not come if it does something else: a checkpoint that only the chief writes, a longer validation, an input "
        "that blocks, or data that ended earlier than that of the others. Within one process a device does not come "
        "if a branch of the step skips the collective, or if what the device does before it does not end."
    ),
    evidence="workers, collectives and gpus in results.hangs: what each one says, and has_come of each device",
    advice=(
        "Look at what the worker or device that did not come does: its own report has its stacks. Give all workers the "
        "same number of batches (repeat() and steps_per_epoch, or drop_remainder=True) and the same callbacks. "
        f"{TIMEOUT_ADVICE}"
    ),
    example="worker 0 waits in train_step; worker 1 did not come: in train.py:50 in save, without a step for 60 s",
    severities=("critical",),
)

HANG_INPUT: Final = Rule(
    "hang-input",
    starts_at=(
        "no step ends for the time of --on-hang, and the main thread waits in an iterator, a dataset or a queue; or "
        "the step computes on less than {idle_cores} cores while Python of the input pipeline has not returned"
    ),
    limits={"idle_cores": 0.2},
    meaning=(
        "The step cannot begin or end, because its data does not come. Usual reasons are a generator that waits on a "
        "queue, a lock or the network, a worker process of the data loader that died, or a queue of TensorFlow that "
        "nobody fills."
    ),
    evidence="threads in results.hangs: the stacks of the main thread and of the threads that make the input",
    advice=(
        "Look at the line that waits. Give each get() and each request a timeout, and let the thread or process that "
        "fills the queue report its errors: one that died leaves the reader waiting. A queue of TensorFlow needs "
        "close() when its producer ends."
    ),
    example="the input does not come: data.py:12 in read_batches waits for a lock or a queue",
    severities=("critical",),
)

HANG_PYTHON: Final = Rule(
    "hang-python",
    starts_at=(
        "no step ends for the time of --on-hang, and the main thread is in Python between steps and not known to "
        "work, or no Python can run"
    ),
    meaning=(
        "The main thread has not come to the next step: it waits for a lock, the network, a file or another process, "
        "or it loops. Where no Python can run, a native call holds Python's lock (GIL), or the process was stopped."
    ),
    evidence="threads in results.hangs: the stack of the main thread, and what the kernel says it waits for",
    advice=(
        "Look at the line: give requests and locks a timeout, and move work that no step needs into a thread, or to "
        "one worker of several only if the others do not wait for it."
    ),
    example="the main thread is in train.py:50 in save between steps, and waits for the network or a pipe",
    severities=("critical", "warning"),
)

ANY_STEPS: Final = "traceview capture --steps 99:101 --on-hang 60s for step 100"

HANG_STEP: Final = Rule(
    "hang-step",
    starts_at=(
        "no step ends for the time of --on-hang, the call of the step computes on less than {idle_cores} cores, and "
        "neither input nor a collective explains it"
    ),
    limits={"idle_cores": 0.2},
    meaning=(
        "The call of the step does not return, and the process hardly computes. What TensorFlow waits for inside of "
        "it is not visible from outside: an op records itself when it ends."
    ),
    evidence="cores, threads, native and gpus in results.hangs",
    advice=(
        f"If it hangs at the same step every time, record that step and the one before it: {ANY_STEPS}. "
        "The profile is stopped and kept during the hang, and shows the last ops of each device. Look for queues, py_function and waiting ops in the step."
    ),
    example="train_step has not returned for 60 s, and the process hardly computes",
    severities=("critical",),
)

LONG_PAUSE: Final = Rule(
    "long-pause",
    starts_at=("no step ends for the time of --on-hang, and the process works"),
    conditions_of="one of these shows that",
    conditions=(
        "it computes on {idle_cores} cores or more",
        "its stack moves in a checkpoint, validation, tracing or import",
        "it calls a tf.function that is no step",
        "it writes a checkpoint at {written_bytes_per_second} or more",
    ),
    limits={"idle_cores": 0.2, "written_bytes_per_second": 1e5},
    meaning="No step has ended, but the process works. It may only be slow.",
    evidence="cores, written_bytes, other_call_count and threads in results.hangs",
    advice=(
        "Wait, and set --on-hang longer than the longest checkpoint, validation or compilation. The report is completed "
        "when the next step ends."
    ),
    example="no step has ended for 60 s: a checkpoint is being written (train.py:50 in save)",
    severities=("info",),
)

RULES: Final = (HANG_COLLECTIVE, HANG_INPUT, HANG_PYTHON, HANG_STEP, LONG_PAUSE)
