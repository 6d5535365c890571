"""Selects the device events that count, gives each its class, and tells side work in a step by the names of its ops.

docs/method.md, "Activity classes", "Step ops"; docs/xplane.md, "What counts as activity".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.oracle.reading import Event, Line

COPY_CLASSES = ("h2d", "d2h", "d2d")
CLASSES = ("compute", "collective", "h2d", "d2h", "d2d", "memset")

DERIVED_IDS = range(0xDEADBEEF, 0xDEADBEEF + 390)
DERIVED_NAMES = (
    "Steps",
    "TensorFlow Ops",
    "TensorFlow Name Scope",
    "Framework Ops",
    "Framework Name Scope",
    "Launch Stats",
    "XLA Modules",
    "XLA Ops",
    "Async XLA Ops",
    "Source code",
    "Host Offload Ops",
    "Tensor Core Sync Flag",
)
OVERHEAD_NAMES = ("COMPILER", "BUFFER_FLUSH", "INSTRUMENTATION", "RESOURCE", "<UNKNOWN>")
NEVER_BUSY_TYPES = {
    "MemoryResidency",
    "UnifiedMemory",
    "MemoryAlloc",
    "MemoryFree",
    "Overhead",
    "Generic",
}
UNIFIED_MEMORY_IDS = range(0x10000000, 0x10000100)


@dataclass(eq=False)
class Activity:
    """One counted event of a device."""

    event: Event
    cls: str
    kernel: str
    op: str
    op_type: str
    bytes: int | None = None
    unknown_direction: bool = False
    end: int | None = None  # where it ends on another thread

    @property
    def span(self) -> tuple[int, int]:
        return (self.event.start, self.event.end if self.end is None else self.end)

    @property
    def order(self) -> tuple[int, int, int]:
        """By which the events of a device are in order."""
        start, end = self.span
        return start, -end, CLASSES.index(self.cls)


def line_never_counts(line: Line) -> bool:
    """Derived lines, counters, and streams whose types are all in the never-busy table."""
    if line.id % 2**32 in DERIVED_IDS:
        return True
    base = re.sub(r" - from #.*$", "", line.name)
    if base in DERIVED_NAMES or base.startswith("Sparse Core "):
        return True
    if line.name == "_counters_":
        return True
    if line.events and all("counter_value" in event.stats for event in line.events):
        return True
    if line.id in UNIFIED_MEMORY_IDS:
        return True
    # docs/xplane.md, "What counts as activity": the type is in the line's
    # name only, so a line of nothing but such types is dropped whole; on a mixed line see below.
    typed = re.fullmatch(r"Stream #[^(]*\((.*)\)", line.name)
    types = set(typed.group(1).split(",")) if typed else set()
    return bool(types) and types <= NEVER_BUSY_TYPES


def event_never_counts(event: Event) -> bool:
    if event.name in OVERHEAD_NAMES and "correlation_id" not in event.stats:
        return True
    if "MemoryResidency_details" in event.stats or event.name.startswith("UM_"):
        return True
    details = {name.lower() for name in event.stats}
    if details & {"memalloc_details", "memfree_details"}:
        return True
    # On a line with kernels, the name of the type or of the driver function identifies allocations
    # and synchronizations.
    if event.name in ("MemoryAlloc", "MemoryFree", "Generic"):
        return True
    return bool(
        re.match(r"(cu|cuda|hip)(Mem(Alloc|Free)|\w*Synchronize|StreamWaitEvent)", event.name)
    )


def is_collective_name(name: str) -> bool:
    plain = name.lower().removeprefix("void ")
    return plain.startswith(("nccl", "rccl")) or any(
        part in plain for part in ("ncclkernel", "nccldevkernel", "rcclkernel")
    )


def direction_of_name(name: str) -> str | None:
    """h2d, d2h or d2d when a copy's (or a driver call's) name says it."""
    text = name.lower()
    if re.search(r"htod|h2d|hosttodevice", text):
        return "h2d"
    if re.search(r"dtoh|d2h|devicetohost", text):
        return "d2h"
    if re.search(r"dtod|d2d|devicetodevice|p2p|ptop|peer", text):
        return "d2d"
    return None


def is_copy_name(name: str) -> bool:
    text = name.lower()
    return bool(
        re.match(
            r"(\[cuda )?memcpy[ _]?(h2d|d2h|d2d|p2p|h2h|htod|dtoh|dtod|ptop|htoh|other)?\]?( |$)",
            text,
        )
        or re.match(r"copy(host|device)to(host|device)\b", text)
    )


def parse_details(text: str) -> dict[str, str]:
    """Split at white space, then at the first colon."""
    parts = [part.split(":", 1) for part in text.split()]
    return {part[0]: part[1] for part in parts if len(part) == 2}


def copied_bytes(event: Event, key: str, stat: str) -> int | None:
    """`size:0` of an event that took time is unknown, not zero (docs/xplane.md, "Device events")."""
    text = parse_details(event.text(stat)).get(key, "")
    if not text.isdigit():
        return None
    size = int(text)
    return None if size == 0 and event.end > event.start else size


def replica_free(name: str) -> str:
    """Drop `replica_k` components; an optimizer's `update_k` becomes `update` (docs/method.md, "Ops")."""
    parts = [part for part in name.split("/") if not re.fullmatch(r"replica_\d+", part)]
    return "/".join(re.sub(r"^update_\d+(?=$|_)", "update", part) for part in parts)


