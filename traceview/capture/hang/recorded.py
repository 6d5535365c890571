"""Reads from a profile that was stopped during a hang which collectives had begun and not ended.

A TraceMe is recorded when it ends, so an op that waits is not in the trace by its own name. But the start of a
collective is a short activity, `CollectiveOpV2Kernel::Run`, which names the op and passes a number on; the activity at
its end, `CollectiveExecutor::ExecuteAsync::Done`, has the same number (TensorFlow 2.21). The op itself, `NAME:TYPE`,
is recorded in the steps before; ops of one group and instance are the parts of one collective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_START: Final = b"CollectiveOpV2Kernel::Run"
_END: Final = b"CollectiveExecutor::ExecuteAsync::Done"


@dataclass(frozen=True)
class RecordedCollectives:
    """`begun`: names of the collectives that had begun and not ended.

    `together`: sets of names that were one collective in an earlier step, with the number of their group. The number of
    an instance is another one in each step.
    """

    begun: tuple[str, ...]
    together: tuple[tuple[int, frozenset[str]], ...]

    def partners(self, names: set[str]) -> dict[str, int]:
        """The names that wait for one of these or that one of these waits for, with their groups."""
        return {
            name: group
            for group, together in self.together
            if together & names
            for name in together
        }


def recorded_collectives(trace: Path) -> RecordedCollectives:
    """What a trace says of collectives; raises `TraceFormatError`."""
    from traceview.xplane.decode_reference import read_event_stats
    from traceview.xplane.planes import PlaneKind
    from traceview.xplane.read import read_file
    from traceview.xplane.source import read_bytes

    space, data = read_file(trace), read_bytes(trace)
    begun: dict[Any, str] = {}
    ended: set[Any] = set()
    together: dict[tuple[int, int], set[str]] = {}
    for plane in space.planes:
        names = {
            key: entry.name
            for key, entry in plane.event_metadata.items()
            if entry.name in (_START, _END) or b":Collective" in entry.name
        }
        if plane.kind is not PlaneKind.HOST or not names:
            continue
        for line in plane.lines:
            columns = line.columns
            for key, position in zip(
                columns.metadata_id.tolist(), columns.position.tolist(), strict=True
            ):
                name = names.get(key)
                if name is None:
                    continue
                stats = dict(read_event_stats(data, position, plane.stat_names))
                if name == _START:
                    begun[stats.get(b"_p")] = _text(stats.get(b"name"))
                elif name == _END:
                    ended.add(stats.get(b"_c"))
                else:
                    group, instance = stats.get(b"group_key"), stats.get(b"instance_key")
                    if isinstance(group, int) and isinstance(instance, int):
                        op = _last(_text(name).rpartition(":")[0])
                        together.setdefault((group, instance), set()).add(op)
    open_ones = [name for number, name in begun.items() if number not in ended and name]
    groups = {(group, frozenset(names)) for (group, _), names in together.items()}
    return RecordedCollectives(
        tuple(dict.fromkeys(open_ones)),
        tuple(sorted(groups, key=lambda entry: (entry[0], sorted(entry[1])))),
    )


def with_recorded(
    collectives: Sequence[dict[str, Any]], recorded: RecordedCollectives
) -> list[dict[str, Any]]:
    """The collectives of the graph with `has_come` and their groups, as far as the trace says.

    A device has come to a collective that has begun. Another has not come if its op was part of the same collective in
    the steps before. Nothing else is known.
    """
    begun = {_last(name) for name in recorded.begun}
    partners = recorded.partners(begun)
    rows = list(collectives)
    known = {_last(row["op"]) for row in rows}
    unknown = dict.fromkeys(map(_last, [*recorded.begun, *sorted(partners)]))
    rows += [
        {"op": name, "type": "", "device": "", "group_key": None, "instance_key": None}
        for name in unknown
        if name not in known
    ]
    return [_with_arrival(row, begun, partners) for row in rows]


def _with_arrival(
    row: Mapping[str, Any], begun: set[str], partners: Mapping[str, int]
) -> dict[str, Any]:
    name = _last(row["op"])
    group = partners.get(name, row["group_key"])
    has_come = True if name in begun else False if name in partners else None
    return {**row, "group_key": group, "has_come": has_come}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _last(name: str) -> str:
    """Inlining puts the names of calls in front of that of an op."""
    return name.rpartition("/")[2]
