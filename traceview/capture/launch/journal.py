"""Passes between a launcher and the processes below it: what each captured, and libraries that one lacks.

The folder is the private one of `traceview capture -- COMMAND`. Each process writes `HOST-PID.entry`, replacing it as a
whole. The file `reached` shows that some Python read the variable.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.launch.environment_variable import REACHED
from traceview.capture.sidecar.file import write_whole

_SUFFIX: Final = ".entry"
_LENT: Final = "libraries"
_LIBRARIES: Final = ("msgspec",)
"""What a capture needs beyond TensorFlow's own libraries."""
_MOST_ENTRIES: Final = 10_000
"""More processes than a machine runs; a loop that starts Python again and again may leave more."""


@dataclass(frozen=True)
class Entry:
    """What one process did. `run`: the folder of its trace; without one, `problem` says why.

    `state`: `imported` if TensorFlow ran nothing in it, `running`, or `ended`.
    """

    state: str
    run: str | None = None
    problem: str | None = None
    hint: str | None = None
    script: str = ""
    process: int = 0
    host: str = ""

    @property
    def place(self) -> str:
        """The process, for people."""
        return f"{self.script or 'python'}, process {self.process} on {self.host}"


class Journal:
    """The folder, seen from either side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, entry: Entry) -> None:
        """Write what this process did; a launcher that has ended misses nothing."""
        host, process = socket.gethostname(), os.getpid()
        fields = {**asdict(entry), "script": _script(), "process": process, "host": host}
        path = self.folder / f"{host}-{process}{_SUFFIX}"
        with suppress(OSError):
            write_whole(path, json.dumps(fields).encode())

    @property
    def is_reached(self) -> bool:
        """Whether any Python below the launcher has read the variable."""
        return (self.folder / REACHED).exists()

    def entries(self) -> list[Entry]:
        """What all processes wrote, by time."""
        return list(self._read())

    def _read(self) -> Iterator[Entry]:
        paths = sorted(self.folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
        for path in paths[:_MOST_ENTRIES]:
            with suppress(OSError, TypeError, ValueError):
                yield Entry(**json.loads(path.read_text(encoding="utf-8")))

    def offer_libraries(self) -> None:
        """Say where this process has the libraries; another of the same Python version can use them."""
        found = {name: str(import_module(name).__file__) for name in _LIBRARIES}
        text = json.dumps({"python": _version(), "files": found})
        (self.folder / _LENT).write_text(text, encoding="utf-8")

    def lend_libraries(self) -> bool:
        """Import what this process lacks from where the launcher has it; False if that does not work."""
        try:
            offer: dict[str, Any] = json.loads((self.folder / _LENT).read_text(encoding="utf-8"))
            if offer["python"] != _version():
                return False
            for name, file in offer["files"].items():
                _load(name, Path(file))
        except (AttributeError, ImportError, KeyError, OSError, TypeError, ValueError):
            return False
        return True


def _load(name: str, file: Path) -> None:
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _script() -> str:
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in {"", "-c"} else "python"


def _version() -> str:
    return f"{sys.implementation.cache_tag} {sys.platform}"


_MOST_SHOWN: Final = 8
"""Processes, or reasons: where there are more, they mostly say the same."""


def why_no_trace(entries: Sequence[Entry]) -> CaptureError:
    """Why none of these processes left a trace."""
    ran = [entry for entry in entries if entry.state != "imported"] or entries
    reasons = dict.fromkeys(map(reason, ran))
    shown = "; ".join(list(reasons)[:_MOST_SHOWN])
    hint = next((entry.hint for entry in ran if entry.hint), None)
    return CaptureError(f"nothing was captured in {processes(len(ran))}: {shown}", hint=hint)


def missing_traces(entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each process that ran TensorFlow and left no trace."""
    lacking = [entry for entry in entries if entry.run is None and entry.state != "imported"]
    for entry in lacking[:_MOST_SHOWN]:
        yield f"note: no trace of {entry.place}: {reason(entry)}"
    if len(lacking) > _MOST_SHOWN:
        yield f"note: no trace of {processes(len(lacking) - _MOST_SHOWN)} more"


def reason(entry: Entry) -> str:
    """Why a process left no trace."""
    if entry.problem is not None:
        return entry.problem.removeprefix("nothing was captured: ")
    return "it was killed, or still runs"


def processes(count: int) -> str:
    """A number of processes."""
    return "1 process" if count == 1 else f"{count} processes"


_PROC: Final = Path("/proc")


def process_ids() -> list[int]:
    """All processes; empty where the system does not list them."""
    with suppress(OSError):
        return [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]
    return []


def has_variable(pid: int, name: str, value: str | None = None) -> bool:
    """Whether a process of this user started with the variable, and with this value if one is given."""
    wanted = f"{name}={value or ''}".encode()
    with suppress(OSError):
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        return any(v.startswith(wanted) if value is None else v == wanted for v in variables)
    return False


def is_other_python(pid: int, than: int) -> bool:
    """Whether a process runs Python with other arguments than another, of which it is no forked copy then."""
    with suppress(OSError):
        program = (_PROC / str(pid) / "exe").readlink().name
        arguments = [(_PROC / str(process) / "cmdline").read_bytes() for process in (pid, than)]
        return program.startswith("python") and arguments[0] != arguments[1]
    return False
