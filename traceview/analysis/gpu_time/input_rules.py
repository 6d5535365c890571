"""Holds the rule on the input pipeline, what helps each kind of stage, and the finding that devices wait for input."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import log
from typing import Final

import numpy as np

from traceview.analysis.facts.input_supply import (
    DEBUGGED,
    DETERMINED,
    EMPTY_STEP_RATIO,
    EMPTY_WAIT_RATIO,
    LOCK_WAIT_RATIO,
    WORK_RATIO,
    InputSupply,
    drawing_functions,
    is_debugged,
    is_determined,
    keeps_lock,
    pipeline_python,
    supply_of,
)
from traceview.analysis.facts.python import CONVERTED, FEED, OTHERS
from traceview.analysis.facts.selection import covered_ps, rows_in
from traceview.analysis.facts.threads import core_waits
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import FEW_STEPS, Advised, Rule, loss_of_host, lost_argument
from traceview.analysis.rules.words import Argument, Line, Names, Number, Ops, Quantity
from traceview.base.ids import unique_ids, unique_inverse
from traceview.base.intervals import BoolArray
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_US
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.device.op_names import graph_lines
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.pipeline import InputStage, kind_of
from traceview.xplane.planes import HostNameKind

_MAIN_STAGE_RATIO: Final = 0.50
"""Of the work of all stages that the model waits for: a stage with so much of it is named."""

_OVERLAP_RATIO: Final = 0.50
"""Of the step: a pipeline that keeps the model waiting for no longer fits beside the rest of the step."""

_MOVABLE: Final = ("map", "parallel_map", "batch", "parse")
"""Stages that a filter may come before."""

_WITH_FUNCTION: Final = (
    "map",
    "parallel_map",
    "filter",
    "generator",
    "interleave",
    "parallel_interleave",
)
"""Stages that run a function of the script: what takes cores runs in one."""

_MAPS: Final = ("map", "parallel_map")

_SAME_CALLS: Final = log(2)
"""Of maps whose numbers of elements are within this factor of each other nothing says which of them an op is of; a batch has more rows."""

_PREFETCH: Final = "prefetch"
_LOCK: Final = "lock"
_AUTOGRAPH: Final = "autograph"
_CORES: Final = "cores"
_GENERATOR: Final = "generator"
_READS: Final = "reading_files"
"""The generator is in a library that reads files."""
_WAITING: Final = "waiting_generator"
"""The generator waits, and computes little."""
_TABLE: Final = "table"
_PANDAS: Final = "pandas/"
"""The generator takes rows of a table."""
_QUEUE: Final = "queue"
"""It waits for what another thread or process makes."""
_LATE: Final = "waiting_map"
"""Python of a parallel map waits, and computes little."""
_ELEMENTS: Final = "generator_elements"
"""It yields many elements per step, each quickly."""
_REPEATED: Final = "repeated_passes"
"""The window holds whole passes over the data, each of which makes the same again: nothing is drawn at random."""
_FEWEST_PASSES: Final = 3
"""The first and the last of them may be parts."""
_DROPPED: Final = "dropped"
_SKIPPED: Final = "skipped_parts"
"""A batch cost 3.4 ms of processor time where parts were skipped behind a map, 2.6 ahead of it, and 0.8 in one go (TensorFlow 2.21)."""
_SMALL: Final = "small_elements"
_DRAWN: Final = "drawn_at_random"
_LOOPED: Final = "loop_in_map"
_LOOP = lazy_pattern(rb"(?:^|/)while/body/")
"""What a loop of a graph writes before the names of its ops (TensorFlow 2.21)."""
_ON_CORES: Final = "map_on_cores"
"""Its function takes cores that the step needs."""
_SURE_OF_CORES_RATIO: Final = 0.1
"""Of the GPU time: a smaller loss to cores is no more than an estimate. Healthy programs with 6 to 8% took as long without."""
_GENERATED_ON_CORES: Final = "generator_on_cores"
_DRAWS = lazy_pattern(
    rb":(?:Stateless)?(?:Random|TruncatedNormal|ParameterizedTruncated|Multinomial)\w*(?:\Z|#)"
)
"""Ops that draw random numbers, by their type (TensorFlow 2.21)."""
_PARTS: Final = "parts_of_elements"
"""A parallel map makes many elements per step, each quickly."""
_ITERATOR: Final = "new_iterators"
_BEGINS: Final = "generator_begun_often"
_MADE: Final = "made"
"""The step makes the data set, in its graph."""
_FEWEST_ITERATORS: Final = 2
_MANY_ELEMENTS: Final = 16
_QUICK_ELEMENT_PS: Final = 250 * PS_PER_US
"""TensorFlow takes 90 µs for each element that a generator yields (2.21, two cores), for a whole batch hardly more: a step with 96
rows of JSON took 2.6 instead of 11.5 ms. Both choices of ours."""

_KINDS: Final = (
    (r"Map(?:V\d+)?", "map"),
    (r"ParallelMap.*|MapAndBatch.*", "parallel_map"),
    (r"TFRecord.*|TextLine.*|FixedLengthRecord.*|SSTable.*|RecordIO.*|LMDB.*|Csv.*", "read"),
    (r"Interleave.*|FlatMap.*", "interleave"),
    (r"ParallelInterleave.*|LegacyParallelInterleave.*", "parallel_interleave"),
    (r"Generator.*", _GENERATOR),
    (r"Shuffle.*", "shuffle"),
    (r"(?:Parallel|Padded|Ragged)?Batch.*|Rebatch.*", "batch"),
    (r"ParseExample.*", "parse"),
    (r"Filter.*", "filter"),
    (r".*Cache.*|Snapshot.*", "cache"),
    (r"Unbatch.*", "unbatch"),
    (r".*Repeat.*|Concatenate.*|Zip.*|Take.*|Skip.*", "single_elements"),
)
"""What the name of a stage looks like, and the action that makes it faster."""

_ACTIONS: Final[dict[str, Advised]] = {
    DEBUGGED: (
        f"Turn `{DEBUGGED}` off while training, and capture again.",
        "It runs all of the pipeline on one thread, and its functions in Python: a batch took 4.8 ms instead of 1.3 (TensorFlow 2.21).",
    ),
    DETERMINED: (
        "Draw from `tf.random.stateless_normal` and its like in what `map` calls, seeded by `dataset.enumerate()`.",
        f"`{DETERMINED}` lets maps with other random ops make one call after the other: a step took 12.7 ms, with these 7.7 (TensorFlow 2.21).",
    ),
    _LOOPED: (
        "Compute on whole arrays in the mapped function, not in a loop over `tf.range`, which runs small ops one after the other.",
        "Twenty masks in a loop took 13 ms of a step of 20; all at once, by one `tf.where`, a step took 8 (TensorFlow 2.21).",
    ),
    _DRAWN: (
        "Make the mapped function cheaper, or map whole batches: what it draws at random cannot be kept for the next epoch.",
        "What comes before that can: `dataset.cache()` behind it, or `dataset.save(path)`. More cores help as well.",
    ),
    "map": (
        "Map in parallel: `dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)`.",
        (
            "TensorFlow does so by itself only for functions without state. Batch before mapping, and write the function "
            "for batches."
        ),
    ),
    "parallel_map": (
        "Store what is the same in each epoch, `dataset.map(function).save(path)`, and train on `tf.data.Dataset.load(path)`.",
        (
            "An element takes long although maps run in parallel. Smaller images, shorter samples or more cores help as well. Replace "
            "`tf.py_function` and `tf.numpy_function` by ops of TensorFlow, for they hold the GIL."
        ),
    ),
    _ON_CORES: (
        "Make the mapped function cheaper: it takes cores that the step needs; more parallel calls would take more.",
        (
            "What is the same in each epoch can be kept, with `cache()` behind it or `dataset.save(path)`; what it draws at random cannot. "
            "Whole batches, and ops of TensorFlow instead of Python, need fewer cores."
        ),
    ),
    _REPEATED: (
        "Put the slow stage, with `dataset.cache()` behind it, ahead of `shuffle` and `repeat`: {passes} over the data began in the window.",
        "It has to fit into memory; else `dataset.save(path)` keeps it.",
    ),
    _ITERATOR: (
        "Make one iterator before the loop, `batches = iter(dataset.repeat())`: the window makes {iterators}.",
        "Each new one fills all buffers again. In Keras: `dataset.repeat()` and `fit(..., steps_per_epoch=n)`.",
    ),
    _BEGINS: (
        "Begin the generator less often, with longer epochs or one iterator before the loop: the window makes {iterators}.",
        "Each begins with empty buffers. An epoch of Keras is as long as `steps_per_epoch` of `fit`, or `__len__` of a `PyDataset`, says.",
    ),
    _DROPPED: (
        "Drop elements before work is done for them: `shard` and `filter` ahead of `map`, or names of files instead of what they hold.",
        "Where the filter needs what the map makes, save what it keeps: `dataset.save(path)`.",
    ),
    _SKIPPED: (
        "Read on instead of `skip`: one dataset over all parts, or files for each part.",
        "`skip` makes all that it drops, and ahead of `map` still reads it.",
    ),
    "read": (
        "Read several files at once: `files.interleave(reader, num_parallel_calls=tf.data.AUTOTUNE)`.",
        (
            "The reader is `tf.data.TFRecordDataset` or what the files need; `deterministic=False` helps further. If the "
            "data fits into memory, `dataset.cache()`."
        ),
    ),
    "interleave": (
        "Open and read inputs in parallel: `files.interleave(reader, num_parallel_calls=tf.data.AUTOTUNE)`.",
        "`deterministic=False` helps further.",
    ),
    "parallel_interleave": (
        "Let more inputs be read at once: raise `cycle_length` of `dataset.interleave`.",
        "Use `num_parallel_calls=tf.data.AUTOTUNE` and `deterministic=False`; check the speed of the storage.",
    ),
    _GENERATOR: (
        "Do the work in ops of TensorFlow, `dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)`.",
        (
            "Let the generator yield only what to load. Make once what is the same in each epoch: `dataset.cache()` behind the "
            "generator, if it fits into memory, or TFRecord files. Work that has to stay in Python needs several "
            "processes, `multiprocessing.get_context('spawn').Pool(4).imap(make_batch, keys)` in the generator, and cores "
            "for them; a generator that waits for a server needs threads, "
            "`multiprocessing.pool.ThreadPool(8).imap(load, keys)`. A generator makes one element at a time and holds "
            "the GIL while it computes: prefetch alone does not help."
        ),
    ),
    _READS: (
        "Open files once, not for each element, and read whole blocks of them; or store the data as TFRecord files.",
        (
            "What the line opens or reads for each element is opened, searched and unpacked each time. Processes can read ahead: "
            "`multiprocessing.get_context('spawn').Pool(4).imap(load, keys)`, each with its own open file."
        ),
    ),
    _WAITING: (
        "Let threads load ahead in the generator: `multiprocessing.pool.ThreadPool(8).imap(load, keys)`.",
        "The generator waits most of the time, for a server, a file, a queue or a timer, and makes one element after the other.",
    ),
    _GENERATED_ON_CORES: (
        "Make the work of the generator cheaper, or keep what is the same in each epoch: it takes cores that the step needs.",
        "More threads, workers of a `PyDataset` and ops of TensorFlow take cores, too, and help where some are free.",
    ),
    _TABLE: (
        "Take the values out of the table once, `values = table.to_numpy()`, and yield whole batches of them.",
        "pandas makes objects for each row: a step of 128 rows took 37 ms, from an array 27, and in whole batches 2 (TensorFlow 2.21).",
    ),
    _QUEUE: FEED,
    _LATE: (
        "Let late elements hold up no others: `dataset.map(function, num_parallel_calls=32, deterministic=False)`.",
        "Its Python waits most of the time, for a server, a file or a timer. More calls at once wait together, and take no core for that.",
    ),
    _ELEMENTS: (
        "Let the generator yield whole batches, `yield np.stack(rows)`, and leave out `dataset.batch`.",
        (
            "TensorFlow takes longer for each element of a generator than many generators do. Make once what is the same in "
            "each epoch: `dataset.cache()` behind the generator, if it fits into memory."
        ),
    ),
    "shuffle": (
        "Shuffle names or keys before they are read and decoded.",
        (
            "Each pass fills the buffer of the shuffle before its first element: use a smaller "
            "`dataset.shuffle(buffer_size)`, and `repeat()` before it."
        ),
    ),
    "batch": (
        "Copy elements into batches in parallel: `dataset.batch(n, num_parallel_calls=tf.data.AUTOTUNE)`.",
        "Smaller elements help as well.",
    ),
    "parse": (
        "Parse in parallel: `dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)`.",
        "Use `tf.io.parse_example` on batches.",
    ),
    "filter": "Filter before expensive stages: `dataset.filter(predicate)` ahead of `dataset.map` and `dataset.batch`.",
    "rejected_elements": (
        "Store what the filter keeps, with `dataset.save(path)`, or reject elements before they are read.",
        "A filter reads and tests every element that it rejects.",
    ),
    "cache": (
        "Keep what is cached small: put `dataset.cache()` after reading and before augmentation.",
        "A cache in a file is read from disk again.",
    ),
    "unbatch": (
        "Leave out `unbatch`: `dataset.rebatch(n)` makes batches of another size without taking them apart.",
        "A batch of 256 rows took 0.05 instead of 0.16 ms (TensorFlow 2.21). What shuffles rows goes ahead of the first `batch`.",
    ),
    "single_elements": (
        "Batch earlier: the slowest stage hands on one element at a time.",
        "With fewer elements it has less to do.",
    ),
    "stage": (
        "Put `dataset.cache()` behind the slowest stage if it makes the same in each epoch, or let it do less.",
        "`dataset.prefetch(tf.data.AUTOTUNE)` at the end lets the pipeline work while the model computes.",
    ),
    _PREFETCH: (
        "End the pipeline with `dataset.prefetch(tf.data.AUTOTUNE)`.",
        (
            "It then makes the next batch while the model computes. If that is not enough, make the slowest stage faster: "
            "`num_parallel_calls=tf.data.AUTOTUNE` for `map` and `interleave`."
        ),
    ),
    _PARTS: (
        "Make all parts of an element with one op, such as `tf.signal.frame`, in `dataset.map`, then `.rebatch(n)`.",
        "A data set of its own for each window or row takes longer than what it holds.",
    ),
    _SMALL: (
        "Batch before mapping, and write the mapped function for batches: `dataset.batch(n).map(function)`.",
        (
            "An element takes so little that calling the function for each is most of it. Put `dataset.cache()` behind what is the "
            "same in each epoch, if it fits into memory."
        ),
    ),
    _LOCK: (
        "Replace Python of the pipeline, a generator or `tf.py_function`, by ops of TensorFlow.",
        "Work that has to stay in Python needs processes of its own: they do not share the GIL with the step.",
    ),
    _AUTOGRAPH: CONVERTED,
    _MADE: (
        "Loop over tensors in the step, with `tf.random.shuffle`, `tf.reshape` and `tf.gather`, or make the data set before the loop.",
        "A data set takes milliseconds to make: TensorFlow rewrites its graph and starts threads for it.",
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
    title="{who:waits/wait} {loss} for input[: {stage} is too slow][, most of it {ops}][ in {line}]",
    titles={
        _LOCK: "{who:loses/lose} {loss} to the input pipeline, whose Python holds the GIL[ in {line}]",
        _CORES: "{who:loses/lose} {loss} as the input pipeline takes cores from the step[: {stage}][, most of it {ops}][ in {line}]",
        _DROPPED: "{who:waits/wait} {loss} for input: {drops} keeps {kept} of {made}",
        _WAITING: "{who:waits/wait} {loss} for input: a generator waits[ in {line}]",
        _QUEUE: f"{{who:waits/wait}} {{loss}} for input: a generator waits for {OTHERS}[ in {{line}}]",
        "host": "{who:waits/wait} {loss} for input[: {stage} is too slow]",
        DETERMINED: "{who:waits/wait} {loss} for input: op determinism lets {stage} make one call at a time[, most of it {ops}][ in {line}]",
        _MADE: "{who:waits/wait} {loss} for a data set that each step makes[, {line}]",
    },
    meaning="The input pipeline keeps the devices from their work.",
    notes={
        "late": "The thread that runs the step asks for the next batch and gets it late, and the device has nothing left to run.",
        "stage": (
            "The calls of {stage} take {work} of the window, without waits for other stages: {share} of those of all stages, "
            "over all threads."
        ),
        _PREFETCH: "The pipeline does not end with prefetch, so it starts to work only when the model asks.",
        _LOCK: "Python of the pipeline holds the GIL meanwhile, which the thread of the step needs.",
        "line": "Most of it runs in {line}.",
        "function": "It calls {line}.",
        _CORES: (
            "Threads of the pipeline ran {busy} of the window, added up, on cores that threads of the step waited for; that is part of the loss."
        ),
        "host": "No device was recorded: it is the time in which the thread of the step waits for a batch.",
    },
    action="Let the pipeline run ahead of the step: `dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)`.",
    advice="`traceview show input LOGDIR` names the slow stage.",
    actions=_ACTIONS,
    starts_at=(
        "devices wait for input for {limit} of the GPU time; where prefetch buffers were recorded, only if calls of the slowest "
        "stage take {work_ratio} of the window and the buffers are empty in {empty_step_ratio} of the steps, or in steps with "
        "{empty_wait_ratio} of the wait. Python of the pipeline for whose lock the step waits {lock_wait_ratio} of the window "
        "counts while it runs"
    ),
    limits={
        "work_ratio": WORK_RATIO,
        "empty_step_ratio": EMPTY_STEP_RATIO,
        "empty_wait_ratio": EMPTY_WAIT_RATIO,
        "lock_wait_ratio": LOCK_WAIT_RATIO,
    },
    metrics={
        "work_ratio": "calls of the slowest stage, share of the window",
        "work_of_wait_ratio": "calls of the slowest stage, share of the wait",
        "empty_step_ratio": "steps that met an empty buffer",
        "empty_wait_ratio": "wait in steps that met an empty buffer",
        "missing": "missing in the pipeline",
        "slowed_ops_ps": "slower ops of the model",
    },
    states=(State.INPUT,),
    # Its cost holds what others wait for a device whose batch comes late.
    explains=("straggler-gpu/input",),
    reasons={_CORES: "what the step would have of the cores without the pipeline is an estimate"},
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
    made = rows & (ledger.columns.by_kind == By.OP)
    if 2 * sum(ledger.by_device(made).values()) > sum(waited_ps.values()):
        return _data_sets_of_steps(context, rows, made)
    worst = max(waited_ps, key=lambda device: waited_ps[device])
    host = context.trace.device_list[worst].host
    supply = supply_of(context, host)
    slowed_ps = ledger.by_step(rows & (ledger.columns.activity != IDLE), worst)
    sentences = _Sentences(
        context,
        host,
        supply,
        keeps_lock=keeps_lock(context, host, worst),
        takes_cores=bool(slowed_ps.any()),
    )
    # The slowest stage shows nothing of cores that a ready pipeline takes.
    evidence = list(_evidence(context, host, None if sentences.title == _CORES else supply))
    if slowed_ps.any():
        mean_ps = int(slowed_ps.sum()) // slowed_ps.size
        evidence.append(Evidence("slowed_ops_ps", mean_ps, None, context.trace.device_key(worst)))
    lost = ledger.loss(rows)
    action = sentences.action(lost.named_share)
    is_estimate = sentences.title == _CORES and lost.share < _SURE_OF_CORES_RATIO
    return INPUT_BOUND.of_rows(
        context,
        rows,
        arguments=sentences.arguments,
        evidence=evidence,
        title=sentences.title,
        action=action,
        notes=sentences.notes,
        confidence=("low", _CORES) if is_estimate else ("high", ""),
        keeps_waiting=True,
        takes_cores=sentences.title == _CORES,
    )


def _data_sets_of_steps(context: Context, rows: BoolArray, made: BoolArray) -> Finding | None:
    """Waits most of which are for data sets that graphs of the step make, and the line of the one that takes longest."""
    columns = context.ledger.columns
    ops, place = unique_inverse(columns.by[made])
    longest = ops[totals(place, columns.duration_ps[made], ops.size).argmax()]
    name = context.trace.names.text(longest) or ""
    line = context.trace.once(graph_lines).of(name)
    return INPUT_BOUND.of_rows(
        context,
        rows,
        arguments={"line": Line(line)} if line else {},
        evidence=[Evidence("op", name, None, "", value_is="op")],
        title=_MADE,
        action=_MADE,
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
    supply = supply_of(context, host)
    sentences = _Sentences(context, host, supply)
    action = sentences.action(loss.ratio)
    yield INPUT_BOUND.finding(
        arguments={
            **sentences.arguments,
            "who": Names((trace.hosts[host].name,), "host"),
            "loss": lost_argument(loss),
        },
        loss=loss,
        confidence=("low", FEW_STEPS) if selection.has_few_steps else ("high", ""),
        evidence=tuple(_evidence(context, host, supply)),
        title=sentences.title if sentences.title in (_DROPPED, DETERMINED) else "host",
        action=action,
        notes=("host", *sentences.notes),
    )


class _Sentences:
    """Which sentences a finding about the pipeline of a host has, and their arguments.

    `keeps_lock`: its Python keeps the lock from the step; `takes_cores`: it takes cores from the model.
    """

    def __init__(
        self,
        context: Context,
        host: int,
        supply: InputSupply | None,
        *,
        keeps_lock: bool = False,
        takes_cores: bool = False,
    ) -> None:
        self._context, self._host, self._supply = context, host, supply
        self._keeps_lock = keeps_lock
        self._python = context.python_of_input.get(context.trace.hosts[host].name)
        self._runs_python = supply is not None and self._most_is_python(supply)
        self.arguments: dict[str, Argument] = {}
        self.notes: list[str] = []
        self.title = ""
        self._function: InputStage | None = None
        self._loops = False
        if supply is None or supply.is_short:
            self.notes.append("late")
        elif keeps_lock or takes_cores:
            self.title = _LOCK if keeps_lock else _CORES
        if not self.title and self._is_generator and self._waits:
            self.title = self._waiting
        if supply and supply.slowest and not self.title and self._is_determined(supply.slowest):
            self.title = DETERMINED
            drawn_at = {each.line for each in drawing_functions(context.trace, host)} - {None}
            if len(drawn_at) == 1 and (at := drawn_at.pop()):
                self.arguments["line"] = Line(at)
        if supply and supply.slowest and self.title not in (_CORES, _WAITING, _QUEUE):
            self._name_stage(supply, supply.slowest)
        if supply and supply.dropped:
            dropped, self.title = supply.dropped, self.title or _DROPPED
            self.arguments["made"] = Number(dropped.made, "element")
            self.arguments["kept"] = Number(dropped.kept)
            self.arguments["drops"] = Names((dropped.kind,), "stage")
        if self._lacks_prefetch:
            self.notes.append(_PREFETCH)
        line = ["line"] if self._python and (self._is_generator or self._runs_python) else []
        self.notes += line if self.title not in (_WAITING, _QUEUE) else []
        if keeps_lock:
            self.notes += [_LOCK] if line or not self._python else [_LOCK, "line"]
        if self._python and (line or "line" in self.notes):
            self.arguments["line"] = self._python.argument
        if takes_cores:
            self._add_cores()
        self._name_what_is_called()

    def _is_determined(self, slowest: InputStage) -> bool:
        """Whether a map makes one call after the other because it draws random numbers."""
        trace = self._context.trace
        is_map = action_for(kind_of(slowest.name)) == "map"
        return (
            is_map
            and is_determined(trace, self._host)
            and bool(drawing_functions(trace, self._host))
        )

    def _name_what_is_called(self) -> None:
        """Name the function of the stage that is named, and the type of op that takes most of its time."""
        stage = self._function or (self._supply.slowest if self._supply else None)
        if stage is None or "stage" not in self.arguments:
            return
        if stage.function and "line" not in self.arguments and self.title in ("", _CORES):
            self.arguments["line"] = Line(stage.function)
            self.notes.append("function")
        self._name_op(stage)

    def _name_op(self, stage: InputStage) -> None:
        """Name the type of op that takes most of the time of all ops of a map, as far as the number of its calls shows which these are."""
        states = self._context.idle.states.get(self._host)
        maps = [
            each
            for each in (self._supply.stages if self._supply else ())
            if action_for(kind_of(each.name)) in _MAPS
        ]
        if states is None or stage not in maps:
            return
        made = {each.name: max(self._elements(each), 1) for each in maps}
        others = (log(made[each.name] / made[stage.name]) for each in maps if each != stage)
        if any(abs(apart) < _SAME_CALLS for apart in others):
            return
        trace, events = self._context.trace, self._context.trace.host_columns
        rows = states.pipeline_work
        rows = rows[states.kind_of(rows) == HostNameKind.OP]
        names, name = unique_inverse(events.name[rows])
        ps = totals(name, events.end_ps[rows] - events.start_ps[rows], names.size)
        window = self._context.selection.windows[self._host]
        count = np.bincount(
            name[rows_in(events.start_ps[rows], events.end_ps[rows], window)], minlength=names.size
        )
        by_type, in_loops_ps = Counter[str](), 0
        for each, own_ps, calls in zip(names.tolist(), ps.tolist(), count.tolist(), strict=True):
            # Ops of a function run once for each element.
            if min(made, key=lambda map_: abs(log(max(calls, 1) / made[map_]))) == stage.name:
                by_type[(trace.names.text(each) or "").rpartition(":")[2]] += own_ps
                in_loops_ps += own_ps if _LOOP.search(trace.names[each]) else 0
        self._loops = in_loops_ps > _MAIN_STAGE_RATIO * by_type.total()
        for type_, longest_ps in by_type.most_common(1):
            if type_ and longest_ps >= _MAIN_STAGE_RATIO * by_type.total():
                self.arguments["ops"] = Ops((type_,))

    def _name_stage(self, supply: InputSupply, slowest: InputStage) -> None:
        """Name the slowest stage where it does most of the work that the model waits for."""
        if supply.share_ratio >= _MAIN_STAGE_RATIO:
            self.arguments["stage"] = Names((kind_of(slowest.name),), "stage")
            # Several threads take more; the table has their sum.
            self.arguments["work"] = Quantity(min(supply.work_ratio or 0.0, 1.0), "ratio")
            self.arguments["share"] = Quantity(supply.share_ratio, "ratio")
            self.notes.append("stage")

    def _most_is_python(self, supply: InputSupply) -> bool:
        """Whether the slowest stage calls functions in parallel, and these are Python for most of the window."""
        if supply.slowest is None or action_for(kind_of(supply.slowest.name)) != "parallel_map":
            return False
        context, window = self._context, self._context.selection.windows[self._host]
        if self._host not in context.idle.states:
            return False
        python = pipeline_python(context, self._host)
        return covered_ps(python, window) >= _MAIN_STAGE_RATIO * window.length_ps

    @property
    def _is_generator(self) -> bool:
        return self._supply is not None and self._supply.is_generator

    @property
    def _waits(self) -> bool:
        """Whether Python of the pipeline mostly waits."""
        return self._python is not None and self._python.state == "waits"

    @property
    def _waiting(self) -> str:
        """The key of what a generator waits for."""
        return _QUEUE if self._python and self._python.awaits == "queue" else _WAITING

    @property
    def _lacks_prefetch(self) -> bool:
        """Whether the last stage does not work ahead, where that would help: a generator keeps Python's lock."""
        supply = self._supply
        if supply is None or supply.slowest is None:
            return False
        return supply.lacks_prefetch and not supply.is_generator

    def _add_cores(self) -> None:
        """That the pipeline takes cores; where that is the title, with the stage of most work that runs a function."""
        context = self._context
        cores = core_waits(context, self._host)
        window = context.selection.windows[self._host]
        busy = cores.cores_of(cores.pipeline, window) if cores is not None else 0.0
        self.arguments["busy"] = Quantity(busy, "ratio")
        self.notes.append(_CORES)
        stages = [
            stage
            for stage in (self._supply.stages if self._supply else ())
            if action_for(kind_of(stage.name)) in _WITH_FUNCTION
        ]
        if self.title == _CORES and stages:
            self._function = max(stages, key=lambda stage: stage.own_ps)
            self.arguments["stage"] = Names((kind_of(self._function.name),), "stage")

    def action(self, wait_ratio: float) -> str:
        """The key of what helps most, whose arguments it adds: to work ahead, where that suffices; else to make less."""
        supply = self._supply
        if is_debugged(self._context.trace, self._host):
            return DEBUGGED
        if "line" in self.arguments and self._python and self._python.works_on == _AUTOGRAPH:
            return _AUTOGRAPH
        if self.title == DETERMINED:
            return DETERMINED
        if supply is None or supply.slowest is None:
            return ""
        if supply.iterator_count >= _FEWEST_ITERATORS:
            self.arguments["iterators"] = Number(supply.iterator_count, "iterator")
            return _BEGINS if supply.is_generator else _ITERATOR
        if supply.dropped:
            return _DROPPED if supply.dropped.kind in ("Filter", "Shard") else _SKIPPED
        if self._lacks_prefetch and wait_ratio <= _OVERLAP_RATIO:
            return _PREFETCH
        if (self._keeps_lock and not supply.is_generator) or self._runs_python:
            return _LOCK
        stage = self._function or supply.slowest
        if supply.pass_count >= _FEWEST_PASSES and self._may_be_cached(stage):
            # The first one had begun before.
            self.arguments["passes"] = Number(supply.pass_count - 1, "pass")
            return _REPEATED
        return self._action_of(stage, supply)

    def _action_of(self, stage: InputStage, supply: InputSupply) -> str:
        """The key of what makes a stage faster."""
        action = action_for(kind_of(stage.name))
        if self._function and action == "map":
            # In parallel it takes more cores.
            action = "parallel_map"
        if action == "parallel_map" and stage.parallelism == 1 and not self._function:
            return "map"
        if action == "parallel_map" and self._waits:
            return _LATE
        if action in _MAPS and self._loops:
            return _LOOPED
        if action == "parallel_map" and self._is_quick(stage):
            return _SMALL
        if action == "parallel_map" and self._function:
            return _ON_CORES
        if action == "parallel_map" and self._draws:
            return _DRAWN
        reads = any(
            action_for(kind_of(s.name)) == "read" and s.name.startswith(stage.name)
            for s in supply.stages
        )
        if action == "interleave" and not reads and self._is_quick(stage):
            return _PARTS
        if action == "filter":
            whole = f"{stage.name}::"
            before = [kind_of(s.name) for s in supply.stages if s.name.startswith(whole)]
            may_move = any(action_for(kind) in _MOVABLE for kind in before)
            return action if may_move else "rejected_elements"
        if action == _GENERATOR and self._waits:
            return self._waiting
        if action == _GENERATOR and self._python and self._python.works_on == _READS:
            return _READS
        if (
            action == _GENERATOR
            and self._python
            and (self._python.called or "").startswith(_PANDAS)
        ):
            return _TABLE
        if action == _GENERATOR and self.title == _CORES:
            return _GENERATED_ON_CORES
        return _ELEMENTS if action == _GENERATOR and self._yields_quickly(stage) else action

    def _may_be_cached(self, stage: InputStage) -> bool:
        """Whether a stage has no cache behind it, and makes the same in each pass: TensorFlow leaves maps with state sequential."""
        kind = action_for(kind_of(stage.name))
        is_parallel = kind == "parallel_map" and stage.parallelism != 1
        may_be = (is_parallel or kind in ("read", "interleave")) and "Cache" not in stage.name
        return may_be and not self._draws

    @property
    def _draws(self) -> bool:
        """Whether ops of the pipeline draw random numbers, as the capture knows or the trace shows."""
        trace = self._context.trace
        if drawing_functions(trace, self._host):
            return True
        states = self._context.idle.states.get(self._host) or HostStates(trace, self._host)
        names = unique_ids(trace.host_columns.name[states.pipeline_work])
        return any(trace.names.read(names, lambda name: _DRAWS.search(name) is not None))

    def _yields_quickly(self, stage: InputStage) -> bool:
        """Whether a generator makes many elements of a batch in each step, in little time each."""
        is_batched = any(action_for(kind) == "batch" for kind in stage.name.split("::"))
        return is_batched and self._is_quick(stage)

    def _elements(self, stage: InputStage) -> int:
        """How many elements a stage is given, also one that gives batches; as many as it gives where that is not recorded."""
        stages = self._supply.stages if self._supply else ()
        given = (each.calls for each in stages if each.name.rpartition("::")[0] == stage.name)
        return max(given, default=stage.calls)

    def _is_quick(self, stage: InputStage) -> bool:
        """Whether a stage makes many elements in each step, in little time each: as many as it is given."""
        steps = len(self._context.selection.used_of(self._host))
        count = self._elements(stage)
        return (
            bool(steps)
            and count >= _MANY_ELEMENTS * steps
            # Functions of a parallel map run beside each other.
            and stage.own_ps * max(stage.parallelism or 1, 1) <= _QUICK_ELEMENT_PS * count
        )


