"""Checks whether the trace can be written, and whether the cluster in TF_CONFIG is valid and reachable."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.check.check import Check, Subject, listed
from traceview.capture.check.machine import Network
from traceview.capture.record.destination import Destination
from traceview.capture.sidecar.cluster import is_stop_risky, place_of

COMFORTABLE_BYTES: Final = 1 << 30
"""Room for several captures: a trace at the tracer's limits has about 100 MB."""
CONFIG: Final = "TF_CONFIG"
MOST_ADDRESSES: Final = 64
"""Addresses that are tried at once, each in a thread of its own."""
_OTHER_OUT: Final = "choose another --out"
_CLUSTER_ONLY: Final = ("evaluator",)
"""Tasks that no cluster lists."""


def check_output(out: Path) -> Check:
    """Whether a capture could be written to `out`. What the check creates is removed again."""
    subject = Subject("output")
    destination = Destination(out)
    try:
        destination.prepare()
        free = shutil.disk_usage(destination.out).free
        left = len(destination.unfinished())
    except CaptureError as error:
        return subject.failed(error.message, error.hint or _OTHER_OUT)
    except OSError as error:
        return subject.failed(f"--out {out}: {error}", _OTHER_OUT)
    finally:
        destination.clean()
    detail = f"{out} can be written, {free / 1e9:.1f} GB free"
    if left:
        detail += f"; it holds {left} running or killed captures (.traceview-*)"
    if free < COMFORTABLE_BYTES:
        return subject.warning(detail, "free some space: a trace may need more than 100 MB")
    return subject.ok(detail)


@dataclass(frozen=True)
class Cluster:
    """The tasks in TF_CONFIG, and which of them this process is."""

    addresses: dict[tuple[str, int], tuple[str, int]]
    task: tuple[str, int]

    @property
    def own_port(self) -> int | None:
        """The port of this process."""
        address = self.addresses.get(self.task)
        return address[1] if address else None


class _WrongConfigError(Exception):
    """TF_CONFIG is JSON and describes no cluster."""


def check_config(text: str | None) -> tuple[Check, Cluster | None]:
    """Whether TF_CONFIG is valid, and the cluster in it if it is."""
    subject = Subject("tf-config")
    if not text:
        return subject.not_applicable("TF_CONFIG is not set: one process"), None
    fix = 'for example {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
    try:
        cluster = _cluster(json.loads(text))
    except (_WrongConfigError, ValueError, RecursionError) as error:
        return subject.failed(f"TF_CONFIG: {error}", fix), None
    if not cluster.addresses:
        return subject.ok("TF_CONFIG names no cluster: one process"), None
    roles = Counter(role for role, _ in cluster.addresses)
    counts = listed(f"{count} {role}" for role, count in roles.items())
    return subject.ok(f"{counts}; this is {cluster.task[0]} {cluster.task[1]}"), cluster


def _cluster(config: Any) -> Cluster:
    """Raises `_WrongConfigError` with the reason if it is invalid."""
    if not isinstance(config, dict):
        raise _WrongConfigError("not a JSON object")
    roles = config.get("cluster", {})
    if not isinstance(roles, dict):
        raise _WrongConfigError("cluster is not an object")
    addresses = dict(_addresses(roles))
    for (host, port), count in Counter(addresses.values()).items():
        if count > 1:
            raise _WrongConfigError(f"{host}:{port} is named twice")
    task = config.get("task", {})
    if not addresses:
        return Cluster({}, ("worker", 0))
    if not isinstance(task, dict) or "type" not in task or "index" not in task:
        raise _WrongConfigError("task has no type or no index")
    role, index = task["type"], task["index"]
    # TensorFlow takes "0" too.
    if isinstance(index, bool) or not isinstance(index, int | str) or not str(index).isdecimal():
        raise _WrongConfigError(f"task.index {index!r} is not a number")
    own = (str(role), int(index))
    if own not in addresses and role not in _CLUSTER_ONLY:
        raise _WrongConfigError(f"the cluster has no {own[0]} {own[1]}")
    return Cluster(addresses, own)


def _addresses(roles: dict[str, Any]) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    for role, listed_addresses in roles.items():
        if not isinstance(listed_addresses, list):
            raise _WrongConfigError(f"cluster.{role} is not a list")
        for index, address in enumerate(listed_addresses):
            if not isinstance(address, str):
                raise _WrongConfigError(f"{address!r} is not a host:port")
            host, colon, port = address.rpartition(":")
            if not colon or not host or not (port.isascii() and port.isdecimal() and len(port) < 6):
                raise _WrongConfigError(f"{address} is not a host:port")
            if not 0 < int(port) < 65536:
                raise _WrongConfigError(f"{address}: the port must be between 1 and 65535")
            yield (role, index), (host.strip("[]"), int(port))


def check_stop(environment: Mapping[str, str]) -> Check:
    """Whether the end of a profile can crash this process."""
    subject = Subject("profile-end")
    if place_of(environment) is None:
        return subject.not_applicable("TF_CONFIG names no cluster")
    if not is_stop_risky(environment):
        return subject.ok("no crash expected when a profile ends")
    return subject.warning(
        "TF_CONFIG names several workers, and TensorFlow can crash a worker when its profile ends (seen with 2.19 to 2.21)",
        "save a checkpoint before the window, or preload jemalloc: LD_PRELOAD=libjemalloc.so.2",
    )


def check_ports(cluster: Cluster | None, network: Network) -> Check:
    """Whether this task can listen, and the other tasks of the cluster can be reached."""
    subject = Subject("cluster-ports")
    if cluster is None:
        return subject.not_applicable("TF_CONFIG names no cluster")
    if cluster.own_port is not None and not network.is_free(cluster.own_port):
        return subject.failed(
            f"port {cluster.own_port} of this task is in use",
            "end the process that uses it (an earlier run?), or change TF_CONFIG",
        )
    others = {task: address for task, address in cluster.addresses.items() if task != cluster.task}
    asked = dict(list(others.items())[:MOST_ADDRESSES])
    answers = network.ask(list(asked.values()))
    by_answer: dict[str, list[str]] = {}
    for task, address in asked.items():
        by_answer.setdefault(answers[address], []).append(
            f"{task[0]} {task[1]} ({address[0]}:{address[1]})"
        )
    unasked = (
        f"; {len(others) - len(asked)} more were not asked" if len(others) > len(asked) else ""
    )
    if unknown := by_answer.get("unknown name"):
        return subject.failed(
            f"no such host: {listed(unknown)}",
            "correct the names in TF_CONFIG, or start these hosts if they get their names only then",
        )
    if silent := by_answer.get("silent"):
        return subject.failed(
            f"no answer within a second: {listed(silent)}{unasked}",
            "check that the hosts are up, and the firewall between them",
        )
    if refused := by_answer.get("refused"):
        return subject.warning(
            f"the host answers, but nothing listens: {listed(refused)}{unasked}",
            "none needed if these workers are not started yet",
        )
    listening = by_answer.get("listening")
    if not listening:
        return subject.ok("the cluster has no other task")
    return subject.ok(f"all answer: {listed(listening)}{unasked}")
