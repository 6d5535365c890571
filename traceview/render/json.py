"""The report as JSON: the keys of its data classes, in their order. `report/schema.json` describes it."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any, Final

from traceview.document.sanitize import encodable
from traceview.report.model import Report

_NO_LANES: Final = '\n    "lanes": null'
"""No text can look like this line: the line breaks in texts are escaped."""


def render(report: Report) -> str:
    """The same text for the same report: two spaces of indent, a line break at the end, UTF-8 kept as it is.

    Each column of a lane, and its names, stand on one line: there are thousands of slices.
    """
    data = plain(report)
    lanes = data["results"]["lanes"]
    data["results"]["lanes"] = None
    text = dumped(data)
    if lanes is None:
        return text
    before, absent, after = text.partition(_NO_LANES)
    return f"{before}{absent.removesuffix('null')}{_in_lines(lanes, '    ')}{after}"


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


def _in_lines(value: Any, indent: str) -> str:
    """As `dumped`, but a list that holds neither objects nor lists on one line."""
    inner = f"{indent}  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_in_lines(one, inner)}" for key, one in value.items()]
    elif isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
        parts = [_in_lines(one, inner) for one in value]
    else:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    left, right = ("{", "}") if isinstance(value, dict) else ("[", "]")
    lines = f",\n{inner}".join(parts)
    return f"{left}\n{inner}{lines}\n{indent}{right}" if parts else f"{left}{right}"
