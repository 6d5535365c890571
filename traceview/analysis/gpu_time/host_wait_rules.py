"""Defines when idle time becomes a finding: a rule per state that a change to the program can shorten."""

from __future__ import annotations

from typing import Final

from traceview.analysis.facts.detours import WAITS_FOR_RESULTS
from traceview.analysis.facts.dispatch import MANY_KERNELS, SMALL_KERNEL_PS
from traceview.analysis.facts.python import FEED, OTHERS
from traceview.analysis.rules.rule import Advised, Rule
from traceview.document import numbers
from traceview.ledger.states import State
from traceview.trace.host.host_states import BACK_TO_BACK_PS, SCHEDULING_OP_PS

METRICS: Final = {
    "longest_gap_ps": "longest gap",
    "host_event": "host event in it",
    "python_line": "line of Python",
}

SOME_STEPS: Final = {
    "some": "It occurs in {affected} of {used}, {each} each.",
    "grows": "It grows with the steps, from {early} to {late_on}: what earlier steps did may be done again.",
}
"""Where most steps have none of it, or each has more of it than the one before."""

_NO_PYTHON: Final = {
    "waits": "That line waits most of the time: for work, a lock, a queue, a process, a file, the network or a timer.",
    "queue": "That line waits most of the time for what another thread or process makes.",
    "iterator": "That line makes an iterator of a data set most of the time: it opens all inputs anew.",
    "network": "That line waits for the network most of the time.",
    "native": (
        "That line is in calls of TensorFlow most of the time: they run ops outside of the step, or fetch a value and wait until "
        "it is computed."
    ),
}
"""Where samples show that what devices wait for is not Python that runs."""

_AWAITED_ACTIONS: Final[dict[str, Advised]] = {
    "queue": FEED,
    "network": "Do it in a thread of its own, or in every 100th step only.",
    "waits": (
        "Wait less often, or in a thread of its own.",
        "Or let what it waits for come earlier: fill the queue ahead, or schedule further steps before waiting for all of them.",
    ),
    "file": (
        "Read the file once, before the loop, if it fits into memory: `rows = file['rows'][:]`; else whole blocks of it.",
        (
            "Each call opens and unpacks a part again: from memory a step took 3.5 instead of 10.6 ms, with all rows of a batch in one call "
            "7.0, with two threads that read ahead 6.6 (HDF5, two cores)."
        ),
    ),
}
_ON: Final = "[, with {hooks} on]"
_TRACED: Final = "Turn {hooks} off while training, and capture again."
_ALL: Final = "It slows down all Python, or each call of a step. How much of this time it takes is not recorded; all of it at most."
_TURNED_OFF: Final = dict.fromkeys(("traced", "jax-traced"), (_TRACED, _ALL))
"""Where something is on that notes each allocation, call or line of Python, or that checks or runs steps op by op."""

_ONE_BY_ONE: Final = {
    "eager": "{who:waits/wait} {loss} for {count} per step outside of any `tf.function`[, in {line}]" + _ON,
    "jax-eager": "{who:waits/wait} {loss} for {count} of jitted functions per step[, in {line}]" + _ON,
}  # fmt: skip

_NO_PYTHON_ACTIONS: Final[dict[str, Advised]] = {
    **_AWAITED_ACTIONS,
    **_TURNED_OFF,
    "iterator": (
        "Make one data set of all inputs and one iterator, before the loop; in Keras call `fit` once.",
        (
            "`tf.data.Dataset.from_tensor_slices(files).interleave(reader)` is one data set of many files; `repeat()` gives it no end, "
            "and `steps_per_epoch` of Keras says how long an epoch is."
        ),
    ),
    # They hold whatever framework runs the steps.
    **{f"jax-{key}": texts for key, texts in _AWAITED_ACTIONS.items()},
    "predict": (
        "Call `model(batch, training=False)` in the loop, or `predict` in every 100th step only: each call makes a data set.",
        "`predict_on_batch` makes none either.",
    ),
    "stopping": (
        "Leave out `restore_best_weights`, for which `EarlyStopping` copies all weights, or make epochs longer: `steps_per_epoch`.",
        "It copied them after each epoch that was better: steps took 4.2 ms, else 2.8, and 3.8 in epochs twice as long (TensorFlow 2.21).",
    ),
    "callback": (
        "Let the callback work less often, or take it out.",
        "`ModelCheckpoint` has `save_freq`, `TensorBoard` has `update_freq`; one of your own can skip steps: `if batch % 100 == 0: ...`.",
    ),
    "native": "Fetch values and run such ops less often, and not between steps: `if step % 100 == 0: log(...)`.",
}

