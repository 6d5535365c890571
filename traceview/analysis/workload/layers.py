"""Divides the compute of devices among the layers of the model, the phases of the step, and lines of Python."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from traceview.analysis.facts.layers import label_places
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.label_times import time_by_label
from traceview.analysis.rules.finding import Skipped
from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.record import Count, OpName, Picoseconds, Record, Share, SourceLine
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, columns
from traceview.document.phrase import Sentence, name, phrase
from traceview.trace.device.op_phase import Phase
from traceview.trace.device.table import Table, record_columns, table, texts

TITLE: Final = "Layers"
UNATTRIBUTED: Final = "unattributed"
WITHOUT_LAYER: Final = "no layer"
MOST_ROWS: Final = 100
"""In a report; those of most time, and `traceview show layers` has all of them."""

_NO_LAYER: Final = "the names of the ops show no layer"


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


class Layers(Record, frozen=True):
    """Which layers take the compute, as the mean of the devices that compute.

    Attributes:
        device_count: Devices that compute.
        step_count: Their used steps, summed over them; 0 where the window takes their place.
        compute_ps_per_step: Their compute, mean of a used step and device, rounded down, picoseconds; without steps, of a
            window.
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
    devices = [device for device, ps in context.once(time_by_label).items() if ps.any()]
    if not devices:
        return Skipped("no device computed in the used steps")
    rows = _rows(context, devices)
    if not any(map(_is_attributed, rows)):
        return Skipped(_NO_LAYER)
    return Layers(
        device_count=len(devices),
        step_count=sum(context.ledger.steps_of_device[device] for device in devices),
        compute_ps_per_step=sum(row.own_ps_per_step for row in rows),
        rows=_longest(rows, MOST_ROWS),
        row_count=len(rows),
    )


def layer_table(context: Context) -> Table:
    """All rows of each device that computes, if any has a layer."""
    computing = [device for device, ps in context.once(time_by_label).items() if ps.any()]
    of_device = {device: _rows(context, (device,)) for device in computing}
    if not any(_is_attributed(row) for rows in of_device.values() for row in rows):
        of_device = {}
    keys = [context.trace.device_key(device) for device, rows in of_device.items() for _ in rows]
    every = [row for rows in of_device.values() for row in rows]
    return table("layers", texts("device", keys), *record_columns(LayerTime, every))


def _is_attributed(row: LayerTime) -> bool:
    return bool(row.layer or row.source_line)


def _longest(rows: tuple[LayerTime, ...], most: int) -> tuple[LayerTime, ...]:
    """The rows of most time, in their order: each with those around it, which take no less."""
    longest = sorted(range(len(rows)), key=lambda place: -rows[place].compute_ps_per_step)
    return tuple(rows[place] for place in sorted(longest[:most]))


# The tree

_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = range(4)
_COLUMN_OF_PHASE: Final = {
    Phase.FORWARD: _FORWARD,
    Phase.BACKWARD: _BACKWARD,
    Phase.OPTIMIZER: _OPTIMIZER,
}


class _Node(Struct):
    """A layer, or a line in it: picoseconds by phase, its own and with those of the nodes inside."""

    layer: tuple[str, ...] = ()
    line: str = ""
    own: list[int] = field(default_factory=lambda: [0] * 4)
    whole: list[int] = field(default_factory=lambda: [0] * 4)
    inside: dict[tuple[str, str], _Node] = field(default_factory=dict)

    def path_to(self, layer: tuple[str, ...], line: str) -> Iterator[_Node]:
        """Itself and the nodes on the way to one below, which are made."""
        node = self
        yield node
        for depth, scope in enumerate(layer, start=1):
            node = node.inside.setdefault((scope, ""), _Node(layer[:depth]))
            yield node
        if line:
            yield node.inside.setdefault(("", line), _Node(layer, line))


def _rows(context: Context, devices: Collection[int]) -> tuple[LayerTime, ...]:
    """The rows of the mean step of some devices; their own times sum to its compute."""
    ledger, places = context.ledger, context.trace.once(label_places)
    of_label = context.once(time_by_label)
    count = sum(ledger.steps_of_device[device] or 1 for device in devices)
    gpu_ps = sum(ledger.gpu_ps_by_device[device] for device in devices)
    times = np.sum([of_label[device] for device in devices], axis=0)
    cells = _means(_by_place(times, places.place, places.phase, len(places.places)), count)
    root = _Node()
    for (layer, line), of_place in zip(places.places, cells.tolist(), strict=True):
        if any(of_place):
            *around, node = root.path_to(layer, line)
            for phase, ps in enumerate(of_place):
                node.own[phase] += ps
                for each in (*around, node):
                    each.whole[phase] += ps
    return tuple(_row(node, count, gpu_ps) for node in _shown(root))


