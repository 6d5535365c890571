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
from traceview.analysis.measures.op_work import function_of
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import FEW_STEPS, Advised, Rule, loss_of_host, lost_argument
from traceview.analysis.rules.words import Argument, Line, Names, Number, Ops, Quantity
from traceview.base.ids import unique_inverse
from traceview.base.units import PS_PER_US
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.host.pipeline import InputStage, kind_of
from traceview.xplane.planes import HostNameKind

_MAIN_STAGE_RATIO: Final = 0.50
"""Of the work of all stages that the model waits for: a stage with so much of it is named."""

_OVERLAP_RATIO: Final = 0.50
"""Of the step: a pipeline that keeps the model waiting for no longer fits beside the rest of the step."""

_MAPS: Final = ("map", "parallel_map")
_WITH_FUNCTION: Final = (*_MAPS, "filter", "generator", "interleave", "parallel_interleave")
"""Stages that run a function of the script: what takes cores runs in one."""

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
_OPS: Final = "ops_one_by_one"
_FRAMEWORKS: Final = ("keras/", "tensorflow/", "tf_keras/")
"""The generator calls ops and layers."""
_TABLE: Final = "table"
_PANDAS: Final = "pandas/"
"""The generator takes rows of a table."""
_QUEUE: Final = "queue"
"""It waits for what another thread or process makes."""
_LATE: Final = "waiting_map"
"""Python of a parallel map waits, and computes little."""
_ELEMENTS: Final = "generator_elements"
"""It yields many elements per step, each quickly."""
_DROPPED: Final = "dropped"
_CUT: Final = "cut_cache"
_SMALL: Final = "small_elements"
_DRAWN: Final = "drawn_at_random"
_ON_CORES: Final = "function_on_cores"
"""The function of a stage takes cores that the step needs."""
_SURE_OF_CORES_RATIO: Final = 0.12
"""Of the GPU time: a smaller loss to cores is no more than an estimate. Healthy programs with 6 to 10% took as long without, and with 20 to
24% as much longer as that says.
"""
_PARTS: Final = "parts_of_elements"
"""A parallel map makes many elements per step, each quickly."""
_ITERATOR: Final = "new_iterators"
_FEWEST_ITERATORS: Final = 2
_MANY_ELEMENTS: Final = 16
_QUICK_ELEMENT_PS: Final = 250 * PS_PER_US
"""TensorFlow takes 90 µs for each element that a generator yields (2.21, two cores), for a whole batch hardly more: a step with 96
rows of JSON took 2.6 instead of 11.5 ms. Both choices of ours."""

_KINDS: Final = (
    (r"Map(?:V\d+)?", "map"),
    (r"ParallelMap.*|MapAndBatch.*", "parallel_map"),
    (r"(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv).*", "read"),
    (r"Interleave.*|FlatMap.*", "interleave"),
    (r"ParallelInterleave.*|LegacyParallelInterleave.*", "parallel_interleave"),
    (r"Generator.*", _GENERATOR),
    (r"Shuffle.*", "shuffle"),
    (r"(?:Parallel|Padded|Ragged)?Batch.*|Rebatch.*", "batch"),
    (r"Filter.*", "filter"),
    (r"Unbatch.*", "unbatch"),
    (r"Concatenate.*", "concatenate"),
)
"""What the name of a stage looks like, and the action that makes it faster."""

