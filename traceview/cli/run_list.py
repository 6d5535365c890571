"""Lists the runs of a log directory: a row per host file, from names and metadata alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceview.base.errors import TraceFormatError
from traceview.base.location import Location
from traceview.cli.table import Answer, Choice, arranged
from traceview.document import model as doc
from traceview.document import numbers
from traceview.trace.locate import FileSummary, RunSummary, find_runs, newest_readable, summarize
from traceview.trace.table import flags, integers, table, texts
from traceview.xplane.source import NOT_A_TRACE


def run_section(runs: Sequence[RunSummary], chosen: str | None) -> doc.Section:
    """A table of the runs; `chosen`: the name of the run that `analyze` reads by default, None if none can be read."""
    remark = (
        "No run can be read."
        if chosen is None
        else "* is the run that `traceview analyze` reads by default; `--run NAME` chooses another."
    )
    damage = [
        f"{run.name}, {file.host}: {file.damage}"
        for run in runs
        for file in run.files
        if file.damage
    ]
    return doc.Section(
        "runs",
        "Runs",
        (*doc.table("Runs", _columns(runs, chosen)), *doc.notes(*damage), *doc.remarks(remark)),
    )


def _columns(runs: Sequence[RunSummary], chosen: str | None) -> Iterator[doc.Column]:
    files = [file for run in runs for file in run.files]
    yield doc.names("run", [name for run in runs for name in _names(run, run.name == chosen)])
    yield doc.words("started", [numbers.date(file.profile_start_ns) for file in files], priority=2)
    lengths = [None if file.duration_ns is None else file.duration_ns * 1000 for file in files]
    yield doc.times("length", lengths, priority=3)
    yield doc.names("host", [file.host for file in files], priority=1)
    yield doc.words("devices", map(_devices, files))
    yield doc.sizes("size", [file.bytes for file in files], priority=4)


def _names(run: RunSummary, is_chosen: bool) -> list[str]:
    """The name of a run in its first row, with a star if it is the one to read."""
    return [f"{'*' if is_chosen else ' '} {run.name}", *[""] * (len(run.files) - 1)][
        : len(run.files)
    ]


def _devices(file: FileSummary) -> str:
    if file.damage is not None:
        return NOT_A_TRACE if file.damage.startswith(NOT_A_TRACE) else "damaged"
    if not file.device_names:
        return "no GPU"
    kinds = [name.partition(":")[0] for name in file.device_names]
    counts = " + ".join(numbers.plural(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    return f"{counts}, {len(file.device_names_with_lines)} with events"


def run_answer(logdir: Location, choice: Choice) -> Answer:
    """A row per host file of each run below a log directory; the exit code is that of an unreadable trace if none can be read."""
    every = [summarize(run) for run in find_runs(logdir)]
    newest = newest_readable(every)
    chosen = None if newest is None else every[newest].name
    files = [(run, file) for run in every for file in run.files]
    rows = table(
        "runs",
        texts("run", [run.name for run, _ in files]),
        flags("is_default", [run.name == chosen for run, _ in files], is_optional=False),
        texts("host", [file.host for _, file in files]),
        integers("started_ns", [file.profile_start_ns for _, file in files]),
        integers("duration_ns", [file.duration_ns for _, file in files]),
        texts("devices", [" ".join(file.device_names) for _, file in files]),
        texts("devices_with_events", [" ".join(f.device_names_with_lines) for _, f in files]),
        integers("bytes", [file.bytes for _, file in files]),
        texts("damage", [file.damage for _, file in files]),
    )
    shown = arranged(rows, choice, things=("run",))
    names = dict.fromkeys(shown["run"])
    by_name = {run.name: run for run in every}
    return Answer(
        rows=shown,
        sections=lambda: [run_section([by_name[name] for name in names], chosen)],
        left_out_count=rows.count - shown.count,
        about={"logdir": str(logdir)},
        code=TraceFormatError.exit_code if chosen is None else 0,
    )
