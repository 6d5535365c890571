"""Why did the devices wait? One bar per device, the shares of the causes, and the longest gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from traceview.analysis.between_steps import BetweenSteps
from traceview.analysis.idle.compute import Gap, Idle, IdleRow
from traceview.analysis.idle.table import GapRow
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import GAP, Column, add_columns, add_left_out, fitting
from traceview.report.model import Report
from traceview.report.standing_out import standing_out

BAR_WIDTH: Final = 40
SHOWN_GAPS: Final = 3
WIDEST_NAME: Final = 24


_BETWEEN_RATIO: Final = 0.05
BETWEEN_WORDS: Final = {
    "checkpoint": "saving or restoring",
    "summary": "writing summaries",
    "compile": "tracing or compiling",
    "value_read": "reading values",
    "input": "asking for input",
    "graph_call": "in graph calls",
    "eager_op": "in eager ops",
    "python": "in Python",
}


@dataclass(frozen=True)
class CauseLook:
    """How a cause is drawn: a letter that is told apart without colour, and what it is called in words."""

    letter: str
    style: str
    words: str


LOOKS: Final = {
    "input": CauseLook("I", "red", "input"),
    "h2d": CauseLook("H", "cyan", "copies to the device"),
    "compile": CauseLook("T", "magenta", "tracing and compilation"),
    "sync": CauseLook("S", "yellow", "waiting for a value"),
    "checkpoint": CauseLook("K", "blue", "checkpoints"),
    "launch": CauseLook("L", "bright_red", "launches"),
    "callback": CauseLook("B", "bright_yellow", "Python between steps"),
    "host_compute": CauseLook("C", "bright_blue", "CPU ops"),
    "peer": CauseLook("P", "bright_magenta", "waiting for another device"),
    "dependency": CauseLook("D", "bright_cyan", "held back by a stream or event"),
    "latency": CauseLook("l", "dim", "launch latency"),
    "unattributed": CauseLook("?", "dim", "no recorded cause"),
    "unused": CauseLook("u", "dim", "device not used"),
}


def add_idle(page: Page, report: Report) -> None:
    """The section of the report; nothing where no device was recorded or none waited."""
    idle = report.results.idle
    if idle is None:
        return
    rows = [row for row in idle.devices if "unused" not in row.causes and row.idle_ps]
    if not rows:
        return
    windows = _windows(report)
    page.heading("Idle", "why the devices waited")
    chosen = standing_out(report)
    add_bars(page, [row for row in rows if row.device in chosen], windows)
    others = [row for row in rows if row.device not in chosen]
    if others:
        idle_ratios = [row.idle_ps / windows[row.device] for row in others if row.idle_ps]
        told = f"{numbers.plural(len(others), 'other')}: idle {numbers.shares(idle_ratios)}"
        page.prose(page.styled(f"{told}. traceview gaps LOGDIR --device NAME tells why.", "dim"))
    _add_between(page, report)
    _add_longest(page, idle)


def _add_between(page: Page, report: Report) -> None:
    for sentence in between_steps(report):
        page.gap()
        page.prose(sentence)


def between_steps(report: Report) -> Iterator[str]:
    """What ran between the steps of each host, where that is a share of them worth a sentence."""
    found, steps = report.results.between_steps, report.results.steps
    if found is None or steps is None or not steps.median_ps:
        return
    for host in found.hosts:
        mean = host.total_ps // host.count
        if mean < _BETWEEN_RATIO * steps.median_ps:
            continue
        parts = [
            f"{numbers.time(length // host.count)} {BETWEEN_WORDS.get(kind, kind)}{_named(host, kind)}"
            for kind, length in sorted(host.parts_ps.items(), key=lambda part: -part[1])
        ]
        where = f" on {host.host}" if len(found.hosts) > 1 else ""
        yield f"Between steps{where}, {numbers.time(mean)} each: {', '.join(parts)}."


def _named(host: BetweenSteps, kind: str) -> str:
    names = host.names.get(kind, ())
    return f" ({names[0]})" if names and kind in ("graph_call", "checkpoint", "summary") else ""


def _windows(report: Report) -> dict[str, int]:
    found = report.results.device_time
    return {row.device: row.window_ps or 0 for row in found.devices} if found else {}


def add_bars(page: Page, rows: Sequence[IdleRow], windows: dict[str, int]) -> None:
    """A stacked bar of the idle time of each device, and the share of the window that each cause has."""
    causes = [cause for cause in LOOKS if any(row.causes.get(cause) for row in rows)]
    columns = [
        Column("device", [Text(page.middle(row.device, WIDEST_NAME), "bold") for row in rows]),
        Column(
            "idle",
            [page.styled(numbers.part(row.idle_ps, windows.get(row.device))) for row in rows],
            right=True,
        ),
        Column("by cause", [_bar(row, _bar_width(page)) for row in rows]),
    ]
    add_columns(page, columns)
    page.gap()
    ranked = sorted(causes, key=lambda cause: -sum(row.causes.get(cause, 0) for row in rows))
    table = [Column("", [Text(page.middle(row.device, WIDEST_NAME), "bold") for row in rows])]
    for place, cause in enumerate(ranked):
        cells = [
            page.styled(numbers.part(row.causes.get(cause, 0), windows.get(row.device)))
            for row in rows
        ]
        table.append(Column(_title(cause), cells, right=True, droppable=place))
    kept = fitting(page, table)
    add_columns(page, kept)
    add_left_out(page, table, kept)
    page.facts(
        [
            Text.assemble((LOOKS[cause].letter, LOOKS[cause].style), f" {LOOKS[cause].words}")
            for cause in ranked
        ],
        between="   ",
    )
    page.prose(page.styled("Shares are of the window.", "dim"))


def _title(cause: str) -> str:
    return f"{LOOKS[cause].letter} {cause}"


def _bar_width(page: Page) -> int:
    return max(10, min(BAR_WIDTH, page.width - WIDEST_NAME - 3 * GAP - len(">99.9%")))


def _bar(row: IdleRow, width: int) -> Text:
    """`width` letters shared out by largest remainder, so that they are as many as the bar is long."""
    total = row.idle_ps
    shares = [(cause, row.causes.get(cause, 0) * width) for cause in LOOKS]
    letters = {cause: share // total for cause, share in shares}
    rest = sorted(shares, key=lambda one: -(one[1] % total))
    for cause, _ in rest[: width - sum(letters.values())]:
        letters[cause] += 1
    bar = Text()
    for cause, count in letters.items():
        bar.append(LOOKS[cause].letter * count, LOOKS[cause].style)
    return bar


def _add_longest(page: Page, idle: Idle) -> None:
    gaps = sorted(
        (
            (gap, row.device)
            for row in idle.devices
            if "unused" not in row.causes
            for gap in row.gaps
        ),
        key=lambda pair: -pair[0].duration_ps,
    )
    if not gaps:
        return
    page.gap()
    page.line(page.styled("Longest gaps", "bold"), page.styled("  traceview gaps lists all", "dim"))
    for gap, device in gaps[:SHOWN_GAPS]:
        page.prose(_told(gap, device), indent=2)


def _told(gap: Gap, device: str) -> str:
    where = f" in step {gap.step}" if gap.step is not None else ""
    host = f"; {gap.thread}: {gap.host_event}" if gap.host_event else ""
    return (
        f"{device}{where}: {numbers.time(gap.duration_ps)}, mostly {LOOKS[gap.cause].words}{host}; "
        f"{_between(gap.before, gap.after)}"
    )


def _between(before: str | None, after: str | None) -> str:
    if before is None and after is None:
        return "the whole window"
    if before is None:
        return f"before {after}"
    return f"after {before}" if after is None else f"between {before} and {after}"


def add_gap_rows(page: Page, rows: Sequence[GapRow]) -> None:
    """Gaps of `traceview gaps`, one paragraph each: its place, its causes, and the evidence."""
    for row in rows:
        look = LOOKS[row.cause]
        page.gap()
        where = f"step {row.step}" if row.step is not None else "outside of steps"
        page.facts(
            [
                Text.assemble(
                    (page.text(row.device), "bold"), f" {numbers.time(row.duration_ps)} "
                ),
                Text(row.cause, look.style),
                where,
                f"at {numbers.time(row.start_ps)}",
            ]
        )
        parts = {cause: getattr(row, f"{cause}_ps") for cause in LOOKS}
        shown = sorted((cause for cause in parts if parts[cause]), key=lambda c: -parts[c])
        causes = ", ".join(f"{cause} {numbers.time(parts[cause])}" for cause in shown)
        page.prose(page.styled(causes), indent=4)
        page.prose(page.styled(_between(row.before, row.after), "dim"), indent=4)
        if row.host_stack:
            page.prose(page.styled(f"{row.thread}: {row.host_stack}"), indent=4)