def _by_place(
    times: Int64Array, place: Int32Array, phase: npt.NDArray[np.uint8], place_count: int
) -> Int64Array:
    """Picoseconds by place and column of the phase, int64 `[places, 4]`."""
    column_of = np.full(len(Phase), _OTHER, dtype=np.int64)
    for of_phase, column in _COLUMN_OF_PHASE.items():
        column_of[of_phase] = column
    cells = np.zeros((place_count, 4), dtype=np.int64)
    np.add.at(cells, (place, column_of[phase]), times)
    return cells


def _means(cells: Int64Array, count: int) -> Int64Array:
    """The mean of each cell, so rounded that they sum to the mean of the sum, rounded down."""
    whole = np.cumsum(cells.ravel()) // count
    return np.diff(whole, prepend=0).reshape(cells.shape)


def _shown(node: _Node) -> Iterator[_Node]:
    """The nodes below one, each before those inside of it, longest first; what has no layer comes last."""
    inside = sorted(
        node.inside.values(),
        key=lambda each: (-sum(each.whole), each.layer, each.line),
    )
    for each in inside:
        # What holds one node and nothing else is the same as that.
        if len(each.inside) != 1 or any(each.own):
            yield each
        yield from _shown(each)
    if not (node.layer or node.line) and any(node.own):
        yield _Node(own=node.own, whole=node.own)


def _row(node: _Node, count: int, gpu_ps: int) -> LayerTime:
    ps = sum(node.whole)
    return LayerTime(
        layer="/".join(node.layer) or None,
        source_line=node.line or None,
        gpu_time_ratio=min(ps * count / gpu_ps, 1.0) if gpu_ps else 0.0,
        compute_ps_per_step=ps,
        own_ps_per_step=sum(node.own),
        forward_ps_per_step=node.whole[_FORWARD],
        backward_ps_per_step=node.whole[_BACKWARD],
        optimizer_ps_per_step=node.whole[_OPTIMIZER],
        other_ps_per_step=node.whole[_OTHER],
    )


# Section

_COLUMNS: Final = (
    Shown("GPU time", "gpu_time_ratio"),
    Shown("time", "compute_ps_per_step"),
    Shown("forward", "forward_ps_per_step", 2),
    Shown("backward", "backward_ps_per_step", 2),
    Shown("optimizer", "optimizer_ps_per_step", 3),
    Shown("other", "other_ps_per_step", 4, meaning="the names show no phase"),
    Shown("line", "source_line", 1),
)
_INSIDE: Final = "· "


def _labels(rows: Iterable[LayerTime]) -> Iterator[str]:
    """Each layer below the one that it is inside of, further to the right, without the names of that."""
    around: list[str] = []
    for row in rows:
        if row.layer is None:
            yield WITHOUT_LAYER if row.source_line else UNATTRIBUTED
            continue
        while around and not f"{row.layer}/".startswith(f"{around[-1]}/"):
            around.pop()
        inner = row.layer[len(around[-1]) + 1 :] if around else row.layer
        yield _INSIDE * len(around) + (inner or row.layer.rpartition("/")[2])
        if row.layer not in around:
            around.append(row.layer)


def section(view: View, result: Layers) -> doc.Section:
    """The layers as a tree, each with those inside of it below."""
    rows = _longest(result.rows, view.most_rows)
    blocks = doc.table(
        "Compute by layer",
        (doc.names("layer", _labels(rows)), *columns(rows, _COLUMNS)),
        row_count=result.row_count,
        rest=view.command("show layers"),
    )
    per = "step" if result.step_count else "window"
    mean = f"Times are per {per} and device, of a layer with those inside of it."
    return doc.Section("layers", TITLE, (*blocks, *doc.remarks(mean)), lead=_lead(result))


def _lead(result: Layers) -> Sentence:
    own = max(result.rows, key=lambda row: row.own_ps_per_step if _is_attributed(row) else -1)
    if not _is_attributed(own):
        return ""
    share = numbers.share(doc.ratio(own.own_ps_per_step, result.compute_ps_per_step))
    known = [name(text) for text in (own.layer, own.source_line) if text]
    inside = phrase(" (", known[1], ")") if len(known) > 1 else None
    return phrase(known[0], inside, f" takes {share} of the compute.")


ANALYSIS: Final = Analysis[Layers](
    "layers",
    compute=compute,
    sections=(section,),
)
