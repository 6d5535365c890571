"""Concludes from the ledger which waits for Python are worth a change: in the step, between steps, in another thread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from traceview.analysis.facts.python import (
    FEED,
    OTHERS,
    WORKS_ON,
    PythonShare,
)
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.facts.threads import ThreadAtWork, threads_at_work
from traceview.analysis.gpu_time.host_wait_rules import (
    CONVERSIONS,
    ON,
    SOME_STEPS,
    TURNED_OFF,
    WHEN,
)
from traceview.analysis.gpu_time.waits import (
    CLEAR_RATIO,
    EagerOps,
    Waits,
    eager_calls,
    eager_ops,
    line_argument,
)
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import WITH_LOCK, Advised, Rule
from traceview.analysis.rules.words import Argument, Line, Names, Number, Ops, Quantity
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_US
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.trace.host.state_timeline import complement, intersection, without_holes

_NO_PYTHON: Final = {
    "waits": "That line waits most of the time: for work, a lock, a process, a file, the network or a timer.",
    "queue": "That line waits most of the time for what another thread or process makes.",
    "coroutines": "That line runs coroutines, of which all wait most of the time, for the network, a file or a timer.",
    "iterator": "That line ends or makes an iterator of a data set most of the time: it opens all inputs anew.",
    "native": (
        "That line mostly calls the framework, to run ops outside of the step, or to fetch a value and wait until "
        "it is computed."
    ),
    "beside": "Meanwhile another thread of the script is in {beside}.",
}
"""Where samples show that what devices wait for is not Python that runs, and what other threads do meanwhile."""

_AWAITED_WORDS: Final = {
    "queue": OTHERS,
    "coroutines": "what coroutines await",
    "waits": "a process, the network, a file, lock or timer",
}
"""What a line waits for where no Python runs."""


def _ways(else_: str) -> str:
    return f"Do it once before the loop, or only every 100th step; else {else_}"


_OWN: Final = "own_code"
_FREE: Final = "code_that_releases_the_GIL"
"""Keys of advice: Python of the script itself, and what computes without Python's lock."""

_OF_ANY_FRAMEWORK: Final[dict[str, Advised]] = {
    "queue": FEED,
    "waits": (
        "Wait in a thread of its own, or in every 100th step only.",
        "Of several requests send all first, then take their answers; threads and processes are started once, before the loop.",
    ),
    "coroutines": (
        "Start all requests before any is awaited: `await asyncio.gather(*requests)`; one by one each takes a whole round trip.",
        "Or begin those of the next step before this one: `asyncio.run_coroutine_threadsafe`, with a loop in a thread of its own.",
    ),
    "decoding_pictures": "Decode each picture once, before the loop, or only as large as needed: `picture.draft('RGB', size)` for a JPEG.",
    "reports": (
        "Do this in every 100th step only, and write what is new, not all again.",
        (
            "A thread would hold the GIL, which the step needs. A log writes each line once for every handler: add handlers once. "
            "An array prints 1,000 numbers at most, unless `numpy.set_printoptions` asks for more."
        ),
    ),
    "copies": (
        "Copy no whole array to change a part: keep an order of its rows, `rng.permutation(n)`, or a list of what is new, joined at the end.",
        "`numpy.append`, `delete` and `insert`, and `pandas.concat`, copy all of it in each call.",
    ),
    "whole_objects": (
        "Copy only what changes: `copy.copy(record)` and new values for some fields, or save these fields and set them back.",
        "`copy.deepcopy` goes through all that an object holds, in Python; a class can say in `__deepcopy__` what its copies share.",
    ),
    "class_weights": (
        "Give weights with the data, made by NumPy: `return x, y, weights[y]` instead of `fit(class_weight=...)`.",
        "Keras looks the weight of each label up in Python, one by one.",
    ),
    "modules": "Hand modules over once, `step = nnx.cached_partial(train_step, model, optimizer)`, and then only batches: `step(batch)`.",
    "lists_of_rows": "Ask the data set for arrays, once before the loop: `dataset.with_format('numpy')`.",
    "writing_files": (
        "Write in every 100th step only, or keep it in memory and write all of it at once.",
        "A thread helps where the library releases the GIL: `h5py` and compression do, `numpy.savetxt` does not.",
    ),
    "reading_files": "Read the file once, before the loop, if it fits into memory: `rows = file['rows'][:]`; else whole blocks of it.",
    "keras": (
        "Run several steps per call, `model.compile(..., steps_per_execution=10)`: between two calls Keras runs Python of its own.",
        "Or fewer steps, with a larger batch.",
    ),
    "keras_replicas": (
        "Run fewer steps, with a larger batch: between two calls Keras runs Python of its own.",
        "On several replicas `steps_per_execution` ended with an error (Keras 3.15, TensorFlow 2.21).",
    ),
    _OWN: (
        "Write its loops with NumPy on whole arrays, or do it once before the loop, or only every 100th step.",
        "Else do it in another process: a thread would hold the GIL, which the step needs.",
    ),
}

