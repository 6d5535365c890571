"""Writes a scene as JSON that chrome://tracing, Perfetto and others read: as complete events.

"Trace Event Format": `ts` and `dur` are microseconds, here with three decimals; `X` is an event with its length, `M` gives
names and order of processes and threads, `C` is a counter. Arrows are those of version 2: the events at both ends
share a `bind_id`, which binds them even if they have no length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from traceview.document.sanitize import sanitize
from traceview.export.scene import Argument, Counter, Labels, Scene, Slices
from traceview.ids import unique_inverse
from traceview.intervals import BoolArray, Int64Array
from traceview.trace.model import NONE
from traceview.units import PS_PER_NS, PS_PER_US

_NS_PER_US: Final = PS_PER_US // PS_PER_NS
_ROWS_AT_ONCE: Final = 1 << 16
"""Bounds the memory that the text takes, to some tens of MB."""


def written(scene: Scene) -> Iterator[bytes]:
    """The trace in parts, to be written one after another: one event per line, of a track in order of time."""
    facts = {key: sanitize(text) for key, text in scene.facts.items()}
    head = f'{{"displayTimeUnit":"ns","otherData":{_json(facts)},"traceEvents":[\n'
    yield head.encode()
    texts = _Texts(scene.labels)
    separator = ""
    for lines in _parts(scene, texts):
        if lines:
            yield (separator + ",\n".join(lines)).encode()
            separator = ",\n"
    yield b"\n]}\n"


def _parts(scene: Scene, texts: _Texts) -> Iterator[list[str]]:
    tid = len(scene.processes)
    for pid, process in enumerate(scene.processes, start=1):
        yield _named(pid, pid, "process", process.name, pid)
        for counter in process.counters:
            yield _counted(scene, pid, counter)
        for rank, track in enumerate(process.tracks):
            tid += 1
            yield _named(pid, tid, "thread", track.name, rank)
            yield from _slices(scene, pid, tid, track.slices, texts)


def _json(value: Any) -> str:
    """JSON that cannot end a script in which it stands."""
    return json.dumps(value, separators=(",", ":")).replace("</", "<\\/")


class _Texts:
    """Labels as JSON, each made once."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._texts: dict[int, str] = {}

    def of(self, indices: Int64Array) -> list[str]:
        """The text of each index."""
        used, place = unique_inverse(indices)
        for label in used.tolist():
            if label not in self._texts:
                self._texts[label] = _json(self._labels.shown(label))
        texts = [self._texts[label] for label in used.tolist()]
        return [texts[at] for at in place.tolist()]


def _named(pid: int, tid: int, what: str, name: str, rank: int) -> list[str]:
    """The name of a process or a thread, and its place in the viewer."""
    facts: tuple[tuple[str, dict[str, Any]], ...] = (
        (f"{what}_name", {"name": sanitize(name)}),
        (f"{what}_sort_index", {"sort_index": rank}),
    )
    return [
        _json({"ph": "M", "pid": pid, "tid": tid, "name": key, "args": value})
        for key, value in facts
    ]


def _counted(scene: Scene, pid: int, counter: Counter) -> list[str]:
    name = _json(f"{counter.name} {counter.unit}")
    times = _microseconds(scene.nanoseconds(counter.time_ps))
    return [
        f'{{"ph":"C","pid":{pid},"tid":{pid},"ts":{time},"name":{name},"args":{{{name}:{value}}}}}'
        for time, value in zip(times, counter.values.tolist(), strict=True)
    ]


def _slices(scene: Scene, pid: int, tid: int, slices: Slices, texts: _Texts) -> Iterator[list[str]]:
    for first in range(0, slices.count, _ROWS_AT_ONCE):
        rows = np.arange(first, min(first + _ROWS_AT_ONCE, slices.count))
        yield _events(scene, f'"pid":{pid},"tid":{tid}', slices.at(rows), texts)


def _events(scene: Scene, place: str, slices: Slices, texts: _Texts) -> list[str]:
    start, end = scene.nanoseconds(slices.start_ps), scene.nanoseconds(slices.end_ps)
    columns = (
        _microseconds(start),
        _microseconds(end - start),
        texts.of(slices.name),
        texts.of(slices.category),
        _arrows(slices),
        _arguments((*slices.arguments, *slices.exact), texts, slices.count),
    )
    return [
        f'{{"ph":"X",{place},"ts":{ts},"dur":{dur},"name":{name},"cat":{cat}{arrow}{args}}}'
        for ts, dur, name, cat, arrow, args in zip(*columns, strict=True)
    ]


def _microseconds(time_ns: Int64Array) -> list[str]:
    """Whole microseconds, a point and three decimals: no binary fraction could hold all of them."""
    whole, rest = np.divmod(time_ns, _NS_PER_US)
    return [f"{us}.{ns:03d}" for us, ns in zip(whole.tolist(), rest.tolist(), strict=True)]


def _arguments(arguments: tuple[Argument, ...], texts: _Texts, count: int) -> list[str]:
    """The arguments of each slice, with the key in front of them."""
    pairs = [""] * count
    for argument in arguments:
        known = np.flatnonzero(argument.known)
        if not known.size:
            continue
        values = argument.values[known]
        shown = texts.of(values) if argument.is_text else map(str, values.tolist())
        key = _json(argument.name)
        for place, value in zip(known.tolist(), shown, strict=True):
            pairs[place] += f",{key}:{value}"
    return [f',"args":{{{of_slice[1:]}}}' if of_slice else "" for of_slice in pairs]


def _arrows(slices: Slices) -> list[str]:
    """The binding of each slice to its launch or to the launched events: the first arrow of the launch."""
    arrows = slices.arrows
    if arrows is not None and arrows.number is not None:
        return _bound(arrows.first, arrows.number != NONE, "flow_in")
    if arrows is not None and arrows.count is not None:
        return _bound(arrows.first, arrows.count > 0, "flow_out")
    return [""] * slices.count


def _bound(first: Int64Array, has: BoolArray, side: str) -> list[str]:
    return [
        f',"bind_id":"0x{arrow:x}","{side}":true' if bound else ""
        for arrow, bound in zip((first + 1).tolist(), has.tolist(), strict=True)
    ]
