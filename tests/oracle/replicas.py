"""Replicas of MirroredStrategy on logical CPU devices (docs/method.md, "Replicas")."""

from __future__ import annotations

import re

from tests.oracle.classes import Activity, replica_free
from tests.oracle.links import Links
from tests.oracle.reading import Event, Host

OP_EVENT = re.compile(r"(.*[^:]):([A-Za-z_]\w*)", re.DOTALL)
Group = tuple[int | None, ...]


def has_gpu_evidence(host: Host) -> bool:
    """Any device plane or GPU thread: then a missing GPU trace has failed, there are no replicas."""
    if any(name.startswith("/device:") for name in host.planes):
        return True
    return any(line.name.startswith("tf_gpu_") for line in host.host_lines())


def split_op(event: Event) -> tuple[str, str] | None:
    """(name, type) of a host op event `<scope/op>:<OpType>`."""
    if event.name.startswith("$"):  # Python tracer
        return None
    match = OP_EVENT.fullmatch(event.name)
    return (match.group(1), match.group(2)) if match else None


def is_work(op_type: str) -> bool:
    # `_Send`/`_Recv` also as `_HostSend`/`_HostRecv`; `While` and `If` exactly.
    if op_type in ("_Send", "_Recv", "_HostSend", "_HostRecv", "While", "If"):
        return False
    if op_type.startswith(("RemoteCall", "IteratorGetNext")):
        return False
    return not op_type.endswith("PartitionedCall")


def is_collective_type(op_type: str) -> bool:
    return op_type.startswith(("Collective", "NcclAllReduce"))


def replica_in_name(name: str) -> int | None:
    """`replica_0` and `update_0` name replica 0; `update_1_3` is `update_1` made unique."""
    for part in name.split("/"):
        match = re.fullmatch(r"replica_(\d+)|update_(\d+)(?:_\d+)?", part)
        if match:
            return int(match.group(1) or match.group(2))
    return None


def uses_variable(op_type: str) -> bool:
    """Ops on a variable, which run where it lies."""
    if op_type.startswith(("ResourceGather", "ResourceScatter")):
        return True
    if op_type.startswith(("ResourceApply", "ResourceSparseApply")):
        return True
    known = ("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
    return op_type in known


def uniquifier(name: str) -> int:
    match = re.search(r"_(\d+)$", name)
    return int(match.group(1)) if match else 0


def executor_of(event: Event, links: Links) -> tuple[int, int, int] | None:
    """(id, type, number) of the ExecutorState::Process above an op: which executor ran it."""
    above = links.parent(event)
    while above is not None:
        if above.name == "ExecutorState::Process":
            return (
                above.integer("id") or 0,
                above.integer("_ct") or 0,
                (above.integer("_c") or 0) % 2**64,
            )
        above = links.parent(above)
    return None


def deal_out(members: list[tuple[Event, str]], replicas: list[int]) -> dict[Event, int]:
    """One collective: its unnamed members, by uniquifier, go to the replicas that have none yet.

    On "in the order of their group" = ranks inside the events of one group_key,
    instance_key and step; ties keep the order of time.
    """
    named = {event: replica_in_name(name) for event, name in members}
    result = {event: k for event, k in named.items() if k is not None}
    free = [k for k in replicas if k not in result.values()]
    rest = [(uniquifier(name), event.start, event.order, event) for event, name in members]
    rest = sorted(item for item in rest if named[item[3]] is None)
    result.update({item[3]: k for item, k in zip(rest, free, strict=False)})
    return result


def find_replicas(host: Host, links: Links) -> tuple[dict[int, list[Activity]], list[Activity]]:
    """Activities by replica, and the shared ones; both empty where there are no replicas."""
    if has_gpu_evidence(host):
        return {}, []
    ops: list[tuple[Event, str, str]] = []
    for event in host.host_events():
        parsed = split_op(event)
        if parsed is None or event.line.name.startswith("tf_data_"):
            continue
        # On "executor and collective threads": an op counts when it ran below an
        # ExecutorState::Process, on whichever thread, or on a thread named collective_ops.
        if executor_of(event, links) or event.line.name.startswith("collective_ops"):
            ops.append((event, *parsed))
    seen = {replica_in_name(name) for _, name, _ in ops} - {None}
    replicas = sorted({0} | {k for k in seen if k is not None})

    # What each executor is known to run; and the executors of the step function's own calls, which a
    # FunctionRun outside the tf.data threads started.
    # A variable is read and written where it lies, so an executor that does more is not known by that.
    by_executor: dict[tuple[int, int, int], set[int]] = {}
    used_by: dict[tuple[int, int, int], set[int]] = {}
    for event, name, op_type in ops:
        executor = executor_of(event, links)
        known = replica_in_name(name)
        if executor is None:
            continue
        found = (used_by if uses_variable(op_type) else by_executor).setdefault(executor, set())
        found.update([] if known is None else [known])
    by_executor = used_by | by_executor
    started = {
        (event.integer("_pt") or 0, (event.integer("_p") or 0) % 2**64)
        for event in host.host_events()
        if event.name == "FunctionRun" and not event.line.name.startswith("tf_data_")
    }

    collectives: dict[Group, list[tuple[Event, str]]] = {}
    for event, name, op_type in ops:
        if is_collective_type(op_type):
            keys = ("group_key", "instance_key", "step_id")
            group: Group = tuple(event.integer(key) for key in keys)
            collectives.setdefault(group, []).append((event, name))
    dealt: dict[Event, int] = {}
    for members in collectives.values():
        dealt.update(deal_out(members, replicas))

    result: dict[int, list[Activity]] = {k: [] for k in replicas}
    shared: list[Activity] = []
    for event, name, op_type in ops:
        if not is_work(op_type):
            continue
        cls = "collective" if is_collective_type(op_type) else "compute"
        activity = Activity(event, cls, "", replica_free(name), op_type, self_ps_children=True)
        owner = replica_in_name(name)
        if owner is None:
            owner = dealt.get(event)
        if owner is None:
            executor = executor_of(event, links)
            # On "belong to replica 0 when links show it": an executor runs the part of one
            # replica, so an unnamed op beside ops of replica k is k's; an executor of the step
            # function without any such name is replica 0's.
            if executor is not None and executor[1:] in started:
                owner = max(by_executor[executor], default=0)
        (shared if owner is None else result[owner]).append(activity)
    return {k: found for k, found in result.items() if found}, shared
