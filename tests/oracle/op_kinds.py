"""Tells side work in a step by the names of its ops (docs/method.md, "Step ops")."""

from __future__ import annotations

import re

from tests.oracle.classes import Activity

CALLBACKS = re.compile(r"((pure|io|debug)_callback|debug_print)(\..*)?")
SCOPES = re.compile(r"(write_summary|StringSplit)(_\d+)?")
TYPES = re.compile(
    "PyFunc|PyFuncStateless|EagerPyFunc|CheckNumerics(V2)?|DebugNumericSummary(V2)?|.*Summary.*"
    "|StringFormat|Print(V2)?|StaticRegex.+|Regex.+|String.+|AsString|ReduceJoin|UnsortedSegmentJoin|Substr|Unicode.+",
    re.ASCII,
)


def is_side_work(activity: Activity) -> bool:
    """Python, printing, summaries, checks and text inside the step."""
    if activity.cls != "compute":
        return False
    if not activity.op_type:
        return CALLBACKS.fullmatch(activity.op or "") is not None
    *scopes, _ = (activity.op or "").split("/")
    return TYPES.fullmatch(activity.op_type) is not None or any(map(SCOPES.fullmatch, scopes))
