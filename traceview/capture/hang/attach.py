"""Looks at a running process from outside, with what the system allows: `/proc`, and py-spy if it is installed.

Nothing is sent to the process. How many steps have ended, and whether it hangs at all, cannot be seen from outside.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import UsageError
from traceview.base.stack_dump import FILE_PREFIX, OWN_CODE
from traceview.base.version import VERSION
from traceview.capture.hang import threads
from traceview.capture.hang.facts import SCHEMA_VERSION
from traceview.capture.hang.peers import unseen
from traceview.capture.process.own_threads import OWN_THREADS
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.sidecar.cluster import Place, place_of
from traceview.capture.sidecar.file import reason_of

LOOK_S: Final = 1.0
"""The kernel counts processor time in hundredths of a second, so this shows a hundredth of a core."""
_PY_SPY_TIMEOUT_S: Final = 30.0
"""Reading the symbols of TensorFlow takes it seconds, on a slow file system more."""
_LONGEST_COMPLAINT: Final = 300
"""Characters of what it says when it fails; the reason is at the start."""
_CONNECT_TIMEOUT_S: Final = 1.0
"""Within a data center a connection takes milliseconds; longer, and nobody accepts it."""
_MOST_CONNECTING_S: Final = 10.0
"""For all workers together: a person waits, and many workers may be gone."""
_MAIN: Final = "MainThread"
_LIBRARY: Final = re.compile(r"/lib(?:64)?/python3[.\d]*/|/(?:site|dist)-packages/|^<frozen ")
_NO_PY_SPY: Final = "Python stacks need py-spy on the PATH (pip install py-spy); it may need root, or permission for ptrace"


def facts_of_process(pid: int, process: Path | None = None) -> dict[str, Any]:
    """The facts about a process, as those of a hang. `process`: its folder in `/proc`.

    Raises `UsageError` where there is no such process, or where it belongs to somebody else.
    """
    folder = process or Path("/proc") / str(pid)
    if not folder.is_dir():
        raise UsageError(f"--attach {pid}: there is no such process on this machine")
    missing: dict[str, str] = {}
    first, begun_ns = threads.kernel_threads(folder / "task", missing), time.monotonic_ns()
    written = threads.written_bytes(folder / "io")
    if not first:
        raise UsageError(f"--attach {pid}: the threads of the process cannot be read")
    time.sleep(LOOK_S)
    second, length_ns = (
        threads.kernel_threads(folder / "task", missing),
        max(time.monotonic_ns() - begun_ns, 1),
    )
    spent = {
        number: max(thread.cpu_ns - (first[number].cpu_ns if number in first else 0), 0)
        for number, thread in second.items()
    }
    now_written = threads.written_bytes(folder / "io")
    place = place_of(_environment(folder, missing))
    return {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": VERSION,
        "host": socket.gethostname(),
        "pid": pid,
        "task": str(place.task) if place else None,
        "state": "attached",
        "limit_ns": 0,
        "noticed_ns": time.time_ns(),
        "waited_ns": None,
        "total_ns": None,
        "step_count": None,
        "last_step_ns": None,
        "step_function": None,
        "is_step": False,
        "is_first_call": False,
        "is_evaluation": False,
        "is_lock_held": False,
        "look_ns": length_ns,
        "cores": sum(spent.values()) / length_ns,
        "written_bytes": None
        if written is None or now_written is None
        else max(now_written - written, 0),
        "other_call_count": None,
        "calls_in_look": 0,
        "other_function": None,
        "threads": _python_threads(pid, folder, second, spent, length_ns, missing),
        "native": threads.native_groups(second, spent, length_ns),
        "workers": _workers(place) if place else [],
        "missing": missing,
    }


def folder_of_reports(pid: int, process: Path | None = None) -> Path | None:
    """The output folder of the capture that watches a process with `--on-hang`; None if none does."""
    folder = (process or Path("/proc") / str(pid)) / "fd"
    with suppress(OSError):
        for link in folder.iterdir():
            with suppress(OSError):
                path = link.readlink()
                if path.name.startswith(FILE_PREFIX):
                    return path.parent
    return None


def _python_threads(
    pid: int,
    folder: Path,
    kernel: Mapping[int, threads.KernelThread],
    spent: Mapping[int, int],
    length_ns: int,
    missing: dict[str, str],
) -> list[dict[str, Any]]:
    """The Python stacks that py-spy sees."""
    command = shutil.which("py-spy")
    if command is None:
        missing["threads"] = _NO_PY_SPY
        return []
    try:
        done = subprocess.run(
            [command, "dump", "--json", "--pid", str(pid)],
            capture_output=True,
            timeout=_PY_SPY_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            text = done.stderr.decode("utf-8", "replace").strip().replace("\n", "; ")
            missing["threads"] = f"py-spy failed: {text[:_LONGEST_COMPLAINT]}"
            return []
        dumped = json.loads(done.stdout)
        cwd = str((folder / "cwd").readlink())
        places = CodePlaces([Path(cwd)])
        rows = [
            _python_thread(row, cwd, places, kernel, spent, length_ns)
            for row in dumped[: threads.MOST_THREADS]
            if not str(row.get("thread_name")).startswith(OWN_THREADS)
        ]
    except Exception as error:
        # What another program writes may have any form.
        missing["threads"] = f"py-spy: {reason_of(error)}"
        return []
    return sorted(rows, key=lambda row: not row["is_main"])


def _python_thread(
    row: Mapping[str, Any],
    cwd: str,
    places: CodePlaces,
    kernel: Mapping[int, threads.KernelThread],
    spent: Mapping[int, int],
    length_ns: int,
) -> dict[str, Any]:
    lines: list[str] = []
    user_line = None
    for frame in row["frames"][: threads.MOST_FRAMES]:
        file = str(frame["filename"])
        # py-spy puts the class in front of a method.
        function = str(frame["name"]).rpartition(".")[2]
        if OWN_CODE in file:
            continue
        line = f"{places.shown(file)}:{int(frame['line'])} in {function}"
        if user_line is None and (file.startswith(f"{cwd}/") or not _LIBRARY.search(file)):
            user_line = line
        lines.append(line)
    number = row.get("os_thread_id")
    thread = kernel.get(number) if isinstance(number, int) else None
    return {
        "name": str(row.get("thread_name") or "thread of a library"),
        "is_main": row.get("thread_name") == _MAIN,
        "is_moving": None,
        "wait": thread.wait if thread else None,
        "computing_ratio": spent[number] / length_ns if thread and number else None,
        "user_line": user_line,
        "frames": lines,
    }


def _environment(folder: Path, missing: dict[str, str]) -> dict[str, str]:
    """TF_CONFIG of the process, as it was started; what the script sets later is not seen."""
    try:
        content = (folder / "environ").read_bytes()
    except OSError as error:
        missing["workers"] = f"its environment cannot be read: {error.strerror or error}"
        return {}
    variables = (entry.decode("utf-8", "replace").partition("=") for entry in content.split(b"\0"))
    return {name: value for name, _, value in variables if name == "TF_CONFIG"}


def _workers(place: Place) -> list[dict[str, Any]]:
    """The other workers of the cluster: whether their addresses accept a connection."""
    cluster = json.loads(place.cluster)
    asked_until_s = time.monotonic() + _MOST_CONNECTING_S
    workers = []
    for task in place.partners:
        if task != place.task:
            is_asked = time.monotonic() < asked_until_s
            address = _address(cluster.get(task.role), task.index)
            workers.append(unseen(task, is_answering=_accepts(address) if is_asked else None))
    return workers


def _address(addresses: Any, index: int) -> str:
    if isinstance(addresses, dict):
        return str(addresses.get(str(index), ""))
    return str(addresses[index]) if isinstance(addresses, list) and index < len(addresses) else ""


def _accepts(address: str) -> bool | None:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        return None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S):
            return True
    except (OSError, OverflowError, UnicodeError):
        return False
