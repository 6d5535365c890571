"""Shows a run in the browser for `traceview report --open`: as a report, in XProf, TensorBoard or Perfetto."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import typer

from traceview.base.errors import UsageError
from traceview.cli.options import given_options
from traceview.cli.output import Target, write_file
from traceview.cli.report_source import Source
from traceview.document.sanitize import sanitize

if TYPE_CHECKING:
    from traceview.report.model import Report

_OF_VIEWERS: Final = ("logdir", "viewer", "run", "port")
_OF_PERFETTO: Final = ("logdir", "viewer", "run", "steps", "window", "salvage", "workers")


def check_options(context: typer.Context, viewer: str) -> None:
    """Raise `UsageError` for an option that a viewer of traces cannot follow."""
    known = _OF_PERFETTO if viewer == "perfetto" else _OF_VIEWERS
    for name, shown in given_options(context):
        if name not in known:
            raise UsageError(f"{shown} has no meaning for --open {viewer}")


def show_report(make: Callable[[], Report], port: int | None) -> None:
    """Open a report: from a temporary file, which outlives the command, or at a port until Ctrl-C."""
    from traceview.report.formats import html

    Target(None).check()
    page = html(make()).encode()
    if port is None:
        try:
            path = Path(tempfile.mkdtemp(prefix="traceview-")) / "report.html"
            path.write_bytes(page)
        except OSError as error:
            raise _no_file(error) from error
        _show(path.as_uri())
        return
    from traceview.export.page_server import serving_page

    with _until_interrupted(), serving_page(page, _free_port(port)) as address:
        _say("serving the report; Ctrl-C stops")
        _show(address)
        Event().wait()


def show_run(viewer: str, source: Source, port: int | None) -> None:
    """Serve a run in a viewer until Ctrl-C. The viewers read a copy, so they write nothing beside the trace."""
    Target(None).check()
    if viewer == "perfetto":
        _show_in_perfetto(source)
        return
    from traceview.export.viewer_server import PORTS, check_readable, copied_run, serving
    from traceview.export.viewers import check_tensorboard, xprof_module
    from traceview.trace.reading.locate import choose_run, find_runs

    chosen, _ = choose_run(find_runs(source.logdir), source.run)
    if viewer == "tensorboard":
        check_tensorboard()
    else:
        xprof_module()
    check_readable(chosen)
    free = _free_port(PORTS[viewer] if port is None else port)
    with _until_interrupted(), copied_run(chosen) as copy, serving(viewer, copy, free) as served:
        _say(f"{served.name} shows a copy of run {chosen.name}; Ctrl-C stops")
        _show(served.address)
        served.wait()


def _show_in_perfetto(source: Source) -> None:
    """Serve a trace to the page ui.perfetto.dev, which reads it in the browser and sends it nowhere."""
    from traceview.export import perfetto
    from traceview.export.draw import drawn
    from traceview.export.page_server import serving_to_perfetto

    with _until_interrupted(), tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        path = Path(folder) / "trace.pftrace"
        with source.analyzed_context() as (context, report):
            write_file(path, perfetto.written(drawn(context, report)))
        with serving_to_perfetto(path) as address:
            _say("serving the trace to ui.perfetto.dev; Ctrl-C stops")
            _show(address)
            Event().wait()


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ends what runs inside at Ctrl-C, which is no error, and cleans up at whatever else ends the command."""
    import gc

    from traceview.cli.termination import terminable

    # Commands that end soon collect no garbage; this one serves for hours.
    gc.enable()
    with terminable(), suppress(KeyboardInterrupt):
        yield


def _show(address: str) -> None:
    """Print an address, and open it where there is a display."""
    from traceview.export.page_server import show

    Target(None).write(f"{sanitize(address)}\n")
    if not show(address):
        _say("no display to open it on")


def _no_file(error: OSError) -> UsageError:
    return UsageError(f"cannot write a temporary file: {error.strerror or error}")


def _free_port(wanted: int) -> int:
    from traceview.export.viewer_server import free_port

    port = free_port(wanted)
    if wanted not in (0, port):
        _say(f"port {wanted} is taken; using {port}")
    return port


def _say(text: str) -> None:
    typer.echo(f"traceview: {sanitize(text)}", err=True)