_ACTIONS: Final[dict[str, Advised]] = {
    DEBUGGED: (
        f"Turn `{DEBUGGED}` off while training, and capture again.",
        "It runs all of the pipeline on one thread, and its functions in Python.",
    ),
    DETERMINED: (
        "Draw from `tf.random.stateless_normal` and its like in what `map` calls, seeded by `dataset.enumerate()`.",
        f"`{DETERMINED}` lets maps with other random ops make one call after the other.",
    ),
    _DRAWN: (
        "Make the mapped function cheaper, or map whole batches; do not cache what it draws at random.",
        "Stages before it can: `dataset.cache()` after the last of them, or `dataset.save(path)`. More cores help as well.",
    ),
    "map": (
        "Map in parallel: `dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)`.",
        "Batch before mapping, and write the function for batches, without a loop over `tf.range`.",
    ),
    "parallel_map": (
        "Store what is the same in each epoch, `dataset.map(function).save(path)`, and train on `tf.data.Dataset.load(path)`.",
        (
            "Or keep it in memory, `dataset.cache()` ahead of `shuffle` and `repeat`. Smaller images, more cores, and ops of "
            "TensorFlow instead of `tf.py_function` and loops over `tf.range` help as well."
        ),
    ),
    _ON_CORES: (
        "Make the function cheaper, or keep what it gives, `cache()` behind it: it takes cores that the step needs.",
        (
            "`dataset.save(path)` keeps it on disk. Whole batches, and ops of TensorFlow instead of Python, need fewer "
            "cores; more parallel calls take more."
        ),
    ),
    _ITERATOR: (
        "Make one iterator, `iter(dataset.repeat())`, in Keras by `dataset.repeat()` and `fit(..., steps_per_epoch=n)`: the window makes {iterators}.",
        "Each new one fills all buffers again.",
    ),
    _DROPPED: (
        "Drop elements before work is done for them: `shard`, `skip` and `filter` ahead of `map`, or names of files instead of what they hold.",
        "Where the filter needs what the map makes, save what it keeps: `dataset.save(path)`. Instead of `skip` read on with one dataset.",
    ),
    _CUT: (
        "Take before the cache: `dataset.take(n).cache()`.",
        "A cache that is not read to its end is never complete, and `take` ends before.",
    ),
    **dict.fromkeys(
        ("read", "interleave"),
        (
            "Open and read several files at once: `files.interleave(reader, num_parallel_calls=tf.data.AUTOTUNE)`.",
            "`deterministic=False` helps further. If the data fits into memory, `dataset.cache()`.",
        ),
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
            "for them. A generator makes one element at a time and holds the GIL while it computes: prefetch alone does not help."
        ),
    ),
    _READS: (
        "Open files once, not for each element, and read whole blocks of them; or store the data as TFRecord files.",
        "Processes can read ahead: `multiprocessing.get_context('spawn').Pool(4).imap(load, keys)`, each with its own open file.",
    ),
    _WAITING: "Let threads load ahead in the generator: `multiprocessing.pool.ThreadPool(8).imap(load, keys)`.",
    _OPS: (
        "Call ops and layers once for a whole batch, not for each of its rows; in `dataset.map` their calls take no Python.",
        "What stays the same is made once, before the loop.",
    ),
    _TABLE: "Let pandas work on the whole table, once before the loop, `values = table.to_numpy()`, and yield batches of what it makes.",
    _QUEUE: FEED,
    _LATE: "Let late elements hold up no others: `dataset.map(function, num_parallel_calls=32, deterministic=False)`.",
    _ELEMENTS: "Let the generator yield whole batches, `yield np.stack(rows)`, and leave out `dataset.batch`.",
    "shuffle": (
        "Shuffle names or keys before they are read and decoded.",
        (
            "Each pass fills the buffer of the shuffle before its first element: use a smaller "
            "`dataset.shuffle(buffer_size)`, and `repeat()` before it."
        ),
    ),
    "batch": "Copy elements into batches in parallel: `dataset.batch(n, num_parallel_calls=tf.data.AUTOTUNE)`.",
    "filter": "Filter before expensive stages and before elements are read, or store what the filter keeps, with `dataset.save(path)`.",
    "unbatch": (
        "Leave out `unbatch`: `dataset.rebatch(n)` makes batches of another size without taking them apart.",
        "What shuffles rows goes ahead of the first `batch`.",
    ),
    "concatenate": (
        "Make one data set of all files, `tf.data.TFRecordDataset(paths)`, or `Dataset.from_tensor_slices(paths).interleave(reader)`.",
        "A row of the first of 200 data sets that were put together by `concatenate` passes 199 of these: 5.9 ms a step became 9.6 (TensorFlow 2.21).",
    ),
    "stage": (
        "Put `dataset.cache()` behind the slowest stage if it makes the same in each epoch, or let it do less.",
        "Batch earlier, if it hands on one element at a time. `dataset.prefetch(tf.data.AUTOTUNE)` at the end works ahead.",
    ),
    _PREFETCH: (
        "End the pipeline with `dataset.prefetch(tf.data.AUTOTUNE)`.",
        "If that is not enough, make the slowest stage faster: `num_parallel_calls=tf.data.AUTOTUNE` for `map` and `interleave`.",
    ),
    _PARTS: "Make all parts of an element with one op, such as `tf.signal.frame`, in `dataset.map`, then `.rebatch(n)`.",
    _SMALL: (
        "Batch before mapping, and write the mapped function for batches: `dataset.batch(n).map(function)`.",
        "`dataset.ragged_batch` maps row by row, too; `dataset.batch` takes ragged rows as they are (TensorFlow 2.21).",
    ),
    _LOCK: (
        "Replace Python of the pipeline, a generator or `tf.py_function`, by ops of TensorFlow.",
        "Work that has to stay in Python needs processes of its own: they do not share the GIL with the step.",
    ),
    _AUTOGRAPH: CONVERTED,
    "jax": (
        "Prepare batches in another thread or process.",
        "Copy the next one with `jax.device_put` before the current step is done: the copy runs in the background.",
    ),
}

