"""Defines when idle time becomes a finding: a rule per state that a change to the program can shorten."""

from __future__ import annotations

from typing import Final

from traceview.analysis.facts.detours import WAITS_FOR_RESULTS
from traceview.analysis.facts.dispatch import MANY_KERNELS, SMALL_OP_PS
from traceview.analysis.rules.rule import Rule
from traceview.document import numbers
from traceview.ledger.states import State
from traceview.trace.host.host_states import BACK_TO_BACK_PS, SCHEDULING_OP_PS

SOME_STEPS: Final = {"some": "It occurs in {affected} of {used}, {each} each."}
"""Where most steps have none of it."""

ON: Final = "[, with {hooks} on]"
"""What slows each call of Python, in a title."""

_TRACED: Final = "Turn {hooks} off while training, and capture again."
_ALL: Final = "It slows down all Python, or each call of a step. How much of this time it takes is not recorded; all of it at most."
TURNED_OFF: Final = dict.fromkeys(("slow_settings", "jax-slow_settings"), (_TRACED, _ALL))
"""Where something is on that notes each allocation, call or line of Python, or that checks or runs steps op by op."""

_INDEXED: Final = {
    "jax-indexing": (
        "Index what the host has fetched, `values = np.asarray(array)`; leave state as a step returned it; put all else into one `jax.jit`.",
        "Each index of an array of JAX runs ops, as in `float(losses[i])`, or `state[0]` of what `pmap` gives for each device.",
    )
}
_ONE_BY_ONE: Final = {
    "eager": "{who:waits/wait} {loss} for {count} per step outside of any `tf.function`[, in {line}]" + ON,
    "jax-eager": "{who:waits/wait} {loss} for {count} of ops and jitted functions per step[, in {line}]" + ON,
}  # fmt: skip

CONVERSIONS: Final = {
    "converted_values": (
        "Convert once before the loop what stays the same, `tf.constant(array)`; let `tf.data` make what changes.",
        "A list, or an array of another dtype or order, is copied number by number; `np.asarray(rows, np.float32)` prepares it.",
    ),
    "jax-converted_values": (
        "Put on the devices once, before the loop, what stays the same; convert lists and numbers with `np.asarray`.",
        "`jnp.array` converts a list number by number in Python. Of many arrays `np.stack` one on the host and put that.",
    ),
}
"""What lists and arrays cost that the framework converts."""

WHEN: Final = "[, all in every {period} step][, in {some} of {used}]"
"""Which steps have it, where most have none of it."""

D2H_SYNC: Final = Rule(
    code="d2h-sync",
    states=(State.SYNC,),
    title="{who:waits/wait} {loss} while the host reads a value[ in {line}]",
    titles={
        "late": "{who:waits/wait} {loss}: the host stays blocked after they are done[, {line}]"
    },
    meaning=(
        "The host blocks until the device has finished or a value is copied back. Meanwhile nothing is queued, so the "
        "device is idle from the end of its work until the host has launched more. Work that does not need the value could have "
        "been queued before."
    ),
    starts_at=(
        "{limit} of the GPU time idle in a synchronize call, or while a thread that asked for a copy to the host pauses "
        "until it ends. A note is added if during {late_ratio} of that time, in waits of {late_row_ps} or more, no device of the "
        "host has work"
    ),
    action="Read results less often, not in each step: `if step % 100 == 0: print(float(loss))`.",
    advice=(
        "Keep metrics on the device (`tf.keras.metrics`) and read them at the end of an epoch. TensorFlow waits for all that it has "
        "queued on a GPU, also where the loss of an earlier step is read."
    ),
    actions={
        "jax": (
            "Read results in every 100th step only: `block_until_ready`, `float(loss)` and printing an array wait for the device.",
            "Or read those of the step before, so that one step is always queued: `jax.block_until_ready(last_loss)`.",
        ),
    },
    limits={"late_row_ps": 1_000_000_000, "late_ratio": 0.50},
    notes={
        **SOME_STEPS,
        "late": (
            "For {late} of that time no device of the host has work: the call returns late. Blocking less often saves the "
            "time; why the runtime is late was not recorded."
        ),
    },
    metrics={"late_ratio": "share of that time in which no device of the host has work"},
    example="GPU:0 waits 7.10 of 61.3 ms (12%) while the host reads a value in train_step, train.py:41",
)