_ACTIONS: Final[dict[str, Advised]] = {
    **TURNED_OFF,
    **_OF_ANY_FRAMEWORK,
    **{f"jax-{key}": texts for key, texts in _OF_ANY_FRAMEWORK.items()},
    "iterator": (
        "Make one data set of all inputs and one iterator, before the loop; in Keras call `fit` once, with long epochs: `steps_per_epoch=n`.",
        (
            "`tf.data.Dataset.from_tensor_slices(files).interleave(reader)` is one data set of many files; `repeat()` gives it no end, "
            "and `steps_per_epoch` of Keras says how long an epoch is."
        ),
    ),
    "predict": (
        "Call `model(batch, training=False)` in the loop, or `predict` in every 100th step only: each call makes a data set.",
        "`predict_on_batch` makes none either.",
    ),
    "callback": (
        "Let the callback work less often, or take it out.",
        (
            "`ModelCheckpoint` has `save_freq`, `TensorBoard` has `update_freq`; `EarlyStopping` copies all weights for "
            "`restore_best_weights`; one of your own can skip steps: `if batch % 100 == 0: ...`."
        ),
    ),
    "native": "Run this line only in every 100th step: it fetches values of the framework, or runs ops and functions.",
}


def _between_steps(what: str = "") -> str:
    what = what and f" for {what}"
    return f"{{who:waits/wait}} {{loss}}{what} between steps[ in {{line}}]{ON}{WHEN}"


def _in_step(what: str) -> str:
    return f"{{who:waits/wait}} {{loss}} for {what} in the step[ in {{line}}]{ON}"


_UNSEEN: Final[Advised] = (
    "Look for logging, metrics and callbacks between the steps: no sample of Python shows the line.",
    (
        "`traceview capture` records samples, in a file beside the trace; few steps have few. What is not needed in each step, do "
        "less often: `if step % 100 == 0: log(...)`."
    ),
)

