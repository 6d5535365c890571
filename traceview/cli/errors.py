"""How does an error reach the user? Here, and nowhere else in the commands."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, Final, cast

import typer
from typer.core import TyperGroup

from traceview.errors import TraceviewError
from traceview.render.harmless import harmless
from traceview.version import VERSION

INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""What a shell reports of a program that SIGPIPE ended, as `head` does to most that it reads from."""

_OF_PARSING: Final = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""Typer's usage errors, without naming the click that Typer brings along in one version or another."""


class CommandGroup(TyperGroup):
    """The commands, and the one place where their errors become a line and an exit code."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override,unused-ignore]
        """Run the command; whatever goes wrong in it ends in a line and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, _OF_PARSING):
            raise
        except TraceviewError as error:
            _say(f"error: {error.message}")
            if error.hint:
                print(f"hint: {harmless(error.hint)}", file=sys.stderr)  # noqa: T201
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _abandon_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        except Exception:
            traceback.print_exc()
            _say(f"this is a bug in traceview {VERSION}; please report it with the lines above")
            raise typer.Exit(1) from None
        return result


def _say(text: str) -> None:
    print(f"traceview: {harmless(text)}", file=sys.stderr)  # noqa: T201


def _abandon_stdout() -> None:
    """Give the interpreter something else to flush at its end than the closed pipe."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