LAUNCH_BOUND: Final = Rule(
    code="launch-bound",
    states=(State.LAUNCH, State.LATENCY),
    title="{who:waits/wait} {loss} for kernel launches[, {line}]",
    titles={
        "kernels": "{who:spends/spend} {loss} on {count} per step, most shorter than {short}[, {line}]",
        "small": "Kernel launches take {loss}, as in any step of so many kernels[, {line}]",
        **_ONE_BY_ONE,
    },
    meaning=(
        "The host launches ops one after the other more slowly than the device runs them: many small kernels, eager "
        "execution, Python between launches, or executor threads that compete. Launch latency is a state of its own in bars, and part "
        "of this cost."
    ),
    starts_at=(
        "{limit} of the GPU time idle while the launching thread is in launches, ops or dispatch, with pauses under "
        f"{numbers.chosen('_ps', BACK_TO_BACK_PS)} between them; with it gaps of less between kernels that were queued, and "
        "the time of kernels that are usually shorter than "
        f"{numbers.chosen('_ps', SMALL_OP_PS)} where a step runs {MANY_KERNELS} of them"
    ),
    action="Launch fewer, larger kernels: a larger batch, or `jit_compile=True` on the function that computes the gradients.",
    advice=(
        "Put it on what one replica computes, inside of `strategy.run`: around that, and in `compile()` under "
        "`MirroredStrategy`, it fails. Set `TF_GPU_THREAD_MODE=gpu_private` if executor threads compete."
    ),
    actions={
        **TURNED_OFF,
        "kernels": "Compute on whole batches: one op instead of a loop over rows, times or variables, or `jit_compile=True`.",
        "eager": "Put the step into a graph: `@tf.function` on the function that runs the step.",
        "jax-eager": (
            "Put all that a step computes into one `jax.jit`; put batches together with NumPy and copy them once.",
            "Each op outside of it takes tens of microseconds on the calling thread, whatever it computes.",
        ),
        **_INDEXED,
        "jax-kernels": "Compute on whole batches: one op instead of a `jax.lax.scan` or `fori_loop` over rows or variables.",
        "jax": (
            "Launch fewer and larger kernels: one `jax.jit` around the whole step, or a larger batch per device.",
            "`jax.lax.scan` runs several steps in one call; each iteration launches its kernels anew.",
        ),
    },
    notes={
        **SOME_STEPS,
        "kernels": (
            "Kernels so short take little longer than their launch, also where a graph launches them. Bars and findings count them "
            "as launches, the table of devices as compute."
        ),
        "eager": "Python calls each of them by itself, most often {types}.",
    },
    # Healthy steps of 4 to 10 ms had up to 7 % (H100, H200).
    limit=0.08,
    example="GPU:0 waits 30.0 of 61.3 ms (49%) for kernel launches",
)

_WHERE_EVENT: Final = "See which steps have it, and what runs around it: `traceview show gaps LOGDIR --state host_ops`."

CPU_HEAVY_OP: Final = Rule(
    code="cpu-heavy-op",
    states=(*WAITS_FOR_RESULTS, State.D2H),
    title="{who:waits/wait} {loss} for CPU op {op}[ in {line}]",
    titles={
        "copies": "{who:waits/wait} {loss} for ops of the step on the CPU and the copies around them: {op}[, {line}]",
        "asked": "{who:waits/wait} {loss} while the graph copies results to the host and goes on there: {op}[, {line}]",
        "event": "{who:waits/wait} {loss} in {op}[, {line}]",
    },
    meaning="The device waits for work of the step on the CPU.",
    starts_at=(
        "{limit} of the GPU time idle during ops on the CPU whose results are copied to the device, and around copies to the host "
        "between two kernels of a step, with these copies and the waits around them; else during one op on the CPU, or one event of no known kind on the launching thread that "
        f"takes {numbers.chosen('_ps', SCHEDULING_OP_PS)} or more and launches nothing; on hosts with GPUs"
    ),
    action="Move it into the input pipeline, `dataset.map(...)`, or take it out of the step.",
    advice=(
        "Or give it a GPU kernel: dtype float32 and a `tf.device('GPU:0')` scope show whether it has one. "
        "`traceview show gaps LOGDIR --state host_ops` shows when it ran."
    ),
    actions={
        "jax": "Take work on the CPU out of the step: `jax.pure_callback`, `jax.debug.print`, and NumPy between calls.",
        "copies": (
            "Run them on the GPU: without `tf.device('/CPU:0')` around them, or around the variables that they read.",
            (
                "`tf.debugging.set_log_device_placement(True)` says where each op runs. One without a kernel for the GPU belongs "
                "into the input pipeline, `dataset.map(...)`."
            ),
        ),
        "asked": (
            "Let the step ask for no values: take assertions, conditions and prints out of it, or run them every 100th step.",
            "What depends on a value that the host has to see is launched when it has arrived.",
        ),
        "event": _WHERE_EVENT,
        "jax-event": _WHERE_EVENT,
        "jax-callback": (
            "Write it in `jax.numpy`, or, if it only reports, call it every 100th step on what the step returns.",
            "The program waits for each call of Python, which needs its lock.",
        ),
    },
    notes={
        **SOME_STEPS,
        "copies": (
            "Tensors of the device are copied to these ops, and their results back. Both are part of the loss, and so are launches "
            "between the same two kernels, for behind such an op nothing is launched ahead."
        ),
        "asked": "Launches between the same two kernels are part of the loss, for nothing is launched ahead.",
        "event": "The framework records it under this name before it launches.",
    },
    example="GPU:0 waits 13.3 of 61.3 ms (22%) for CPU op PyFunc",
)

