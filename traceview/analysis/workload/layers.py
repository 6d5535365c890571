"""Divides the compute among the layers of the model, the phases of the step, and lines of Python, with the FLOP/s of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np

from traceview.analysis.facts.layers import label_places
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import (
    FloatArray,
    flops_by_device,
    time_by_label,
)
from traceview.analysis.rules.finding import Skipped
from traceview.analysis.rules.words import line_words
from traceview.base.intervals import Int64Array
from traceview.base.record import (
    LARGEST,
    Count,
    OpName,
    Picoseconds,
    Record,
    Share,
    SourceLine,
)
from traceview.base.units import PS_PER_S
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, columns
from traceview.document.phrase import Sentence, name, phrase
from traceview.trace.device.op_names import Phase
from traceview.trace.device.table import Table, record_columns, table, texts

TITLE: Final = "Layers"
UNATTRIBUTED: Final = "unattributed"
WITHOUT_LAYER: Final = "no layer"
MOST_ROWS: Final = 100
"""In a report; those of most time, and `traceview show layers` has all of them."""


class LayerTime(Record, frozen=True):
    """The compute of a layer with the layers inside of it, or of one line of Python in a layer.

    Times are per used step and device; without steps, of the window.

    Attributes:
        layer: The layer, below the layers around it; null for ops whose name shows none.
        source_line: The line of Python that made its ops; null where several did and for those not recorded.
        gpu_time_ratio: Share of the GPU time of the devices that compute.
        compute_ps_per_step: Its compute, picoseconds.
        own_ps_per_step: The part that no row inside of it has, picoseconds; of all rows they sum to the compute.
        forward_ps_per_step: Of its compute the part in the forward pass, picoseconds.
        backward_ps_per_step: The part in the backward pass, picoseconds.
        optimizer_ps_per_step: The part in updates of variables, picoseconds.
        other_ps_per_step: The part whose phase the names do not show, picoseconds.
        flops_per_second: FLOPs of its products over the durations of its ops of known FLOPs; null where none are known.
    """

    layer: OpName | None
    source_line: SourceLine | None
    gpu_time_ratio: Share
    compute_ps_per_step: Picoseconds
    own_ps_per_step: Picoseconds
    forward_ps_per_step: Picoseconds
    backward_ps_per_step: Picoseconds
    optimizer_ps_per_step: Picoseconds
    other_ps_per_step: Picoseconds
    flops_per_second: Count | None


class Layers(Record, frozen=True):
    """Which layers take the compute, as the mean of the devices that compute.

    Attributes:
        device_count: Devices that compute.
        step_count: Their used steps, summed over them; 0 where the window takes their place.
        compute_ps_per_step: Their compute, mean of a used step, without steps of a window, rounded down, picoseconds.
        rows: Layers with those inside of them below, longest first, and last what belongs to none.
        row_count: Rows there are, with those of little time that are not here.
    """

    device_count: Count
    step_count: Count
    compute_ps_per_step: Picoseconds
    rows: tuple[LayerTime, ...]
    row_count: Count


def compute(context: Context) -> Layers | Skipped:
    """The layers of all devices together."""
    devices = [device for device, ps in context.once(time_by_label).items() if ps.total]
    if not devices:
        return Skipped("no device computed in the used steps")
    rows = _rows(context, devices)
    if not any(map(_is_attributed, rows)):
        return Skipped("the names of the ops show no layer")
    return Layers(
        device_count=len(devices),
        step_count=sum(context.ledger.steps_of_device[device] for device in devices),
        compute_ps_per_step=sum(row.own_ps_per_step for row in rows),
        rows=_longest(rows, MOST_ROWS),
        row_count=len(rows),
    )


def layer_table(context: Context) -> Table:
    """All rows of each device that computes, if any has a layer."""
    computing = [device for device, ps in context.once(time_by_label).items() if ps.total]
    rows = [(device, row) for device in computing for row in _rows(context, (device,))]
    if not any(_is_attributed(row) for _, row in rows):
        rows = []
    keys = [context.trace.device_key(device) for device, _ in rows]
    layers = record_columns(LayerTime, [row for _, row in rows])
    return table("layers", texts("device", keys), *layers)


def _is_attributed(row: LayerTime) -> bool:
    return bool(row.layer or row.source_line)


def _longest(rows: tuple[LayerTime, ...], most: int) -> tuple[LayerTime, ...]:
    """The rows of most time, in their order: each with those around it, which take no less."""
    longest = sorted(range(len(rows)), key=lambda place: -rows[place].compute_ps_per_step)
    return tuple(rows[place] for place in sorted(longest[:most]))


# The tree

_PARTS: Final = {Phase.FORWARD: 0, Phase.BACKWARD: 1, Phase.OPTIMIZER: 2}
"""The columns of phases; all others are the last one."""

_Path: TypeAlias = tuple[tuple[str, str], ...]
"""Scopes from the outermost, each with "", and last "" with a line, if any."""


def _rows(context: Context, devices: Collection[int]) -> tuple[LayerTime, ...]:
    """The rows of the mean step of some devices, each before those inside of it, longest first; own times sum to its compute.

    What has no layer comes last.
    """
    ledger, places = context.ledger, context.trace.once(label_places)
    count = sum(ledger.steps_of_device[device] or 1 for device in devices)
    gpu_ps = sum(ledger.gpu_ps_by_device[device] for device in devices)
    column_of = np.array([_PARTS.get(phase, 3) for phase in Phase])
    cells = np.zeros((len(places.places), 4), dtype=np.int64)
    work = np.zeros((len(places.places), 2))
    for device in devices:
        of = context.once(time_by_label)[device]
        cell = places.place[of.label], column_of[places.phase[of.label]]
        np.add.at(cells, cell, of.value)
        flops = context.once(flops_by_device).get(device)
        if flops is not None:
            known_ps = np.where(np.isnan(flops.of_run), 0, flops.duration_ps.every)
            for column, values in enumerate((flops.known_flops, known_ps)):
                work[:, column] += np.bincount(places.place, values, len(work))
    has_flops = bool(work[:, 0].any())
    # So rounded that they sum to the mean of the sum.
    cells = np.diff(np.cumsum(cells.ravel()) // count, prepend=0).reshape(cells.shape)
    own: dict[_Path, Int64Array] = {}
    whole: defaultdict[_Path, Int64Array] = defaultdict(lambda: np.zeros(4, dtype=np.int64))
    done: defaultdict[_Path, FloatArray] = defaultdict(lambda: np.zeros(2))
    for place, of_place, of_work in zip(places.places, cells, work, strict=True):
        if of_place.any():
            line = (("", place.line),) if place.line else ()
            path = (*((scope, "") for scope in place.scopes), *line)
            own[path] = of_place
            for depth in range(len(path) + 1):
                whole[path[:depth]] += of_place
                done[path[:depth]] += of_work

    def row(path: _Path, whole_ps: Int64Array, work: FloatArray) -> LayerTime:
        ps, (flops, known_ps) = int(whole_ps.sum()), work.tolist()
        forward_ps, backward_ps, optimizer_ps, other_ps = whole_ps.tolist()
        rate = round(min(flops / known_ps * PS_PER_S, LARGEST)) if has_flops and known_ps else None
        return LayerTime(
            "/".join(scope for scope, _ in path if scope) or None,
            (path[-1][1] if path else "") or None,
            min(ps * count / gpu_ps, 1.0) if gpu_ps else 0.0,
            ps,
            int(own[path].sum()) if path in own else 0,
            forward_ps,
            backward_ps,
            optimizer_ps,
            other_ps,
            rate,
        )

    inside = Counter(path[:-1] for path in whole if path)
    # What holds one part and nothing else is the same as that.
    shown = [path for path in whole if path and (inside[path] != 1 or path in own)]
    shown.sort(
        key=lambda path: [
            (-int(whole[path[:depth]].sum()), path[:depth]) for depth in range(1, len(path) + 1)
        ]
    )
    rest = [row((), own[()], np.zeros(2))] if () in own else []
    return (*(row(path, whole[path], done[path]) for path in shown), *rest)


# Section

_COLUMNS: Final = (
    Shown("time", "compute_ps_per_step"),
    Shown("forward", "forward_ps_per_step", 2),
    Shown("backward", "backward_ps_per_step", 2),
    Shown("optimizer", "optimizer_ps_per_step", 3),
    Shown("other", "other_ps_per_step", 4, meaning="the names show no phase"),
)
_FLOP_RATE: Final = Shown(
    "FLOP/s", "flops_per_second", 5, meaning="over the durations of ops with known FLOPs"
)


def _nested(rows: Iterable[LayerTime]) -> Iterator[tuple[int, str, str | None]]:
    """Of each row how many above it is inside of, its name without the names of those, and its line beside it.

    One of several lines of a layer is named after the line.
    """
    around: list[str] = []
    for row in rows:
        layer = row.layer
        while around and not (layer and f"{layer}/".startswith(f"{around[-1]}/")):
            around.pop()
        if layer is None:
            named = (
                f"{WITHOUT_LAYER}, {row.source_line.partition(' in ')[0]}"
                if row.source_line
                else ""
            )
            yield 0, named or UNATTRIBUTED, None
            continue
        inner = layer[len(around[-1]) + 1 :] if around else layer
        if row.source_line and not inner:
            yield len(around), line_words(row.source_line), None
        else:
            yield len(around), inner or layer.rpartition("/")[2], row.source_line
        if layer not in around:
            around.append(layer)


def section(view: View, result: Layers) -> doc.Section:
    """The layers as a tree, each with those inside of it below."""
    rows = _longest(result.rows, view.most_rows)
    has_flops = any(row.flops_per_second is not None for row in result.rows)
    of_ps = result.compute_ps_per_step
    share = Shown("of compute", lambda row: doc.ratio(row.compute_ps_per_step, of_ps), kind="share")
    named = list(_nested(rows))
    blocks = doc.table(
        "Compute by layer",
        (
            doc.column("name", "layer", ["· " * depth + name for depth, name, _ in named]),
            *columns(rows, (share, *_COLUMNS)),
            doc.column("name", "line", [line for *_, line in named], priority=1),
            *columns(rows, [_FLOP_RATE] if has_flops else []),
        ),
        row_count=result.row_count,
        rest=f"{view.command('show layers')} -o layers.csv",
    )
    per = "step" if result.step_count else "window"
    mean = f"Times are per {per} and device, of a layer with those inside of it."
    return doc.Section("layers", TITLE, (*blocks, *doc.remarks(mean)), lead=_lead(result))


def _lead(result: Layers) -> Sentence:
    own = max(result.rows, key=lambda row: row.own_ps_per_step if _is_attributed(row) else -1)
    if not _is_attributed(own):
        return ""
    share = numbers.share(doc.ratio(own.own_ps_per_step, result.compute_ps_per_step))
    first, *line = [name(text) for text in (own.layer, own.source_line) if text]
    where = [phrase(" (", each, ")") for each in line]
    return phrase("The largest by itself is ", first, *where, f": {share} of the compute.")


ANALYSIS: Final = Analysis[Layers](
    "layers",
    compute=compute,
    sections=(section,),
    table=layer_table,
)
