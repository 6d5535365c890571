"""What can go wrong, and with which exit code the command line says so."""

from __future__ import annotations

from pathlib import Path


class TraceviewError(Exception):
    """An error that the user can act on: one line, and a hint where there is one."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TraceviewError):
    """A request that cannot be carried out as it was made: a bad flag value, a missing extra."""

    exit_code = 2


class TraceNotFoundError(TraceviewError):
    """No `*.xplane.pb` where one was looked for."""

    exit_code = 3


class TraceFormatError(TraceviewError):
    """A file that is not a readable trace.

    `offset` is the byte in `path` at which reading stopped; None when the file as a whole is
    something else, for instance a web page.
    """

    exit_code = 4

    def __init__(
        self, path: Path, reason: str, *, offset: int | None = None, hint: str | None = None
    ) -> None:
        where = f"{path}" if offset is None else f"{path}: byte {offset}"
        super().__init__(f"{where}: {reason}", hint=hint)
        self.path = path
        self.reason = reason
        self.offset = offset


class CaptureError(TraceviewError):
    """Nothing could be captured, or what was captured could not be kept."""

    exit_code = 5


class OutputExistsError(TraceviewError):
    """The output file is already there and `--force` was not given."""

    exit_code = 6


class ViewerError(TraceviewError):
    """Another program that was asked to show or to convert a trace failed; the message has its last words."""

    exit_code = 9
