"""What did `traceview capture` write down beside a trace? Read with care: every field may be missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct

from traceview.trace.environment import RecordedEnvironment
from traceview.trace.fields import read_as
from traceview.trace.nvml import NvmlRecord
from traceview.trace.placement import RecordedPlacement

SUFFIX: Final = ".traceview.json"
_TRACE_SUFFIX: Final = ".xplane.pb"


@dataclass(frozen=True)
class Sidecar:
    """What the analysis takes from it.

    `asked_steps`: first and last (exclusive) step of the window asked for. `edge_steps`: steps recorded on
    either side of it, which are in the trace and were not asked for. `steps_per_call`: how many training steps
    the calls made that each have one marker; empty where it was not recorded. `wrong_fields`: dotted names of fields
    of another type than they are written with, which were left out.
    """

    asked_steps: tuple[int, int] | None
    edge_steps: frozenset[int]
    steps_per_call: tuple[int, ...]
    environment: RecordedEnvironment
    placement: RecordedPlacement
    outside_view: NvmlRecord
    wrong_fields: tuple[str, ...]

    @property
    def overhead_ratio(self) -> float | None:
        """How much longer a step took with the profiler than without, over the latter."""
        return self.environment.overhead.ratio


class _Window(Struct, frozen=True):
    asked: tuple[int, ...]
    edge_steps: tuple[int, ...]
    steps_per_call: tuple[int, ...]


class _File(RecordedEnvironment, frozen=True):
    window: _Window
    placement: RecordedPlacement
    outside_view: NvmlRecord


class SidecarError(Exception):
    """The file is there and cannot be read; the message says why."""


def read_sidecar(trace: Path) -> Sidecar | None:
    """The sidecar beside a trace file; None where there is none. Raises `SidecarError`."""
    path = trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + SUFFIX)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise SidecarError(f"{path.name} cannot be read: {error}") from error
    wrong: list[str] = []
    file = read_as(_File, content, wrong)
    asked = file.window.asked
    return Sidecar(
        asked_steps=(asked[0], asked[1]) if len(asked) == 2 else None,
        edge_steps=frozenset(file.window.edge_steps),
        steps_per_call=file.window.steps_per_call,
        environment=RecordedEnvironment(
            **{name: getattr(file, name) for name in RecordedEnvironment.__struct_fields__}
        ),
        placement=file.placement,
        outside_view=file.outside_view,
        wrong_fields=tuple(dict.fromkeys(wrong)),
    )
