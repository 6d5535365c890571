"""Checks whether the trace can be written, and whether the cluster in TF_CONFIG is valid."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.check.check import Check, Subject, listed
from traceview.capture.record.destination import Destination

COMFORTABLE_BYTES: Final = 1 << 30
"""Room for several captures: a trace at the tracer's limits has about 100 MB."""
CONFIG: Final = "TF_CONFIG"
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


class _WrongConfigError(Exception):
    """TF_CONFIG is JSON and describes no cluster."""


def check_config(text: str | None) -> Check:
    """Whether TF_CONFIG is valid."""
    subject = Subject("tf-config")
    if not text:
        return subject.not_applicable("TF_CONFIG is not set: one process")
    fix = 'for example {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
    try:
        cluster = _cluster(json.loads(text))
    except (_WrongConfigError, ValueError, RecursionError) as error:
        return subject.failed(f"TF_CONFIG: {error}", fix)
    if not cluster.addresses:
        return subject.ok("TF_CONFIG names no cluster: one process")
    roles = Counter(role for role, _ in cluster.addresses)
    counts = listed(f"{count} {role}" for role, count in roles.items())
    return subject.ok(f"{counts}; this is {cluster.task[0]} {cluster.task[1]}")


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
