"""`traceview open`: look at a run in a browser, as our report or in XProf or TensorBoard."""

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


class Viewer(str, Enum):
    """What a run can be looked at with."""

    report = "report"
    xprof = "xprof"
    tensorboard = "tensorboard"


def open_(
    logdir: Logdir,
    viewer: Annotated[Viewer, typer.Option("--with", help="What to show it with.")] = Viewer.report,
    run: Run = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="N",
            help="Serve at this port, or the next that is free; without it 8791 for xprof, 6006 for "
            "tensorboard, and the report is a file.",
            show_default=False,
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open nothing.")
    ] = False,
) -> None:
    """Show a run in the browser: report, XProf or TensorBoard.

    The report becomes a file among the temporary ones, and the command ends. The viewers, and the report with
    --port, are served to this machine alone until Ctrl-C ends the command, with exit code 0; viewers get a copy of
    the run, so they write nothing beside the trace. The address is printed. From another machine: ssh -L
    8791:localhost:8791 HOST.

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
            _say("no display here to open it in")


def _report(logdir: Path, run: str | None) -> bytes:
    """The HTML report of a run."""
    from traceview.cli.documents import content_of, document_called
    from traceview.cli.progress import reading
    from traceview.report.build import analyze
    from traceview.trace.load import load

    document = document_called("html")
    with reading(logdir, run):
        report = analyze(load(logdir, run=run))
    return content_of(document, report)


def _written(report: bytes) -> Path:
    """The report as a file that stays."""
    import tempfile

    try:
        path = Path(tempfile.mkdtemp(prefix="traceview-")) / "report.html"
        path.write_bytes(report)
    except OSError as error:
        raise UsageError(
            f"cannot write among the temporary files: {error.strerror or error}"
        ) from error
    return path


def _serve_report(target: Target, report: bytes, port: int, *, browser: bool) -> None:
    """Serve the report until Ctrl-C."""
    from traceview.capture.script import terminable
    from traceview.viewers.page_server import serving_page

    with terminable(), serving_page(report, _free_port(port)) as address:
        _say("the report is served; Ctrl-C ends it")
        _show(target, address, browser=browser)
        with suppress(KeyboardInterrupt):
            Event().wait()


def _serve_run(
    target: Target, viewer: str, logdir: Path, run: str | None, port: int | None, *, browser: bool
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
    # Whatever ends us, the process that serves and the copy go with us.
    with terminable(), copied_run(chosen) as copy, serving(viewer, copy, free) as served:
        _say(f"{served.name} shows run {chosen.name} on a copy; Ctrl-C ends it")
        _show(target, served.address, browser=browser)
        with suppress(KeyboardInterrupt):
            served.wait()


def _free_port(wanted: int) -> int:
    from traceview.viewers.server import free_port

    free = free_port(wanted)
    if wanted not in (0, free):
        _say(f"port {wanted} is taken; {free} is used")
    return free


def _say(text: str) -> None:
    typer.echo(f"traceview: {sanitize(text)}", err=True)
