"""Collectives: what they cost, how gradients are summed, and which devices wait for which."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

import numpy as np

from traceview.analysis.exchange.collective_sums import (
    CollectiveOp,
    CollectiveResult,
    agreed,
    compute,
)
from traceview.analysis.exchange.reduction_path import (
    LEAST_SUMMED,
    SmallCollectives,
    events_in_windows,
    has_virtual_gpus,
    layer_collectives,
    per_step,
    reduction_paths,
    reduction_rows,
    used_steps,
)
from traceview.analysis.facts.detours import WAITS_FOR_RESULTS
from traceview.analysis.facts.dispatch import MANY_CALLS, rows_of_keys
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Confidence, Evidence, Finding
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Argument, Names, Number, Rate, Time
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, table
from traceview.ledger.states import State
from traceview.trace.device.op_names import OPTIMIZER_SCOPE, split_op
from traceview.trace.device.table import Table, category, flag, texts, whole
from traceview.trace.device.table import table as table_of_columns
from traceview.trace.model import NONE, UNKNOWN_BYTES
from traceview.trace.strategy.collectives import CollectiveKind

_MOST_NAMED: Final = 3
"""Layers in a sentence."""

_CHEAPER: Final = "Exchange gradients less often: a larger batch per replica, so that one exchange serves more examples."
_OTHER_CALLS: Final = (
    "Look for other calls: tensors of another type, metrics, synchronised batch normalisation, clipping by a global norm "
    "(`traceview show collectives LOGDIR`)."
)
_MORE: Final = (
    "Exchange gradients less often: a larger batch per replica. Half precision in the model does not help: the gradients of "
    "float32 variables stay float32."
)

EXPOSED: Final = Rule(
    code="collective-exposed",
    states=(State.COMMUNICATION,),
    # Some of it is there in every healthy run.
    limit=0.10,
    starts_at=(
        "{limit} of the GPU time in transfers of collectives, and in what all devices wait in those of a step, while nothing computes"
    ),
    title="{who:spends/spend} {loss} in exposed communication",
    meaning=(
        "Devices exchange data while they compute nothing. Two things count: transfers, which are the shortest time that any "
        "device is in each collective, and the waits that all devices have in the collectives of a step, which one meeting per "
        "step would avoid. Other waits for a late device are another state."
    ),
    notes={
        "calls": "Each step has {calls}.",
        "gradients": "Most of it exchanges gradients of {layers}[, and {others}].",
        "arrays": "Most of it exchanges arrays of {layers}[, and {others}].",
        "packs": "The strategy packs the gradients into {packs}.",
        "speed": "Each link carries {speed}[ of {link}].",
        "sent": "Each device sends {speed}.",
        "stream": "Kernels compute on its stream, so nothing hides it.",
        "beyond": (
            "Each link carries {speed}, more than the recorded link can ({link}): the devices use another link."
        ),
        "expected": "At full speed the gradients of a step take {expected}.",
    },
    action=_CHEAPER,
    advice="Half precision in the model does not help: the gradients of float32 variables stay float32.",
    actions={
        "nccl": (
            (
                "Use fewer and larger calls: "
                "`tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce(num_packs=1))`."
            ),
            f"`MultiWorkerMirroredStrategy` makes one call for all gradients. {_MORE}",
        ),
        "split": (
            "Use fewer and larger calls: without `bytes_per_pack` in `CommunicationOptions` all gradients go in one call.",
            _MORE,
        ),
        "packed": (_CHEAPER, _OTHER_CALLS),
        "jax": (
            "Exchange less often: a larger batch per device.",
            "Check the shardings: an array that two ops want in different shardings is exchanged between them.",
        ),
    },
    reasons={
        "cpu": "replicas on the CPU share its cores",
        "alone": "other devices are not recorded, so this may be waiting for them",
        "workers": "not all workers are recorded, so part of this may be waiting for them",
        "order": "collectives are matched by their order: keys are not recorded",
        "keys": "every device of these collectives is recorded",
    },
    metrics={
        "collective_count": "collectives per step",
        "bus_bytes_per_second": "speed of a link",
        "overlap_ratio": "time in collectives that compute hides",
    },
    example="All 4 GPUs spend 12.0 of 50.0 ms (24%) in exposed communication",
)

SMALL: Final = Rule(
    code="small-collectives",
    states=(State.COMMUNICATION, State.DEVICE_WAIT),
    # Choices of ours: healthy steps of 48 programs had at most one such collective.
    limits={"fewest_calls": MANY_CALLS, "most_bytes": 64_000},
    starts_at=(
        "{limit} of the GPU time, while nothing computes, in collectives of layers, or in others that are {fewest_calls} or more "
        "per step and at least half of all: of at most {most_bytes} each, or, where none are recorded, not of the optimizer"
    ),
    title="{who:spends/spend} {loss} in {calls} that exchange little each",
    titles={
        "own": "{who:spends/spend} {loss} in {calls} outside of the optimizer",
        "layers": "{who:spends/spend} {loss} in collectives of {layers}",
        "norm": "{who:spends/spend} {loss} in synchronised batch normalisation of {layers}",
    },
    meaning=(
        "Each collective takes as long as the devices need to meet, however little it exchanges, and what comes after it "
        "waits for that."
    ),
    notes={
        "layers": (
            "Layers exchange data between replicas inside the step, as `BatchNormalization(synchronized=True)` does three "
            "times per layer in the forward pass and twice in the backward pass. Each step has {calls} of layers."
        ),
        "keys": (
            "{keys} of it pass before the graph runs: in each call TensorFlow makes a key for each collective of each replica "
            "in Python."
        ),
    },
    # 60 numbers one by one took 19.2 ms, as a list or a stack 6.2 and 6.0 (four replicas on two cores, TensorFlow 2.21).
    action=(
        "Exchange in one call those that do not wait for each other: `all_reduce` of a replica context takes a list of tensors, "
        "of any shapes."
    ),
    actions={
        "layers": (
            "Use `BatchNormalization` without `synchronized=True` where the batch of each replica is large enough.",
            (
                "`GroupNormalization` and `LayerNormalization` need nothing of the other replicas. Synchronise fewer layers: "
                "each one costs as much as the next. A larger batch per replica spreads the same collectives over more examples."
            ),
        ),
        "jax": (
            "Exchange in one call those that do not wait for each other: put them together with `jnp.stack`, and sum that.",
            "",
        ),
    },
    reasons={
        "": "the names of the ops show it",
        "bytes": "their bytes are recorded",
        "cpu": "replicas on the CPU share its cores",
    },
    metrics={"collective_count": "such collectives per step", "layer": "a layer"},
    example="Both GPUs spend 8.00 of 50.0 ms (16%) in synchronised batch normalisation of 4 layers",
)

OFF_GPU: Final = Rule(
    code="reduction-off-gpu",
    states=(State.D2H, State.D2D, *WAITS_FOR_RESULTS),
    limits={"least_count": LEAST_SUMMED},
    starts_at=(
        "{limit} of the GPU time in copies of gradients that are summed on the CPU, or on one of {least_count} GPUs or more"
    ),
    title="{who:spends/spend} {loss} to sum gradients on the CPU",
    titles={"one": "{who:spends/spend} {loss} to sum gradients on one GPU"},
    meaning="NCCL does not sum the gradients over the links between GPUs.",
    notes={
        "cpu": (
            "They are copied to the host, summed by the CPU and copied back. The links to the host and its memory are slower "
            "than those between GPUs."
        ),
        "one": (
            "All go to one GPU and the sum comes back from it, so its links carry what a ring would spread over all links."
        ),
        "variables": "Variables are on the CPU.",
        "updates": "Variables are updated on the CPU.",
        "virtual": "NCCL does not support GPUs that are divided into virtual devices.",
        "configured": "The strategy is set up with `cross_device_ops`.",
    },
    action="Let NCCL reduce: `tf.distribute.MirroredStrategy()` without `cross_device_ops` does, with a GPU per replica.",
    advice=(
        "Create variables under `strategy.scope()` and outside of `tf.device('/CPU:0')`; do not divide GPUs into virtual "
        "devices."
    ),
    actions={
        "virtual": (
            "Leave `cross_device_ops` out: replicas that share a GPU then sum their gradients on it.",
            "Create variables under `strategy.scope()` and outside of `tf.device('/CPU:0')`.",
        )
    },
    reasons={"": "recognised by copies as large as gradients and by the names of sums"},
    metrics={"path": "how gradients are summed"},
    values={"cpu_bounce": "on the CPU", "one_device": "on one GPU"},
    example="Both GPUs spend 5.20 of 50.0 ms (10%) to sum gradients on the CPU",
)


def diagnose(context: Context, result: CollectiveResult) -> Iterator[Finding | None]:
    """Small collectives, the other exposed ones, and sums off the links."""
    keys = rows_of_keys(context, context.ledger)
    rows = context.ledger.rows(states=EXPOSED.states) | keys
    small = layer_collectives(context) or _many(context)
    events = small.rows if small else np.empty(0, dtype=np.int64)
    of_small = context.ledger.rows(states=SMALL.states, events=events) | keys
    finding = _small(context, of_small, keys, small)
    if finding is not None:
        rows &= ~of_small
        yield finding
    yield _exposed(context, rows, result)
    yield _off_gpu(context)


def _small(
    context: Context, rows: BoolArray, keys: BoolArray, of: SmallCollectives | None
) -> Finding | None:
    """The finding about collectives of layers, else about many others, and about the keys that are made for them."""
    count, title, scopes = (of.per_step, of.title, of.scopes) if of else (0, "", frozenset())
    arguments: dict[str, Argument] = {"calls": Number(count, "collective")}
    evidence = [Evidence("collective_count", count, None, "")]
    notes = ["layers"] if scopes else []
    if keys.any():
        notes.append("keys")
        arguments["keys"] = Time(context.ledger.loss(keys).mean_ps)
    if scopes:
        arguments["layers"] = Number(len(scopes), "layer")
        first = min(scope.decode("utf-8", "replace") for scope in scopes)
        evidence.append(Evidence("layer", first, None, "", value_is="op"))
    return SMALL.of_rows(
        context,
        rows,
        arguments=arguments,
        confidence=("low", "cpu") if _is_on_cpu(context) else ("high", "" if title else "bytes"),
        evidence=evidence,
        title=title,
        action="layers" if scopes else "",
        notes=notes,
        keeps_waiting=True,
    )


def _many(context: Context) -> SmallCollectives | None:
    """The small collectives, or where no bytes are recorded those outside of the optimizer; None if they are few in a step, or the fewer."""
    collectives, steps = context.collectives, used_steps(context)
    sizes = collectives.bytes_moved[collectives.collective]
    names = {op: context.trace.names.text(op) or "" for op in unique_ids(collectives.op).tolist()}
    own = [op for op, name in names.items() if name and not OPTIMIZER_SCOPE.search(name.encode())]
    chosen = is_in(collectives.op.astype(np.int64), np.array(sorted(own), dtype=np.int64))
    is_known = sizes != UNKNOWN_BYTES
    chosen[is_known] = sizes[is_known] <= SMALL.limits["most_bytes"]
    count = per_step(collectives, chosen, steps)
    everything = per_step(collectives, np.ones(chosen.size, dtype=np.bool_), steps)
    if count < max(SMALL.limits["fewest_calls"], everything / 2):
        return None
    title = "" if is_known[chosen].all() else "own"
    return SmallCollectives(collectives.row[chosen], count, title)


def _is_on_cpu(context: Context) -> bool:
    devices = context.trace.device_list
    return all(devices[device].kind == "replica" for device in context.ledger.devices)


def _exposed(context: Context, rows: BoolArray, result: CollectiveResult) -> Finding | None:
    arguments, notes = _facts_of_calls(result)
    evidence = {
        "collective_count": result.count_per_step,
        "bus_bytes_per_second": result.bus_bytes_per_second,
        "overlap_ratio": result.overlap_ratio,
    }
    return EXPOSED.of_rows(
        context,
        rows,
        arguments=arguments,
        confidence=_confidence(context, result),
        evidence=[Evidence(key, of, None, "") for key, of in evidence.items() if of is not None],
        action=_action(context, result),
        notes=notes,
    )


def _confidence(context: Context, result: CollectiveResult) -> tuple[Confidence, str]:
    if _is_on_cpu(context):
        return "low", "cpu"
    # Where most collectives lack devices, transfer and waiting cannot be separated.
    if 2 * result.incomplete_count >= max(result.count, 1):
        return "low", "alone"
    if result.member_count > result.device_count:
        return "medium", "workers"
    return ("high", "keys") if result.matched_by == "keys" else ("medium", "order")


def _facts_of_calls(result: CollectiveResult) -> tuple[dict[str, Argument], list[str]]:
    """The arguments about calls and speed, and the notes that have them."""
    arguments: dict[str, Argument] = {}
    notes = []
    if result.count_per_step:
        arguments["calls"] = Number(result.count_per_step, "collective")
        notes.append("calls")
        if result.packs:
            arguments["packs"] = Number(result.packs, "call")
            notes.append("packs")
    notes += _layers_of(result, arguments)
    speed, link = result.bus_bytes_per_second, result.link_bytes_per_second
    if speed is not None:
        arguments["speed"] = Rate(speed)
        if link:
            arguments["link"] = Rate(link)
        # Only collectives of GPUs have a library, and links.
        notes.append("beyond" if link and speed > link else "speed" if result.library else "sent")
        if result.expected_ps is not None and link and speed <= link:
            arguments["expected"] = Time(result.expected_ps)
            notes.append("expected")
    return arguments, notes


def _layers_of(result: CollectiveResult, arguments: dict[str, Argument]) -> Iterator[str]:
    """The note about what the op exchanges that most of the exposed time is of, with its arguments."""
    exposed_ps = sum(op.exposed_ps_per_step for op in result.ops)
    first = next(iter(result.ops), None)
    if first is None or not first.layers or 2 * first.exposed_ps_per_step < exposed_ps:
        return
    named = first.layers[:_MOST_NAMED]
    arguments["layers"] = Names(named, "op")
    if first.layer_count > len(named):
        arguments["others"] = Number(first.layer_count - len(named), "other layer")
    yield "gradients" if first.phase == "backward" else "arrays"
    if first.stream_computes:
        yield "stream"


def _action(context: Context, result: CollectiveResult) -> str:
    """The action about the number of calls; NCCL packs by number, other collectives by size (TensorFlow 2.21)."""
    packs, count, trace = result.packs, result.count_per_step, context.trace
    if count == 1:
        return ""
    if packs is not None:
        return "packed" if packs <= 1 and (count or 0) > packs else "nccl"
    strategies = (host.captured.environment.strategy for host in trace.hosts)
    bytes_per_pack = agreed(strategy.bytes_per_pack for strategy in strategies)
    if bytes_per_pack is not None:
        return "split" if bytes_per_pack else "packed"
    # NCCL does not serve the CPU.
    return "" if _is_on_cpu(context) else "nccl"


def _off_gpu(context: Context) -> Finding | None:
    hosts = {
        host: path
        for host, path in context.once(reduction_paths).items()
        if path.path in ("cpu_bounce", "one_device")
    }
    rows = context.once(reduction_rows)
    if not hosts or not rows.any():
        return None
    evidence = [
        Evidence("path", path.path or "", None, context.trace.hosts[host].name, value_is="words")
        for host, path in hosts.items()
    ]
    first = next(iter(hosts.values()))
    place = "cpu" if first.path == "cpu_bounce" else "one"
    notes = filter(None, (place, first.cause))
    return OFF_GPU.of_rows(
        context,
        rows,
        confidence=("medium", ""),
        evidence=evidence,
        title="" if place == "cpu" else "one",
        action="virtual" if any(has_virtual_gpus(context.trace, host) for host in hosts) else "",
        notes=tuple(notes),
    )


# Section
TITLE: Final = "Collectives"
TRANSFER_REMARK: Final = (
    "The sum has the transfer of each collective once, in full. Communication is that of one device: transfers at the same "
    "time count once, and only while their op runs there and nothing computes."
)

_PATHS: Final = {
    "collective_nccl": "collective ops sum the gradients through {library}",
    "collective_ring": "collective ops sum the gradients without {library}",
    "nccl": "{library} sums the gradients",
    "hierarchical_copy": "gradients are copied between devices and summed on several of them",
    "one_device": "gradients are copied to one device and summed there",
    "cpu_bounce": "gradients are copied to the host and summed on the CPU",
    "xla": "XLA programs exchange arrays between devices",
}
_LINKS: Final = {"nvlink": "NVLink", "pcie": "PCIe"}


def collectives_section(view: View, result: CollectiveResult) -> doc.Section | None:
    """The path of the gradients and the times; nothing for a run that reduces nothing."""
    if not result.count and result.path in (None, "none"):
        return None
    blocks: tuple[doc.Block, ...] = ()
    if result.count:
        blocks = (
            *doc.facts(*_facts(result)),
            *_by_device(view, result),
            *_by_op(view, result),
        )
    return doc.Section("collectives", TITLE, blocks, lead=numbers.sentence(path_words(result)))


def path_words(collectives: CollectiveResult) -> str:
    """How the devices reduce gradients, and why."""
    library = (collectives.library or "nccl").upper()
    path = _PATHS.get(collectives.path or "", "").format(library=library)
    if path or collectives.path_reason:
        return ": ".join(part for part in (path, collectives.path_reason) if part)
    if collectives.count:
        return "the trace does not show which op launches the collectives"
    return "no collective and no copy of gradients was recorded"


def _facts(result: CollectiveResult) -> Iterator[str]:
    per_step = f", {result.count_per_step:,} per step (median)" if result.count_per_step else ""
    yield f"{numbers.plural(result.count, 'collective')}{per_step}"
    if result.transfer_per_step_ps is not None:
        yield f"transfers {numbers.time(result.transfer_per_step_ps)} per step in sum"
    else:
        yield f"transfers {numbers.time(result.transfer_ps)} in the window in sum"
    yield f"{numbers.share(result.overlap_ratio)} of the time in collectives hidden by compute"
    if result.expected_ps is not None and not _is_beyond_link(result):
        yield f"{numbers.time(result.expected_ps)} expected at the speed of the link"
    if result.bus_bytes_per_second is not None:
        yield _speed(result)
    if result.incomplete_count:
        on_all = f"on all {numbers.plural(result.device_count, 'device')}"
        yield f"{numbers.count(result.incomplete_count)} not recorded {on_all}"
    if result.member_count > result.device_count:
        members = numbers.plural(result.member_count, "device")
        yield f"only {result.device_count:,} of {members} recorded: transfer may include waiting"


def _is_beyond_link(result: CollectiveResult) -> bool:
    """Whether something faster than the recorded link connects the devices."""
    return (result.bus_bytes_per_second or 0) > (result.link_bytes_per_second or math.inf)


def _speed(result: CollectiveResult) -> str:
    # Only collectives of GPUs have a library, and links.
    carrier = "over each link" if result.library else "per device"
    speed = f"{numbers.rate(result.bus_bytes_per_second)} {carrier}"
    if result.link_bytes_per_second is None:
        return speed
    link, most = (
        _LINKS.get(result.link or "", "the link"),
        numbers.rate(result.link_bytes_per_second),
    )
    other = ", so the devices use another link" if _is_beyond_link(result) else ""
    return f"{speed}; {link} carries {most}{other}"


def _by_device(view: View, result: CollectiveResult) -> Iterator[doc.Block]:
    rows = [row for row in result.devices if row.exposed_ps or row.wait_ps or row.last_count]
    is_per_step = any(row.communication_per_step_ps is not None for row in result.devices)
    each, ending = (" per step", "_per_step_ps") if is_per_step else ("", "_ps")
    if len(rows) > view.most_rows:
        rows.sort(key=lambda row: -(getattr(row, f"exposed{ending}") or 0))
    shown = (
        DEVICE,
        Shown(f"exposed{each}", f"exposed{ending}"),
        Shown(f"communication{each}", f"communication{ending}", 2),
        Shown(f"waiting{each}", f"device_wait{ending}", meaning="for another device"),
        Shown(
            "last to arrive",
            "last_count",
            1,
            meaning="collectives that it started after all other devices",
        ),
    )
    yield from view.device_table("Collectives by device", rows, shown, "collectives")
    whole_ps = result.transfer_per_step_ps if is_per_step else result.transfer_ps
    if any(getattr(row, f"communication{ending}") != whole_ps for row in rows):
        yield from doc.remarks(TRANSFER_REMARK)
    complete_count = result.count - result.incomplete_count
    unclear_count = complete_count - sum(row.last_count for row in result.devices)
    if unclear_count > 0:
        of_all = f"{unclear_count:,} of {complete_count:,} collectives"
        yield from doc.remarks(f"In {of_all} no device was clearly the last.")


def _by_op(view: View, result: CollectiveResult) -> Iterator[doc.Block]:
    """The cost of each op, where there are several or it is known what one exchanges."""
    if len(result.ops) > 1 or any(op.layers for op in result.ops):
        rest = view.command("show collectives")
        yield from table("Ops", result.ops, _OP_COLUMNS, most_rows=view.most_rows, rest=rest)


def _exchanges(op: CollectiveOp) -> str:
    """`gradients of train_step/up and 3 more`."""
    if not op.layers:
        return ""
    more = f" and {op.layer_count - 1:,} more" if op.layer_count > 1 else ""
    of_what = "gradients of " if op.phase == "backward" else ""
    return f"{of_what}{op.layers[0]}{more}"


def _stream(op: CollectiveOp) -> str:
    if op.stream_computes is None:
        return ""
    return "of compute" if op.stream_computes else "its own"


_OP_COLUMNS: Final = (
    Shown("op", "op", kind="name"),
    Shown("exchanges", _exchanges, kind="name"),
    Shown("per step", "count_per_step", 1),
    Shown("devices each", "device_count", 2),
    Shown("size", "bytes", 1),
    Shown("stream", _stream, 2),
    Shown("exposed per step", "exposed_ps_per_step", meaning="mean of the devices"),
    Shown("waiting per step", "wait_ps_per_step", meaning="for another device"),
)


# Each collective


def collective_table(context: Context) -> Table:
    """A row per device in each collective that overlaps the window, in the order in which they began.

    `transfer_ps` is the shortest time that a device is in the collective, `wait_ps` how much longer this one is; both
    are missing where a device was not recorded.
    """
    trace, collectives = context.trace, context.collectives
    shown = unique_ids(collectives.collective[context.once(events_in_windows)])
    rows = np.flatnonzero(is_in(collectives.collective, shown))
    number, device, name = collectives.collective[rows], collectives.device[rows], trace.names.text
    is_unknown = ~collectives.is_complete[number]
    size, step = collectives.bytes_moved[number], collectives.step[rows]
    keys = [trace.device_key(index) for index in range(len(trace.device_list))]
    hosts = [trace.hosts[entry.host].name for entry in trace.device_list]
    ops = [
        split_op(name(op) or "")[0] if op != NONE else None for op in collectives.op[rows].tolist()
    ]
    return table_of_columns(
        "collectives",
        whole("collective", number),
        category("kind", collectives.kind[rows], [kind.name.lower() for kind in CollectiveKind]),
        texts("op", ops),
        texts("name", [name(n) or "" for n in collectives.name[rows].tolist()]),
        category("host", device, hosts),
        category("device", device, keys),
        whole("step", step, step == NONE),
        whole("start_ps", collectives.start_ps[rows]),
        whole("duration_ps", collectives.duration_ps[rows]),
        whole("transfer_ps", collectives.transfer_ps[number], is_unknown),
        whole("wait_ps", collectives.wait_ps[rows], is_unknown),
        flag("is_last", collectives.is_last[rows]),
        whole("device_count", collectives.device_count[number]),
        category("matched_by", collectives.by_keys[rows].astype(np.int64), ("order", "keys")),
        whole("bytes", size, size == UNKNOWN_BYTES),
    )


def collective_rows_section(rows: Table) -> doc.Section | None:
    """The rows, with number and op of each collective in its first one; nothing without any."""
    if not rows.count:
        return None
    return doc.Section(
        "collective-rows",
        "Each collective",
        (
            *table("Each device in each collective", list(_with_first(rows)), _ROW_COLUMNS),
            *doc.remarks("The shortest time that a device is in a collective is its transfer."),
        ),
    )


def _with_first(rows: Table) -> Iterator[dict[str, Any]]:
    before = None
    for row in rows.rows():
        yield {**row, "first": row["collective"] != before}
        before = row["collective"]


_ROW_COLUMNS: Final = (
    Shown("number", lambda row: str(row["collective"]) if row["first"] else "", 5),
    Shown("device", itemgetter("device"), kind="device"),
    Shown("step", itemgetter("step"), 3, "count"),
    Shown("start", itemgetter("start_ps"), 2, "time"),
    Shown("duration", itemgetter("duration_ps"), kind="time"),
    Shown("waiting", itemgetter("wait_ps"), kind="time"),
    Shown("", lambda row: "last" if row["is_last"] else ""),
    Shown("size", itemgetter("bytes"), 4, "bytes"),
    Shown("op", lambda row: (row["op"] or row["name"]) if row["first"] else "", 1, "name"),
)


ANALYSIS: Final = Analysis[CollectiveResult](
    "collectives",
    compute=compute,
    rules=(EXPOSED, SMALL, OFF_GPU),
    diagnose=diagnose,
    sections=(collectives_section,),
    table=collective_table,
)