def op_of(event: Event) -> tuple[str, str]:
    """(replica-free op name, op type) of a device event; empty where not recorded."""
    full = event.text("tf_op")
    name, colon, op_type = full.rpartition(":")
    if colon and not op_type and event.text("hlo_op"):
        return replica_free(event.text("hlo_op")), ""  # JAX says `XlaModule:`
    if not full and event.text("hlo_op"):
        return replica_free(event.text("hlo_op")), ""
    if not full:
        # 2020: the outermost annotation (level 0), without its `#key=value#` tail.
        full = event.text("level 0") or event.text("annotation")
        full = full.split("#", 1)[0]
        name, colon, op_type = full.rpartition(":")
    if not colon:
        return replica_free(full), ""
    return replica_free(name), op_type


def classify(event: Event, calls: list[Event]) -> Activity | None:
    """The activity of an event of a GPU line, None if it does not count; `calls`: its linked host calls."""
    if event_never_counts(event):
        return None
    name = event.name
    op, op_type = op_of(event)
    if is_collective_name(name):
        return Activity(event, "collective", name, op, op_type)
    is_linked = name.startswith("__amd_rocclr_copyBuffer")
    if is_linked or is_copy_name(name):
        # A name without a direction is d2d with unknown direction, as a ROCm copy is whose call has none.
        names = [call.name for call in calls] if is_linked else [name]
        direction = next(filter(None, map(direction_of_name, names)), None)
        size = copied_bytes(event, "size", "memcpy_details")
        return Activity(
            event, direction or "d2d", name, op, op_type, size, unknown_direction=not direction
        )
    if name.startswith(("Memset", "__amd_rocclr_fillBuffer")):
        size = copied_bytes(event, "num_bytes", "Memset_details")
        return Activity(event, "memset", name, op, op_type, size)
    is_kernel = "correlation_id" in event.stats or "kernel_details" in event.stats
    if is_kernel or name.startswith("CudaGraphExec:"):
        return Activity(event, "compute", name, op, op_type)
    return None


def classify_tpu(event: Event) -> Activity:
    """The `XLA Ops` line of a TPU: compute, collectives and asynchronous copies by op name; loops of ops are none."""
    name = event.name.removeprefix("%")
    op, op_type = op_of(event)
    if re.match(
        r"(all-reduce|all-gather|(ragged-)?all-to-all|reduce-scatter|collective-|(send|recv)(-done)?\b)",
        name,
    ):
        return Activity(event, "collective", event.name, op, op_type)
    copy = re.match(r"(copy|slice|dynamic-slice|dynamic-update-slice)-(start|done)\b", name)
    if copy is None:
        return Activity(event, "compute", event.name, op, op_type)
    result, opened, operands = name.partition(f"-{copy[2]}(")
    spaces = ["S(5)" in result, "S(5)" in operands]
    if copy[2] == "start":
        cls = "h2d" if spaces[1] else "d2h" if spaces[0] else "d2d"
    else:
        cls = "d2h" if spaces[0] else "h2d" if spaces[1] else "d2d"
    return Activity(
        event,
        cls if opened else "d2d",
        event.name,
        op,
        op_type,
        unknown_direction=not opened,
    )


def is_loop_of_ops(event: Event, others: list[Event]) -> bool:
    """Whether an event of the `XLA Ops` line is a loop or a call with ops inside."""
    if not re.match(r"%?(while|cond(itional)?|call)\b", event.name):
        return False
    return sum(event.start <= other.start < event.end for other in others) > 1


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
