"""Rejects options of `traceview capture` that do not belong to its mode: a script, --demo, --remote or --check."""

from __future__ import annotations

from typing import Final

import typer

from traceview.base.errors import UsageError
from traceview.cli.options import given_options

_REMOTE_ONLY: Final = ("duration", "timeout")
_WITH_REMOTE: Final = ("remote", *_REMOTE_ONLY, "out", "run", "analyze")
_DEMO_ONLY: Final = ("devices", "slowdown")
_CHECK_ONLY: Final = ("format_",)
_WITH_CHECK: Final = ("check", "format_", "script", "arguments", "out", "without")
_SCRIPT_ONLY: Final = ("script", "module", "step_function", "serve", "on_hang", "seconds")


def check_mode(context: typer.Context, *, is_demo: bool, is_remote: bool, is_check: bool) -> None:
    """Raise `UsageError` for a given option or argument that the mode does not take."""
    for name, shown in given_options(context):
        if is_check and name not in _WITH_CHECK:
            raise UsageError(
                f"{shown} cannot be combined with --check",
                hint="--check records nothing; to record a run, omit --check",
            )
        if not is_check and name in _CHECK_ONLY:
            raise UsageError(f"{shown} needs --check")
        if is_remote and name not in _WITH_REMOTE:
            raise UsageError(
                f"{shown} cannot be combined with --remote",
                hint="--remote records a running job for a --duration; to record steps of a script, omit --remote",
            )
        if not is_remote and name in _REMOTE_ONLY:
            raise UsageError(
                f"{shown} needs --remote", hint="--remote HOST:PORT names a running job"
            )
        if is_demo and name in _SCRIPT_ONLY:
            raise UsageError(
                f"{shown} cannot be combined with --demo",
                hint="--demo runs traceview's own training script; to record another one, omit --demo",
            )
        if not is_demo and not is_remote and name in _DEMO_ONLY:
            raise UsageError(f"{shown} needs --demo", hint="--demo runs traceview's own training")