_CONVERSIONS: Final = {
    "convert": (
        "Convert once before the loop what stays the same, `tf.constant(array)`; let `tf.data` make what changes.",
        (
            "A list, or an array of another dtype or order than the tensor, is copied number by number, on the thread of the "
            "steps; `np.asarray(rows, np.float32)` prepares it."
        ),
    ),
    "jax-convert": (
        "Give the step arrays: convert once before the loop what stays the same, and lists and numbers with `np.asarray`.",
        "`jnp.array` converts a list number by number in Python: one of 200 rows of 400 took 270 ms, with `np.asarray` 1.3.",
    ),
}

_AWAITED_WORDS: Final = {
    "queue": OTHERS,
    "network": "the network",
    "waits": "Python that itself waits",
}
"""What a line waits for where no Python runs."""


_WHEN: Final = "[, in every {period} step][, in {some} of {used}]"
"""Which steps have it, where most have none of it."""


def _between_steps(what: str = "") -> str:
    what = what and f" for {what}"
    return f"{{who:waits/wait}} {{loss}}{what} between steps[ in {{line}}]{_ON}{_WHEN}"


def _in_step(what: str) -> str:
    return f"{{who:waits/wait}} {{loss}} for {what} in the step[ in {{line}}]{_ON}"


USED_IN: Final = {
    "file": (
        *(
            "h5py/",
            "zarr/",
            "tables/",
            "netCDF4/",
            "pyarrow/",
            "PIL/",
            "pandas/io/parsers/",
            "numpy/lib/_npyio",
            "numpy/lib/format",
        ),
        *("zipfile", "gzip.py", "bz2.py", "lzma.py", "tarfile.py"),
    ),
    "hash": ("in __hash__",),
    "report": ("json/", "csv.py", "logging/", "pandas/io/formats/", "matplotlib/"),
}
"""What the line of a library holds that runs Python: its module, which reads files, or writes down what others read later, or its
function."""

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
    metrics={
        **METRICS,
        "late_ratio": "share of that time in which no device of the host has work",
    },
    example="GPU:0 waits 7.10 of 61.3 ms (12%) while the host reads a value in train_step, train.py:41",
)

LAUNCH_BOUND: Final = Rule(
    code="launch-bound",
    states=(State.LAUNCH, State.LATENCY),
    title="{who:waits/wait} {loss} for kernel launches[, {line}]",
    titles={
        "kernels": "{who:spends/spend} {loss} on {count} per step, most shorter than {short}[, {line}]",
        "small": "The step is small: kernel launches take {loss}[, {line}]",
        "loop": "{who:waits/wait} {loss} for the launches of a loop of {count} per step[, {line}]",
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
        f"{numbers.chosen('_ps', SMALL_KERNEL_PS)} where a step runs {MANY_KERNELS} of them. A loop of XLA is named from "
        "{asked_count} iterations per step on. When a step is called small says `host-bound`"
    ),
    action="Launch fewer, larger kernels: a larger batch, or `jit_compile=True` on the function that computes the gradients.",
    advice=(
        "Put `@tf.function(jit_compile=True)` on the function that computes the gradients of one replica, called inside "
        "`strategy.run`. Around `strategy.run`, and in `compile()` under `MirroredStrategy`, it fails. Set "
        "`TF_GPU_THREAD_MODE=gpu_private` if executor threads compete."
    ),
    actions={
        **_TURNED_OFF,
        "kernels": "Compute on whole batches: one op instead of a loop over rows, times or variables, or `jit_compile=True`.",
        "jax-loop": (
            "Run fewer iterations, or do more in each: every one launches its kernels anew.",
            "A fixed number does not help: `fori_loop` and an unrolled `scan` took as long as `while_loop` (H200).",
        ),
        "eager": "Put the step into a graph: `@tf.function` on the function that runs the step.",
        "jax-eager": (
            "Put all that a step computes into one `jax.jit`; put batches together with NumPy and copy them once.",
            "Each op outside of it takes tens of microseconds on the calling thread, whatever it computes.",
        ),
        "jax-kernels": "Compute on whole batches: one op instead of a `jax.lax.scan` or `fori_loop` over rows or variables.",
        "jax": (
            "Launch fewer and larger kernels: one `jax.jit` around the whole step, or a larger batch per device.",
            "`jax.lax.scan` runs several steps in one call.",
        ),
    },
    notes={
        **SOME_STEPS,
        "kernels": (
            "Kernels so short take little longer than their launch, also where a graph launches them. Bars and findings count them "
            "as launches, the table of devices as compute."
        ),
        "loop": "The condition of the loop is copied to the host after each iteration. Bars and findings count short kernels as launches.",
        "eager": "Python calls each of them by itself, most often {types}.",
    },
    # Healthy steps of 4 to 10 ms had up to 7 % (H100, H200).
    limit=0.08,
    # A choice of ours: one or two conditions take no time to speak of.
    limits={"asked_count": 8},
    metrics=METRICS,
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
    metrics={**METRICS, "op": "op"},
    example="GPU:0 waits 13.3 of 61.3 ms (22%) for CPU op PyFunc",
)

