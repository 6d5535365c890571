"""Transfers: what copies between host and GPUs cost, and who issues them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from traceview.analysis.measures.context import Analysis, Context, View, has_time
from traceview.analysis.measures.reduction_path import reduction_rows
from traceview.analysis.measures.transfers import (
    SMALL_BYTES,
    SMALL_SIZE,
    DeviceTransfers,
    Direction,
    Transfers,
    transfers_of,
)
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import LIMIT, Rule
from traceview.analysis.rules.words import Argument, Names, Number, Ops, Part, Rate
from traceview.base.intervals import BoolArray
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.document.vocabulary import CLASSES, look_of
from traceview.ledger.states import State
from traceview.trace.model import NONE, UNKNOWN_BYTES
from traceview.xplane.planes import ActivityClass, HostMemory

_AHEAD: Final = "Copy the next batch while this one is computed: end the pipeline with `dataset.prefetch(tf.data.AUTOTUNE)`."
_LESS: Final = "Send less: uint8 images that are cast on the GPU are a quarter of float32."

H2D_EXPOSED: Final = Rule(
    code="h2d-exposed",
    states=(State.H2D,),
    limits={"pageable_ratio": 0.50, "small_ratio": 0.50, "link_use_ratio": 0.50},
    starts_at=(
        "{limit} of the GPU time in copies from the host while nothing computes or communicates, or waiting for them. The "
        "action depends on what takes most of that time: copies from pageable memory (from {pageable_ratio} on), copies "
        f"below {SMALL_SIZE} (from {{small_ratio}} on), copies below {{link_use_ratio}} of the rate of their link"
    ),
    title="{who:waits/wait} {loss} for HtoD copies",
    meaning=(
        "The GPU does nothing but receive data from the host, or wait for it. Copies under compute or communication do not "
        "count."
    ),
    notes={
        "pageable": (
            "{pageable} of that time is copies from pageable memory, such as NumPy arrays: the driver copies it to a buffer "
            "of its own first, and the host waits."
        ),
        "small": (
            f"Copies below {SMALL_SIZE} take {{small}} of that time[, {{count}} per step]: each takes microseconds to "
            "launch, whatever its size."
        ),
        "slow": (
            "The copies run at {rate}, {link_use} of the rate of their link. Usual causes are pageable memory, small copies, a "
            "shared switch, and memory of another NUMA node."
        ),
        "issuer": "{op}[ on {thread}] issues the copies that are exposed longest.",
        "issuing_thread": "{thread} issues the copies that are exposed longest.",
    },
    action=_AHEAD,
    advice=(
        "`strategy.experimental_distribute_dataset(dataset)` copies ahead; without a strategy, on one GPU, use "
        f"`dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0'))`. {_LESS}"
    ),
    actions={
        "pageable": (
            (
                "Take the batches from a tf.data pipeline: "
                "`strategy.experimental_distribute_dataset(dataset)` stages them in pinned memory."
            ),
            f"Do not pass NumPy arrays to the step. {_AHEAD} {_LESS}",
        ),
        "small": (
            "Send one tensor instead of many: `tf.concat` or `tf.stack` features in the pipeline, `dataset.batch` before `map`.",
            "Make constants once outside the step, as `x = tf.constant(0.5)`: Python numbers are copied in every call.",
        ),
        "slow": (
            "Check generation and width of the link under load with `nvidia-smi -q -d PCIE`.",
            (
                "Bind the process to the NUMA node of its GPU (`numactl --cpunodebind`), and copy large batches from pinned "
                "memory: `dataset.prefetch(tf.data.AUTOTUNE)`."
            ),
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
    reasons={"": "the copies are recorded with their times"},
    metrics={
        "pageable_ratio": "share of that time in copies from pageable memory",
        "small_ratio": f"share of that time in copies below {SMALL_SIZE}",
        "link_use_ratio": "rate of the copies over that of the link",
        "bytes_per_second": "rate of the copies",
        "copy_count": "copies to the device",
    },
    example="Both GPUs wait 25.0 of 50.0 ms (50%) for HtoD copies",
)


def _diagnose(context: Context, result: Transfers) -> Iterator[Finding]:
    """Copies to GPUs that hold up the step, without those of gradients that the CPU sums, which are another finding."""
    ledger = context.ledger
    rows = ledger.rows(states=H2D_EXPOSED.states)
    of_sums = context.once(reduction_rows)
    if ledger.loss(of_sums).share >= LIMIT:
        rows &= ~of_sums
    finding = _finding(context, rows, result)
    if finding is not None:
        yield finding


def _finding(context: Context, rows: BoolArray, result: Transfers) -> Finding | None:
    lost = context.ledger.loss(rows)
    named = [row for row in result.devices if row.device in lost.devices]
    if not named:
        return None
    arguments, evidence, action = _reason(context, rows, named)
    notes = [action] if action else []
    longest = max(named, key=lambda row: row.directions["h2d"].exposed_ps)
    source = next((of for of in longest.top_sources if of.direction == "h2d"), None)
    if source is not None and source.thread is not None:
        arguments["thread"] = Names((source.thread,), "thread")
    if source is not None and source.op is not None:
        arguments["op"] = Ops((source.op,))
        notes.append("issuer")
    elif "thread" in arguments:
        notes.append("issuing_thread")
    return H2D_EXPOSED.of_rows(
        context,
        rows,
        arguments=arguments,
        evidence=[
            *evidence,
            *(
                Evidence("copy_count", row.directions["h2d"].count, None, row.device)
                for row in named
            ),
        ],
        action=action,
        notes=notes,
    )


def _reason(
    context: Context, rows: BoolArray, named: Sequence[DeviceTransfers]
) -> tuple[dict[str, Argument], list[Evidence], str]:
    """What takes most of the time: arguments, evidence, and the action for it."""
    limits, ledger = H2D_EXPOSED.limits, context.ledger
    columns, device = ledger.columns, context.trace.device_columns
    whole = int(columns.duration_ps[rows].sum())
    # The copy itself, and idle time that it ends.
    of_copy = rows & (columns.event != NONE)
    of_copy[of_copy] = device.class_[columns.event[of_copy]] == ActivityClass.H2D
    if not whole:
        return {}, [], ""
    event, lasted = columns.event[of_copy], columns.duration_ps[of_copy]
    size, memory = device.bytes[event], device.host_memory[event]
    small = int(lasted[(size != UNKNOWN_BYTES) & (size < SMALL_BYTES)].sum()) / whole
    pageable = int(lasted[memory == HostMemory.PAGEABLE].sum()) / whole
    where = named[0].device
    if small >= limits["small_ratio"]:
        arguments: dict[str, Argument] = {"small": Part(small)}
        count = max(row.directions["h2d"].small_count_per_step or 0 for row in named)
        if count:
            arguments["count"] = Number(count)
        return arguments, [Evidence("small_ratio", small, limits["small_ratio"], where)], "small"
    if pageable >= limits["pageable_ratio"]:
        evidence = Evidence("pageable_ratio", pageable, limits["pageable_ratio"], where)
        return {"pageable": Part(pageable)}, [evidence], "pageable"
    speeds = {
        row.device: (row.directions["h2d"].bytes_per_second, row.link_bytes_per_second)
        for row in named
    }
    slow = {
        key: (rate, rate / link)
        for key, (rate, link) in speeds.items()
        if rate is not None and link and rate < limits["link_use_ratio"] * link
    }
    if slow:
        key, (rate, use) = min(slow.items(), key=lambda pair: pair[1][1])
        evidence = Evidence("link_use_ratio", use, limits["link_use_ratio"], key)
        return {"rate": Rate(rate), "link_use": Part(use)}, [evidence], "slow"
    return {}, [], ""


# Section


class _Row(NamedTuple):
    """The copies of a device in one direction."""

    of: DeviceTransfers
    device: str
    way: str
    copies: Direction


_COLUMNS: Final = (
    DEVICE,
    Shown("direction", lambda row: look_of(CLASSES, row.way), kind="look"),
    Shown(
        "exposed",
        "copies.exposed_ratio",
        meaning="share of the step, without steps of the window, in which nothing else ran on the device",
    ),
    Shown("per step", "copies.exposed_ps_per_step", 3),
    Shown("busy", "copies.busy_ps", 10),
    Shown("count", "copies.count", 7),
    Shown(f"below {SMALL_SIZE}", "copies.small_count", 8),
    Shown("size", "copies.bytes", 5),
    Shown("pageable", "copies.pageable_bytes", 6),
    Shown("rate", "copies.bytes_per_second", 2),
    Shown("rate of the link", "of.link_bytes_per_second", 9),
)


def transfers_section(view: View, result: Transfers) -> doc.Section | None:
    """The copies of each device by direction; in a brief document without devices whose copies cost nothing."""
    relevant = [row for row in result.devices if not view.is_brief or _is_costly(row)]
    if not relevant:
        return None
    rows = _with_copies(relevant)
    if not rows:
        return doc.Section("transfers", "Transfers", (), lead="No copies in the window.")
    blocks = view.device_table("Copies by device and direction", rows, _COLUMNS, "copies")
    return doc.Section("transfers", "Transfers", blocks, lead=_lead(rows))


def _with_copies(devices: Sequence[DeviceTransfers]) -> list[_Row]:
    """The devices and directions with copies."""
    return [
        _Row(row, row.device, way, direction)
        for row in devices
        for way, direction in row.directions.items()
        if direction.count
    ]


def _is_costly(row: DeviceTransfers) -> bool:
    return any((way.copies.exposed_ratio or 0.0) >= LIMIT for way in _with_copies([row]))


def _lead(rows: Sequence[_Row]) -> str:
    """The direction that costs most, on the device where it does."""
    row = max(rows, key=lambda row: row.copies.exposed_ratio or 0.0)
    step = "window" if row.copies.exposed_ps_per_step is None else "step"
    if not row.copies.exposed_ratio:
        return "Other work hides all copies."
    copies = numbers.capitalized(look_of(CLASSES, row.way).words)
    share = numbers.share(row.copies.exposed_ratio)
    return f"{copies} are exposed for {share} of the {step} on {row.device}."


ANALYSIS: Final = Analysis[Transfers](
    "transfers",
    compute=transfers_of,
    rules=(H2D_EXPOSED,),
    leads=has_time(*H2D_EXPOSED.states),
    diagnose=_diagnose,
    sections=(transfers_section,),
)
