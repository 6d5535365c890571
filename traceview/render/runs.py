"""Which runs are there? One row per host file, from names and metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import Column, add_fitting
from traceview.render.json import dumped, plain
from traceview.trace.locate import FileSummary, RunSummary
from traceview.xplane.source import NOT_A_TRACE

_WIDEST_NAME = 28


def render(
    runs: Sequence[RunSummary],
    chosen: str | None,
    *,
    width: int,
    color: bool,
    unicode: bool = True,
) -> str:
    """A table of the runs; `chosen` is the name of the one that `analyze` takes, None if there is none."""
    page = Page(width, color, unicode)
    rows = [(run, file, place == 0) for run in runs for place, file in enumerate(run.files)]

    def column(
        heading: str, texts: list[str], *, right: bool = False, droppable: int = 0
    ) -> Column:
        cells = [Text(page.middle(text, _WIDEST_NAME)) for text in texts]
        return Column(heading, cells, right, droppable)

    names = Column(
        "run",
        [
            page.styled(f"{'*' if run.name == chosen else ' '} ", "bold green")
            + Text(page.middle(run.name, _WIDEST_NAME), "bold")
            if first
            else Text()
            for run, _, first in rows
        ],
    )
    columns = [
        names,
        column("started", [_start(file) for _, file, _ in rows], droppable=2),
        column("length", [_length(file) for _, file, _ in rows], right=True, droppable=3),
        column("host", [file.host for _, file, _ in rows], droppable=1),
        column("devices", [_devices(file) for _, file, _ in rows]),
        column("size", [numbers.size(file.bytes) for _, file, _ in rows], right=True, droppable=4),
    ]
    add_fitting(page, columns)
    for run, file, _ in rows:
        if file.damage is not None:
            page.prose(
                Text.assemble(
                    (page.text(f"{run.name}, {file.host}: "), ""),
                    (page.text(file.damage), "red"),
                )
            )
    told = (
        "None of them can be read."
        if chosen is None
        else "* is the run that traceview analyze takes; --run NAME chooses another."
    )
    page.prose(page.styled(told, "dim"))
    return page.render()


def render_json(runs: Sequence[RunSummary], chosen: str | None) -> str:
    """The same as data: `runs[]` with `name`, `chosen` and `files[]`."""
    listed: list[dict[str, Any]] = [
        {"name": plain(run.name), "chosen": run.name == chosen, "files": plain(run.files)}
        for run in runs
    ]
    return dumped({"runs": listed})


def _start(file: FileSummary) -> str:
    return numbers.date(file.profile_start_ns) or numbers.ABSENT


def _length(file: FileSummary) -> str:
    return numbers.time(None if file.duration_ns is None else file.duration_ns * 1000)


def _devices(file: FileSummary) -> str:
    if file.damage is not None:
        return NOT_A_TRACE if file.damage.startswith(NOT_A_TRACE) else "damaged"
    if not file.device_names:
        return "no GPU"
    kinds = [name.partition(":")[0] for name in file.device_names]
    counted = " + ".join(numbers.plural(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    return f"{counted}, {len(file.device_names_with_lines)} with events"
