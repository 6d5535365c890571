"""How does `traceview capture --remote` run, and which options go with it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from traceview.cli.progress import waiting
from traceview.document.sanitize import sanitize
from traceview.errors import UsageError

if TYPE_CHECKING:
    from traceview.capture.remote import RemoteCapture

_REMOTE_ONLY: Final = ("duration", "timeout")
_WITH_REMOTE: Final = ("remote", *_REMOTE_ONLY, "out", "run", "analyze")


def check_together(context: typer.Context, *, is_remote: bool) -> None:
    """Raise `UsageError` for arguments that do not go together: a script is run, or a running one is asked."""
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        if not is_remote and name in _REMOTE_ONLY:
            raise UsageError(
                f"--{name} is about a job that runs already", hint="--remote HOST:PORT names it"
            )
        if is_remote and name not in _WITH_REMOTE:
            shown = parameter.opts[0] if parameter.param_type_name == "option" else "SCRIPT"
            raise UsageError(
                f"{shown} and --remote do not go together",
                hint="a running job is recorded for a --duration; to record steps of a script, leave out "
                "--remote",
            )


def capture_running(
    remote: Sequence[str],
    *,
    out: Path,
    run: str | None,
    duration: str,
    timeout: str,
    say: Callable[[str], None],
) -> RemoteCapture:
    """Ask the servers, and show on a terminal what is waited for; raises what `capture_remote` raises."""
    from traceview.capture.address import parse_addresses
    from traceview.capture.remote import capture_remote, parse_duration
    from traceview.capture.script import terminable

    addresses = parse_addresses(remote)
    duration_ms = parse_duration("--duration", duration)
    timeout_ms = parse_duration("--timeout", timeout)
    # A batch system that ends the wait leaves no more behind than Ctrl-C does.
    with terminable(), waiting() as show:
        return capture_remote(
            addresses,
            out,
            duration_ms=duration_ms,
            timeout_ms=timeout_ms,
            say=say,
            progress=lambda text: show(sanitize(text)),
            run=run,
        )
