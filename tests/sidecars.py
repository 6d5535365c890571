"""Hand-made sidecars for the tests of what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.scenarios.gradients import graph as graph
from scripts.scenarios.gradients import mirrored as mirrored


def write_sidecar(trace: Path, fields: Any) -> Path:
    """Write the sidecar of a trace file; returns its path."""
    path = trace.with_name(trace.name.replace(".xplane.pb", ".traceview.json"))
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path
