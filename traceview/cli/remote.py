"""Runs `traceview capture --remote`, with its progress on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.cli.progress import waiting
from traceview.document.sanitize import sanitize

if TYPE_CHECKING:
    from traceview.capture.remote.jobs import RemoteCapture


def capture_running(
    remote: Sequence[str],
    *,
    out: Path,
    run: str | None,
    duration: str,
    timeout: str,
    say: Callable[[str], None],
) -> RemoteCapture:
    """Capture the job behind the servers `remote`; raises what `capture_remote` raises."""
    from traceview.capture.process.script import terminable
    from traceview.capture.remote.jobs import capture_remote
    from traceview.capture.remote.profiler_service import parse_addresses
    from traceview.capture.window.ranges import parse_duration

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
