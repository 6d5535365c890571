"""Shows the numbers of the installed XProf beside those of traceview.

    python -m scripts.crosscheck LOGDIR [--run NAME] [--top N]

XProf makes its overview, input and kernel pages from a copy of the run, in a process of its own, which prints without
end and may crash. docs/viewers.md says by which rules it counts. It rounds times to nanoseconds; here they are picoseconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeAlias

import traceview
from traceview.base.errors import TraceviewError, ViewerError
from traceview.base.units import PS_PER_MS, PS_PER_US
from traceview.base.version import VERSION
from traceview.cli.output import terminable
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.terminal import render_section
from traceview.export.viewers import check_installed, copied_run, environment, last_words
from traceview.store.address import location_of
from traceview.trace.reading.locate import RunFiles, choose_run, find_runs

WIDTH: Final = 100
PAGES: Final = ("overview_page", "input_pipeline_analyzer", "kernel_stats")
PARTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "compute": ("deviceComputeTimeMs", ("compute",)),
    "collectives": ("deviceCollectivesTimeMs", ("communication", "device_wait")),
    "DtoD copies": ("deviceToDeviceTimeMs", ("d2d",)),
    "DtoH copies": ("outfeedTimeMs", ("d2h",)),
    "input and HtoD copies": ("infeedTimeMs", ("input", "h2d")),
    "host ops": ("hostComputeTimeMs", ("host_ops",)),
    "launches": ("kernelLaunchTimeMs", ("launch",)),
    "compilation": ("compileTimeMs", ("compile",)),
}
"""Parts of a step: XProf's column, and the states of traceview."""


@dataclass(frozen=True)
class Kernel:
    """A kernel by name, over all devices and launch shapes."""

    count: int = 0
    total_ps: int = 0


@dataclass(frozen=True)
class Answer:
    """The numbers of a whole run; None where there is none.

    `parts_ps`: of the mean step, by the names of `PARTS`. `kernels`: by name.
    """

    device_count: int
    step_count: int
    step_ps: int | None
    parts_ps: Mapping[str, int]
    kernels: Mapping[str, Kernel]


# XProf


def pages(files: list[str]) -> dict[str, Any]:
    """Each of `PAGES` as XProf's web page gets it; None for an empty page."""
    convert: Any = import_module("xprof.convert.raw_to_tool_data")
    contents = {}
    for page in PAGES:
        content = convert.xspace_to_tool_data(files, page, {})[0]
        contents[page] = json.loads(content) if content else None
    return contents


def installed_version() -> str:
    """The version of XProf; raises `UsageError` where it is not installed."""
    check_installed("xprof")
    try:
        return version("xprof")
    except PackageNotFoundError:
        return "of an unknown version"


def ask(run: RunFiles) -> Answer:
    """XProf's answer for a run; raises `ViewerError` with its last words if it fails."""
    with copied_run(run) as copy:
        answered, log = copy.scratch / "pages.json", copy.scratch / "log.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "scripts.crosscheck", "--pages", answered, *copy.files],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=copy.scratch,
                env=environment(copy.scratch),
            )
        try:
            code = process.wait()
        finally:
            # The wait may have been interrupted.
            process.kill()
            process.wait()
        if code:
            raise ViewerError(f"XProf ended with {code}: {last_words(log)}")
        try:
            return parse(json.loads(answered.read_text(encoding="utf-8")))
        except (AttributeError, KeyError, OSError, OverflowError, TypeError, ValueError) as error:
            raise ViewerError(
                f"XProf gave pages of an unknown form: {type(error).__name__}: {error}"
            ) from error


def parse(pages: Mapping[str, Any]) -> Answer:
    """XProf's answer from its pages, each a table or a list of tables of the Google chart format, or None."""
    overview = _tables(pages.get("overview_page"))
    properties: dict[str, Any] = {}
    for table in overview:
        properties |= table.get("p") or {}
    # Both pages hold the same steps.
    tables = (*_tables(pages.get("input_pipeline_analyzer")), *overview)
    steps = next((_rows(table) for table in tables if "stepTimeMs" in _columns(table)), [])
    return Answer(
        device_count=int(properties["device_core_count"]),
        step_count=len(steps),
        step_ps=_mean_ps(steps, "stepTimeMs"),
        parts_ps={
            name: mean_ps
            for name, (column, _) in PARTS.items()
            if (mean_ps := _mean_ps(steps, column)) is not None
        },
        kernels=_kernels(_tables(pages.get("kernel_stats"))),
    )


def _tables(page: Any) -> list[dict[str, Any]]:
    tables = page if isinstance(page, list) else [page]
    return [table for table in tables if isinstance(table, dict)]


def _columns(table: Mapping[str, Any]) -> list[str]:
    return [str(column.get("id")) for column in table.get("cols") or ()]