HOST_BOUND: Final = Rule(
    code="host-bound",
    states=(State.HOST_OPS,),
    title="{who:waits/wait} {loss} for host ops[ in {line}]" + _ON,
    titles={
        "small": "The step is small: host ops take {loss}" + _ON,
        **_ONE_BY_ONE,
        "host": "{count} per step run outside of any `tf.function`: at least {loss} is lost",
    },
    meaning=(
        "The host dispatches ops of the step, converts values for them, or runs ops that have no kernel for the device, "
        "while the devices have nothing to do."
    ),
    notes={
        **SOME_STEPS,
        "gpu": "No single op on the CPU takes most of that.",
        "hooks": "With {hooks} on each call takes longer.",
        "eager": (
            "Python calls each of them by itself, most often {types}. On CPU devices the trace does not say for which "
            "replica, so their own time, {own} per step, is idle time here."
        ),
        "jax-eager": (
            "Outside of `jax.jit` each op is a call of its own, most often {types}. What such programs of one op compute and "
            "exchange is counted as dispatch."
        ),
        "host": (
            "Python calls each of them by itself, most often {types}. The loss is the step without its ops, each counted as "
            "long as in the quickest quarter of the steps. A graph also merges ops, which does not show here."
        ),
    },
    starts_at=(
        "{limit} of the GPU time idle while the host dispatches ops, or runs ops of "
        f"{numbers.chosen('_ps', SCHEDULING_OP_PS)} or more that launch nothing and none of which is a cpu-heavy-op. A step that "
        "loses a fifth or more to it is called small if it is below {small_step_ps} without the profiler, or if the loss is at most "
        "{call_ps} and {dispatch_ps} per op. Without GPUs "
        "{ops_per_step_count} ops per step or more outside of any tf.function are named, and {calls_per_step_count} calls of "
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
        "small": "Give the devices more work per step: a larger batch, or `steps_per_execution` in `compile()` of Keras.",
        **_TURNED_OFF,
        **_CONVERSIONS,
        "jax-puts": (
            "Put on the devices once, before the loop, what stays the same; of many arrays `np.stack` one on the host and put that.",
            "Each `jax.device_put` of an array, also of one in a tree, takes tens of microseconds and more on the calling thread.",
        ),
        "eager": "Put the step into a graph: `run_eagerly=False` in Keras, or `@tf.function` on the function that runs the step.",
        "replica": (
            "Run fewer and larger ops: on whole arrays instead of `tf.map_fn` and loops, one variable instead of many small ones.",
            "A larger batch needs fewer steps. Convert large constants once, with `tf.constant` before the loop.",
        ),
        "jax-eager": (
            "Put all that a step computes into one `jax.jit`; what only reports, such as norms of weights, do every 100th step.",
            (
                "In Keras leave `jit_compile` of `compile()` at its default. Each op outside of a program takes tens of microseconds on "
                "the calling thread, and one on an array that devices share, also an index, more."
            ),
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
    metrics={**METRICS, "eager_ops_per_step": "ops per step outside of any graph"},
    example="Both replicas wait 8.00 of 61.3 ms (13%) for host ops",
)

_AHEAD_IN_A_THREAD: Final = "Do it less often: `if step % 100 == 0: log(...)`, or ahead in a thread: NumPy computes without Python's lock."

CALLBACK_STALL: Final = Rule(
    code="callback-stall",
    states=(State.BETWEEN,),
    title=_between_steps("Python"),
    titles={
        "unseen": _between_steps(),
        **{key: _between_steps(words) for key, words in _AWAITED_WORDS.items()},
    },
    meaning="The host is between two step markers, in callbacks, logging, metrics or other code of the loop.",
    starts_at=(
        "{limit} of the GPU time idle while the thread of explicit step markers is outside of any of them. "
        "{least_op_count} ops per step or more between steps are named where a graph would save {saved_ratio} of that. It is "
        "unsure below {short_ps} per step"
    ),
    # Healthy loops with steps of 2 ms had up to 0.11 ms between steps (two cores); the limit is a choice of ours.
    limits={"least_op_count": 20, "saved_ratio": 0.5, "short_ps": 200_000_000},
    reasons={"short": "any loop takes so long between two steps"},
    action="Do it less often: `if step % 100 == 0: log(...)`. Make batches ahead with ops of `tf.data`, or in a process.",
    advice=(
        "Python in a thread, or in `tf.py_function`, keeps the lock from the step. Keras callbacks have `save_freq` and "
        "`update_freq`. A second `tf.function` that each step calls belongs into the first."
    ),
    actions={
        **_NO_PYTHON_ACTIONS,
        **_CONVERSIONS,
        "ops": (
            "Put the ops between steps into a graph: `@tf.function` on the function that runs them.",
            "That leaves little more than the time of the ops themselves. Or run them less often: `if step % 100 == 0: ...`",
        ),
        "indices": (
            "Fetch the tensor once, `values = tensor.numpy()`, and index the array: each index of a tensor runs ops.",
            "Or put what needs the values into a graph, `@tf.function`.",
        ),
        "numpy": (_AHEAD_IN_A_THREAD, "Or make them with ops of `tf.data`."),
        "jax-numpy": _AHEAD_IN_A_THREAD,
        "jax": (
            "Do it less often: `if step % 100 == 0: log(...)`. Make batches ahead in a process: a thread keeps Python's lock.",
            "A second jitted function that each step calls belongs into the first.",
        ),
    },
    notes={
        **SOME_STEPS,
        **_NO_PYTHON,
        "ops": (
            "There Python runs {count} per step one by one, outside of any `tf.function`, most often {types}. That takes "
            "{running}, of which the ops themselves take {own}."
        ),
    },
    metrics={**METRICS, "eager_ops_per_step": "ops per step between steps"},
    example="Both replicas wait 13.7 of 61.3 ms (22%) for Python between steps in on_train_batch_end, train.py:87",
)

CHECKPOINT_STALL: Final = Rule(
    code="checkpoint-stall",
    states=(State.CHECKPOINT,),
    title="{who:waits/wait} {loss} for checkpoints[ in {line}]" + _WHEN,
    titles={
        "restored": "{who:waits/wait} {loss} to restore variables[ in {line}]" + _WHEN,
        "built": "{who:waits/wait} {loss} to load a model and trace it anew[ in {line}]" + _WHEN,
    },
    meaning="Variables are saved or restored inside the window, and training waits for it.",
    starts_at=(
        "{limit} of the GPU time idle for SaveV2, RestoreV2 and similar ops on the launching thread or in the graph that it "
        "runs, for the Python between the same two step markers, and for what is traced between a restore and the next marker. "
        "If that is {traced_ratio} of it, a model was loaded"
    ),
    limits={"traced_ratio": 0.1},
    action="Save less often: `if step % 1000 == 0: checkpoint.save(path)`, or `save_freq` of Keras' `ModelCheckpoint`.",
    advice=(
        "In custom loops over `tf.Variable`, `tf.train.CheckpointOptions(enable_async=True)` saves in the background; with "
        "models of Keras 3 it fails in TensorFlow 2.21."
    ),
    actions={
        "jax": "Save less often, or in the background: `orbax.checkpoint.AsyncCheckpointer`.",
        "restored": (
            "Restore less often, or keep in memory what the loop goes back to: `variable.assign(copy)`, in one `tf.function` for all.",
            "A checkpoint is read from files again each time, one op per variable.",
        ),
        "built": (
            "Load the model once, before the loop, and keep it: what is loaded has to be built and traced each time.",
            "What has changed since can be restored into it: `model.load_weights(path)`, or `variable.assign(copy)`.",
        ),
    },
    notes=SOME_STEPS,
    metrics=METRICS,
    example="GPU:0 waits 11.9 of 61.3 ms (19%) for checkpoints",
)

VALIDATION_STALL: Final = Rule(
    code="validation-stall",
    states=(State.EVALUATION,),
    title="{who:spends/spend} {loss} in an evaluation between steps[ in {line}]" + _WHEN,
    titles={"anew": "{who:spends/spend} {loss} in an evaluation traced anew[ in {line}]" + _WHEN},
    meaning="The model is evaluated inside the window, and training waits for it.",
    starts_at=(
        "{limit} of the GPU time in evaluations: between two step markers, after at most half of the steps, the thread of the "
        "markers calls a graph and asks for input. If two of them or more trace and compile for "
        "{traced_ratio} of their time or longer, that is said"
    ),
    limits={"traced_ratio": 0.25},  # of `predict` of a new model it was half
    action="Evaluate less often, or on less data.",
    actions={"anew": "Make it once, before the loop: a new model, or function, is traced anew."},
    advice=(
        "`Model.fit` has `validation_freq` and `validation_steps`. To look at training alone, capture steps without an evaluation: "
        "`traceview capture --steps 100:110`."
    ),
    notes=SOME_STEPS,
    metrics=METRICS,
    example="Both replicas spend 65.3 of 82.6 ms (79%) in an evaluation between steps",
)

PYTHON_STALL: Final = Rule(
    code="python-stall",
    states=(State.PYTHON,),
    title=_in_step("Python"),
    titles={key: _in_step(words) for key, words in _AWAITED_WORDS.items()},
    meaning="Python runs on the thread that launches work, and nothing is queued on the devices meanwhile.",
    starts_at=(
        "{limit} of the GPU time idle between events that Python calls on the launching thread, where samples or frames show "
        "Python; not where host-bound names ops outside of any tf.function. It is unsure below {short_ps} per step"
    ),
    # Healthy loops of JAX with steps of 3 ms had up to 0.24 ms of it beside other processes (two cores).
    limits={"short_ps": 250_000_000},
    action="Move what does not need every step out of the loop, or into the `tf.function` as ops.",
    advice=(
        "Or let `tf.data` prepare it (`dataset.map`). `traceview show gaps LOGDIR --state python` shows what was called before "
        "and after."
    ),
    actions={
        **_NO_PYTHON_ACTIONS,
        "jax": (
            "Write it in `jax.numpy` inside of `jax.jit`, or do it every 100th step only.",
            "Or ahead in a process: a thread keeps Python's lock for up to 5 ms at a time, unless most of its work is NumPy.",
        ),
        "jax-report": (
            "Do it every 100th step only, or write down what is new and nothing twice.",
            "In a thread it keeps Python's lock from the step.",
        ),
        "jax-hash": (
            "Give the class of the static argument a hash by identity, `@dataclass(frozen=True, eq=False)`, and pass one object each time.",
            "Each call of a jitted function hashes its static arguments, with all that they hold: 24,000 words took 1.8 ms (JAX 0.10).",
        ),
        "jax-numpy": (
            "Do it ahead in a thread while the devices compute, in `jax.numpy` inside of `jax.jit`, or every 100th step only.",
            "The thread copies ahead, too, with `jax.device_put`. On the CPU `jax.numpy.sort` and its like are slower than NumPy's.",
        ),
    },
    notes={**SOME_STEPS, **_NO_PYTHON},
    reasons={
        "native": "samples show the inside of a call of the framework, and no Python of the script",
        "short": "any step takes so long in Python",
    },
    metrics=METRICS,
    example="GPU:0 waits 13.7 of 61.3 ms (22%) for Python in the step in train_step, train.py:41",
)

_BEFORE_AND_AFTER: Final = (
    "`traceview show gaps LOGDIR --state between_calls` shows what was called before and after."
)

BETWEEN_CALLS: Final = Rule(
    code="between-calls",
    states=(State.BETWEEN_CALLS,),
    title="{who:waits/wait} {loss} between recorded calls",
    meaning=(
        "The thread that launches work records nothing until Python calls the next op, function or copy, and nothing is "
        "queued on the devices meanwhile."
    ),
    starts_at=(
        "{limit} of the GPU time idle between events that Python calls on the launching thread, without a sample or frame of "
        "Python; not where host-bound names ops outside of any tf.function"
    ),
    action="Record with `traceview capture`, whose samples of Python name the line that ran.",
    advice=_BEFORE_AND_AFTER,
    actions={
        "sampled": (
            "Capture more steps: Python is sampled every millisecond or so, and no sample met this time.",
            _BEFORE_AND_AFTER,
        )
    },
    notes=SOME_STEPS,
    reasons={"unseen": "no sample of a stack and no frame of Python shows what ran"},
    metrics={
        **METRICS,
        "previous_event": "recorded last before the longest gap",
        "next_event": "recorded next",
    },
    example="GPU:0 waits 13.7 of 61.3 ms (22%) between recorded calls",
)

PYTHON_THREAD: Final = Rule(
    code="python-thread",
    states=(State.PYTHON_THREAD,),
    title="{who:waits/wait} {loss} for Python's lock, which {thread:keeps/keep}[ in {line}]",
    titles={
        "awaited": "{who:waits/wait} {loss} for what {thread:makes/make}[ in {line}]",
        "cores": "{who:loses/lose} {loss} to the core that {thread:takes/take}[ in {line}]",
    },
    notes={
        "lock": (
            "Only one thread at a time runs Python, and one that computes keeps the lock for 5 ms each time. The thread of the "
            "step needs the lock after each call of TensorFlow and for its own Python, and waits."
        ),
        "awaited": "For most of that time the thread of the step waits for what the other one makes.",
        "cores": (
            "It computes without Python's lock, as NumPy does, but has a core that the step needs. The loss is what threads of "
            "the step, ready to run, waited for a core because of it, as the kernel counted."
        ),
    },
    meaning="A thread of the script computes while the step runs.",
    starts_at=(
        "{limit} of the GPU time idle for dispatch, launches and Python while a thread that Python itself started keeps "
        "the lock, as samples of stacks show, and the step waits for the lock; or while the thread of the step waits in "
        "Python, and such a thread computes; or ops and dispatch wait for the core that it takes, as the kernel counts"
    ),
    action="Move the work to processes of its own: `multiprocessing.get_context('spawn').Pool(4).imap(make_batch, keys)`.",
    advice=(
        "One process, `Process(target=...)`, makes batches no faster than the thread did, but suffices for what no step waits for. "
        "Or let the thread wait for work instead of asking for it, `queue.get()`, and call code that releases the lock, such as NumPy."
    ),
    actions={
        "awaited": (
            "Make it in less time, with NumPy on whole arrays, or in several processes: `ProcessPoolExecutor().map(make, parts)`.",
            "One thread makes one after the other, and takes longer than a step. More threads share the lock.",
        ),
        "cores": (
            "Compute less beside the training: less often, on a part of the data, or on another machine.",
            "Another process would take the same core.",
        ),
    },
    metrics={
        "lock_kept_ratio": "share of the window in which it kept the lock",
        "computed_ratio": "share of the window in which it computed",
        "python_line": "line of Python",
    },
    reasons={
        "": "the processor time of the thread and the wait for it agree",
        "cores": "the kernel counts how long threads wait for a core",
    },
    example="Both replicas wait 45.8 of 66.0 ms (69%) for Python's lock, which statistics keeps in count, train.py:12",
)

GARBAGE_COLLECTION: Final = Rule(
    code="garbage-collection",
    states=(State.GARBAGE_COLLECTION,),
    title="{who:waits/wait} {loss} for Python's garbage collector",
    meaning=(
        "A full collection visits every object of the process, 380,000 after the import of TensorFlow 2.21, and no thread runs "
        "Python meanwhile."
    ),
    starts_at="{limit} of the GPU time idle for dispatch, launches and Python while Python collects garbage",
    action="Call `gc.freeze()` once before the loop: collections then skip all that exists by then.",
    advice="Do not call `gc.collect()` in every step. Objects that are kept, such as logs of each step, make collections more frequent.",
    notes=SOME_STEPS,
    reasons={"": "Python recorded its collections"},
    example="GPU:0 waits 14.5 of 57.5 ms (25%) for Python's garbage collector",
)

RULES: Final = (
    D2H_SYNC,
    LAUNCH_BOUND,
    HOST_BOUND,
    CPU_HEAVY_OP,
    CALLBACK_STALL,
    CHECKPOINT_STALL,
    VALIDATION_STALL,
    PYTHON_STALL,
    BETWEEN_CALLS,
    PYTHON_THREAD,
    GARBAGE_COLLECTION,
)
