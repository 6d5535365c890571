"""The errors that traceview raises, and the exit code of the command line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The start-up file imports this module into every Python where the variable is set.
    from traceview.base.location import Location


class TraceviewError(Exception):
    """An error that the user can act on: a message of one line, and a hint if there is one."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        # Without `super().__init__` the arguments stay as they are, and errors go through a pickle.
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(TraceviewError):
    """An invalid request: a bad flag value, a missing extra, output that cannot be written."""

    exit_code = 2


class TraceNotFoundError(TraceviewError):
    """There is no `*.xplane.pb` at the given path."""

    exit_code = 3


class TraceFormatError(TraceviewError):
    """A file that is not a readable trace.

    `offset` is the byte in `path` at which reading stopped; None if the file is of another kind, for instance
    a web page.
    """

    exit_code = 4

    def __init__(
        self, path: Location, reason: str, *, offset: int | None = None, hint: str | None = None
    ) -> None:
        where = f"{path}" if offset is None else f"{path}: byte {offset}"
        super().__init__(f"{where}: {reason}", hint=hint)
        self.path = path
        self.reason = reason
        self.offset = offset


class CaptureError(TraceviewError):
    """Nothing was captured, or it could not be saved."""

    exit_code = 5


class OutputExistsError(TraceviewError):
    """The output file exists and `--force` was not given."""

    exit_code = 6


class ComparisonError(TraceviewError):
    """The sides cannot be compared, or there is nothing to judge them by."""

    exit_code = 7


class ViewerError(TraceviewError):
    """A viewer or converter failed; the message ends with its last output."""

    exit_code = 9


class StoreError(TraceviewError):
    """An object store denied access, could not be reached, or failed."""

    exit_code = 11


class WorkerError(TraceviewError):
    """A cluster could not be reached, has no workers, or lost them."""

    exit_code = 12


class NoAnswerError(Exception):
    """A field has no value; the message is the reason. Often nothing has failed: there is no such thing here."""