def _rows(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = _columns(table)
    return [
        {name: (cell or {}).get("v") for name, cell in zip(names, row["c"], strict=False)}
        for row in table.get("rows") or ()
    ]


def _mean_ps(steps: Sequence[Mapping[str, Any]], column: str) -> int | None:
    values = [float(step[column]) for step in steps if column in step]
    return round(PS_PER_MS * sum(values) / len(values)) if values else None


def _kernels(tables: Sequence[Mapping[str, Any]]) -> dict[str, Kernel]:
    kernels: dict[str, Kernel] = {}
    for row in (row for table in tables for row in _rows(table)):
        known = kernels.get(str(row["kernel_name"]), Kernel())
        kernels[str(row["kernel_name"])] = Kernel(
            known.count + round(float(row["occurrences"])),
            known.total_ps + round(float(row["total_duration_us"]) * PS_PER_US),
        )
    return kernels


# traceview


def kernels_of(trace: traceview.Trace) -> dict[str, Kernel]:
    """The kernels of GPUs, collectives included, by name, over the whole recording as in XProf."""
    gpus = [
        trace.device_key(place)
        for place, device in enumerate(trace.device_list)
        if device.kind == "gpu"
    ]
    events = trace.device_events
    chosen = events[events["class"].isin(["compute", "collective"]) & events["device"].isin(gpus)]
    sums = chosen.groupby("name", observed=True)["duration_ps"].agg(["count", "sum"])
    return {str(name): Kernel(int(count), int(ps)) for name, count, ps in sums.itertuples()}


Row: TypeAlias = tuple[str, str, Sequence[int], int | None]
"""A label, a key that ends with the unit, the numbers of traceview by device, and the number of XProf."""


def rows(report: traceview.Report, theirs: Answer) -> Iterator[Row]:
    """The numbers of both; those of a step are means of the used steps."""
    results = report.results
    times = results.device_time.devices if results.device_time else ()
    yield "devices", "", [len(times)], theirs.device_count
    yield "steps", "", [results.steps.count if results.steps else 0], theirs.step_count
    devices = results.ledger.devices if results.ledger else ()
    yield "step", "_ps", [row.step_ps for row in devices], theirs.step_ps
    for name, (_, states) in PARTS.items():
        ours = [sum(row.states.get(state, 0) for state in states) for row in devices]
        yield name, "_ps", ours, theirs.parts_ps.get(name)


def section(
    report: traceview.Report, ours: Mapping[str, Kernel], theirs: Answer, top: int, xprof: str
) -> doc.Section:
    """A table of numbers, and one of the `top` kernels by time."""
    compared = list(rows(report, theirs))
    names = {**ours, **theirs.kernels}
    every = {name: (ours.get(name, Kernel()), theirs.kernels.get(name, Kernel())) for name in names}
    longest = sorted(every, key=lambda name: -max(kernel.total_ps for kernel in every[name]))[:top]
    kernels = [every[name] for name in longest]
    of_both = (
        doc.column("words", "mean step, and totals", [label for label, *_ in compared]),
        doc.column("number", "traceview", [_range(key, own) for _, key, own, _ in compared]),
        doc.column("number", "XProf", [numbers.measured(key, n) for _, key, _, n in compared]),
    )
    of_kernels = (
        doc.column("name", "kernel", longest),
        doc.column("time", "traceview", [our.total_ps for our, _ in kernels]),
        doc.column("count", "count", [our.count for our, _ in kernels], priority=2),
        doc.column("time", "XProf", [their.total_ps for _, their in kernels]),
        doc.column("count", "count", [their.count for _, their in kernels], priority=1),
    )
    blocks = (
        *doc.table("Numbers of both", of_both),
        *doc.table("Kernels of both", of_kernels),
    )
    title = f"traceview {VERSION} and XProf {xprof}, run {report.source.run}"
    return doc.Section("crosscheck", title, blocks, is_folded=False)


def _range(key: str, values: Sequence[int]) -> str:
    """One number, or the least and the most of the devices."""
    if not values:
        return numbers.measured(key, None)
    least, most = (numbers.measured(key, bound(values)) for bound in (min, max))
    return most if least == most else f"{least} to {most}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the numbers; the exit code is that of the error, if there is one."""
    parser = argparse.ArgumentParser(prog="python -m scripts.crosscheck")
    parser.add_argument("logdir", metavar="LOGDIR")
    parser.add_argument("--run", metavar="NAME")
    parser.add_argument("--top", metavar="N", type=int, default=10, help="kernels to compare")
    asked = parser.parse_args(arguments)
    place = location_of(asked.logdir)
    try:
        xprof = installed_version()
        with terminable():
            trace = traceview.load(asked.logdir, run=asked.run)
            answer = ask(choose_run(find_runs(place), asked.run)[0])
    except TraceviewError as error:
        print(f"error: {error.message} {error.hint or ''}".strip(), file=sys.stderr)
        return error.exit_code
    shown = section(traceview.analyze(trace), kernels_of(trace), answer, asked.top, xprof)
    print(render_section(shown, width=WIDTH, color=False), end="")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pages"]:
        Path(sys.argv[2]).write_text(json.dumps(pages(sys.argv[3:])), encoding="utf-8")
    else:
        sys.exit(main())
