"""Can the trace be written, and is the cluster that TF_CONFIG names well described and reachable?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traceview.capture.cluster import place_of
from traceview.capture.destination import Destination
from traceview.capture.preflight.check import Check, failed, listed, not_applicable, ok, warning
from traceview.capture.preflight.network import Network
from traceview.capture.stop_risk import is_stop_risky
from traceview.errors import CaptureError

COMFORTABLE_BYTES: Final = 1 << 30
"""Room for several captures: a trace at the tracer's limits has about 100 MB."""
CONFIG: Final = "TF_CONFIG"
MOST_ADDRESSES: Final = 64
_CLUSTER_ONLY: Final = ("evaluator",)
"""Tasks that are in no cluster."""


def check_output(out: Path) -> Check:
    """Whether a capture could be written to `out`. What is made for that is removed again."""
    name = "output"
    destination = Destination(out)
    try:
        destination.prepare()
        free = shutil.disk_usage(destination.out).free
        left = len(destination.unfinished())
    except CaptureError as error:
        return failed(name, error.message, error.hint or "name another folder with --out")
    except OSError as error:
        return failed(name, f"--out {out}: {error}", "name another folder with --out")
    finally:
        destination.clean()
    found = f"{out} can be written, {free / 1e9:.1f} GB free"
    if left:
        found += f"; captures that run or never ended are in it: {left} (.traceview-*)"
    if free < COMFORTABLE_BYTES:
        return warning(name, found, "make room: a trace may have 100 MB and more")
    return ok(name, found)


@dataclass(frozen=True)
class Cluster:
    """What TF_CONFIG says: who there is, and which of them this process is."""

    addresses: dict[tuple[str, int], tuple[str, int]]
    task: tuple[str, int]

    @property
    def own_port(self) -> int | None:
        """The port of this task."""
        address = self.addresses.get(self.task)
        return address[1] if address else None


def check_config(text: str | None) -> tuple[Check, Cluster | None]:
    """Whether TF_CONFIG can be understood, and what it says if it can."""
    name = "tf-config"
    if not text:
        return not_applicable(name, "TF_CONFIG is not set: one process"), None
    fix = 'such as {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
    try:
        cluster = _cluster(json.loads(text))
    except (ValueError, RecursionError) as error:
        return failed(name, f"TF_CONFIG: {error}", fix), None
    if not cluster.addresses:
        return ok(name, "TF_CONFIG names no cluster: one process"), None
    roles: dict[str, int] = {}
    for role, _ in cluster.addresses:
        roles[role] = roles.get(role, 0) + 1
    counts = listed(f"{count} {role}" for role, count in roles.items())
    return ok(name, f"{counts}; this is {cluster.task[0]} {cluster.task[1]}"), cluster


def _cluster(config: Any) -> Cluster:
    """Raises ValueError with what is wrong."""
    if not isinstance(config, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004  # of the text, not of the program
    roles = config.get("cluster", {})
    if not isinstance(roles, dict):
        raise ValueError("cluster is no object")  # noqa: TRY004
    addresses = dict(_addresses(roles))
    twice = [one for one in set(addresses.values()) if list(addresses.values()).count(one) > 1]
    if twice:
        raise ValueError(f"{twice[0][0]}:{twice[0][1]} is named twice")
    task = config.get("task", {})
    if not addresses:
        return Cluster({}, ("worker", 0))
    if not isinstance(task, dict) or "type" not in task or "index" not in task:
        raise ValueError("task lacks type or index")
    role, index = task["type"], task["index"]
    # TensorFlow takes "0" too.
    if isinstance(index, bool) or not isinstance(index, int | str) or not str(index).isdecimal():
        raise ValueError(f"task.index {index!r} is no number")
    own = (str(role), int(index))
    if own not in addresses and role not in _CLUSTER_ONLY:
        raise ValueError(f"there is no {own[0]} {own[1]} in the cluster")
    return Cluster(addresses, own)


def _addresses(roles: dict[str, Any]) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    for role, listed_addresses in roles.items():
        if not isinstance(listed_addresses, list):
            raise ValueError(f"cluster.{role} is no list")  # noqa: TRY004
        for index, address in enumerate(listed_addresses):
            if not isinstance(address, str):
                raise ValueError(f"{address!r} is no host:port")  # noqa: TRY004
            host, colon, port = address.rpartition(":")
            if not colon or not host or not (port.isascii() and port.isdecimal() and len(port) < 6):
                raise ValueError(f"{address} is no host:port")
            if not 0 < int(port) < 65536:
                raise ValueError(f"{address}: there is no such port")
            yield (role, index), (host.strip("[]"), int(port))


def check_stop(environment: Mapping[str, str]) -> Check:
    """Whether the end of a profile can crash this process."""
    name = "profile-end"
    if place_of(environment) is None:
        return not_applicable(name, "no cluster")
    if not is_stop_risky(environment):
        return ok(name, "a profile can end here")
    return warning(
        name,
        "TF_CONFIG names several workers: TensorFlow 2.21 can crash one when its profile ends",
        "save a checkpoint before the window, or preload jemalloc: LD_PRELOAD=libjemalloc.so.2",
    )


def check_ports(cluster: Cluster | None, network: Network) -> Check:
    """Whether this task can listen, and the others can be reached. No other address is asked."""
    name = "cluster-ports"
    if cluster is None:
        return not_applicable(name, "no cluster")
    if cluster.own_port is not None and not network.is_free(cluster.own_port):
        return failed(
            name,
            f"port {cluster.own_port} of this task is taken here",
            "end the process that listens on it (an earlier run?), or change TF_CONFIG",
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
        return failed(
            name,
            f"no such host: {listed(unknown)}",
            "correct the names in TF_CONFIG, or start the hosts that have none before they run",
        )
    if silent := by_answer.get("silent"):
        return failed(
            name,
            f"no answer within a second: {listed(silent)}{unasked}",
            "look whether the hosts are up, and at the firewall between them",
        )
    if refused := by_answer.get("refused"):
        return warning(
            name,
            f"the host answers and nothing listens: {listed(refused)}{unasked}",
            "nothing, if these workers are not started yet",
        )
    listening = by_answer.get("listening")
    if not listening:
        return ok(name, "there is no other task")
    return ok(name, f"answers: {listed(listening)}{unasked}")
