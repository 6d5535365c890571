"""Lists processes of this machine by their environment, where the system shows them in /proc (Linux)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

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
