"""Ranks the ops and kernels of each device by the time that they take in the window, and the compiled functions that hold them.

JAX names a program after its function (`jit_loss`), and each op says its program. TensorFlow calls the graph of a `tf.function` in
an event of its name (`EagerLocalExecute: __inference_loss_42`), in which its kernels are launched, or whose id the threads that
launch them carry. A function without gradients that runs layers which another one trains is a second forward pass.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import Struct, convert

from traceview.analysis.facts.layers import Place, label_places
from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Names
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.record import (
    Count,
    DeviceKey,
    FunctionName,
    KernelName,
    OpName,
    OpType,
    Picoseconds,
    Record,
    Share,
    SourceLine,
    one_of,
)
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.vocabulary import CLASSES, look_of
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.correlation import Roots, steps_of_rows
from traceview.trace.device.op_names import Phase, op_labels
from traceview.trace.device.table import Table, op_table
from traceview.trace.model import Recording, Trace
from traceview.xplane.columns import joined

TITLE: Final = "Top ops"

_LEAD: Final = "By total time in the window; shares are of the time in which the device computes."
SHARE_ABOVE_ALL: Final = (
    "Ops that run at the same time all count in full, so their shares may add up to more than 100% of the time in which "
    "the device computes."
)

MOST_GROUPS: Final = 8
"""Devices, or groups of devices with the same ops, that have a table each."""


class OpRow(Record, frozen=True):
    """An op with a kernel on a device, over the events that overlap the window, with their whole durations.

    Attributes:
        device: Key of the device.
        class_: Class of activity.
        op: Name of the op without its replica part; null where not recorded.
        op_type: Type of the op; null where not recorded.
        kernel: Name of the kernel; null for host ops of a replica.
        source_line: The line of Python that made the op; null where not known.
        count: Events.
        total_ps: Sum of durations, picoseconds.
        mean_ps: Mean duration, picoseconds, rounded down.
        p95_ps: 95th percentile of the durations by nearest rank, picoseconds.
        share_ratio: total_ps over the compute time of the device; it may exceed 1 where kernels overlap; null
            for classes other than compute.
        bytes: Bytes of the copies whose size was recorded; null without any.
    """

    device: DeviceKey
    class_: Annotated[str, one_of("compute", "collective", "h2d", "d2h", "d2d", "memset")]
    op: OpName | None
    op_type: OpType | None
    kernel: KernelName | None
    source_line: SourceLine | None
    count: Count
    total_ps: Picoseconds
    mean_ps: Picoseconds
    p95_ps: Picoseconds
    share_ratio: float | None
    bytes: Count | None

    @property
    def kernel_of_op(self) -> str | None:
        """The kernel beside an op; what has no op is named by its kernel already."""
        is_named = self.op in (None, self.kernel)
        return None if is_named or self.kernel is None else self.kernel.removeprefix("void ")


class TopOps(Record, frozen=True):
    """The ops and kernels that take most time.

    Attributes:
        rows: The top rows of each device, longest total first.
        row_count: Rows of the whole table.
    """

    rows: tuple[OpRow, ...]
    row_count: Count


def device_rows(trace: Trace, selection: Selection, device: int) -> Int64Array:
    """The rows of a device that overlap the window of its host."""
    columns, window = trace.device_columns, selection.window_of_device(trace, device)
    if window is None:
        return np.empty(0, dtype=np.int64)
    rows = columns.rows_of(device)
    inside: Int64Array = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + rows.start
    return inside


def table_in_window(trace: Trace, selection: Selection) -> Table:
    """The whole op table over the events that overlap the window of their host."""
    devices = range(len(trace.device_list))
    return op_table(trace, joined([device_rows(trace, selection, of) for of in devices], np.int64))


def compute(context: Context) -> TopOps | Skipped:
    """The top rows of each device by total time, as many as the options say."""
    trace, top = context.trace, context.options.top
    if trace.device_columns.count == 0:
        return Skipped("no device events")
    every = table_in_window(trace, context.selection)
    seen = Counter[str]()
    chosen = []
    for place, device in enumerate(every["device"]):
        if top is None or seen[device] < top:
            chosen.append(place)
        seen[device] += 1
    return TopOps(tuple(convert(row, OpRow) for row in every.at(chosen).rows()), every.count)


def section(view: View, result: TopOps) -> doc.Section | None:
    """A table of ops per device; devices with the same ops share one."""
    if result.row_count and not result.rows:
        return None  # not a row was asked for
    groups = _groups(view.split(result.rows)[0])
    if not groups:
        return doc.Section("ops", TITLE, (), lead="No op ran in the window.")
    blocks: list[doc.Block] = []
    shown: list[OpRow] = []
    for devices, rows in groups[:MOST_GROUPS]:
        kept = rows[: view.most_rows - len(shown)]
        if kept:
            shown += kept
            others = numbers.joined_devices(devices[1:])
            same = f"and the same ops on {others}, with their own times" if others else ""
            blocks.append(doc.Subheading(devices[0], same))
            # On a terminal the names get the room.
            shown_columns = [each for each in _OPS if not view.is_brief or each.priority < 5]
            blocks += table(f"Ops of {devices[0]}", kept, shown_columns)
    shares: dict[str, float] = {}
    for row in shown:
        shares[row.device] = shares.get(row.device, 0.0) + (row.share_ratio or 0.0)
    if any(share > 1 for share in shares.values()):
        blocks += doc.remarks(SHARE_ABOVE_ALL)
    if hidden_count := result.row_count - len(shown):
        of_all = f"{numbers.count(hidden_count)} of {numbers.plural(result.row_count, 'row')}"
        command = f"{view.command('show ops')} -o ops.csv"
        blocks.append(doc.Remark(f"{of_all} are not shown; all of them:", command))
    return doc.Section("ops", TITLE, tuple(blocks), lead=_LEAD)


def _groups(rows: Sequence[OpRow]) -> list[tuple[list[str], list[OpRow]]]:
    """Devices that have the same ops, with the rows of the first one."""
    rows_by_device: dict[str, list[OpRow]] = {}
    for row in rows:
        rows_by_device.setdefault(row.device, []).append(row)
    groups: dict[frozenset[tuple[str | None, ...]], tuple[list[str], list[OpRow]]] = {}
    for device, of_device in rows_by_device.items():
        ops = frozenset((row.class_, row.op, row.kernel) for row in of_device)
        groups.setdefault(ops, ([], of_device))[0].append(device)
    return list(groups.values())


_OPS: Final = (
    Shown("op or kernel", lambda row: row.op or row.kernel, kind="name"),
    Shown("total", "total_ps"),
    Shown(
        "share",
        "share_ratio",
        1,
        meaning="of the time in which the device computes; ops that overlap count more than once",
    ),
    Shown("count", "count", 3),
    Shown("class", lambda row: look_of(CLASSES, row.class_), 4, "look"),
    Shown("mean", "mean_ps", 5),
    Shown("p95", "p95_ps", 6, meaning="95th percentile"),
    Shown("type", "op_type", 7),
    Shown("kernel", "kernel_of_op", 2, "name"),
    Shown("line", "source_line", 2, "name"),
)


def op_rows_section(device: str, rows: Table) -> doc.Section:
    """All ops and kernels of a device."""
    blocks: tuple[doc.Block, ...] = (
        *table("Ops and kernels", [convert(row, OpRow) for row in rows.rows()], _OPS),
        *doc.remarks(SHARE_ABOVE_ALL if any((of or 0) > 1 for of in rows["share_ratio"]) else None),
    )
    return doc.Section(f"ops-{device}", device, blocks)


ANALYSIS: Final = Analysis[TopOps](
    "ops",
    compute=compute,
    sections=(section,),
    title_if_absent=TITLE,
    table=lambda context: table_in_window(context.trace, context.selection),
)


# Compiled functions

MOST_FUNCTIONS: Final = 12
OUTSIDE: Final = "outside of functions"
MOST_OF_ONE: Final = 0.99
"""Share of the compute of one function from which on the others are not worth a table; a choice of ours."""


class FunctionTime(Record, frozen=True):
    """The compute of one compiled function.

    Attributes:
        function: Its name; null for the ops that no function holds.
        compute_ps_per_step: Its compute, mean of a used step and device, picoseconds.
        compute_ratio: Its share of the compute of all devices in the used steps.
        trains: Whether it computes gradients or updates variables; null where the names of most of its ops do not show it.
    """

    function: FunctionName | None
    compute_ps_per_step: Picoseconds
    compute_ratio: Share
    trains: bool | None


class Functions(Record, frozen=True):
    """The compute of the used steps by compiled function.

    Attributes:
        rows: Functions that compute, longest first, and last what no function holds; none where only one, or none, is called.
        row_count: Rows there are, with those that are not here.
    """

    rows: tuple[FunctionTime, ...]
    row_count: Count


_GRAPH: Final = lazy_pattern(rb"EagerLocalExecute: __(?:inference|forward)_(.+)_\d+", re.DOTALL)


class Called(Struct, frozen=True, eq=False):
    """The functions that computed: `names`, and int32 `of_event`, by device event the place of its function, else `NONE`."""

    names: tuple[str, ...]
    of_event: Int32Array


def functions_called(trace: Recording) -> Called:
    """The function of each device event; that of no event where a host called only one, or none."""
    places: dict[str, int] = {}

    def place_of(function: str) -> int:
        return places.setdefault(function, len(places)) if function else NONE

    device = trace.device_columns
    programs = [place_of(each.function) for each in trace.instructions]
    of_event = np.array([*programs, NONE], dtype=np.int32)[device.instruction]
    for number in range(len(trace.hosts)):
        calls = trace.named_on(number, _GRAPH.fullmatch)
        names, of_call = np.unique(trace.host_columns.name[calls], return_inverse=True)
        graphs = (_GRAPH.fullmatch(trace.names[name]) for name in names.tolist())
        found = [place_of(graph[1].decode("utf-8", "replace") if graph else "") for graph in graphs]
        if len(set(found)) > 1:
            own = trace.device_rows(number)
            function = np.array(found, dtype=np.int64)[of_call]
            launch = device.launch[own].astype(np.int64)
            of_event[own] = _of_launches(trace, launch, Roots(calls, function))
    return Called(tuple(places), of_event)


def _of_launches(trace: Recording, launch: Int64Array, calls: Roots) -> Int64Array:
    """The function in whose call each launch lies, `NONE` where it lies in none."""
    rows = unique_ids(launch)
    of_row = steps_of_rows(rows, calls, trace.host_columns, trace.thread_of_line)
    found: Int64Array = of_row[np.searchsorted(rows, launch)]
    found[launch == NONE] = NONE
    return found


def _of_rows(context: Context) -> Int32Array:
    """By row of the ledger the function of its compute, the number of functions where none holds it, `NONE` for other rows."""
    called, ledger = context.trace.once(functions_called), context.ledger
    is_compute = ledger.rows(states=(State.COMPUTE,))
    result = np.full(ledger.count, NONE, dtype=np.int32)
    function = called.of_event[ledger.columns.event[is_compute]]
    result[is_compute] = np.where(function == NONE, len(called.names), function)
    return result


class _Sums(Struct, frozen=True, eq=False):
    """Compute in picoseconds by function, and last of what none holds, int64: `whole`; the part of it in ops of known code, and of
    code that another function, which trains, runs as well: `known`, `again`. `trains`: which compute gradients or updates, bool.
    """

    whole: Int64Array
    known: Int64Array
    again: Int64Array
    trains: BoolArray

    def training(self, place: int) -> bool | None:
        """Whether a function trains; None where most of its ops are not known."""
        if self.trains[place]:
            return True
        return False if 2 * self.known[place] >= self.whole[place] else None


def _sums(context: Context) -> _Sums:
    trace, ledger, labels = context.trace, context.ledger, context.trace.once(op_labels)
    function, places = context.once(_of_rows), trace.once(label_places)
    rows = np.flatnonzero(function != NONE)
    label, ps = labels.of_row[ledger.columns.event[rows]], ledger.columns.duration_ps[rows]
    number_of: dict[object, int] = {None: 0}
    codes = [number_of.setdefault(_code_of(place), len(number_of)) for place in places.places]
    count = len(trace.once(functions_called).names) + 1
    code = np.array(codes, dtype=np.int64)[places.place[label]]
    # There may be many of both, of which few meet.
    cells, cell = unique_inverse(function[rows] * np.int64(len(number_of)) + code)
    by_cell = SWEEPS.totals(cell, ps, cells.size)
    of_cell, code_of_cell = np.divmod(cells, len(number_of))
    is_training = np.isin(places.phase[label], (Phase.BACKWARD, Phase.OPTIMIZER))
    trains = np.bincount(function[rows[is_training]], minlength=count) > 0
    is_trained = is_in(code_of_cell, unique_ids(code_of_cell[trains[of_cell]])) & (code_of_cell > 0)
    return _Sums(
        SWEEPS.totals(of_cell, by_cell, count),
        SWEEPS.totals(of_cell, np.where(code_of_cell > 0, by_cell, 0), count),
        SWEEPS.totals(of_cell[is_trained], by_cell[is_trained], count),
        trains,
    )


def _code_of(place: Place) -> object:
    """The Python function that made an op, for XLA names a fusion after any of its lines; else the layer; None where neither is known."""
    line, _, function = place.line.partition(" in ")
    return (line.rpartition(":")[0], function) if function else place.scopes or None


def compute_functions(context: Context) -> Functions:
    """The compute of each function."""
    names = context.trace.once(functions_called).names
    if len(names) < 2 or not context.ledger.has_steps:
        return Functions((), 0)
    sums = context.once(_sums)
    whole_ps = int(sums.whole.sum())
    count = sum(context.ledger.steps_of_device.values())
    order = np.argsort(-sums.whole[:-1], kind="stable").tolist()
    shown = [place for place in (*order, len(names)) if sums.whole[place]]
    rows = [
        FunctionTime(
            function=names[place] if place < len(names) else None,
            compute_ps_per_step=int(sums.whole[place]) // count,
            compute_ratio=int(sums.whole[place]) / whole_ps,
            trains=sums.training(place),
        )
        for place in shown
    ]
    return Functions(tuple(rows[:MOST_FUNCTIONS]), len(rows))


SECOND_FORWARD: Final = Rule(
    code="second-forward",
    states=(State.COMPUTE,),
    title="{who:spends/spend} {loss} in a second forward pass, {function}",
    meaning=(
        "This compiled function computes no gradients, and repeats layers that another one, which trains, runs in the same steps."
    ),
    starts_at=(
        "{limit} of the GPU time in compiled functions without gradients or updates, at least {code_ratio} of whose compute is in "
        "Python functions, or layers, that a compiled function with gradients runs, too"
    ),
    # A choice of ours: in 3 programs all of it was.
    limits={"code_ratio": 0.5},
    action="Take the loss and the metrics from the step itself, or call this function in every tenth step only.",
    advice="A `tf.function` returns as many tensors as it likes; a metric of Keras can be updated inside the step.",
    actions={
        "jax": (
            "Take the loss from the step itself, `loss, gradients = jax.value_and_grad(f)(...)`, or call this in every tenth step only.",
            "It is the loss before the update. With `has_aux=True` a function returns other values beside it.",
        )
    },
    metrics={"function": "function"},
    example="GPU:0 spends 6.30 of 20.2 ms (31%) in a second forward pass, logged_loss",
)


def diagnose_functions(context: Context, result: Functions) -> Iterator[Finding | None]:
    """Functions without gradients that run the layers of one that trains."""
    if not result.rows:
        return
    sums, called = context.once(_sums), context.trace.once(functions_called)
    whole, least = sums.whole, SECOND_FORWARD.limits["code_ratio"]
    is_second = ~sums.trains & (whole > 0) & (sums.again >= least * whole)
    seconds = np.flatnonzero(is_second[:-1])
    if not seconds.size:
        return
    rows = np.isin(context.once(_of_rows), seconds)
    longest = seconds[np.argsort(-whole[seconds], kind="stable")].tolist()
    texts = tuple(called.names[place] for place in longest)
    yield SECOND_FORWARD.of_rows(
        context,
        rows,
        arguments={"function": Names(texts[:1], "function")},
        evidence=[Evidence("function", text, None, "", value_is="function") for text in texts],
    )


_FUNCTION_COLUMNS: Final = (
    Shown("function", lambda row: row.function or OUTSIDE, kind="name"),
    Shown("share", "compute_ratio"),
    Shown("time", "compute_ps_per_step"),
    Shown(
        "trains",
        lambda row: {True: "yes", False: "no", None: "not known"}[row.trains],
        1,
        meaning="computes gradients or updates variables",
    ),
)


def functions_section(view: View, result: Functions) -> doc.Section | None:
    """A row per function; nothing where one of them has nearly all of the compute."""
    if not result.rows or result.rows[0].compute_ratio > MOST_OF_ONE:
        return None
    return doc.Section(
        "functions",
        "Compiled functions",
        (
            *table(
                "Compute by function", result.rows, _FUNCTION_COLUMNS, row_count=result.row_count
            ),
            *doc.remarks("Shares are of the compute; times are per step and device."),
        ),
    )


FUNCTIONS: Final = Analysis[Functions](
    "functions",
    compute=compute_functions,
    rules=(SECOND_FORWARD,),
    diagnose=diagnose_functions,
    sections=(functions_section,),
)
