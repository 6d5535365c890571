"""What did `traceview capture` write down beside a trace? Read with care: every field may be missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = ".traceview.json"
_TRACE_SUFFIX: Final = ".xplane.pb"


@dataclass(frozen=True)
class Sidecar:
    """What the analysis takes from it.

    `asked_steps`: first and last (exclusive) step of the window asked for. `edge_steps`: steps recorded on
    either side of it, which are in the trace and were not asked for. `overhead_ratio`: how much longer a
    step took with the profiler than without, over the latter.
    """

    asked_steps: tuple[int, int] | None
    edge_steps: frozenset[int]
    overhead_ratio: float | None


class SidecarError(Exception):
    """The file is there and cannot be read; the message says why."""


def read_sidecar(trace: Path) -> Sidecar | None:
    """The sidecar beside a trace file; None where there is none. Raises `SidecarError`."""
    path = trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + SUFFIX)
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise SidecarError(f"{path.name} cannot be read: {error}") from error
    window, overhead = _group(fields, "window"), _group(fields, "overhead")
    asked = _numbers(window.get("asked"))
    ratio = overhead.get("ratio")
    return Sidecar(
        asked_steps=(asked[0], asked[1]) if len(asked) == 2 else None,
        edge_steps=frozenset(_numbers(window.get("edge_steps"))),
        overhead_ratio=float(ratio) if isinstance(ratio, int | float) else None,
    )


def _group(fields: Any, name: str) -> dict[str, Any]:
    group = fields.get(name) if isinstance(fields, dict) else None
    return group if isinstance(group, dict) else {}


def _numbers(values: Any) -> list[int]:
    return [v for v in values if isinstance(v, int)] if isinstance(values, list) else []
