"""Devices on CPUs: replicas of MirroredStrategy, and devices of XLA programs (docs/method.md, "Replicas")."""

from __future__ import annotations

import re

from tests.oracle.classes import Activity, classify_tpu, is_loop_of_ops, replica_free
from tests.oracle.links import Links
from tests.oracle.reading import Event, Host

OP_EVENT = re.compile(r"(.*[^:]):([A-Za-z_]\w*)", re.DOTALL)
Group = tuple[int | None, ...]


def has_gpu_evidence(host: Host) -> bool:
    """Whether there is a device plane or a GPU thread: then a missing GPU trace failed, and there are no replicas."""
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
    # `While` and `If` match exactly, not as a prefix.
    if op_type in ("_Send", "_Recv", "_HostSend", "_HostRecv", "While", "If"):
        return False
    if op_type.startswith(("RemoteCall", "IteratorGetNext")):
        return False
    return not op_type.endswith("PartitionedCall")


def is_collective_type(op_type: str) -> bool:
    return op_type.startswith(("Collective", "NcclAllReduce"))


def highest_replica(host: Host) -> int:
    """The largest k of a scope `replica_<k>/` in the name of any event of the host, 0 without one."""
    numbers = [0]
    for event in host.host_events():
        scope = re.search(r"(?:^|/|_)replica_(\d+)(?:_\d+)?/", event.name)
        numbers += [int(scope.group(1))] if scope else []
    return max(numbers)


def replica_in_name(name: str, highest: int) -> int | None:
    """The replica in a name: `replica_0` and `update_0` are replica 0; `update_1_3` is `update_1` made unique.

    Of several `update_<k>` the last one; none where k exceeds the replicas, for it numbers a variable then.
    """
    parts = name.split("/")
    for part in parts:
        match = re.fullmatch(r"replica_(\d+)(?:_\d+)?", part)
        if match:
            return int(match.group(1))
    for part in reversed(parts):
        match = re.fullmatch(r"update_(\d+)(?:_\d+)?", part)
        if match:
            return int(match.group(1)) if int(match.group(1)) <= highest else None
    return None


def uniquifier(name: str) -> int:
    match = re.search(r"_(\d+)$", name)
    return int(match.group(1)) if match else 0


def numbers_in(name: str) -> tuple[int, list[int]]:
    """The uniquifier of a name, and then those of the scopes around it, the outermost first."""
    *scopes, _ = name.split("/")
    return uniquifier(name), [uniquifier(scope) for scope in scopes]


def executor_of(event: Event, links: Links) -> tuple[int, int, int] | None:
    """(id, type, number) of the ExecutorState::Process around an op, which identifies its executor."""
    for outer in links.around(event):
        if outer.name == "ExecutorState::Process":
            return (
                outer.integer("id") or 0,
                outer.integer("_ct") or 0,
                (outer.integer("_c") or 0) % 2**64,
            )
    return None


def deal_out(
    members: list[tuple[Event, str]], replicas: list[int], highest: int
) -> dict[Event, int]:
    """Assign the unnamed members of one collective, by the numbers in their names, to the replicas that have none yet.

    A collective is the events of one group_key, instance_key and step; ties keep the order of time.
    """
    named = {event: replica_in_name(name, highest) for event, name in members}
    result = {event: k for event, k in named.items() if k is not None}
    free = [k for k in replicas if k not in result.values()]
    rest = [(numbers_in(name), event.start, event.order, event) for event, name in members]
    rest = sorted(item for item in rest if named[item[3]] is None)
    runs = sorted({(number, *scopes) for (number, scopes), *_ in rest})
    if len(runs) > 1:
        # The same op may run in every iteration of a loop.
        replica_of_run = dict(zip(runs, free, strict=False))
        keys = {item[3]: (item[0][0], *item[0][1]) for item in rest}
        result.update(
            {event: replica_of_run[key] for event, key in keys.items() if key in replica_of_run}
        )
    else:
        result.update({item[3]: k for item, k in zip(rest, free, strict=False)})
    return result


def bodies_of_loops(host: Host, links: Links) -> set[int]:
    """The ids of calls of functions that are the body of a loop of a graph over a data set."""
    ahead = r"(?:Prefetch|TakeWhile|MaxIntraOpParallelism|PrivateThreadPool)"
    found = set()
    for event in host.host_events():
        if event.name == "InstantiatedCapturedFunction::Run":
            for outer in links.around(event):
                if outer.name.startswith(("Iterator::", "ReduceIterator::", "ReduceDatasetOp::")):
                    if outer.name == "ReduceDatasetOp::DoCompute" or re.fullmatch(
                        rf"ReduceIterator::Root(::{ahead})*::Scan", outer.name
                    ):
                        found.add(event.integer("id") or 0)
                    break
    return found


def runs_in(event: Event, bodies: set[int], links: Links) -> bool:
    """Whether an op runs in one of these calls."""
    return any(outer.integer("id") in bodies for outer in links.around(event))


