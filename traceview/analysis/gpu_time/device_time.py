"""Device time: how busy each device was and with what, and which devices took no part in the training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.facts.devices import (
    MARGINAL_RATIO,
    WITHOUT_EVENT,
    busiest_peers,
    least_replica_count,
)
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.device_report import (
    COPIES,
    ActivityTime,
    DeviceTime,
    DeviceTimeRow,
    compute,
)
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import Rule, devices_argument
from traceview.analysis.rules.words import Argument, Number, Quantity
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, columns
from traceview.document.vocabulary import STATUSES, look_of
from traceview.ledger.states import State
from traceview.trace.device.table import Table, record_columns, table
from traceview.xplane.planes import CLASS_KEYS

HELD_BYTES: Final = 256_000_000
"""So much memory on a GPU that computes nothing is worth a sentence."""


# Rules

UNUSED_GPU: Final = Rule(
    code="unused-gpu",
    title="{who:computes/compute} nothing: {unused:is/are} unused",
    titles={
        "several": "{unused:is/are} unused",
        "copies": "{who:only copies/only copy} data: {unused:computes/compute} nothing",
        "not-recorded": "{unused:has/have} no recorded kernel, though the job has {replicas} or more",
    },
    meaning="The process can see the GPU, and no kernel was recorded on it. All of its time is lost.",
    action="Let the strategy use them: `tf.distribute.MirroredStrategy()` takes every visible GPU.",
    advice=(
        "`devices=` and `CUDA_VISIBLE_DEVICES` leave GPUs out; print `strategy.num_replicas_in_sync`. To keep them free for "
        "other jobs, hide them with `CUDA_VISIBLE_DEVICES`."
    ),
    actions={
        "jax": (
            "Use them: place the arrays over all of `jax.devices()` with a `jax.sharding.Mesh` and `NamedSharding`.",
            "To keep them free for other jobs, hide them with `CUDA_VISIBLE_DEVICES`.",
        ),
        "copies": (
            "Check the devices of the strategy and of `tf.device` scopes.",
            "If the capture holds few steps, record more first: `traceview capture --steps 100:110`.",
        ),
        "not-recorded": (
            "Record several whole steps: `traceview capture --steps 100:110`.",
            "If GPUs are still unused then, look whether the global batch reaches all replicas.",
        ),
    },
    notes={
        "memory": "TensorFlow holds {memory} there, which no other job can use.",
        "copies": "Its replica did not reach its step within the capture, or data is placed where no replica uses it.",
        "not-recorded": "Names of ops show that their replicas exist: these ran before or after the recording, or did not start.",
    },
    reasons={
        "": "the tracer recorded other GPUs of the same process",
        "outside": "kernels may have run outside the capture",
        "replicas": "replicas are known by the names of ops; which GPU each has is not recorded",
    },
    metrics={"least_replica_count": "replicas in names of ops"},
    limit=0.0,
    starts_at="GPUs without any event, or with copies alone, beside GPUs that ran kernels",
    states=(State.NO_WORK,),
    explains=("single-gpu-gradients",),
    is_of_absence=True,
    example="GPU:1 computes nothing: 1 of 4 GPUs is unused",
)

MARGINAL_GPU: Final = Rule(
    code="marginal-gpu",
    title="{who:does/do} {share} of {peer}'s work",
    titles={"several": "{who:does/do} at most {share} of {peer}'s work"},
    meaning="It computes far less than the busiest one. Replicas of a mirrored step should do equal work.",
    action="Check that the global batch divides into all replicas, and that the step runs in `strategy.run`.",
    advice="A `tf.device` scope that pins the model to one GPU has the same effect.",
    actions={"jax": "Check that the shardings divide the batch over all devices of the mesh."},
    reasons={"": "judged over the whole recording"},
    metrics={"compute_ratio_to_busiest": "compute of the busiest GPU"},
    limit=0.0,
    limits={"marginal_ratio": MARGINAL_RATIO},
    starts_at="compute below {marginal_ratio} of the busiest GPU",
    states=(State.NO_WORK, State.DEVICE_WAIT),
    explains=("straggler-gpu", "serial-gpus", "late-by-turns"),
    is_of_absence=True,
    example="GPU:1 does 13% of GPU:0's work",
)


def diagnose(context: Context, result: DeviceTime) -> Iterator[Finding | None]:
    """Devices that are visible and compute nothing, or far less than another."""
    trace = context.trace
    gpus = [row for row in result.devices if row.kind in ("gpu", "tpu")]
    # Where no device of a host recorded an event its tracer failed: that is the capture's finding.
    traced = {row.host for row in gpus if row.status not in WITHOUT_EVENT}
    gpus = [row for row in gpus if row.host in traced]
    index_of = {trace.device_key(index): index for index in range(len(trace.device_list))}
    unused = [row for row in gpus if row.status in (*WITHOUT_EVENT, "copy_only")]
    if unused:
        yield _unused(context, unused, gpus, [index_of[row.device] for row in unused])
    marginal = [index_of[row.device] for row in gpus if row.status == "marginal"]
    if marginal:
        yield _marginal(context, marginal)


def _unused(
    context: Context,
    rows: Sequence[DeviceTimeRow],
    gpus: Sequence[DeviceTimeRow],
    devices: Sequence[int],
) -> Finding | None:
    """GPUs that compute nothing, and the memory that they hold."""
    noun = "TPU" if all(row.kind == "tpu" for row in gpus) else "GPU"
    arguments: dict[str, Argument] = {"unused": Number(len(rows), noun, len(gpus))}
    evidence = [Evidence("status", row.status, None, row.device, value_is="words") for row in rows]
    copying = [row for row in rows if row.status == "copy_only"]
    notes = ["copies"] if copying else []
    held = {row.device: row.memory_held_bytes or 0 for row in rows}
    held = {device: size for device, size in held.items() if size >= HELD_BYTES}
    if held:
        arguments["memory"] = Quantity(sum(held.values()), "bytes")
        evidence += [Evidence("memory_held_bytes", size, None, key) for key, size in held.items()]
        notes.append("memory")
    # Names of ops may show more replicas than GPUs that compute.
    computing_count, trace = sum(row.is_in_use for row in gpus), context.trace
    count = least_replica_count(trace, {trace.device_list[d].host for d in devices})
    if count is not None and count > computing_count:
        replicas = Evidence("least_replica_count", count, computing_count, "", "names of ops")
        return UNUSED_GPU.finding(
            arguments={**arguments, "replicas": Number(count, "replica")},
            confidence=("medium", "replicas"),
            severity="warning",
            evidence=[replicas, *evidence],
            devices=[row.device for row in rows],
            title="not-recorded",
            action="not-recorded",
            notes=("not-recorded", *notes),
        )
    key = "copies" if len(copying) == len(rows) else ""
    return UNUSED_GPU.of_rows(
        context,
        context.ledger.rows(states=UNUSED_GPU.states, devices=devices),
        named=devices,
        arguments=arguments,
        confidence=("medium", "outside") if copying else ("high", ""),
        evidence=evidence,
        title=key or ("several" if len(rows) > 1 else ""),
        action=key,
        notes=notes,
    )


def _marginal(context: Context, marginal: Sequence[int]) -> Finding | None:
    """GPUs that compute far less than the busiest one does."""
    trace, peers = context.trace, busiest_peers(context)
    compute_ps = [activity.compute.length for activity in context.activities]
    shares = {device: compute_ps[device] / compute_ps[peers[device]] for device in marginal}
    most = max(marginal, key=lambda device: shares[device])
    evidence = []
    for device, share in shares.items():
        key = trace.device_key(device)
        evidence += [
            Evidence("compute_ps", compute_ps[device], None, key),
            Evidence("compute_ratio_to_busiest", share, MARGINAL_RATIO, key),
        ]
    peer = devices_argument(context, [trace.device_key(peers[most])])
    return MARGINAL_GPU.of_rows(
        context,
        context.ledger.rows(states=MARGINAL_GPU.states, devices=marginal),
        named=marginal,
        arguments={"share": Quantity(shares[most], "ratio"), "peer": peer},
        evidence=evidence,
        title="several" if len(marginal) > 1 else "",
    )


# The section

TITLE: Final = "Devices"
_PARTS_ADD_UP: Final = (
    "Shares are of the window; all but the first add up to it. Waits in ops: one runs and waits for another device, or "
    "others slow it down; waits between ops are idle. Communication, copies and fills count only while nothing computes."
)


def devices_section(view: View, result: DeviceTime) -> doc.Section | None:
    """A row per device; of very many devices the outliers, and the range of the others."""
    if not result.devices:
        return doc.Section("devices", TITLE, (), lead="The trace holds no device.", is_folded=False)
    rows, others = view.split(result.devices)
    shown = rows[: view.most_rows]
    unknown = sum(row.unknown_direction_count or 0 for row in result.devices)
    activities = [row.activity for row in result.devices if row.activity]
    count = sum(activity[key].count for activity in activities for key in COPIES)
    copies = numbers.plural(count, "copy", "copies")
    return doc.Section(
        "devices",
        TITLE,
        (
            *doc.table(
                "Time of each device",
                columns(shown, _columns(shown)),
                row_count=len(rows),
                rest=view.command("show devices"),
                anchors=[doc.anchor("device", row.device) for row in shown],
            ),
            *view.ranges(others, (Shown("busy", "busy_ratio"), *_SHARES), "devices"),
            *doc.remarks(
                f"{numbers.count(unknown)} of {copies}: direction not recorded, counted as copies between devices."
                if unknown
                else None,
                _PARTS_ADD_UP if shown else None,
            ),
        ),
        lead=f"{numbers.plural(len(result.devices), 'device')}.",
        is_folded=False,
    )


# Columns


def _shown_part(heading: str, field: str, priority: int = 0) -> Shown:
    return Shown(
        heading, lambda row: doc.ratio(getattr(row, field), row.window_ps), priority, "share"
    )


_SHARES: Final = (
    _shown_part("compute", "compute_ps", 1),
    _shown_part("communication", "communication_ps", 2),
    _shown_part("copies", "copies_ps", 4),
    _shown_part("waits in ops", "waiting_ps", 3),
)


def _columns(rows: Sequence[DeviceTimeRow]) -> Iterator[Shown]:
    yield DEVICE
    yield Shown("status", lambda row: look_of(STATUSES, row.status), 6, "look")
    yield Shown(
        "",
        lambda row: doc.Span(row.device, 0, row.window_ps) if row.window_ps else None,
        kind="span",
    )
    yield Shown("busy", "busy_ratio")
    yield Shown("busy time", "busy_ps", 5)
    yield from _SHARES
    yield _shown_part("idle", "idle_ps")
    are_replicas = all(row.kind == "replica" for row in rows)
    yield Shown(
        "ops" if are_replicas else "kernels",
        lambda row: row.activity and row.activity["compute"].count,
        8,
        "count",
    )
    yield Shown("peak memory", "memory_peak_bytes", 7, meaning="since the process started")
    # The lead of the section names a model that all devices share.
    yield Shown("model", "model", 9, if_several=True)


# The table


def device_table(context: Context) -> Table:
    """A row per device in the order of hosts and numbers."""
    rows = (context.record(ANALYSIS) or DeviceTime(())).devices
    fields = DeviceTimeRow.__struct_fields__
    before, after = fields[: fields.index("activity")], fields[fields.index("activity") + 1 :]
    made = [*record_columns(DeviceTimeRow, rows, before)]
    for key in CLASS_KEYS:
        # `h2d_count`, `h2d_bytes`, `h2d_busy_ps`, `h2d_exposed_ps`, `h2d_exposed_ratio`, `h2d_bytes_per_second`
        times = [row.activity[key] if row.activity else None for row in rows]
        of = [
            name for name in ActivityTime.__struct_fields__ if "bytes" not in name or key in COPIES
        ]
        made += record_columns(ActivityTime, times, of, {name: f"{key}_{name}" for name in of})
    return table("devices", *made, *record_columns(DeviceTimeRow, rows, after))


ANALYSIS: Final = Analysis[DeviceTime](
    "device_time",
    compute=compute,
    rules=(UNUSED_GPU, MARGINAL_GPU),
    diagnose=diagnose,
    sections=(devices_section,),
    title_if_absent=TITLE,
    table=device_table,
)