def _evidence(context: Context, host: int, supply: InputSupply | None) -> Iterator[Evidence]:
    name = context.trace.hosts[host].name
    if supply is not None and supply.slowest is not None and supply.work_ratio is not None:
        stage, work, of_wait = supply.slowest.name, supply.work_ratio, supply.work_of_wait_ratio
        # That the buffers are full shows nothing of a pipeline that takes the lock.
        empty = supply.empty_step_ratio if supply.is_short else None
        limit = None if empty is None else WORK_RATIO
        # Of conditions that are alternatives only those that hold are shown.
        is_at_work = limit is None or work >= limit
        if is_at_work:
            yield Evidence("work_ratio", min(work, 1.0), limit, stage, where_is="stage")
        elif of_wait is not None:
            yield Evidence("work_of_wait_ratio", min(of_wait, 1.0), limit, stage, where_is="stage")
        if is_at_work and empty is not None and empty >= EMPTY_STEP_RATIO:
            yield Evidence("empty_step_ratio", empty, EMPTY_STEP_RATIO, name)
        of_empty = supply.empty_wait_ratio
        if empty is not None and of_empty is not None and of_empty >= EMPTY_WAIT_RATIO:
            yield Evidence("empty_wait_ratio", of_empty, EMPTY_WAIT_RATIO, name)
        if supply.lacks_prefetch:
            yield Evidence("missing", "prefetch", None, name, value_is="words")
    if python := context.python_of_input.get(name):
        yield from python.evidence
