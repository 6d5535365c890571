"""Defines `traceview open`: a run in a browser, as a report or in XProf or TensorBoard."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from traceview.cli.options import Logdir, Run
from traceview.cli.output import Target
from traceview.document.sanitize import sanitize
from traceview.errors import UsageError
from traceview.location import Location


class Viewer(str, Enum):
    """Programs that show a run."""

    report = "report"
    xprof = "xprof"
    tensorboard = "tensorboard"


def open_(
    logdir: Logdir,
    viewer: Annotated[
        Viewer, typer.Option("--with", help="Program that shows the run.")
    ] = Viewer.report,
    run: Run = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="N",
            help="Serve at this port, or at the next free port; by default 8791 for xprof and 6006 for "
            "tensorboard, while the report is a file.",
            show_default=False,
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening it.")
    ] = False,
) -> None:
    """Show a run in the browser: report, XProf or TensorBoard.

    The report is written to a temporary file, and the command ends. XProf and TensorBoard, and the report with
    --port, are served to this machine alone until Ctrl-C, which ends the command with exit code 0. The viewers read
    a copy of the run, so they write nothing beside the trace. The address is printed; to reach it from another
    machine: ssh -L 8791:localhost:8791 HOST.

    Example: traceview open logs/ --with xprof
    """
    target = Target(None)
    target.check()
    if viewer is not Viewer.report:
        _serve_run(target, viewer.value, logdir, run, port, browser=not no_browser)
    elif port is not None:
        _serve_report(target, _report(logdir, run), port, browser=not no_browser)
    else:
        _show(target, _written(_report(logdir, run)).as_uri(), browser=not no_browser)


def _show(target: Target, address: str, *, browser: bool) -> None:
    target.write(f"{sanitize(address)}\n")
    if browser:
        from traceview.viewers.browser import show

        if not show(address):
            _say("no display to open it on")


def _report(logdir: Location, run: str | None) -> bytes:
    """The HTML report of a run."""
    from traceview.cli.progress import reading
    from traceview.report.build import analyze
    from traceview.report.formats import html
    from traceview.trace.load import load

    with reading(logdir, run):
        report = analyze(load(logdir, run=run), lanes=True)
    return html(report).encode()


def _written(report: bytes) -> Path:
    """The report as a temporary file, which outlives the command."""
    import tempfile

    try:
        path = Path(tempfile.mkdtemp(prefix="traceview-")) / "report.html"
        path.write_bytes(report)
    except OSError as error:
        raise UsageError(f"cannot write a temporary file: {error.strerror or error}") from error
    return path


def _serve_report(target: Target, report: bytes, port: int, *, browser: bool) -> None:
    """Serve the report until Ctrl-C."""
    from traceview.capture.script import terminable
    from traceview.viewers.page_server import serving_page

    with (
        terminable(),
        serving_page(report, _free_port(port)) as address,
        suppress(KeyboardInterrupt),
    ):
        _say("serving the report; Ctrl-C stops")
        _show(target, address, browser=browser)
        Event().wait()


def _serve_run(
    target: Target,
    viewer: str,
    logdir: Location,
    run: str | None,
    port: int | None,
    *,
    browser: bool,
) -> None:
    """Serve a run in a viewer until Ctrl-C."""
    from traceview.capture.script import terminable
    from traceview.trace.locate import choose_run, find_runs
    from traceview.viewers.installed import check_tensorboard, xprof_module
    from traceview.viewers.run_copy import check_readable, copied_run
    from traceview.viewers.server import PORTS, serving

    chosen = choose_run(find_runs(logdir), run)
    if viewer == "tensorboard":
        check_tensorboard()
    else:
        xprof_module()
    check_readable(chosen)
    free = _free_port(PORTS[viewer] if port is None else port)
    # Whatever ends this command also ends the server and removes the copy.
    with (
        terminable(),
        copied_run(chosen) as copy,
        serving(viewer, copy, free) as served,
        suppress(KeyboardInterrupt),
    ):
        _say(f"{served.name} shows a copy of run {chosen.name}; Ctrl-C stops")
        _show(target, served.address, browser=browser)
        served.wait()


def _free_port(wanted: int) -> int:
    from traceview.viewers.server import free_port

    port = free_port(wanted)
    if wanted not in (0, port):
        _say(f"port {wanted} is taken; using {port}")
    return port


def _say(text: str) -> None:
    typer.echo(f"traceview: {sanitize(text)}", err=True)
