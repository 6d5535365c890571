"""Collectives: what they cost, which are small, gradients that are summed without them, and which devices wait for which."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from traceview.analysis.exchange.collective_sums import (
    CollectiveResult,
    agreed,
    compute,
    per_step,
    reduction_rows,
    rows_in_windows,
    sent_one_by_one,
)
from traceview.analysis.facts.detours import WAITS_FOR_RESULTS
from traceview.analysis.facts.dispatch import (
    MANY_CALLS,
    program_of_instructions,
    rows_of_keys,
)
from traceview.analysis.facts.graph_ops import named_in_graphs
from traceview.analysis.facts.layers import instructions_that
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import line_of_rows, needless, rows_of_labels
from traceview.analysis.rules.finding import Confidence, Evidence, Finding
from traceview.analysis.rules.rule import CAPTURE_ALL, LIMIT, Rule, is_of_jax
from traceview.analysis.rules.words import Argument, Names, Number, Quantity
from traceview.base.ids import is_in, labels, unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.phrase import Sentence, Token, phrase
from traceview.ledger.states import State
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.device.op_names import OPTIMIZER_SCOPE, label_texts, op_labels, split_op
from traceview.trace.device.table import Table, category, flag, texts, whole
from traceview.trace.device.table import table as table_of_columns
from traceview.trace.model import Recording, missing_tasks
from traceview.trace.strategy.collectives import CollectiveKind

_CHEAPER: Final = "Exchange gradients less often: a larger batch per replica, so that one exchange serves more examples."
_OTHER_CALLS: Final = (
    "Look for other calls: tensors of another type, metrics, synchronised batch normalisation, clipping by a global norm "
    "(`traceview show collectives LOGDIR`)."
)
_MORE: Final = (
    "Exchange gradients less often: a larger batch per replica. Half precision in the model does not help: the gradients of "
    "float32 variables stay float32."
)

_ONE_SHARDING: Final = (
    "Keep the sharding that the array has[, in {line}]: most collectives only move its parts to other devices.",
    "A larger batch does not help: the parts grow with it.",
)

_FEWER_ROWS: Final = (
    "Exchange fewer rows of the table[, in {line}]: look up each id of the batch once.",
    "A larger batch does not help: the rows grow with it. A small table may fit on each device whole.",
)
_OWN_ROWS: Final = (
    "Take rows of the same device only[, in {line}], inside of `jax.shard_map`: now whole rows are exchanged.",
    "An array that does not change, and is small, may lie on each device whole.",
)

_LESS_ACTIVATIONS: Final = (
    "Exchange less: multiply the part that each device has, and sum the partial results, `jax.lax.psum`.",
    "Split the first matrix by columns and the second by rows: both products need one sum. A larger batch does not help: activations grow with it.",
)

_ONE_COLLECTIVE: Final = (
    "Let one collective do it: `jax.lax.psum` or `pmean` of what all have, `all_gather` of what each has, not `ppermute`.",
    "Nothing there is differentiated, so it is no pipeline. A step that added gradients up on a ring of 4 took 36 instead of 28 ms (JAX 0.10).",
)

EXPOSED: Final = Rule(
    code="collective-exposed",
    states=(State.COMMUNICATION,),
    # Some of it is there in every healthy run.
    limit=0.10,
    # A choice of ours: as often an op of a loop runs in a step.
    limits={"turn_count": 4},
    starts_at=(
        f"{{limit}} of the GPU time in these, {numbers.chosen('limit_ratio', LIMIT)} in those of values all hold. "
        "A loop is named where most are of ops that run {turn_count} times in a step or more, and as often for each run of their program"
    ),
    title="{who:spends/spend} {loss} in exposed communication",
    titles={
        "alike": "{who:spends/spend} {loss} on exchanging values that all devices already hold[, {line}]",
        "copies": "{who:spends/spend} {loss} in exposed communication, with the copies around it",
        "absent": "{who:spends/spend} {loss} in collectives, perhaps waiting for {tasks}, which the run lacks",
        "loop": "{who:spends/spend} {loss} in exchanges inside of a loop[, {line}]",
        "activations": "{who:spends/spend} {loss} on exchanging activations[ in {line}]",
        "one_by_one": "{who:spends/spend} {loss} on what devices send to each other one by one[, {line}]",
    },
    meaning=(
        "Devices exchange data while they compute nothing. Each collective counts with the shortest time that any device spends in it, "
        "and each step with the waits that a single collective would avoid. Waiting for a late device is counted apart."
    ),
    notes={
        "loop": "The loop makes {count} per step.",
        "copies": "Copies that only reorder arrays for these exchanges, or after them, count, too; bars count them as compute.",
        "one_by_one": "A sum of n devices sends 2/n of what a ring does; the loss is the rest, with the waits for it.",
        "absent": "How long an exchange takes by itself is not known without all that take part in it.",
        "apart": "Another finding counts the other {apart} of communication.",
        "calls": "Each step has {calls}.",
        "sent": "Each device sends {sent}.",
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
        "split_packs": (
            "Use fewer and larger calls: without `bytes_per_pack` in `CommunicationOptions` all gradients go in one call.",
            _MORE,
        ),
        "one_pack": (_CHEAPER, _OTHER_CALLS),
        "absent": CAPTURE_ALL,
        "alike": (
            "Sum gradients once[, in {line}]: leave out your own `all_reduce`, for `apply_gradients` sums them over the replicas, too.",
            "Without it a step took 4.0 instead of 5.1 ms (Keras 3.15). To keep your own sum, call `apply_gradients(pairs, skip_gradients_aggregation=True)` of `tf_keras`.",
        ),
        "jax-alike": (
            "Leave it out[, in {line}]: what each device computes from averaged gradients and whole weights is the same on all.",
            "Of exchanges together with other arrays the part of the bytes counts, and factors and copies count, too.",
        ),
        "loop": "If the loop only adds up gradients, exchange their sum once behind it.",
        "jax-loop": "If the loop only adds up gradients, exchange their sum once behind it: `jax.lax.pmean` after the `scan`, in `jax.shard_map`.",
        "jax-loop_of_parts": (
            "Gather what no turn changes, such as weights, before the loop, and divide the sum of its gradients behind it.",
            "Weights that were gathered before a `scan` of 12 batches left 10 of 20 ms (JAX 0.10, two cores). It takes more memory.",
        ),
        **dict.fromkeys(("sharding", "jax-sharding"), _ONE_SHARDING),
        **dict.fromkeys(("one_by_one", "jax-one_by_one"), _ONE_COLLECTIVE),
        **dict.fromkeys(("rows", "jax-rows"), _FEWER_ROWS),
        "jax-own_rows": _OWN_ROWS,
        **dict.fromkeys(("activations", "jax-activations"), _LESS_ACTIVATIONS),
        "jax": (
            "Exchange less often: a larger batch per device.",
            "Check the shardings: an array that two ops want in different shardings is exchanged between them.",
        ),
    },
    reasons={
        "program": "the program shows it",
        "cpu": "replicas on the CPU share its cores",
        "alone": "other devices are not recorded, so this may be waiting for them",
        "workers": "not all workers are recorded, so part of this may be waiting for them",
        "order": "collectives are matched by their order: keys are not recorded",
        "keys": "every device of these collectives is recorded",
    },
    metrics={
        "collective_count": "collectives per step",
        "bus_bytes_per_second": "sent per device",
        "overlap_ratio": "time in collectives that compute hides",
    },
    example="All 4 GPUs spend 12.0 of 50.0 ms (24%) in exposed communication",
)

_ALIKE: Final = replace(EXPOSED, limit=LIMIT)
"""What nothing needs is in no healthy run."""

SMALL: Final = Rule(
    code="small-collectives",
    states=(State.COMMUNICATION, State.DEVICE_WAIT),
    # Choices of ours: healthy steps of 48 programs had at most one such collective.
    limits={"fewest_calls": MANY_CALLS, "most_bytes": 64_000},
    starts_at=(
        "{limit} of the GPU time, while nothing computes, in collectives of at most {most_bytes}, without recorded sizes in those "
        "outside of the optimizer, if a step has {fewest_calls} or more, half of all"
    ),
    title="{who:spends/spend} {loss} in collectives that exchange little each[, in {line}]",
    titles={
        "own": "{who:spends/spend} {loss} in collectives outside of the optimizer[, in {line}]",
        "norm": "{who:spends/spend} {loss} in collectives of synchronised batch normalisation",
    },
    meaning=(
        "Each collective takes as long as the devices need to meet, however little it exchanges, and what comes after it "
        "waits for that."
    ),
    notes={
        "calls": "Each step has {calls} of that kind.",
        "norm": (
            "`BatchNormalization(synchronized=True)` exchanges data between replicas inside the step, three times per layer in "
            "the forward pass and twice in the backward pass."
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
        "norm": (
            "Use `BatchNormalization` without `synchronized=True` where the batch of each replica is large enough.",
            (
                "`GroupNormalization` and `LayerNormalization` need nothing of the other replicas. Synchronise fewer layers: "
                "each one costs as much as the next. A larger batch per replica spreads the same collectives over more examples."
            ),
        ),
        "jax": "Exchange in one call those that do not wait for each other: put them together with `jnp.stack`, and sum that.",
        "jax-gathered": (
            "Keep small weights whole on each device, `PartitionSpec()`, and divide the large ones: what is divided is gathered for each use.",
            "With 48 vectors of 128 numbers divided over four devices a step took 23 ms, with whole ones 18 (JAX 0.10, four devices on two cores).",
        ),
    },
    reasons={"cpu": "replicas on the CPU share its cores"},
    metrics={"collective_count": "such collectives per step"},
    example="Both GPUs spend 8.00 of 50.0 ms (16%) in collectives of synchronised batch normalisation",
)

OFF_GPU: Final = Rule(
    code="reduction-off-gpu",
    states=(State.D2H, *WAITS_FOR_RESULTS),
    starts_at="{limit} of the GPU time in copies of gradients that are summed on the CPU",
    title="{who:spends/spend} {loss} to sum gradients on the CPU",
    meaning=(
        "NCCL does not sum the gradients over the links between GPUs: they are copied to the host, summed by the CPU and copied "
        "back. The links to the host and its memory are slower than those between GPUs."
    ),
    action="Let NCCL reduce: `tf.distribute.MirroredStrategy()` without `cross_device_ops` does, with a GPU per replica.",
    advice=(
        "Create variables under `strategy.scope()` and outside of `tf.device('/CPU:0')`; do not divide GPUs into virtual "
        "devices."
    ),
    actions={
        "virtual_gpus": (
            "Leave `cross_device_ops` out: replicas that share a GPU then sum their gradients on it.",
            "Create variables under `strategy.scope()` and outside of `tf.device('/CPU:0')`.",
        )
    },
    reasons={"": "recognised by the names of sums and of the copies that bring them"},
    example="Both GPUs spend 5.20 of 50.0 ms (10%) to sum gradients on the CPU",
)


def diagnose(context: Context, result: CollectiveResult) -> Iterator[Finding | None]:
    """Small collectives, the other exposed ones, and sums off the links."""
    keys = rows_of_keys(context, context.ledger)
    rows = context.ledger.rows(states=EXPOSED.states) | keys
    finding, of_small = _small(context, keys)
    if finding is not None:
        rows &= ~of_small
        yield finding
    by_one, count = context.once(sent_one_by_one)
    if by_one.any():
        rows &= ~by_one
        yield EXPOSED.of_rows(
            context,
            by_one,
            arguments=line_of_rows(context, by_one),
            confidence=_confidence(context, result),
            saved_ratio=1 - 2 / count,
            title="one_by_one",
            action="one_by_one",
            notes=("one_by_one",),
        )
    alike, of_alike = _alike(context, rows)
    yield alike
    yield _exposed(context, rows & ~of_alike if alike else rows, result)
    yield _off_gpu(context)


def _alike(context: Context, rows: BoolArray) -> tuple[Finding | None, BoolArray]:
    """The finding about what all devices have alike before they exchange it, and its rows."""
    alike = instructions_that(context.trace, lambda each: each.need == "alike")
    alike |= context.trace.once(named_in_graphs)["sent_ops"]
    of_alike, saved = needless(context, alike)
    if not (rows & of_alike).any():
        return None, of_alike
    finding = _ALIKE.of_rows(
        context,
        of_alike,
        arguments=line_of_rows(context, of_alike),
        confidence=("high", "program"),
        saved_ratio=saved,
        title="alike",
        action="alike",
    )
    return finding, of_alike


_BATCH_NORM: Final = lazy_pattern(r"batch_?norm", re.IGNORECASE)


def _small(context: Context, keys: BoolArray) -> tuple[Finding | None, BoolArray]:
    """The finding about many small collectives and about the keys that are made for them, and its rows of the ledger."""
    collectives, chosen = context.collectives, _many(context)
    count = per_step(context, chosen)
    of_small = context.ledger.rows(states=SMALL.states, events=collectives.row[chosen]) | keys
    sizes = collectives.bytes_moved[collectives.collective[chosen]]
    ops = unique_ids(collectives.op[chosen]).tolist()
    named = [op for op in ops if _BATCH_NORM.search(context.trace.names.text(op) or "")]
    is_of_norm = bool(named) and 2 * len(named) >= len(ops)
    is_known = bool((sizes != UNKNOWN_BYTES).all())
    title = "norm" if is_of_norm else "" if is_known else "own"
    gathers = np.count_nonzero(collectives.kind[chosen] == CollectiveKind.ALL_GATHER)
    is_gathered = is_of_jax(context.trace) and 2 * gathers >= np.count_nonzero(chosen)
    arguments = {"calls": Number(count, "collective"), **line_of_rows(context, of_small)}
    notes = ["calls", "norm"] if is_of_norm else ["calls"]
    if keys.any():
        notes.append("keys")
        arguments["keys"] = Quantity(context.ledger.loss(keys).mean_ps, "ps")
    finding = SMALL.of_rows(
        context,
        of_small,
        arguments=arguments,
        confidence=("low", "cpu") if _is_on_cpu(context) else ("high", ""),
        evidence=[Evidence("collective_count", count, None, "")],
        title=title,
        action="norm" if is_of_norm else "gathered" if is_gathered else "",
        notes=notes,
        keeps_waiting=True,
    )
    return finding, of_small


def _many(context: Context) -> BoolArray:
    """Which are small, or where no bytes are recorded outside of the optimizer; none if they are few in a step, or the fewer."""
    collectives = context.collectives
    sizes = collectives.bytes_moved[collectives.collective]
    chosen = context.trace.names.where(
        collectives.op, lambda name: name and not OPTIMIZER_SCOPE.search(name)
    )
    is_known = sizes != UNKNOWN_BYTES
    chosen[is_known] = sizes[is_known] <= SMALL.limits["most_bytes"]
    # What stages of a pipeline send waits for each other.
    chosen[collectives.kind == CollectiveKind.SEND_RECV] = False
    everything = per_step(context, np.ones(chosen.size, dtype=np.bool_))
    is_many = per_step(context, chosen) >= max(SMALL.limits["fewest_calls"], everything / 2)
    return chosen & is_many


def _is_on_cpu(context: Context) -> bool:
    devices = context.trace.device_list
    return all(devices[device].kind == "replica" for device in context.ledger.devices)


_COPIES_RATIO: Final = 0.1
"""Of a loss: copies of less are left out, so that it is that of the bar; a choice of ours."""


def _exposed(context: Context, rows: BoolArray, result: CollectiveResult) -> Finding | None:
    arguments: dict[str, Argument] = {}
    if result.count_per_step:
        arguments["calls"] = Number(result.count_per_step, "collective")
    if result.bus_bytes_per_second is not None:
        arguments["sent"] = Quantity(result.bus_bytes_per_second, "bytes_per_second")
    evidence = {
        "collective_count": result.count_per_step,
        "bus_bytes_per_second": result.bus_bytes_per_second,
        "overlap_ratio": result.overlap_ratio,
    }
    key, notes, title = _action(context, result), tuple(arguments), ""
    moved = instructions_that(context.trace, lambda each: each.need == "moved")
    copies = rows_of_labels(context, moved)
    duration_ps = context.ledger.columns.duration_ps
    if duration_ps[copies].sum() >= _COPIES_RATIO * duration_ps[rows | copies].sum():
        rows, title, notes = rows | copies, "copies", ("copies", *notes)
    apart = context.ledger.loss(context.ledger.rows(states=EXPOSED.states) & ~rows)
    if apart.ps >= _COPIES_RATIO * duration_ps[rows].sum():
        arguments["apart"], notes = Quantity(apart.mean_ps, "ps"), ("apart", *notes)
    in_loop = _in_loop(context)
    if in_loop.any():
        of_parts = in_loop & is_in(context.collectives.kind, _OF_PARTS)
        is_of_parts = is_of_jax(context.trace) and _are_most(context, of_parts)
        key, notes, title = "loop_of_parts" if is_of_parts else "loop", ("loop", *notes), "loop"
        arguments["count"] = Number(per_step(context, in_loop), "collective")
    elif _moves_parts(context):
        key = "sharding"
    elif of_rows := _exchanges_rows(context):
        key = of_rows
    elif _exchanges_activations(context):
        key = title = "activations"
    tasks = missing_tasks(context.trace.hosts)
    if tasks and not title:
        key, title, notes = "absent", "absent", ("absent", *notes)
        arguments["tasks"] = Names(tuple(map(str, tasks)), "task")
    if key in ("loop", "loop_of_parts", "sharding", "rows", "own_rows", "activations"):
        arguments |= line_of_rows(context, rows)
    return EXPOSED.of_rows(
        context,
        rows,
        arguments=arguments,
        confidence=_confidence(context, result),
        evidence=[Evidence(key, of, None, "") for key, of in evidence.items() if of is not None],
        title=title,
        action=key,
        notes=notes,
    )


_MOVE: Final = lazy_pattern(rb"collective-permute|all-to-all")
_LOOP: Final = lazy_pattern(rb"(?:^|/)while(?:_\d+)?/")
"""The scope of a loop in a graph of TensorFlow."""


def _moves_parts(context: Context) -> bool:
    """Whether most collectives are those with which XLA gives arrays another sharding; those of a program have other names."""
    collectives = context.collectives
    moves = context.trace.names.where(collectives.label, _MOVE.match)
    return bool(2 * np.count_nonzero(moves) > moves.size)


_ROWS: Final = lazy_pattern(r"(?:^|[/:])gather\)*$|CollectiveGather")
_ADDED_ROWS: Final = lazy_pattern(r"(?:^|[/:])scatter[-_]add\)*$")
"""Ends of scopes: what devices look up in each other's parts of a table, and what they add there once all have the rows."""
_TRAINED: Final = lazy_pattern(r"jvp\(")


