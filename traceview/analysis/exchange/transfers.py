"""Transfers: what copies between host and GPUs cost, how fast they are, and who issues them.

Exposed time is that of the ledger, so that of single copies adds up exactly to that of their direction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.exchange.collective_sums import reduction_rows
from traceview.analysis.facts.detours import detour_rows
from traceview.analysis.facts.ledger import through_host
from traceview.analysis.facts.selection import rows_in
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.device_report import COPIES, ActivityTime, DeviceTime, in_windows
from traceview.analysis.measures.op_work import label_ps, line_of
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import LIMIT, Rule
from traceview.analysis.rules.words import Argument, Line, Names, Ops, Quantity
from traceview.base.ids import groups_of, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import (
    Count,
    DeviceKey,
    OpName,
    OpType,
    Picoseconds,
    Record,
    ThreadName,
    one_of,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.document.vocabulary import CLASSES, look_of
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.device.correlation import copies_of
from traceview.trace.device.op_names import op_labels, split_op
from traceview.trace.model import Trace
from traceview.xplane.planes import CLASS_KEYS, ActivityClass, HostMemory

SMALL_BYTES: Final = 64 * 1024
"""Copies below this are small: they take latency rather than bandwidth."""

SMALL_SIZE: Final = f"{SMALL_BYTES // 1024} KiB"

TOP_SOURCES: Final = 10
"""Sources of copies per device in a report."""


class CopySource(Record, frozen=True):
    """An op or a thread that issued copies.

    Attributes:
        device: Key of the device.
        direction: h2d, d2h or d2d.
        op: Name of the op without its replica part; null if not recorded.
        op_type: Type of the op; null if not recorded.
        thread: Name of the thread that issued them; null if not recorded.
        count: Copies.
        bytes: Bytes of those whose size is recorded; null where none is.
        total_ps: Sum of their durations, picoseconds.
        exposed_ps: Their part of the exposed time of the direction, picoseconds.
    """

    device: DeviceKey
    direction: Annotated[str, one_of("h2d", "d2h", "d2d")]
    op: OpName | None
    op_type: OpType | None
    thread: ThreadName | None
    count: Count
    bytes: Count | None
    total_ps: Picoseconds
    exposed_ps: Picoseconds


class Transfers(Record, frozen=True):
    """The copies of all GPUs.

    Attributes:
        sources: What issued the copies of each GPU, the longest exposed first; GPUs by host and ordinal.
    """

    sources: tuple[CopySource, ...]


def compute(context: Context) -> Transfers | Skipped:
    """The sources of the copies of each GPU in its window."""
    trace, ledger = context.trace, context.ledger
    gpus = [at for at, device in enumerate(trace.device_list) if device.kind in ("gpu", "tpu")]
    recorded = [device for device in gpus if device in ledger.devices]
    if not recorded:
        nothing = "no GPU recorded an event" if gpus else "not applicable: there is no GPU"
        return Skipped(nothing)
    copies, columns, activity = trace.once(copies_of), trace.device_columns, ledger.columns.activity
    # The exposed time of each copy in its window, without that of earlier copies of its direction.
    is_copy = (activity >= ActivityClass.H2D) & (activity <= ActivityClass.D2D)
    number = np.searchsorted(copies.row, ledger.columns.event[is_copy])
    exposed = totals(number, ledger.columns.duration_ps[is_copy], copies.row.size)
    sources: list[CopySource] = []
    for device in recorded:
        window = context.selection.windows[trace.device_list[device].host]
        own = columns.rows_of(device)
        first, last = np.searchsorted(copies.row, (own.start, own.stop)).tolist()
        of_device = copies.row[first:last]
        inside = rows_in(columns.start_ps[of_device], columns.end_ps[of_device], window) + first
        of_gpu = _sources(trace, device, inside, exposed)
        sources += of_gpu[: context.options.rows_of(TOP_SOURCES)]
    return Transfers(tuple(sources))


def _sources(
    trace: Trace, device: int, inside: Int64Array, exposed: Int64Array
) -> list[CopySource]:
    """The sources of some copies of one device, those with the longest exposed time first; `exposed`: of each copy."""
    columns, copies = trace.device_columns, trace.once(copies_of)
    ops, of_copy = unique_inverse(copies.op[inside])
    texts = map(trace.names.text, ops.tolist())
    # Replicas of an op are one.
    named = [(None, None) if text is None else split_op(text) for text in texts]
    place = {op: at for at, op in enumerate(dict.fromkeys(named))}
    number = np.array([place[op] for op in named], dtype=np.int64)[of_copy]
    class_ = columns.class_[copies.row[inside]].astype(np.int64)
    sources = []
    for alike in groups_of(class_, number, copies.thread[inside]):
        members, (name, type_) = inside[alike], named[of_copy[alike[0]]]
        rows, thread = copies.row[members], int(copies.thread[members[0]])
        size = columns.bytes[rows]
        known = size[size != UNKNOWN_BYTES]
        sources.append(
            CopySource(
                device=trace.device_key(device),
                direction=CLASS_KEYS[class_[alike[0]]],
                op=name,
                op_type=type_,
                thread=None if thread == NONE else trace.lines[thread].name,
                count=members.size,
                bytes=int(known.sum()) if known.size else None,
                total_ps=int(columns.duration_ps[rows].sum()),
                exposed_ps=int(exposed[members].sum()),
            )
        )
    return sorted(sources, key=lambda s: (-s.exposed_ps, -s.total_ps, s.op or "", s.thread or ""))


# The rule

_AHEAD: Final = "Copy batches ahead: `experimental_distribute_dataset` of the strategy, or `prefetch_to_device` at the end of the pipeline."
_ON_DEVICE: Final = (
    "On one GPU: `dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0'))`; `dataset.prefetch` alone keeps the batches on "
    "the host (TensorFlow 2.21)."
)
_LESS: Final = "Send less: uint8 images that are cast on the GPU are a quarter of float32."

_STAGED_RATIO: Final = 0.5
"""Where most of the loss is no copy, the sentence says what it is."""

H2D_EXPOSED: Final = Rule(
    code="h2d-exposed",
    states=(State.H2D,),
    limits={"pageable_ratio": 0.50, "small_ratio": 0.50},
    starts_at=(
        "{limit} of the GPU time in copies from the host while nothing computes or communicates, or waiting for them. The "
        "action depends on what takes most of that time: copies from pageable memory (from {pageable_ratio} on), or copies "
        f"below {SMALL_SIZE} (from {{small_ratio}} on)"
    ),
    title="{who:waits/wait} {loss} for HtoD copies[, {ops}][ of {function}][ in {line}]",
    meaning=(
        "The device does nothing but receive data from the host, or wait for it. Copies under compute or communication do not "
        "count."
    ),
    notes={
        "pageable": (
            "{pageable} of that time is copies from pageable memory, such as NumPy arrays: the driver copies it to a buffer "
            "of its own first, and the host waits."
        ),
        "small": (
            f"Copies below {SMALL_SIZE} take {{small}} of that time: each takes microseconds to "
            "launch, whatever its size."
        ),
        "staged": (
            "For {staged} of that time no copy runs yet: the host prepares it, such as by copying the data to memory that the GPU "
            "reads. The table of transfers counts the rest."
        ),
    },
    action=_AHEAD,
    advice=f"{_ON_DEVICE} {_LESS}",
    actions={
        "pageable": (
            _AHEAD,
            f"Do not pass NumPy arrays to the step: its call copies them. {_ON_DEVICE} {_LESS}",
        ),
        "small": (
            "Send one tensor instead of many: `tf.concat` or `tf.stack` features in the pipeline, `dataset.batch` before `map`.",
            "Make constants once outside the step, as `x = tf.constant(0.5)`: Python numbers are copied in every call.",
        ),
        "jax-many_puts": (
            "Keep on the devices what later steps need again, and change it there: an array of NumPy is copied again each time.",
            "Of what changes copy the next while this step is computed: call `jax.device_put` before the step is done.",
        ),
        "jax-copies_through_the_host": (
            "Keep the sharding that arrays have: a `jax.device_put` that changes it reads all of them to the host, and copies them back.",
            "What a step gives may have another one, by its `out_shardings`: then XLA moves the parts between devices.",
        ),
        "jax": (
            "Copy the next batch while this one is computed: call `jax.device_put` on it before the current step is done.",
            (
                "Pass one array instead of many, and keep constants on the devices: `x = jnp.float32(0.5)` once outside the loop. "
                "Where copies are slow, check the link with `nvidia-smi -q -d PCIE` and bind the process to the NUMA node of its "
                f"GPU (`numactl --cpunodebind`). {_LESS}"
            ),
        ),
    },
    metrics={
        "pageable_ratio": "share of that time in copies from pageable memory",
        "small_ratio": f"share of that time in copies below {SMALL_SIZE}",
        "copy_count": "copies to the device",
    },
    example="Both GPUs wait 25.0 of 50.0 ms (50%) for HtoD copies",
)

D2D_COPIES: Final = Rule(
    code="d2d-copies",
    states=(State.D2D,),
    title="{who:spends/spend} {loss} in DtoD copies[, {ops}][ of {function}][, {line}]",
    titles={"peers": "{who:spends/spend} {loss} in copies between GPUs[, {ops}][, {line}]"},
    meaning="Arrays are copied within the memory of a device or to another one, or filled, while nothing computes.",
    starts_at="{limit} of the GPU time in such copies; those between GPUs are a finding of their own",
    action="See which ops copy, and whether each needs a new array: `traceview show copies LOGDIR`.",
    actions={
        "jax": (
            "Donate the arrays that the function returns changed: `jax.jit(step, donate_argnums=0)` writes into them.",
            "XLA copies an array that it may not overwrite. A donated one cannot be used after the call.",
        ),
        "peers": (
            "Where they carry gradients let NCCL sum: `tf.distribute.MirroredStrategy()` without `cross_device_ops`, a GPU per replica.",
            "Copies to one GPU, and from there to all, go over its links alone. Else keep what an op reads on the GPU of the op.",
        ),
        "jax-peers": "Check the shardings: an array that two ops want in different shardings is copied between them.",
    },
    metrics={"copy_count": "copies within the device"},
    example="GPU:0 spends 6.17 of 8.90 ms (69%) in DtoD copies, copy.2 of store",
)


D2H_COPIES: Final = Rule(
    code="d2h-copies",
    states=(State.D2H,),
    title="{who:spends/spend} {loss} in DtoH copies[, {ops}][ of {function}][, {line}]",
    meaning="Data is copied to the host while nothing computes.",
    starts_at="{limit} of the GPU time in such copies",
    action="Copy less, and less often: reduce the data on the device first, `if step % 100 == 0: save(state)`.",
    actions={
        "jax": (
            "Copy less, or keep it on the device; begin early what has to be copied: `array.copy_to_host_async()`.",
            "It goes on beside what the device computes next, unless that changes the array.",
        )
    },
    metrics={"copy_count": "copies to the host"},
    example="GPU:0 spends 4.75 of 26.4 ms (18%) in DtoH copies",
)


def _diagnose(context: Context, result: Transfers) -> Iterator[Finding | None]:
    """Copies that hold up the step, without those of what the CPU computes or sums, which are other findings."""
    ledger = context.ledger
    others = context.once(detour_rows)
    of_sums = context.once(reduction_rows)
    if ledger.loss(of_sums).share >= LIMIT:
        others = others | of_sums
    up = ledger.rows(states=H2D_EXPOSED.states) & ~others
    yield _finding(context, H2D_EXPOSED, up, *_prepared_by_host(context, up))
    within = ledger.rows(states=D2D_COPIES.states) & ~others
    between = within & context.trace.device_columns.p2p[ledger.columns.event]
    yield _finding(context, D2D_COPIES, within & ~between)
    yield _finding(context, D2D_COPIES, between, "peers")
    yield _finding(context, D2H_COPIES, ledger.rows(states=D2H_COPIES.states) & ~others)


def _finding(
    context: Context,
    rule: Rule,
    rows: BoolArray,
    key: str = "",
    shares: Mapping[str, float] = {},
) -> Finding | None:
    """Copies of one direction, with the op and the line of those that take longest.

    `key`: of the title and the action. `shares`: of the time, which notes state.
    """
    trace, by_label = context.trace, label_ps(context, rows)
    if not rows.any():
        return None
    longest = trace.once(op_labels).row[int(by_label.argmax())]
    op = trace.names.text(int(trace.device_columns.op[longest]))
    number = int(trace.device_columns.instruction[longest])
    function = "" if number == NONE else trace.instructions[number].function
    named = context.ledger.loss(rows).devices
    counts = (
        Evidence("copy_count", of_device[rule.states[0].key].count, None, trace.device_key(device))
        for device, of_device in context.once(in_windows).items()
        if trace.device_key(device) in named
    )
    return rule.of_rows(
        context,
        rows,
        arguments={
            **({} if op is None else {"ops": Ops((split_op(op)[0],))}),
            **({"function": Names((function,), "function")} if function else {}),
            **line_of(context, by_label),
            **{name: Quantity(share, "ratio") for name, share in shares.items()},
        },
        evidence=[
            *(Evidence(f"{name}_ratio", shares[name], None, "") for name in shares if name == key),
            *counts,
        ],
        title=key,
        action=key,
        notes=tuple(shares),
    )


def _prepared_by_host(context: Context, rows: BoolArray) -> tuple[str, dict[str, float]]:
    """Which copies to the device take most of the time, "" where none do, and their share, and that in which no copy runs yet."""
    columns = context.ledger.columns
    key, share = _largest_part(context, rows) if rows.any() else ("", 0.0)
    idle_ps = int(columns.duration_ps[rows & (columns.activity == IDLE)].sum())
    staged = idle_ps / (int(columns.duration_ps[rows].sum()) or 1)
    shares = {key: share} if key else {}
    return key, {**shares, **({"staged": staged} if staged >= _STAGED_RATIO else {})}


def _largest_part(context: Context, rows: BoolArray) -> tuple[str, float]:
    """Which copies take most of the time, the key of the action against them, and their share of it; "" where none do."""
    columns, device = context.ledger.columns, context.trace.device_columns
    event, lasted = columns.event[rows], columns.duration_ps[rows]
    # The copy itself, and idle time that it ends.
    is_copy = (event != NONE) & (device.class_[event] == ActivityClass.H2D)
    size = device.bytes[event]
    parts = {
        "small": (size != UNKNOWN_BYTES) & (size < SMALL_BYTES),
        "pageable": device.host_memory[event] == HostMemory.PAGEABLE,
    }
    for action, is_so in parts.items():
        share = int(lasted[is_copy & is_so].sum()) / int(lasted.sum())
        if share >= H2D_EXPOSED.limits[f"{action}_ratio"]:
            return action, share
    return "", 0.0


_PUT: Final = b"DevicePutWithSharding"


def _diagnose_cpus(context: Context) -> Iterator[Finding | None]:
    """Copies of XLA to CPU devices, which are no events of these; with the line that asked for them."""
    rows = context.ledger.rows(states=H2D_EXPOSED.states)
    if not rows.any():
        return
    lines: Counter[str] = Counter()
    events = context.trace.host_columns
    for host, python in context.idle.python.items():
        puts = context.trace.named_on(host, _PUT.__eq__)
        line = python.lines.at(python.caller, events.start_ps[puts], events.end_ps[puts])
        if line is not None:
            lines[str(line)] += line.sampled_ps
    arguments: dict[str, Argument] = {}
    if lines:
        arguments["line"] = Line(max(lines, key=lambda line: lines[line]))
    hosts = context.idle.states
    is_through = any(through_host(context.trace, host).start.size for host in hosts)
    action = "copies_through_the_host" if is_through else "many_puts"
    yield H2D_EXPOSED.of_rows(context, rows, arguments=arguments, action=action, keeps_waiting=True)


# Section

TITLE: Final = "Transfers"


class _Row(Struct, frozen=True):
    device: str
    way: str
    copies: ActivityTime


_COLUMNS: Final = (
    DEVICE,
    Shown("direction", lambda row: look_of(CLASSES, row.way), kind="look"),
    Shown(
        "exposed",
        "copies.exposed_ratio",
        meaning="share of the step, without steps of the window, in which nothing else ran on the device",
    ),
    Shown("busy", "copies.busy_ps", 10),
    Shown("count", "copies.count", 7),
    Shown("size", "copies.bytes", 5),
    Shown("rate", "copies.bytes_per_second", 2),
)


def transfers_section(view: View, result: Transfers) -> doc.Section | None:
    """The copies of each device by direction; in a brief document without devices whose copies cost nothing."""
    del result
    times = view.record("device_time", DeviceTime)
    every = [
        _Row(row.device, way, row.activity[way])
        for row in (times.devices if times else ())
        for way in (COPIES if row.activity else ())
        if row.activity and row.activity[way].count
    ]
    costly = {row.device for row in every if (row.copies.exposed_ratio or 0.0) >= LIMIT}
    rows = [row for row in every if not view.is_brief or row.device in costly]
    if not rows:
        return (
            None
            if view.is_brief
            else doc.Section("transfers", TITLE, (), lead="No copies in the window.")
        )
    blocks = view.device_table("Copies by device and direction", rows, _COLUMNS, "copies")
    return doc.Section("transfers", TITLE, blocks, lead=_lead(rows))


def _lead(rows: Sequence[_Row]) -> str:
    row = max(rows, key=lambda row: row.copies.exposed_ratio or 0.0)
    if not row.copies.exposed_ratio:
        return "Other work hides all copies."
    copies = numbers.capitalized(look_of(CLASSES, row.way).words)
    share = numbers.share(row.copies.exposed_ratio)
    return f"{copies} are exposed for {share} of the time on {row.device}."


ANALYSIS: Final = Analysis[Transfers](
    "transfers",
    compute=compute,
    rules=(H2D_EXPOSED, D2D_COPIES, D2H_COPIES),
    diagnose=_diagnose,
    if_absent=_diagnose_cpus,
    sections=(transfers_section,),
    rows=(CopySource, lambda result: result.sources),
)