HOST_BOUND: Final = Rule(
    code="host-bound",
    states=(State.HOST_OPS,),
    title="{who:waits/wait} {loss} for host ops[ in {line}]" + ON,
    titles={
        "small": "Dispatch takes {loss}, as in any step of so many ops" + ON,
        "many": "{who:waits/wait} {loss} for the dispatch of {count} per step[, most of {line}][, most of them in {scope}]"
        + ON,
        **_ONE_BY_ONE,
        "host": "{count} per step run outside of any `tf.function`: at least {loss} is lost",
        "arguments": "{who:waits/wait} {loss} for handing over {count} per step[, in {line}]",
    },
    meaning=(
        "The host dispatches ops of the step, converts values for them, or runs ops that have no kernel for the device, "
        "while the devices have nothing to do."
    ),
    notes={
        **SOME_STEPS,
        "eager": (
            "Python calls each of them by itself, most often {types}. Their own time, {own} per step, is idle time of CPU devices here."
        ),
        "jax-eager": (
            "Outside of `jax.jit` each op is a call of its own, most often {types}. What these compute is counted as dispatch."
        ),
        "host": (
            "Python calls each of them by itself, most often {types}. The loss is the step without its ops, each counted as "
            "long as in the quickest quarter of the steps. A graph also merges ops, which does not show here."
        ),
    },
    starts_at=(
        "{limit} of the GPU time idle while the host dispatches ops, or runs ops of "
        f"{numbers.chosen('_ps', SCHEDULING_OP_PS)} or more that launch nothing and none of which is a cpu-heavy-op. A step that "
        "loses a fifth or more to it loses what any step does if the loss is at most {call_ps} and {dispatch_ps} per op, or if it is below "
        "{small_step_ps} without the profiler, on CPU devices with few ops. Without GPUs "
        "{ops_per_step_count} ops per step or more outside of any tf.function are named, or where a tape there asks for the gradients of several; and {calls_per_step_count} calls of "
        "jitted functions of JAX"
    ),
    # 4 ms to call the step, with the Python of the framework, and 20 µs per op: healthy steps of 20 ms with two replicas took
    # 5.0 ms for 76 ops, of an LSTM 6.2 ms for 630 (two cores). Healthy steps of JAX had up to 3 calls.
    limits={
        "small_step_ps": 10_000_000_000,
        "call_ps": 4_000_000_000,
        "dispatch_ps": 20_000_000,
        "ops_per_step_count": 100,
        "calls_per_step_count": 8,
    },
    action="Move preprocessing into `dataset.map(...)`, and keep string and lookup ops out of the step.",
    advice="See what was placed on the CPU with `tf.debugging.set_log_device_placement(True)`.",
    actions={
        "small": (
            "Give the devices more work per call: a larger batch, or several steps in a `tf.range` loop within one `tf.function`.",
            "In Keras that is `steps_per_execution`, which ended with an error on two replicas (Keras 3.15, TensorFlow 2.21).",
        ),
        **TURNED_OFF,
        **CONVERSIONS,
        "eager": "Put the step into a graph: `run_eagerly=False` in Keras, or `@tf.function` on the function that runs the step.",
        "ops_of_replicas": (
            "Run fewer and larger ops: on whole arrays instead of `tf.map_fn` and loops, one variable instead of many small ones.",
            "A larger batch needs fewer steps. Metrics are ops, too: take fewer, or evaluate now and then.",
        ),
        "jax-eager": (
            "Put all that a step computes into one `jax.jit`; what only reports, such as norms of weights, do every 100th step.",
            "Each op outside takes tens of microseconds on the calling thread. In Keras leave `jit_compile` of `compile()` at its default.",
        ),
        **_INDEXED,
        "jax-arguments": (
            "Hand over few arrays: join columns, `np.stack(list(columns.values()))`; put what stays the same on the devices once.",
            "Each takes tens of microseconds: with 192 columns a step took 8.3 ms, with one array 3.7 (JAX 0.10, two devices on two cores).",
        ),
        "jax": (
            "Give the devices more work per call: one `jax.jit` around the whole step, or a larger batch per device.",
            "`jax.lax.scan` runs several steps in one call.",
        ),
    },
    reasons={
        "between": "no op is counted longer than it needs",
        "cores": "the dispatch of ops shares the cores with the ops of CPU devices",
    },
    metrics={"eager_ops_per_step": "calls per step outside of any graph"},
    example="Both replicas wait 8.00 of 61.3 ms (13%) for host ops",
)

