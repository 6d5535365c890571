"""Tells kinds of ops in a step by their names: side work, and updates of variables (docs/method.md, "Step ops")."""

from __future__ import annotations

import re

from tests.oracle.classes import Activity

PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
CHECKS = ("CheckNumerics", "CheckNumericsV2", "DebugNumericSummary", "DebugNumericSummaryV2")
PRINTING = ("StringFormat", "PrintV2", "Print")
TEXT_TYPES = re.compile(
    "StaticRegex.+|Regex.+|String.+|AsString|ReduceJoin|UnsortedSegmentJoin|Substr|Unicode.+",
    re.ASCII,
)
OPTIMIZERS = [
    "update",
    "optimizer",
    "loss_scale_optimizer",
    "sgd",
    "gradientdescent",
    "momentum",
    "rmsprop",
    "adam",
    "adamw",
    "adamax",
    "nadam",
    "adagrad",
    "adadelta",
    "adafactor",
    "ftrl",
    "lamb",
    "lion",
    "muon",
    "adamweightdecay",
]


def is_backward(scopes: list[str], op_type: str) -> bool:
    if any(re.fullmatch(r"gradient_tape|gradients(_\d+)?", scope) for scope in scopes):
        return True
    return "Backprop" in op_type or re.search(r"Grad(V\d+|WithArgmax|Grad)*$", op_type) is not None


def is_update(scopes: list[str], op_type: str) -> bool:
    if re.fullmatch(r"(Resource)?(Sparse)?Apply[A-Z]\w*", op_type):
        return True
    return any(re.sub(r"(_\d+)+$", "", scope).lower() in OPTIMIZERS for scope in scopes)


def kind_of(activity: Activity) -> str | None:
    """The kind of an op; `activity.op` has no number of a replica, so `update_3` is `update` here."""
    op_type = activity.op_type or ""
    *scopes, _ = (activity.op or "").split("/")
    if activity.cls == "compute" and not op_type:
        python = re.fullmatch(r"(pure|io|debug)_callback(\..*)?", activity.op or "")
        is_print = re.fullmatch(r"debug_print(\..*)?", activity.op or "")
        return "python" if python else "printing" if is_print else None
    if activity.cls != "compute":
        return None
    if any(re.fullmatch(r"write_summary(_\d+)?", scope) for scope in scopes):
        return "summaries"
    if any(re.fullmatch(r"StringSplit(_\d+)?", scope) for scope in scopes):
        return "text"
    if op_type in CHECKS:
        return "checks"
    if "Summary" in op_type:
        return "summaries"
    if op_type in PYTHON:
        return "python"
    if op_type in PRINTING:
        return "printing"
    if TEXT_TYPES.fullmatch(op_type):
        return "text"
    if op_type.startswith(("Collective", "NcclAllReduce", "NcclReduce")):
        return None
    if is_backward(scopes, op_type) or not is_update(scopes, op_type):
        return None
    return "optimizer"


def is_side_work(activity: Activity) -> bool:
    """Python, printing, summaries, checks and text inside the step."""
    return kind_of(activity) not in (None, "optimizer")
