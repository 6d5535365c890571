"""The report as JSON: the keys of its data classes, in their order. `report/schema.json` describes it."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from traceview.render.harmless import encodable
from traceview.report.model import Report


def render(report: Report) -> str:
    """The same text for the same report: two spaces of indent, a line break at the end, UTF-8 kept as it is."""
    return dumped(plain(report))


def dumped(value: Any) -> str:
    """`plain` data as the text of a JSON file."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Data classes as dictionaries, sequences as lists; a number that is none becomes null.

    A trailing underscore, which Python needs in `class_`, is not part of a key.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.removesuffix("_"): plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {encodable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