def _exchanges_rows(context: Context) -> str:
    """The key of the advice where most of the time of collectives is of rows that are looked up, not of whole gradients, else empty.

    What JAX looks up outside of what is differentiated is the batch, or another array that trains nothing.
    """
    collectives, texts = context.collectives, context.trace.once(label_texts)
    label = context.trace.once(op_labels).of_row[collectives.row]
    looked_up, added, is_trained = (
        np.array([bool(ends.search(text)) for text in texts])[label]
        for ends in (_ROWS, _ADDED_ROWS, _TRAINED)
    )
    rows = looked_up | (added & (collectives.kind == CollectiveKind.ALL_GATHER))
    if not _are_most(context, rows):
        return ""
    is_of_data = is_of_jax(context.trace) and _are_most(context, rows & ~is_trained)
    return "own_rows" if is_of_data else "rows"


def _exchanges_activations(context: Context) -> bool:
    """Whether most of the time of collectives is of what layers make of the batch, or its gradients."""
    are_these = instructions_that(context.trace, lambda each: each.need == "activations")
    return _are_most(
        context, are_these[context.trace.once(op_labels).of_row[context.collectives.row]]
    )


def _are_most(context: Context, rows: BoolArray) -> bool:
    """Whether these are most of the time of collectives."""
    duration_ps = context.collectives.duration_ps
    return 2 * int(duration_ps[rows].sum()) > int(duration_ps.sum())


