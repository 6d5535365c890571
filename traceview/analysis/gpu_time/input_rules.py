"""Holds the rule on the input pipeline, what helps each kind of stage, and the finding that devices wait for input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from traceview.analysis.facts.core_waits import core_waits
from traceview.analysis.facts.input_supply import (
    EMPTY_STEP_RATIO,
    EMPTY_WAIT_RATIO,
    LIMITING_WORK_RATIO,
    LOCK_WAIT_RATIO,
    WORK_RATIO,
    InputSupply,
    causes_prolonged,
    pipeline_python,
    supply_of,
)
from traceview.analysis.facts.python import PythonShare
from traceview.analysis.facts.selection import covered_ps
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import FEW_STEPS, Rule, loss_of_host, lost_argument
from traceview.analysis.rules.words import Argument, Line, Names, Part
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.trace.host.pipeline import kind_of

_MAIN_STAGE_RATIO: Final = 0.50
"""Of the work of all stages that the model waits for: a stage with so much of it is named."""

_OVERLAP_RATIO: Final = 0.50
"""Of the step: a pipeline that keeps the model waiting for no longer fits beside the rest of the step."""

_WITH_FUNCTION: Final = ("map", "parallel_map", "filter", "generator", "read")
"""Stages that run a function of the script: what takes cores runs in one."""

_PREFETCH: Final = "prefetch"
_LOCK: Final = "lock"
_CORES: Final = "cores"
_GENERATOR: Final = "generator"
_WAITING: Final = "waiting_generator"
"""The generator waits, and computes little."""
_KINDS: Final = (
    (r"Map(?:V\d+)?", "map"),
    (r"ParallelMap.*|MapAndBatch.*", "parallel_map"),
    (r"TFRecord.*|TextLine.*|FixedLengthRecord.*|SSTable.*|RecordIO.*|LMDB.*|Csv.*", "read"),
    (r"(?:Legacy)?(?:Parallel)?Interleave.*|FlatMap.*", "read"),
    (r"Generator.*", _GENERATOR),
    (r"Shuffle.*", "shuffle"),
    (r"Filter.*", "filter"),
)
"""What the name of a stage looks like, and the action that makes it faster."""

_ACTIONS: Final = {
    "map": (
        "Map in parallel: `dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)`.",
        (
            "TensorFlow does so by itself only for functions without state. Batch before mapping, and write the function "
            "for batches."
        ),
    ),
    "parallel_map": (
        "Make the mapped function cheaper: batch before mapping and write it for batches.",
        (
            "It takes the time although it runs in parallel: `dataset.batch(n).map(function, "
            "num_parallel_calls=tf.data.AUTOTUNE)`. Replace `tf.py_function` and `tf.numpy_function` by ops of "
            "TensorFlow, for they hold Python's lock. Put `dataset.cache()` behind what is the same in each epoch, if it "
            "fits into memory. More cores help as well."
        ),
    ),
    "read": (
        "Read several files at once: `files.interleave(reader, num_parallel_calls=tf.data.AUTOTUNE)`.",
        (
            "The reader is `tf.data.TFRecordDataset` or what the files need. Where it is so already, raise `cycle_length`; "
            "`deterministic=False` helps further. If the data fits into memory, `dataset.cache()`."
        ),
    ),
    _GENERATOR: (
        "Do the work in ops of TensorFlow, `dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)`.",
        (
            "Let the generator yield only what to load, and whole batches. Make once what is the same in each epoch: "
            "`dataset.cache()` behind the generator, if it fits into memory, or TFRecord files. Work that has to stay in "
            "Python needs several processes, `multiprocessing.get_context('spawn').Pool(4).imap(make_batch, keys)` in the generator, and cores "
            "for them; a generator that waits for a server needs threads, "
            "`multiprocessing.pool.ThreadPool(8).imap(load, keys)`. A generator makes one element at a time and holds "
            "Python's lock while it computes: prefetch alone does not help."
        ),
    ),
    _WAITING: (
        "Let threads load ahead in the generator: `multiprocessing.pool.ThreadPool(8).imap(load, keys)`.",
        "The generator waits most of the time, for a server, a file, a queue or a timer, and makes one element after the other.",
    ),
    "shuffle": (
        "Shuffle names or keys before they are read and decoded.",
        (
            "Each pass fills the buffer of the shuffle before its first element: use a smaller "
            "`dataset.shuffle(buffer_size)`, and `repeat()` before it."
        ),
    ),
    "filter": (
        "Filter before expensive stages: `dataset.filter(predicate)` ahead of `dataset.map` and `dataset.batch`.",
        (
            "It reads and tests all that it rejects: store what it keeps, with `dataset.save(path)`. Instead of `unbatch`, "
            "`tf.boolean_mask` in a `dataset.map` filters whole batches."
        ),
    ),
    "stage": (
        "Make the slowest stage cheaper, or give it `num_parallel_calls=tf.data.AUTOTUNE` if it takes that.",
        "`dataset.prefetch(tf.data.AUTOTUNE)` at the end lets the pipeline work while the model computes.",
    ),
    _PREFETCH: (
        "End the pipeline with `dataset.prefetch(tf.data.AUTOTUNE)`.",
        (
            "It then makes the next batch while the model computes. If that is not enough, make the slowest stage faster: "
            "`num_parallel_calls=tf.data.AUTOTUNE` for `map` and `interleave`."
        ),
    ),
    _LOCK: (
        "Replace Python of the pipeline, a generator or `tf.py_function`, by ops of TensorFlow.",
        "Work that has to stay in Python needs processes of its own: they do not share the lock with the step.",
    ),
    "jax": (
        "Prepare batches in another thread or process.",
        (
            "Copy the next one with `jax.device_put` before the current step is done: the copy runs in the "
            "background."
        ),
    ),
}

INPUT_BOUND: Final = Rule(
    code="input-bound",
    title="{who:waits/wait} {loss} for input[: {stage} is too slow][, {line}]",
    titles={
        _LOCK: "{who:loses/lose} {loss} to the input pipeline, whose Python keeps the lock[, {line}]",
        _CORES: "{who:loses/lose} {loss} to the cores that the input pipeline takes[: {stage}]",
    },
    meaning="The input pipeline keeps the devices from their work.",
    notes={
        "late": "The thread that runs the step asks for the next batch and gets it late, and the device has nothing left to run.",
        "stage": (
            "{stage} works {work} of the window. It does {share} of the work of all stages: time in their calls without "
            "waiting for other stages, over all threads."
        ),
        _PREFETCH: "The pipeline does not end with prefetch, so it starts to work only when the model asks.",
        _LOCK: "Python of the pipeline keeps Python's lock from the thread of the step meanwhile.",
        "line": "Most of it runs in {line}.",
        _CORES: (
            "Its threads ran {busy} of the window, added up, while threads of the step were ready and waited for a core, as the "
            "kernel counted; that counts."
        ),
        "host": "No device was recorded: it is the time in which the thread of the step waits for a batch.",
    },
    action="Let the pipeline run ahead of the step: `dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)`.",
    advice="`traceview show input LOGDIR` names the slow stage.",
    actions=_ACTIONS,
    starts_at=(
        "devices wait for input for {limit} of the GPU time; where prefetch buffers were recorded, only if the slowest stage "
        "works {work_ratio} of the window and the buffers are empty in {empty_step_ratio} of the steps, or in steps with "
        "{empty_wait_ratio} of the wait. A Python generator that works {limiting_work_ratio} of the window, and Python of "
        "the pipeline for whose lock the step waits {lock_wait_ratio} of the window, count while they run"
    ),
    limits={
        "work_ratio": WORK_RATIO,
        "empty_step_ratio": EMPTY_STEP_RATIO,
        "empty_wait_ratio": EMPTY_WAIT_RATIO,
        "limiting_work_ratio": LIMITING_WORK_RATIO,
        "lock_wait_ratio": LOCK_WAIT_RATIO,
    },
    metrics={
        "work_ratio": "work of the slowest stage, share of the window",
        "work_of_wait_ratio": "work of the slowest stage, share of the wait",
        "empty_step_ratio": "steps that met an empty buffer",
        "empty_wait_ratio": "wait in steps that met an empty buffer",
        "missing": "missing in the pipeline",
        "slowed_ops_ps": "slower ops of the model",
        "python_line": "line of Python",
    },
    states=(State.INPUT,),
    # Its cost holds what others wait for a device whose batch comes late.
    explains=("straggler-gpu/input",),
    example="Both replicas wait 41.2 of 65.4 ms (63%) for input: Map is too slow",
)


def action_for(kind: str) -> str:
    """The key of the action that makes a stage of this kind faster."""
    return next((key for pattern, key in _KINDS if re.fullmatch(pattern, kind)), "stage")


def waits_of_devices(context: Context) -> Finding | None:
    """What devices wait for input."""
    ledger = context.ledger
    rows = ledger.rows(states=(State.INPUT,))
    waited_ps = ledger.by_device(rows)
    worst = max(waited_ps, key=lambda device: waited_ps[device])
    host = context.trace.device_list[worst].host
    slowed_ps = ledger.by_step(rows & (ledger.columns.activity != IDLE), worst)
    words = _words(
        context,
        host,
        ledger.loss(rows).named_share,
        keeps_lock=bool(causes_prolonged(context, host, worst)),
        takes_cores=bool(slowed_ps.any()),
    )
    # The slowest stage shows nothing of cores that a ready pipeline takes.
    evidence = list(
        _evidence(context, host, None if words.title == _CORES else supply_of(context, host))
    )
    if slowed_ps.any():
        mean_ps = int(slowed_ps.sum()) // slowed_ps.size
        evidence.append(Evidence("slowed_ops_ps", mean_ps, None, context.trace.device_key(worst)))
    return INPUT_BOUND.of_rows(
        context,
        rows,
        arguments=words.arguments,
        evidence=evidence,
        title=words.title,
        action=words.action,
        notes=words.notes,
        keeps_waiting=True,
    )


def wait_of_host(context: Context, host: int, wait_ps: int) -> Iterator[Finding]:
    """What the thread of the step waits for batches, where no device was recorded."""
    selection, trace = context.selection, context.trace
    used = selection.used_of(host)
    whole_ps = sum(step.duration_ps for step in used) or selection.windows[host].length_ps
    loss = loss_of_host(wait_ps, whole_ps, len(used), State.INPUT)
    # Where the planes of GPUs were lost, the GPUs may have worked while the host waited.
    is_lost = any(each.gpus_expected or each.errors for each in trace.hosts)
    if is_lost or loss.ratio < INPUT_BOUND.limit:
        return
    words = _words(context, host, loss.ratio)
    yield INPUT_BOUND.finding(
        arguments={
            **words.arguments,
            "who": Names((trace.hosts[host].name,), "host"),
            "loss": lost_argument(loss),
        },
        loss=loss,
        confidence=("low", FEW_STEPS) if selection.has_few_steps else ("high", ""),
        evidence=tuple(_evidence(context, host, supply_of(context, host))),
        action=words.action,
        notes=("host", *words.notes),
    )


class _Words(NamedTuple):
    """The sentences of a finding about the pipeline of a host: keys of its title, action and notes, and their arguments."""

    title: str
    action: str
    notes: list[str]
    arguments: dict[str, Argument]


def _words(
    context: Context,
    host: int,
    wait_ratio: float,
    *,
    keeps_lock: bool = False,
    takes_cores: bool = False,
) -> _Words:
    """What to say of a wait, which is this part of the step.

    `keeps_lock`: Python of the pipeline keeps the lock from the step; `takes_cores`: it takes cores from the model.
    """
    supply, python = supply_of(context, host), _python_of(context, host)
    arguments: dict[str, Argument] = {}
    notes, title, action = ["late"], "", ""
    if supply is not None and not supply.is_short:
        notes, title = [], _LOCK if keeps_lock else _CORES if takes_cores else ""
    is_generator, is_python = supply is not None and supply.is_generator, False
    if supply is not None and supply.slowest is not None:
        kind = kind_of(supply.slowest.name)
        if title != _CORES and supply.share_ratio >= _MAIN_STAGE_RATIO:
            arguments["stage"] = Names((kind,), "stage")
            arguments["work"] = Part(supply.work_ratio or 0.0)
            arguments["share"] = Part(supply.share_ratio)
            notes.append("stage")
        action = action_for("Shuffle" if supply.fills_shuffle else kind)
        is_python = action_for(kind) == "parallel_map" and _is_mostly_python(context, host)
        if action == "parallel_map" and supply.slowest.parallelism == 1:
            action = "map"
        elif action == _GENERATOR and python and python.state == "waits":
            action = _WAITING
        if title == _CORES:
            function = _longest_function(supply)
            action = action_for(function)
            action = "parallel_map" if action == "map" else action
            if function:
                arguments["stage"] = Names((function,), "stage")
        if (keeps_lock and not is_generator) or is_python:
            action = _LOCK
        # A generator keeps Python's lock: to work ahead does not help it.
        if "prefetch" in supply.missing and not is_generator:
            notes.append(_PREFETCH)
            # What fits beside the step then costs nothing.
            action = _PREFETCH if wait_ratio <= _OVERLAP_RATIO else action
    line = ["line"] if python and (is_generator or is_python) else []
    notes += line
    if keeps_lock:
        notes += [_LOCK] if line or not python else [_LOCK, "line"]
    if python and "line" in notes:
        arguments["line"] = Line(python.line)
    if takes_cores:
        cores = core_waits(context, host)
        window = context.selection.windows[host]
        arguments["busy"] = Part(cores.cores_of(cores.pipeline, window) if cores else 0.0)
        notes.append(_CORES)
    return _Words(title, action, notes, arguments)


def _python_of(context: Context, host: int) -> PythonShare | None:
    return context.python_of_input.get(context.trace.hosts[host].name)


def _is_mostly_python(context: Context, host: int) -> bool:
    """Whether functions of the pipeline are Python for most of the window."""
    window = context.selection.windows[host]
    if host not in context.idle.states:
        return False
    python = pipeline_python(context, host)
    return covered_ps(python, window) >= _MAIN_STAGE_RATIO * window.length_ps


def _longest_function(supply: InputSupply) -> str:
    """The kind of the stage of most work that runs a function; empty without any."""
    of_functions = (
        stage for stage in supply.stages if action_for(kind_of(stage.name)) in _WITH_FUNCTION
    )
    longest = max(of_functions, key=lambda stage: stage.own_ps, default=None)
    return kind_of(longest.name) if longest else ""


def _evidence(context: Context, host: int, supply: InputSupply | None) -> Iterator[Evidence]:
    name = context.trace.hosts[host].name
    if supply is not None and supply.slowest is not None and supply.work_ratio is not None:
        stage, work, empty = supply.slowest.name, supply.work_ratio, supply.empty_step_ratio
        # That the buffers are full shows nothing of a pipeline that takes the lock.
        limit = WORK_RATIO if supply.is_short and empty is not None else None
        yield Evidence("work_ratio", work, limit, stage, where_is="stage")
        if limit is not None and work < limit:
            of_wait = supply.work_of_wait_ratio or 0.0
            yield Evidence("work_of_wait_ratio", of_wait, limit, stage, where_is="stage")
        if supply.is_short and empty is not None:
            yield Evidence("empty_step_ratio", empty, EMPTY_STEP_RATIO, name)
        if supply.is_short and supply.empty_wait_ratio is not None:
            yield Evidence("empty_wait_ratio", supply.empty_wait_ratio, EMPTY_WAIT_RATIO, name)
        if "prefetch" in supply.missing:
            yield Evidence("missing", "prefetch", None, name, value_is="words")
    if python := _python_of(context, host):
        yield python.evidence