INPUT_BOUND: Final = Rule(
    code="input-bound",
    title="{who:waits/wait} {loss} for input[: {stage} is too slow][, most of it {ops}][ in {line}]",
    titles={
        _LOCK: "{who:loses/lose} {loss} to the input pipeline, whose Python holds the GIL[ in {line}]",
        _CORES: "{who:loses/lose} {loss} to the input pipeline, which takes its cores[: {stage}][, most of it {ops}][ in {line}]",
        _DROPPED: "{who:waits/wait} {loss} for input: {drops} keeps {kept} of {made}",
        _CUT: "{who:waits/wait} {loss} for input: `take` ends before the cache is full, and {stage} makes all anew",
        _WAITING: "{who:waits/wait} {loss} for input: a generator waits[ in {line}]",
        _QUEUE: f"{{who:waits/wait}} {{loss}} for input: a generator waits for {OTHERS}[ in {{line}}]",
        "host": "{who:waits/wait} {loss} for input[: {stage} is too slow]",
        DETERMINED: "{who:waits/wait} {loss} for input: op determinism lets {stage} make one call at a time[, most of it {ops}][ in {line}]",
    },
    meaning="The input pipeline keeps the devices from their work.",
    notes={
        "late": "The thread that runs the step asks for the next batch and gets it late, and the device has nothing left to run.",
        "stage": (
            "{stage} itself takes {work} of the window, without waits for other stages, and {share} of the time of all stages, "
            "over all threads."
        ),
        _PREFETCH: "The pipeline does not end with prefetch, so it starts to work only when the model asks.",
        _LOCK: "Python of the pipeline holds the GIL meanwhile, which the thread of the step needs.",
        _SMALL: "It makes {elements} per step, in {each} each.",
        "line": "Most of it runs in {line}.",
        "function": "It calls {line}.",
        _CORES: (
            "Threads of the pipeline ran {busy} of the window, added up, on cores that threads of the step waited for; that is part of the loss."
        ),
        "host": "No device was recorded: it is the time in which the thread of the step waits for a batch.",
    },
    action="Let the pipeline run ahead of the step: `dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)`.",
    advice="`traceview show input LOGDIR` names the slow stage. Make data sets before the loop, none in the graph of a step.",
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
        "empty_step_ratio": "steps that met an empty buffer",
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
    evidence = tuple(_evidence(context, host, None if sentences.title == _CORES else supply))
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
        title=sentences.title if sentences.title in (_DROPPED, _CUT, DETERMINED) else "host",
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
        if supply and supply.is_cut and "stage" in self.arguments:
            self.title = self.title or _CUT
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
        if stage.function and "line" not in self.arguments and self.title in ("", _CORES, _CUT):
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
        of_type: dict[str, Counter[str]] = {}
        for each, own_ps, calls in zip(names.tolist(), ps.tolist(), count.tolist(), strict=True):
            # Ops of a function run once for each element.
            if min(made, key=lambda map_: abs(log(max(calls, 1) / made[map_]))) == stage.name:
                op, _, type_ = (trace.names.text(each) or "").rpartition(":")
                of_type.setdefault(type_, Counter())[op] += own_ps
        by_op = sum(of_type.values(), Counter[str]())
        for type_, own in of_type.items():
            if type_ and own.total() >= max(_MAIN_STAGE_RATIO * by_op.total(), 1):
                self.arguments["ops"], by_op = Ops((type_,)), own
                break
        self._name_line_of(by_op, stage)

    def _name_line_of(self, by_op: Counter[str], stage: InputStage) -> None:
        """Name the line that made what takes most of the time of ops, if its function made most, instead of that of the stage."""
        branches = self._context.trace.hosts[self._host].captured.environment.batch.branches
        functions = [each for branch in branches for each in branch.functions]
        known = [each.line_of for each in functions if each.line == stage.function]
        of_line, of_function = Counter[str](), Counter[str]()
        for op, ps in by_op.items():
            lines = {each.get(op, "") for each in known}
            line = lines.pop() if len(lines) == 1 else ""
            of_line[line] += ps
            of_function[function_of(line)] += ps
        for line, _ in of_line.most_common():
            is_most = 2 * of_function[function_of(line)] > by_op.total()
            if "function" in self.notes and line and is_most:
                self.arguments["line"] = Line(line)
                self.notes.remove("function")

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
            return _ITERATOR
        if supply.dropped:
            return _DROPPED
        if supply.is_cut:
            return _CUT
        if self._lacks_prefetch and wait_ratio <= _OVERLAP_RATIO:
            return _PREFETCH
        if (self._keeps_lock and not supply.is_generator) or self._runs_python:
            return _LOCK
        return self._action_of(self._function or supply.slowest, supply)

    def _action_of(self, stage: InputStage, supply: InputSupply) -> str:
        """The key of what makes a stage faster."""
        action = action_for(kind_of(stage.name))
        is_parallel = action == "parallel_map" and stage.parallelism != 1
        # In parallel it takes more cores.
        if is_parallel or (self._function and action in _MAPS):
            return self._action_of_map(stage)
        reads = any(
            action_for(kind_of(s.name)) == "read" and s.name.startswith(stage.name)
            for s in supply.stages
        )
        if action == "interleave" and not reads and self._is_quick(stage):
            return _PARTS
        if action == _GENERATOR:
            return self._action_of_generator(stage)
        return "map" if action in _MAPS else action

    def _action_of_map(self, stage: InputStage) -> str:
        if self._waits:
            return _LATE
        if self._is_quick(stage):
            self._name_elements(stage)
            return _SMALL
        if drawing_functions(self._context.trace, self._host):
            return _DRAWN
        return _ON_CORES if self._function else "parallel_map"

    def _action_of_generator(self, stage: InputStage) -> str:
        python = self._python
        if self._waits:
            return self._waiting
        if python and python.works_on == _READS:
            return _READS
        called = (python.called if python else None) or ""
        if called.startswith(_FRAMEWORKS):
            return _OPS
        if called.startswith(_PANDAS):
            return _TABLE
        if self.title == _CORES:
            return _ON_CORES
        if not self._yields_quickly(stage):
            return _GENERATOR
        self._name_elements(stage)
        return _ELEMENTS

    def _yields_quickly(self, stage: InputStage) -> bool:
        """Whether a generator makes many elements of a batch in each step, in little time each."""
        is_batched = any(action_for(kind) == "batch" for kind in stage.name.split("::"))
        return is_batched and self._is_quick(stage)

    def _elements(self, stage: InputStage) -> int:
        """How many elements a stage is given, also one that gives batches; as many as it gives where that is not recorded."""
        stages = self._supply.stages if self._supply else ()
        given = (each.calls for each in stages if each.name.rpartition("::")[0] == stage.name)
        return max(given, default=stage.calls)

    def _name_elements(self, stage: InputStage) -> None:
        """Say how many elements a stage makes in a step, and how long each takes."""
        count = self._elements(stage)
        used = max(len(self._context.selection.used_of(self._host)), 1)
        self.arguments["elements"] = Number(count // used, "element")
        self.arguments["each"] = Quantity(stage.own_ps // count, "ps")
        self.notes.append(_SMALL)

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
        stage, work = supply.slowest.name, supply.work_ratio
        # That the buffers are full shows nothing of a pipeline that takes the lock.
        empty = supply.empty_step_ratio if supply.is_short else None
        # Of conditions that are alternatives only those that hold are shown.
        if empty is None or work >= WORK_RATIO:
            limit = None if empty is None else WORK_RATIO
            yield Evidence("work_ratio", min(work, 1.0), limit, stage, where_is="stage")
        if empty is not None and empty >= EMPTY_STEP_RATIO:
            yield Evidence("empty_step_ratio", empty, EMPTY_STEP_RATIO, name)
    if python := context.python_of_input.get(name):
        yield from python.evidence