def find_replicas(host: Host, links: Links) -> tuple[dict[int, list[Activity]], list[Activity]]:
    """Activities by replica, and the shared ones; both empty where there are no replicas."""
    if has_gpu_evidence(host):
        return {}, []
    ops: list[tuple[Event, str, str]] = []
    of_loops: list[tuple[Event, str, str]] = []
    bodies = bodies_of_loops(host, links)
    for event in host.host_events():
        parsed = split_op(event)
        if parsed is None:
            continue
        if not event.line.name.startswith("tf_data_"):
            ops.append((event, *parsed))
        elif is_work(parsed[1]) and runs_in(event, bodies, links):
            of_loops.append((event, *parsed))
    highest = highest_replica(host)
    numbers = {replica_in_name(name, highest) for _, name, _ in ops}
    replicas = sorted({0} | {k for k in numbers if k is not None})

    # The replicas in the names of each executor's ops, and the executors started by calls of the step
    # function, which are FunctionRuns outside of the tf.data threads.
    by_executor: dict[tuple[int, int, int], list[int | None]] = {}
    for event, name, op_type in ops:
        executor = executor_of(event, links)
        if executor is not None and is_work(op_type):
            by_executor.setdefault(executor, []).append(replica_in_name(name, highest))
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
        dealt.update(deal_out(members, replicas, highest))

    result: dict[int, list[Activity]] = {k: [] for k in replicas}
    shared: list[Activity] = []
    for event, name, op_type in ops:
        if not is_work(op_type):
            continue
        activity = _op_activity(event, name, op_type)
        # An executor runs the part of one replica: that of most of its ops, of which those without a number are
        # of replica 0.
        executor = executor_of(event, links)
        owner = None
        if executor is not None and executor[1:] in started:
            numbers_known = [k for k in by_executor[executor] if k is not None]
            is_known = len(numbers_known) >= len(by_executor[executor]) / 4
            votes = numbers_known if is_known else [k or 0 for k in by_executor[executor]]
            owner = max(set(votes), key=lambda k: (votes.count(k), k))
        if owner is None:
            owner = replica_in_name(name, highest)
        if owner is None:
            owner = dealt.get(event)
        (shared if owner is None else result[owner]).append(activity)
    several = any(own for k, own in result.items() if k > 0)
    for event, name, op_type in of_loops:
        activity = _op_activity(event, name, op_type)
        owner = replica_in_name(name, highest)
        if owner is None and not several:
            owner = 0
        (shared if owner is None else result.setdefault(owner, [])).append(activity)
    return {k: activities for k, activities in result.items() if activities}, shared


def _op_activity(event: Event, name: str, op_type: str) -> Activity:
    cls = "collective" if is_collective_type(op_type) else "compute"
    return Activity(event, cls, "", replica_free(name), op_type)


def on_logical_devices(
    host: Host, links: Links, activities: list[Activity], numbers: list[int]
) -> dict[int, list[Activity]]:
    """Activities by the logical CPU device of their component, of those with these numbers."""
    calls: dict[int | None, list[tuple[int, int]]] = {}
    sent: dict[tuple[int, int], list[int]] = {}
    for event in sorted(host.host_events(), key=lambda event: (event.start, event.order)):
        if event.name == "FunctionRun" and not event.line.name.startswith("tf_data_"):
            component = event.integer("_pt") or 0, (event.integer("_p") or 0) % 2**64
            calls.setdefault(event.integer("id"), []).append(component)
        executor = executor_of(event, links)
        sender = re.match(r"[^;]*/device:CPU:(\d+);", event.text("key") or "")
        if executor is not None and sender is not None and int(sender.group(1)) in numbers:
            sent.setdefault(executor[1:], []).append(int(sender.group(1)))
    number_of: dict[tuple[int, int], int] = {}
    for components in calls.values():
        for component in components:
            if own := sent.get(component):
                number_of[component] = max(set(own), key=lambda k: (own.count(k), k))
        taken = {number_of[component] for component in components if component in number_of}
        left = [number for number in numbers if number not in taken]
        for component in components:
            if component not in number_of:
                number_of[component] = left.pop(0) if left else numbers[0]
    result: dict[int, list[Activity]] = {}
    for activity in activities:
        executor = executor_of(activity.event, links)
        number = number_of.get(executor[1:], 0) if executor is not None else 0
        result.setdefault(number, []).append(activity)
    return result


def find_xla_devices(host: Host) -> dict[int, list[Activity]]:
    """The ops of each device by `device_ordinal`."""
    if has_gpu_evidence(host):
        return {}
    events = host.host_events()
    ends: dict[int, int] = {}
    for event in events:
        number = event.integer("_c")
        if event.name.startswith("end: ") and number is not None:
            ends[number] = max(event.end, ends.get(number, event.end))
    meetings = [one for one in events if one.name in ("Rendezvous", "InvokeRendezvous")]
    by_device: dict[int, list[Event]] = {}
    for event in events:
        ordinal = event.integer("device_ordinal")
        if ordinal is not None and re.fullmatch(r"[A-Za-z_][\w.\-]*", event.name, re.ASCII):
            by_device.setdefault(ordinal, []).append(event)
    found = {}
    for ordinal, ops in sorted(by_device.items()):
        found[ordinal] = [
            _activity(op, ends, meetings) for op in ops if not is_loop_of_ops(op, ops)
        ]
    return found


def _activity(event: Event, ends: dict[int, int], meetings: list[Event]) -> Activity:
    """Collectives, as named or where devices meet inside, and compute; an op ends where its `end:` is, if that is later."""
    is_collective = classify_tpu(event).cls == "collective" or any(
        one.line is event.line and event.start <= one.start < event.end for one in meetings
    )
    end = ends.get(event.integer("_p") or -1, event.end)
    return Activity(
        event,
        "collective" if is_collective else "compute",
        "",
        event.name,
        "",
        end=max(end, event.end),
    )
