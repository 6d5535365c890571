"""Reads from a profile that was stopped during a hang which collectives had begun and not ended, and which not begun.

A TraceMe is recorded when it ends, so an op that waits is not in the trace by its own name. But the start of a
collective is a short activity, `CollectiveOpV2Kernel::Run`, which names the op and passes a number on; the activity at
its end, `CollectiveExecutor::ExecuteAsync::Done`, has the same number (TensorFlow 2.21). The op itself, `NAME:TYPE`, is
recorded in the steps before; ops of one group and instance are the parts of one collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from traceview.capture.steps.graphs import ops_within

_START: Final = b"CollectiveOpV2Kernel::Run"
_END: Final = b"CollectiveExecutor::ExecuteAsync::Done"
_PYTHON: Final = ("PyFunc", "EagerPyFunc", "PyFuncStateless")


def collectives(trace: Path, graphs: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """The collectives that are open, and their parts on other devices: `op`, `device`, `has_come`.

    `graphs`: those of the step, which know the devices. Raises `TraceFormatError`.
    """
    begun: dict[Any, str] = {}
    ended: set[Any] = set()
    together: dict[tuple[Any, Any], set[str]] = {}
    for name, stats in _events(trace):
        if name == _START:
            begun[stats.get(b"_p")] = _last(stats.get(b"name", b""))
        elif name == _END:
            ended.add(stats.get(b"_c"))
        else:
            parts = together.setdefault(
                (stats.get(b"group_key"), stats.get(b"instance_key")), set()
            )
            parts.add(_last(name.rpartition(b":")[0]))
    devices = {_last(op.name): op.device for graph in graphs for op, _ in ops_within(graph)}
    waiting = {op for number, op in begun.items() if number not in ended and op}
    absent = {op for parts in together.values() if parts & waiting for op in parts} - waiting
    return [
        {"op": op, "device": _short(devices.get(op, "")), "has_come": op in waiting}
        for op in sorted(waiting | absent)
    ]


def _events(trace: Path) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
    """The events of the host that are about collectives, with their stats."""
    from traceview.xplane.decode_reference import read_event_stats
    from traceview.xplane.planes import PlaneKind
    from traceview.xplane.read import read_file
    from traceview.xplane.source import read_bytes

    space, data = read_file(trace), read_bytes(trace)
    for plane in space.planes:
        names = {
            key: entry.name
            for key, entry in plane.event_metadata.items()
            if entry.name in (_START, _END) or b":Collective" in entry.name
        }
        if plane.kind is not PlaneKind.HOST or not names:
            continue
        for line in plane.lines:
            columns = zip(
                line.columns.metadata_id.tolist(), line.columns.position.tolist(), strict=True
            )
            for key, position in columns:
                if key in names:
                    yield names[key], dict(read_event_stats(data, position, plane.stat_names))


def python_ops(graphs: Sequence[Any]) -> int:
    """How many ops of these graphs run Python, such as `tf.py_function`."""
    return sum(op.type in _PYTHON for graph in graphs for op, _ in ops_within(graph))


def _short(device: str) -> str:
    """`CPU:0` for `/job:localhost/replica:0/task:0/device:CPU:0`."""
    return device.rpartition("/device:")[2] if "/device:" in device else ""


def _last(name: str | bytes) -> str:
    """Inlining puts the names of calls in front of that of an op."""
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return text.rpartition("/")[2]
