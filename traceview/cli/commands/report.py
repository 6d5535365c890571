"""Defines `traceview analyze` and `traceview report`: a run on one screen, and everything about it as documents."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.base.errors import TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.base.text import shell_path
from traceview.base.timing import stage
from traceview.cli.options import (
    OF_RUN,
    Force,
    Full,
    Output,
    Redact,
    Subject,
    Width,
    check_mode,
    choice,
    flag,
    format_option,
    option,
    place,
    reads_run,
)
from traceview.cli.output import (
    ENDINGS,
    Target,
    check_folder,
    checked_place,
    format_of,
    say,
    write_file,
    write_folder,
    writing,
)
from traceview.cli.report_source import Source, show_hangs
from traceview.document.sanitize import sanitize
from traceview.report.formats import DOCUMENTS, FILES

if TYPE_CHECKING:
    from traceview.report.model import Report


TERMINAL_TOP: Final = 5
"""Op rows per device on a terminal, where every row costs a line or two."""


_SCREEN_FORMATS: Final = ("terminal", "json")


@reads_run
def analyze(
    context: typer.Context,
    logdir: Subject,
    full: Full = False,
    format_: Annotated[str | None, format_option(*_SCREEN_FORMATS)] = None,
    output: Output = None,
    force: Force = False,
    redact: Redact = False,
    width: Width = None,
) -> None:
    """Show how busy each device was, with what, and what to change.

    Example: traceview analyze logs/ --steps 5:10
    """
    target = Target.of(output, logdir, force=force, width=width)
    as_json = format_of(format_, target.path, _SCREEN_FORMATS) == "json"
    source = Source.of(context, logdir)
    try:
        report = source.report(
            top=None if as_json else TERMINAL_TOP,
            is_for_screen=not (as_json or full or redact or target.path),
            is_redacted=redact,
        )
    except TraceNotFoundError:
        # A job that hangs before its window has no trace, but says where it hangs.
        if show_hangs(target, logdir, as_json=as_json, is_redacted=redact):
            return
        raise
    with stage("writing"):
        if as_json:
            from traceview.report.saved import to_json

            target.write(to_json(report).encode())
            return
        from traceview.report.document import Invocation

        options = " --redact" if redact else ""
        if source.is_saved:
            place = "REPORT" if redact else shell_path(logdir)
            asked = Invocation(full_command=f"traceview analyze {place}{options} --full")
        else:
            place = "" if redact else str(logdir)
            asked = Invocation(logdir=place, is_salvaged=source.salvage, options=options)
        target.write_report(report, asked, is_full=full)


_OF_VIEWERS: Final = {
    "report": ("logdir", "viewer", "port", "redact", "force", *OF_RUN),
    "xprof": ("logdir", "viewer", "port", "run"),
    "tensorboard": ("logdir", "viewer", "port", "run"),
    "perfetto": ("logdir", "viewer", *OF_RUN),
}
"""What `--open` shows, and the options that each takes."""


@reads_run
def report(
    context: typer.Context,
    logdir: Subject,
    output: Annotated[
        Location | None,
        place("DIR", "Folder, or with --format or a known ending a file.", "--output", "-o"),
    ] = None,
    format_: Annotated[
        str | None,
        choice("NAME", f"One document: {', '.join(DOCUMENTS)}.", "--format", tuple(DOCUMENTS)),
    ] = None,
    viewer: Annotated[
        str | None,
        choice("PROGRAM", f"In a browser: {', '.join(_OF_VIEWERS)}.", "--open", tuple(_OF_VIEWERS)),
    ] = None,
    port: Annotated[int | None, option("N", "Serve --open at this port.", min=0, max=65535)] = None,
    redact: Redact = False,
    force: Annotated[bool, flag("Replace files that exist.", "--force")] = False,
) -> None:
    """Write the report of a run as documents, or open it in a browser.

    --open report shows a temporary file; with --port, and for the other programs, the run is served to this machine alone
    until Ctrl-C.

    Example: traceview report logs/ -o report
    """
    source = Source.of(context, logdir)
    make = partial(source.report, lanes=True, is_redacted=redact)
    if viewer is not None:
        check_mode(context, f"--open {viewer}", _OF_VIEWERS[viewer])
        if viewer == "report":
            _show_report(make, port)
        else:
            if source.is_saved:
                raise UsageError(f"--open {viewer} needs a trace, and {logdir} is a saved report")
            _show_run(viewer, source, port)
        return
    if port is not None:
        raise UsageError("--port needs --open")
    if output is not None:
        checked_place(output)
    document = _chosen_document(format_, output)
    if document is not None:
        target = Target.of(output, source.logdir, force=force)
        made = make()
        with stage("writing"):
            target.write(DOCUMENTS[document](made).encode())
        return
    if output is None:
        raise UsageError(
            "no output is named", hint="-o DIR for all documents, --format for a single one"
        )
    check_folder(output, tuple(FILES.values()), logdir, source.logdir, force=force)
    made = make()
    with stage("writing"):
        files = {FILES[name]: (make(made).encode(),) for name, make in DOCUMENTS.items()}
        write_folder(output, files)
    say(f"wrote {', '.join(files)} to {output}")


def _chosen_document(name: str | None, path: Location | None) -> str | None:
    """The document of `--format`, else of the ending of `path`; None for a folder, which may have a dot in its name."""
    is_file = path is not None and path.suffix.lower() in ENDINGS and not path.is_dir()
    return format_of(name, path, tuple(DOCUMENTS)) if name or is_file else None


# In a browser


def _show_report(make: Callable[[], Report], port: int | None) -> None:
    """Open a report: from a temporary file, which outlives the command, or at a port until Ctrl-C."""
    from traceview.report.formats import html

    Target(None).check()
    page = html(make()).encode()
    if port is None:
        with writing("a temporary file"):
            path = Path(tempfile.mkdtemp(prefix="traceview-")) / "report.html"
            path.write_bytes(page)
        _show(path.as_uri())
        return
    from traceview.export.viewers import serving_page

    with _until_interrupted(), serving_page(page, _free_port(port)) as address:
        say("serving the report; Ctrl-C stops")
        _show(address)
        Event().wait()


def _show_run(viewer: str, source: Source, port: int | None) -> None:
    """Serve a run in a viewer until Ctrl-C. The viewers read a copy, so they write nothing beside the trace."""
    Target(None).check()
    if viewer == "perfetto":
        _show_in_perfetto(source)
        return
    from traceview.export.viewers import PORTS, check_installed, copied_run, serving
    from traceview.trace.reading.locate import choose_run, find_runs

    chosen, _ = choose_run(find_runs(source.logdir), source.run)
    check_installed(viewer)
    free = _free_port(PORTS[viewer] if port is None else port)
    with _until_interrupted(), copied_run(chosen) as copy, serving(viewer, copy, free) as served:
        say(f"{served.name} shows a copy of run {chosen.name}; Ctrl-C stops")
        _show(served.address)
        served.wait()


def _show_in_perfetto(source: Source) -> None:
    """Serve a trace to the page ui.perfetto.dev, which reads it in the browser and sends it nowhere."""
    from traceview.export import perfetto
    from traceview.export.draw import drawn
    from traceview.export.viewers import serving_to_perfetto

    with _until_interrupted(), tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        path = Path(folder) / "trace.pftrace"
        with source.analyzed_context() as (context, report):
            write_file(path, perfetto.written(drawn(context, report)))
        with serving_to_perfetto(path) as address:
            say("serving the trace to ui.perfetto.dev; Ctrl-C stops")
            _show(address)
            Event().wait()


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ends what runs inside at Ctrl-C, which is no error, and cleans up at whatever else ends the command."""
    import gc

    from traceview.cli.output import terminable

    # Commands that end soon collect no garbage; this one serves for hours.
    gc.enable()
    with terminable(), suppress(KeyboardInterrupt):
        yield


def _show(address: str) -> None:
    """Print an address, and open it where there is a display."""
    from traceview.export.viewers import show

    Target(None).write(f"{sanitize(address)}\n")
    if not show(address):
        say("no display to open it on")


def _free_port(wanted: int) -> int:
    from traceview.export.viewers import free_port

    port = free_port(wanted)
    if wanted not in (0, port):
        say(f"port {wanted} is taken; using {port}")
    return port
