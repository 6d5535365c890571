"""Joins the watch for hangs in a capture with what makes reports of them, and prints such reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.base.location import Location
from traceview.cli.output import Target
from traceview.store.address import is_remote

if TYPE_CHECKING:
    from traceview.capture.hang.watch import HangSettings
    from traceview.trace.sidecar.hang import Hang


def hang_settings(after_s: float) -> HangSettings:
    """What `--on-hang` asks for.

    Everything that writes a report is imported here: a script that hangs in an import must not stop the report.
    """
    from traceview.analysis.machine.hang.section import write_up
    from traceview.capture.hang.watch import HangSettings, WrittenHang

    return HangSettings(after_s, lambda facts: WrittenHang(*write_up(facts)))


def show_hangs(
    target: Target, logdir: Location, width: int | None, *, as_json: bool, is_redacted: bool
) -> bool:
    """Print the reports of hangs below a folder in which there is no trace; whether there are any.

    Raises `TraceFormatError` for a report that is none.
    """
    hangs = list(_hangs_below(logdir))
    if is_redacted:
        from traceview.report.redaction import redacted_record

        hangs = [redacted_record(hang) for hang in hangs]
    _write(target, hangs, width, as_json=as_json)
    return bool(hangs)


def show_process(target: Target, pid: int, width: int | None, *, as_json: bool) -> None:
    """Print what a running process shows from outside, and its open reports if a capture watches it."""
    from traceview.capture.hang.attach import facts_of_process, folder_of_reports
    from traceview.trace.sidecar.hang import hang_of

    seen = hang_of(facts_of_process(pid))
    folder = folder_of_reports(pid)
    reports = [hang for hang in _hangs_below(folder) if hang.pid == pid] if folder else []
    if not as_json:
        reports = [hang for hang in reports if hang.state == "open"]
    _write(target, [seen, *reports], width, as_json=as_json)


def _write(target: Target, hangs: list[Hang], width: int | None, *, as_json: bool) -> None:
    from traceview.analysis.machine.hang.section import content_of, hang_document
    from traceview.document.json_text import dumped

    if as_json and hangs:
        target.write(dumped({"schema_version": 1, "hangs": list(map(content_of, hangs))}))
    elif not as_json:
        for hang in hangs:
            target.write_section(hang_document(hang), width)


def _hangs_below(folder: Location) -> Iterator[Hang]:
    """The reports in a folder and those below it, and the stacks of processes in which no Python can run."""
    from traceview.trace.sidecar.hang import hang_files, hang_of_stacks, read_hang, stack_files

    if is_remote(folder):
        for below, _, _ in folder.walk():
            yield from map(read_hang, hang_files(below))
        return
    try:
        is_folder = folder.is_dir()
    except OSError:  # a name that no file can have
        is_folder = False
    if not is_folder:
        return
    for directory, _, _ in sorted(os.walk(str(folder))):
        for path in hang_files(Path(directory)):
            yield read_hang(path)
        for path in stack_files(Path(directory)):
            yield hang_of_stacks(path)
