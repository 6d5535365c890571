"""What do traceview and XProf say of the same run, side by side, and why is it not the same?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from traceview.crosscheck.comparison import Compared, Value
from traceview.crosscheck.reasons import REASONS
from traceview.crosscheck.recount import KNOWN_VERSION
from traceview.document.page import Page
from traceview.render import csv, numbers
from traceview.render.columns import Column, add_columns, fitting, room_beside
from traceview.render.json import dumped, plain
from traceview.render.ops import told_apart
from traceview.version import VERSION

LABELS: Final = {
    "device_count": "devices",
    "step_count": "steps",
    "step_ps": "step",
    "compute_ps": "compute",
    "collective_ps": "collectives",
    "h2d_ps": "copies to the device",
    "d2h_ps": "copies to the host",
    "d2d_ps": "copies between devices",
    "input_ps": "waiting for input",
    "launch_ps": "launching",
    "host_compute_ps": "ops on the host",
    "compile_ps": "compiling",
    "idle_other_ps": "idle, all other",
    "idle_total_ps": "idle, all steps and devices",
    "half_ratio": "compute in 16 bits",
    "input_verdict": "input-bound",
}
"""What each metric is called; the others are those of kernels."""

STATUS_WORDS: Final = {
    "same": "same",
    "reproduced": "explained",
    "known": "known",
    "unexplained": "not explained",
}
_LEGEND: Final = (
    "explained: counted as XProf counts, this trace gives its number. known: XProf counts in another way, "
    "which was not redone here."
)
_STYLES: Final = {"same": "dim", "unexplained": "bold red"}
_NARROWEST_KERNEL: Final = 16


@dataclass(frozen=True)
class _Line:
    """A row as it is written for programs; `reasons`: their codes, with blanks between them."""

    metric: str
    name: str
    traceview_least: Value
    traceview_most: Value
    xprof: Value
    expected: Value
    status: str
    reasons: str


def render(
    run: str,
    xprof_version: str,
    rows: Sequence[Compared],
    *,
    width: int,
    color: bool,
    unicode: bool = True,
) -> str:
    """Two tables, of numbers and of kernels, and below them the reasons that they point to."""
    page = Page(width, color, unicode)
    page.facts([f"run {run}", f"traceview {VERSION}", f"XProf {xprof_version}"])
    notes = notes_of(rows)
    shown, zeros = told(rows)
    page.gap()
    add_columns(page, _number_columns(page, shown, notes))
    if zeros:
        page.prose(page.styled(f"zero in both: {', '.join(zeros)}", "dim"))
    kernels = [row for row in rows if row.is_of_kernel]
    if kernels:
        page.heading("Kernels", "by name, over all devices and the whole recording")
        add_columns(page, _kernel_columns(page, kernels, notes))
    page.gap()
    for code, number in notes.items():
        page.prose(REASONS[code], indent=4, label=page.styled(f"{number:2}"))
    page.prose(page.styled(legend(xprof_version), "dim"))
    return page.render()


def render_json(logdir: str, run: str, xprof_version: str, rows: Sequence[Compared]) -> str:
    """All rows, zeros too, and the sentence of each reason."""
    return dumped(
        {
            "traceview_version": VERSION,
            "xprof_version": plain(xprof_version),
            "logdir": plain(logdir),
            "run": plain(run),
            "rows": [{**plain(_line(row)), "reasons": list(row.reasons)} for row in rows],
            "reasons": {code: REASONS[code] for code in notes_of(rows)},
        }
    )


def render_csv(rows: Sequence[Compared], *, escaped: bool) -> str:
    """A line per number, reasons separated by blanks."""
    return csv.render([_line(row) for row in rows], _Line, escaped=escaped)


def _line(row: Compared) -> _Line:
    return _Line(
        row.metric,
        row.name,
        row.ours_least,
        row.ours_most,
        row.theirs,
        row.expected,
        row.status,
        " ".join(row.reasons),
    )


def legend(xprof_version: str) -> str:
    """What the words of the last column mean, and whether this XProf is the one whose rules are known."""
    if xprof_version == KNOWN_VERSION:
        return _LEGEND
    return f"{_LEGEND} The ways are those of XProf {KNOWN_VERSION}; this is another version."


def notes_of(rows: Sequence[Compared]) -> dict[str, int]:
    """The reasons that occur, numbered in the order in which they do."""
    codes = dict.fromkeys(code for row in rows for code in row.reasons)
    return {code: number for number, code in enumerate(codes, 1)}


def told(rows: Sequence[Compared]) -> tuple[list[Compared], list[str]]:
    """The numbers to show, and the labels of those that are zero in both."""
    compared = [row for row in rows if not row.is_of_kernel]
    zero = [row for row in compared if row.status == "same" and not row.theirs]
    zeros = [LABELS[row.metric] for row in zero]
    return [row for row in compared if row not in zero], zeros


def value(metric: str, found: Value) -> str:
    """A value in its unit."""
    return numbers.measured(metric, found)


def spread(row: Compared) -> str:
    """Our value, or the least and the most of the devices."""
    least, most = value(row.metric, row.ours_least), value(row.metric, row.ours_most)
    return most if least == most else f"{least} to {most}"


def outcome(row: Compared, notes: dict[str, int]) -> str:
    """The status in a word, with the numbers of its reasons."""
    numbered = ", ".join(str(notes[code]) for code in row.reasons)
    return f"{STATUS_WORDS[row.status]} {f'({numbered})' if numbered else ''}".rstrip()


def kernel_pairs(rows: Sequence[Compared]) -> list[tuple[Compared, Compared]]:
    """Count and time of each kernel, which follow each other."""
    return list(zip(rows[::2], rows[1::2], strict=True))


def worse(count: Compared, time: Compared) -> Compared:
    """Of the two rows of a kernel the one that says more about a difference."""
    return max(count, time, key=lambda row: list(STATUS_WORDS).index(row.status))


def _number_columns(page: Page, rows: Sequence[Compared], notes: dict[str, int]) -> list[Column]:
    return [
        Column("mean per step, and totals", [page.styled(LABELS[row.metric]) for row in rows]),
        Column("traceview", [page.styled(spread(row), "bold") for row in rows], right=True),
        Column("XProf", [page.styled(value(row.metric, row.theirs)) for row in rows], right=True),
        Column("", [page.styled(outcome(row, notes), _STYLES.get(row.status, "")) for row in rows]),
    ]


def _kernel_columns(page: Page, rows: Sequence[Compared], notes: dict[str, int]) -> list[Column]:
    pairs = kernel_pairs(rows)

    def column(heading: str, cells: list[str], droppable: int = 0) -> Column:
        return Column(heading, [page.styled(cell) for cell in cells], True, droppable)

    worst = [worse(count, time) for count, time in pairs]
    columns = [
        column("traceview", [value("_ps", time.ours_most) for _, time in pairs]),
        column("count", [value("count", count.ours_most) for count, _ in pairs], 2),
        column("XProf", [value("_ps", time.theirs) for _, time in pairs]),
        column("count", [value("count", count.theirs) for count, _ in pairs], 1),
        Column(
            "", [page.styled(outcome(row, notes), _STYLES.get(row.status, "")) for row in worst]
        ),
    ]
    name = Column("x" * _NARROWEST_KERNEL)
    kept = fitting(page, [*columns, name])
    room = room_beside(page, kept[:-1])
    names = told_apart(page, {row.name for row in worst}, max(room, _NARROWEST_KERNEL))
    kept[-1] = Column("kernel", [Text(names[row.name]) for row in worst])
    return kept