_OF_PARTS: Final = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
"""What makes a whole of the parts of devices, and divides it again."""


def _in_loop(context: Context) -> BoolArray:
    """Which collectives are of ops that a step runs several times, in a loop, if by these it exchanges most; else none."""
    collectives = context.collectives
    instruction = context.trace.device_columns.instruction[collectives.row]
    # Kernels of NCCL have one name for all.
    known = (instruction != NONE) | context.trace.names.where(collectives.label, _LOOP.search)
    of_step = labels(collectives.label, collectives.device, collectives.step)
    in_loop: BoolArray = known & (np.bincount(of_step)[of_step] >= EXPOSED.limits["turn_count"])
    in_loop &= collectives.kind != CollectiveKind.SEND_RECV
    # A small program that runs for each of many arrays has no loop.
    turns = context.trace.once(_turns_of_instructions)[instruction]
    in_loop &= (instruction == NONE) | (turns >= EXPOSED.limits["turn_count"])
    return in_loop & _are_most(context, in_loop)


def _turns_of_instructions(recording: Recording) -> Int64Array:
    """How often each instruction of XLA programs runs for each run of its program: that of its rarest one. The last is none."""
    instruction = recording.device_columns.instruction
    count = np.bincount(instruction[instruction != NONE], minlength=len(recording.instructions))
    program = recording.once(program_of_instructions)[:-1]
    runs = np.full(program.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(runs, program[count > 0], count[count > 0])
    return np.append(count // runs[program], 0)


def _confidence(context: Context, result: CollectiveResult) -> tuple[Confidence, str]:
    if _is_on_cpu(context):
        return "low", "cpu"
    # Where most collectives lack devices, transfer and waiting cannot be separated.
    if 2 * result.incomplete_count >= max(result.count, 1):
        return "low", "alone"
    if missing_tasks(context.trace.hosts):
        return "medium", "workers"
    return ("high", "keys") if result.matched_by == "keys" else ("medium", "order")


def _action(context: Context, result: CollectiveResult) -> str:
    """The action about the number of calls; NCCL packs by number, other collectives by size (TensorFlow 2.21)."""
    if result.count_per_step == 1:
        return ""
    strategies = [host.captured.environment.strategy for host in context.trace.hosts]
    packs = agreed(strategy.packs for strategy in strategies)
    if packs is not None:
        return "one_pack" if packs <= 1 else "nccl"
    bytes_per_pack = agreed(strategy.bytes_per_pack for strategy in strategies)
    if bytes_per_pack is not None:
        return "split_packs" if bytes_per_pack else "one_pack"
    # NCCL does not serve the CPU.
    return "" if _is_on_cpu(context) else "nccl"


def _off_gpu(context: Context) -> Finding | None:
    is_virtual = any(host.captured.has_virtual_gpus for host in context.trace.hosts)
    return OFF_GPU.of_rows(
        context,
        context.once(reduction_rows),
        confidence=("medium", ""),
        action="virtual_gpus" if is_virtual else "",
    )


# Section
TITLE: Final = "Collectives"


def collectives_section(view: View, result: CollectiveResult) -> doc.Section | None:
    """What collectives cost, of all devices and of each op; nothing for a run without any."""
    if not result.count:
        return None
    blocks = (*doc.facts(*_facts(result)), *_by_op(view, result))
    lead = (
        f"{numbers.share(result.overlap_ratio)} of the time in collectives overlaps with compute."
    )
    return doc.Section("collectives", TITLE, blocks, lead=lead)


_MOSTLY_LAST_RATIO: Final = 3 / 4
"""Of the collectives: a device that comes last to more is named. Of two alike one is last to half of them; a choice of ours."""


def _facts(result: CollectiveResult) -> Iterator[Sentence]:
    per_step = f", {result.count_per_step:,} per step (median)" if result.count_per_step else ""
    yield f"{numbers.plural(result.count, 'collective')}{per_step}"
    if result.transfer_per_step_ps is not None:
        yield f"transfers {numbers.time(result.transfer_per_step_ps)} per step in sum"
    else:
        yield f"transfers {numbers.time(result.transfer_ps)} in the window in sum"
    if result.bus_bytes_per_second is not None:
        yield f"{numbers.rate(result.bus_bytes_per_second)} per device"
    for device, count in result.last_counts.items():
        if count > _MOSTLY_LAST_RATIO * result.count:
            yield phrase(Token(device, "device"), f" comes last to {numbers.count(count)} of them")
    if result.incomplete_count:
        on_all = f"on all {numbers.plural(result.device_count, 'device')}"
        yield f"{numbers.count(result.incomplete_count)} not recorded {on_all}"


def _by_op(view: View, result: CollectiveResult) -> Iterator[doc.Block]:
    """The cost of each op, where there are several."""
    if len(result.ops) > 1:
        rest = f"{view.command('show collectives')} --by op"
        yield from table("Ops", result.ops, _OP_COLUMNS, most_rows=view.most_rows, rest=rest)


_OP_COLUMNS: Final = (
    Shown("op", "op", kind="name"),
    Shown("per step", "count_per_step", 1),
    Shown("devices each", "device_count", 2),
    Shown("size", "bytes", 1),
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
    rows = np.flatnonzero(context.once(rows_in_windows))
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