CHECKPOINT_STALL: Final = Rule(
    code="checkpoint-stall",
    states=(State.CHECKPOINT,),
    title="{who:waits/wait} {loss} for checkpoints[ in {line}]" + WHEN,
    titles={
        "restored": "{who:waits/wait} {loss} to restore variables[ in {line}]" + WHEN,
    },
    meaning="Variables are saved or restored inside the window, and training waits for it.",
    starts_at=(
        "{limit} of the GPU time idle for SaveV2, RestoreV2 and similar ops on the launching thread or in the graph that it "
        "runs, for the Python between the same two step markers, and for what is traced between a restore and the next marker"
    ),
    action="Save less often: `if step % 1000 == 0: checkpoint.save(path)`, or `save_freq` of Keras' `ModelCheckpoint`.",
    advice=(
        "In custom loops over `tf.Variable`, `tf.train.CheckpointOptions(enable_async=True)` saves in the background; with "
        "models of Keras 3 it fails in TensorFlow 2.21."
    ),
    actions={
        "jax": "Save less often, or in the background: `orbax.checkpoint.AsyncCheckpointer`.",
        "restored": (
            "Restore less often, or keep in memory what the loop goes back to: `variable.assign(copy)`, in one `tf.function` for all.",
            "Load a model once, before the loop, and keep it: what is loaded has to be built and traced each time.",
        ),
    },
    notes=SOME_STEPS,
    example="GPU:0 waits 11.9 of 61.3 ms (19%) for checkpoints",
)

VALIDATION_STALL: Final = Rule(
    code="validation-stall",
    states=(State.EVALUATION,),
    title="{who:spends/spend} {loss} in an evaluation between steps[ in {line}]" + WHEN,
    titles={
        "input": "{who:spends/spend} {loss} in an evaluation that mostly waits for its own input[, {line}]"
        + WHEN,
    },
    meaning="The model is evaluated inside the window, and training waits for it.",
    starts_at=(
        "{limit} of the GPU time in evaluations: between two step markers, after at most half of the steps, the thread of the "
        "markers calls a graph and asks for input, or a function that repeats one that trains. It says so if calls for input take "
        "{input_ratio} of it"
    ),
    limits={"input_ratio": 0.5},
    action="Evaluate less often, or on less data.",
    actions={
        "input": (
            "Cache its batches: end the data set of the evaluation with `.cache()`, behind `take`, and leave out `shuffle`.",
            "Each evaluation reads the data set from its beginning, and first fills the buffer of `shuffle`.",
        ),
    },
    advice=(
        "`Model.fit` has `validation_freq` and `validation_steps`. A new model, or function, is traced anew: make it once. To look "
        "at training alone, capture steps without an evaluation: `traceview capture --steps 100:110`."
    ),
    notes=SOME_STEPS,
    example="Both replicas spend 65.3 of 82.6 ms (79%) in an evaluation between steps",
)

RULES: Final = (
    D2H_SYNC,
    LAUNCH_BOUND,
    HOST_BOUND,
    CPU_HEAVY_OP,
    CHECKPOINT_STALL,
    VALIDATION_STALL,
)