_FREE_ACTION: Final = _ways("in a background thread: it releases the GIL.")

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
    action=_ways("in another process."),
    advice=(
        "Make batches with ops of `tf.data`. Python in a thread, or in `tf.py_function`, holds the GIL, which the step needs. Keras callbacks have `save_freq` and "
        "`update_freq`. A second `tf.function` that each step calls belongs into the first."
    ),
    actions={
        **_ACTIONS,
        **CONVERSIONS,
        **dict.fromkeys(("unseen", "jax-unseen"), _UNSEEN),
        "ops": (
            "Make a graph of the ops between steps, `@tf.function`[ on {called}], for whole batches; or run them in every 100th step only.",
            "A graph leaves little more than the time of the ops themselves. What prepares batches belongs into `dataset.map`. Else: `if step % 100 == 0: ...`.",
        ),
        "variables": (
            "Make metrics, layers and variables once, before the loop; update and reset them inside of a `tf.function`.",
            "A `tf.function` makes variables in its first call alone.",
        ),
        "indexing": (
            "Fetch the tensor once, `values = tensor.numpy()`, and index the array: each index of a tensor runs ops.",
            "Or put what needs the values into a graph, `@tf.function`.",
        ),
        **dict.fromkeys((_FREE, f"jax-{_FREE}"), _FREE_ACTION),
        "jax": (
            _ways("in another process: a thread would hold the GIL."),
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
    metrics={"eager_ops_per_step": "ops per step between steps"},
    example="Both replicas wait 13.7 of 61.3 ms (22%) for Python between steps in on_train_batch_end, train.py:87",
)


PYTHON_STALL: Final = Rule(
    code="python-stall",
    states=(State.PYTHON,),
    title=_in_step("Python"),
    titles={key: _in_step(words) for key, words in _AWAITED_WORDS.items()},
    meaning="Python runs on the thread that launches work, and the devices wait for it.",
    starts_at=(
        "{limit} of the GPU time idle between events that Python calls on the launching thread, where samples or frames show "
        "Python; not where host-bound names ops outside of any tf.function. It is unsure below {short_ps} per step"
    ),
    # Healthy loops of JAX with steps of 3 ms had up to 0.24 ms of it beside other processes (two cores).
    limits={"short_ps": 250_000_000},
    action=_ways("in `dataset.map`, or with ops of the `tf.function`."),
    advice="`traceview show gaps LOGDIR --state python` shows what was called before and after.",
    actions={
        **_ACTIONS,
        "jax": (
            _ways("in `jax.numpy` inside of `jax.jit`, or in another process."),
            "A thread holds the GIL for up to 5 ms at a time, unless most of its work is NumPy.",
        ),
        _FREE: (_FREE_ACTION, "Or make it with ops of the `tf.function`."),
        f"jax-{_FREE}": (
            _ways("in a background thread: it releases the GIL; or in `jax.numpy`."),
            "The thread copies ahead, too, with `jax.device_put`. On the CPU `jax.numpy.sort` and its like are slower than NumPy's.",
        ),
    },
    notes={**SOME_STEPS, **_NO_PYTHON},
    reasons={
        "native": "samples show the inside of a call of the framework, and no Python of the script",
        "short": "any step takes so long in Python",
    },
    example="GPU:0 waits 13.7 of 61.3 ms (22%) for Python in the step in train_step, train.py:41",
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
    action="Record more steps, with `traceview capture`, whose samples of Python name the line that ran.",
    advice="`traceview show gaps LOGDIR --state between_calls` shows what was called before and after.",
    notes=SOME_STEPS,
    reasons={"unseen": "no sample of a stack and no frame of Python shows what ran"},
    example="GPU:0 waits 13.7 of 61.3 ms (22%) between recorded calls",
)

PYTHON_THREAD: Final = Rule(
    code="python-thread",
    states=(State.PYTHON_THREAD,),
    title="{who:waits/wait} {loss} for the GIL, which {thread:holds/hold}[ in {line}]",
    titles={
        "awaited": "{who:waits/wait} {loss} for what {thread:does/do}[ in {line}]",
        "cores": "{who:loses/lose} {loss} to the core that {thread:takes/take}[ in {line}]",
    },
    notes={
        "lock": (
            "Only one thread at a time runs Python. One that computes holds the GIL for 5 ms each time, and native code that "
            "does not release it, such as pickle, until it is done. The thread of the step needs the GIL for its own Python and "
            "after its calls of the framework, and waits."
        ),
        "awaited": "For most of that time the thread of the step waits for what the other one makes, or takes.",
        "cores": (
            "It computes without the GIL, as NumPy does, but has a core that the step needs. The loss is what threads of "
            "the step, ready to run, waited for a core because of it, as the kernel counted."
        ),
    },
    meaning="A thread of the script computes while the step runs.",
    starts_at=(
        "{limit} of the GPU time idle for dispatch, launches and Python while a thread that Python itself started holds "
        "the GIL, as samples of stacks show, and the step waits for it; or while the thread of the step waits in "
        "Python, and such a thread computes; or ops and dispatch wait for the core that it takes, as the kernel counts"
    ),
    action="Move the work to a process of its own: `multiprocessing.get_context('spawn').Process(target=...)`.",
    advice=(
        "If it makes batches, several make them sooner: `Pool(4).imap(make_batch, keys)`. "
        "Or let the thread wait for work instead of asking for it, `queue.get()`, and call code that releases the GIL, such as NumPy."
    ),
    actions={
        "awaited": (
            "Do it in less time, with NumPy on whole arrays, or in several processes: `ProcessPoolExecutor().map(make, parts)`.",
            "One thread does one after the other, and takes longer than a step. More threads share the GIL.",
        ),
        "awaited_free": (
            "Do it in less time, or in more threads: it releases the GIL. `ThreadPoolExecutor(4).map(make, parts)`.",
            "More threads help as long as cores are free.",
        ),
        "in_turn": (
            "Ask for several at once, `pool.map(make, parts)`: {waiter} waits for each result before it asks for the next, in {at}.",
            "Meanwhile the other threads of the pool have nothing to do.",
        ),
        "grain": (
            "Let processes read: `ReadOptions(num_threads=1)` and `.mp_prefetch(grain.MultiprocessingOptions(num_workers=4))`.",
            "The threads of grain, 16 if nothing is said, share the GIL: 25 ms with 16, 11 with two processes of one each (grain 0.2.18).",
        ),
        "cores": "Compute less beside the training: less often, on a part of the data, or on another machine.",
    },
    metrics={
        "lock_kept_ratio": "share of the window in which it held the GIL",
        "computed_ratio": "share of the window in which it computed",
    },
    reasons={
        "": "the processor time of the thread and the wait for it agree",
        "cores": "the kernel counts how long threads wait for a core",
    },
    example="Both replicas wait 45.8 of 66.0 ms (69%) for the GIL, which statistics holds in count, train.py:12",
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
    action="Call `gc.freeze()` once before the loop: collections then skip all existing objects.",
    advice="Do not call `gc.collect()` in every step. Objects that are kept, such as logs of each step, make collections more frequent.",
    notes=SOME_STEPS,
    example="GPU:0 waits 14.5 of 57.5 ms (25%) for Python's garbage collector",
)

RULES: Final = (
    CALLBACK_STALL,
    PYTHON_STALL,
    BETWEEN_CALLS,
    PYTHON_THREAD,
    GARBAGE_COLLECTION,
)

_MOST_BETWEEN_PS: Final = 200 * PS_PER_US
"""Between two calls Python reads variables and checks arguments, which took 40 to 100 µs on two slow cores."""

CONVERTS: Final = (
    *("tensorflow/python/framework/constant_op.py", "tensorflow/python/framework/tensor_"),
    *("jax/_src/dtypes.py", "jax/_src/numpy/array"),
)
"""Modules that make tensors and arrays of what Python has (TensorFlow 2.21, JAX 0.10)."""

NUMPY: Final = "numpy/"
"""Modules that compute without Python's lock."""

_INDEXES: Final = "StridedSlice"
_MAKES: Final = b"EagerLocalExecute: VarHandleOp"
"""What Python records where it makes a variable outside of a graph (TensorFlow 2.21)."""
_LAYERS: Final = ("keras/", "tf_keras/")
"""Modules whose layers index for themselves."""

TRACED: Final = "slow_settings"
"""The key of the advice where something slows each call of Python."""

_OF_RUNNING: Final = ("", *WORKS_ON)


def _instead(python: PythonShare | None) -> str:
    """The key of what is said of a line: what it waits for, or works on, where a module shows that."""
    if python is None:
        return ""
    if python.awaits or python.state != "runs":
        return python.awaits or python.state
    return python.works_on


_HOOK: Final = lazy_pattern(r"(\w+\.)?on_(?:train|epoch|test|predict)_\w+")
_FIT: Final = lazy_pattern(r"(?:tf_)?keras/.*:\d+ in (?:\w+\.)?fit\Z", re.DOTALL)


def _keras_key(waits: Waits, python: PythonShare | None, instead: str) -> str:
    """The key of the advice: what a method of Keras asks for that does the work, or what is known instead; else what a hook does."""
    function = python.line.rpartition(" in ")[2] if python and python.ratio >= CLEAR_RATIO else ""
    hook = _HOOK.fullmatch(function)
    if function == "Model.predict":
        return "predict"
    if hook and hook[1]:
        return "callback"
    is_own = instead in ("", _OWN)
    if python and python.state == "runs" and is_own and _FIT.match(python.called or ""):
        return "keras" if len(waits.context.ledger.devices) == 1 else "keras_replicas"
    return "callback" if hook and is_own else instead


def _work_key(python: PythonShare | None) -> str:
    """The key of the advice for work without Python's lock, and for Python of the script itself."""
    if python is None or python.state != "runs" or python.ratio < CLEAR_RATIO:
        return ""
    is_numpy = (python.inner or "").startswith(NUMPY)
    is_free = is_numpy if python.frees_lock is None else python.frees_lock
    if is_free:
        return _FREE
    return _OWN if python.called is None else ""


def _beside(waits: Waits, key: str) -> dict[str, Argument]:
    """The line of most other threads, while a line waits for these; `key`: of what it waits for."""
    python = waits.python(State.INPUT) if key in ("queue", "waits") else None
    return {"beside": python.argument} if python else {}


def _short(waits: Waits, rule: Rule) -> str:
    """The key of why a finding is unsure that any loop has."""
    return "short" if waits.loss.mean_ps < rule.limits["short_ps"] else ""


def python_in_step(waits: Waits) -> Finding | None:
    """Python on the thread of the steps, as samples or frames show it."""
    python = waits.python(State.PYTHON)
    instead, arguments = _keras_key(waits, python, _instead(python)), line_argument(python)
    if instead in _OF_RUNNING and python is not None and waits.tracing:
        instead, arguments = TRACED, arguments | waits.tracing
    beside = _beside(waits, instead)
    return waits.finding(
        PYTHON_STALL,
        arguments=arguments | beside,
        title=instead if instead in PYTHON_STALL.titles else "",
        action=instead or _work_key(python),
        notes=(instead, *beside),
        # A pause inside a call of the framework is what that call takes.
        unsure="native" if instead == "native" else _short(waits, PYTHON_STALL),
    )


def between_calls(waits: Waits) -> Finding | None:
    """Silence between recorded calls."""
    return waits.finding(BETWEEN_CALLS, unsure="unseen")


def between_steps(waits: Waits) -> Finding | None:
    """Python between steps; the ops that it runs one by one where a graph would save most of the time."""
    python = waits.python(State.BETWEEN)
    arguments, key = line_argument(python), _instead(python) if python else "unseen"
    if python and (python.inner or "").startswith(CONVERTS) and not python.calls_named:
        key = "converted_values"
    if _ends_iterators(waits):
        key = "iterator"
    if key in (*_OF_RUNNING, "converted_values") and waits.tracing:
        key, arguments = TRACED, arguments | waits.tracing
    else:
        key = _keras_key(waits, python, key or _work_key(python))
    evidence: list[Evidence] = []
    ops = _ops_between_steps(waits, is_in_calls=key == "native")
    if ops is not None:
        key, (calls, running_ps, own_ps) = "ops", ops
        arguments |= {
            "count": Number(calls.count_per_step, "op"),
            "types": Ops(calls.types),
            "running": Quantity(running_ps, "ps"),
            "own": Quantity(own_ps, "ps"),
            **_called_by_loop(waits, python),
        }
        least = int(CALLBACK_STALL.limits["least_op_count"])
        evidence.append(Evidence("eager_ops_per_step", calls.count_per_step, least, ""))
    beside = _beside(waits, key)
    is_of_layers = python is not None and (python.called or "").startswith(_LAYERS)
    is_indexing = ops is not None and _INDEXES in ops[0].types and not is_of_layers
    is_making = ops is not None and _makes_variables(waits)
    return waits.finding(
        CALLBACK_STALL,
        arguments=arguments | beside,
        evidence=evidence,
        title=key if key in CALLBACK_STALL.titles else "",
        action="variables" if is_making else "indexing" if is_indexing else key,
        notes=(key, *beside),
        unsure=_short(waits, CALLBACK_STALL),
    )


def _makes_variables(waits: Waits) -> bool:
    """Whether the thread of the steps makes variables outside of graphs in these rows, at least as many as there are steps."""
    context, host = waits.context, waits.host
    made = context.trace.named_on(host, _MAKES.__eq__)
    begun = context.trace.host_columns.start_ps[made]
    inside = context.ledger.spans_of([waits.device], waits.rows).within(begun, begun + 1) > 0
    return int(inside.sum()) >= max(len(context.selection.used_of(host)), 1)


def _ends_iterators(waits: Waits) -> bool:
    """Whether the thread of the steps ends iterators in most of the time, which waits for the threads of these."""
    ended = waits.context.idle.states[waits.host].ended_input
    spans = waits.context.ledger.spans_of([waits.device], waits.rows)
    return 2 * intersection(spans, ended).length > spans.length


def _called_by_loop(waits: Waits, python: PythonShare | None) -> dict[str, Argument]:
    """The function of the script that the loop calls at a line, where it calls one."""
    lines = waits.context.idle.python.get(waits.host)
    called = lines.lines.called_by_loop(lines.caller) if lines and python else {}
    _, _, function = called.get(python.line if python else "", "").partition(" in ")
    return {"called": Names((function,), "function")} if function else {}


def _ops_between_steps(waits: Waits, *, is_in_calls: bool) -> tuple[EagerOps, int, int] | None:
    """The ops between step markers, how long they follow each other per step, and how long they run themselves.

    `is_in_calls`: samples show the thread in calls of TensorFlow for most of that time, however far apart these are recorded.

    None if a graph would not save most of the time: histograms of weights, whose ops take longer than Python does, took
    as long in a graph; a moving average of 30 variables took 2 instead of 19 ms.
    """
    context, host = waits.context, waits.host
    trace, selection, markers = context.trace, context.selection, context.idle.states[host].markers
    between = complement(markers)
    if waits.of_samples:
        # Others are of another cause.
        own = [each for each in context.ledger.devices if trace.device_list[each].host == host]
        between = intersection(between, context.ledger.spans_of(own, waits.rows))
    calls = eager_calls(trace, selection, host, between)
    limits = CALLBACK_STALL.limits
    if calls is None or calls.count_per_step < limits["least_op_count"]:
        return None
    bounds = step_bounds(selection.used_of(host))
    ops, running = eager_ops(trace, selection, host), without_holes(calls.spans, _MOST_BETWEEN_PS)
    own_ps = int(np.sum(intersection(ops.spans, between).within(*bounds))) if ops else 0
    running_ps = int(np.sum(running.within(*bounds)))
    count = bounds[0].size
    if is_in_calls:
        running_ps = max(running_ps, waits.loss.mean_ps * count)
    if (running_ps - own_ps) // count < limits["saved_ratio"] * waits.loss.mean_ps:
        return None
    return calls, running_ps // count, own_ps // count


def _slows_ops(waits: Waits) -> bool:
    """Whether two thirds of what is lost are ops that take longer: a thread that keeps the lock keeps none of them from running."""
    columns = waits.context.ledger.columns
    busy = waits.rows & (columns.activity != IDLE)
    lost_ps, busy_ps = (int(columns.duration_ps[rows].sum()) for rows in (waits.rows, busy))
    return 3 * busy_ps >= 2 * lost_ps


_OF_GRAIN: Final = "grain-"
"""How grain names the threads that read ahead (0.2.18)."""


_RESULTS: Final = "concurrent/futures/"
_AT_ONCE_RATIO: Final = 0.25
"""Of the time that one thread of a pool is awaited: another that is for as long works beside it. A choice of ours."""


def _asked_in_turn(
    waits: Waits, longest: ThreadAtWork, threads: Sequence[tuple[ThreadAtWork, int]]
) -> dict[str, Argument]:
    """The thread that waits for the result of the only thread of a pool that works, and where; nothing without one."""
    known = waits.context.idle.python.get(waits.host)
    least_ps = _AT_ONCE_RATIO * longest.awaited_ps
    if known is None or sum(thread.awaited_ps >= least_ps for thread, _ in threads) > 1:
        return {}
    spans = longest.awaited
    for number, name in known.lines.started_by_python:
        line = known.lines.at(number, spans.start, spans.end)
        is_asking = line is not None and line.state == "waits" and number != known.caller
        if line and is_asking and line.inner and line.inner.file.startswith(_RESULTS):
            return {"waiter": Names((name,), "thread"), "at": Line(str(line))}
    return {}


def python_thread(waits: Waits) -> Finding | None:
    """Waits for other threads of the script: for the lock of Python that they keep, what they make, or the cores that they take."""
    context = waits.context
    threads = [
        (thread, context.selection.windows[host].length_ps)
        for host in context.idle.python
        for thread in threads_at_work(context, host)
    ]
    longest, _ = max(threads, key=lambda row: max(row[0].kept_ps, row[0].awaited_ps))
    # What is awaited may be made with the lock.
    key = "awaited" if 2 * longest.awaited_ps >= longest.kept_ps else ""
    action, asked = ("grain" if longest.thread.startswith(_OF_GRAIN) else key), {}
    if action == "awaited" and (asked := _asked_in_turn(waits, longest, threads)):
        action = "in_turn"
    elif action == "awaited" and longest.python.frees_lock:
        action = "awaited_free"
    metric, shares = "lock_kept_ratio", [(row, row.kept_ps / window) for row, window in threads]
    if key == "awaited":
        metric, shares = (
            "computed_ratio",
            [(row, row.computed_ps / window) for row, window in threads],
        )
    if _slows_ops(waits) or not (longest.kept_ps or longest.awaited_ps):
        longest, window_ps = max(threads, key=lambda row: row[0].computed_ps)
        key = action = "cores"
        metric = "computed_ratio"
        shares = [(longest, longest.computed_ps / window_ps)]
    needed_lock = any(python.lines.needed_lock for python in context.idle.python.values())
    return PYTHON_THREAD.of_rows(
        context,
        waits.rows,
        arguments={
            "thread": Names((longest.thread,), "thread"),
            "line": longest.python.argument,
            **asked,
        },
        confidence=("medium", WITH_LOCK)
        if needed_lock
        else ("high", "cores" if key == "cores" else ""),
        takes_cores=key == "cores",
        evidence=(
            *(
                Evidence(metric, share, None, row.thread, where_is="thread")
                for row, share in shares
            ),
            *longest.python.evidence,
        ),
        title=key,
        action=action,
        notes=(key or "lock",),
        keeps_waiting=True,
    )


def garbage(waits: Waits) -> Finding | None:
    """Garbage collections, with the line of Python that ran."""
    arguments = line_argument(waits.python(State.GARBAGE_COLLECTION))
    return waits.finding(GARBAGE_COLLECTION, arguments=arguments)
