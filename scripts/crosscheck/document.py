"""Shows the numbers of traceview and XProf beside each other, with the reasons for each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from scripts.crosscheck.comparison import Compared
from scripts.crosscheck.recount import KNOWN_VERSION
from traceview.base.version import VERSION
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CLASSES, STATES, Look

REASONS: Final = {
    "merges-devices": "XProf merges all GPUs of a host into one; traceview has a number for each",
    "device-span": "XProf's step lasts from the first to the last device event; traceview's lasts until the next step",
    "copies-by-name": "XProf recognizes copies by names that CUDA no longer uses, and counts the others as compute",
    "fills-as-compute": "XProf counts memory fills as compute",
    "collectives-by-name": "XProf recognizes collectives by names that begin with nccl, and counts the others as compute",
    "other-order": "where classes overlap, XProf assigns the time to a different class",
    "no-host-waits": "XProf looks for waits on the host only where there is no GPU",
    "one-input-number": "XProf has a single number for copies to the device and waiting for input",
    "rest-of-span": "XProf's rest is the time in its span in which no GPU ran, not the idle time of a GPU in the step",
    "sums-streams": "XProf subtracts the summed times of kernels from the span of a device, so parallel streams count twice",
    "only-named-kernels": "XProf counts a device as idle unless a kernel with the name of an op runs",
    "only-spans": "XProf's idle time lies inside the span of device events; before, after and unused GPUs add nothing",
    "only-linked-events": "XProf counts only device events that it can link to a launch and to a step",
    "counts-files-twice": "XProf counts a host again for every copy of its file",
    "drops-end-steps": "XProf leaves out the first and the last of more than five steps",
    "needs-markers": "XProf needs step markers with _r; traceview recognized these steps in another way",
    "several-hosts": "XProf keeps the steps that all hosts have, and sums over the hosts",
    "no-replicas": "XProf has no replicas on a host; the work of the host is a single number",
    "marker-length": "without a GPU, XProf's step ends with its marker; traceview's lasts until the next step",
    "any-thread-waits": "XProf counts a wait for input on any thread of the host, even while others work",
    "names-of-shapes": "XProf counts compute as 16-bit if its recorded shapes say half; bfloat16 shapes do not",
    "only-details": "XProf's table holds the events with kernel_details, including copies that have them",
    "first-thousand": "XProf's table ends after 1,000 rows",
    "no-page": "XProf made no such page of this trace",
    "its-rules": "this trace, counted by XProf's rules, gives its number; no single rule stands out",
    "from-other-numbers": "it follows from the numbers above",
}
"""The sentence of each reason, by its code."""


LABELS: Final = {
    "device_count": "devices",
    "step_count": "steps",
    "step_ps": "step time",
    **{f"{key}_ps": CLASSES[key].words for key in ("compute", "collective", "h2d", "d2h", "d2d")},
    **{
        f"{key}_ps": f"idle: {STATES[key].words}"
        for key in ("input", "launch", "host_ops", "compile")
    },
    "idle_other_ps": "idle: all other states",
    "idle_total_ps": "idle, all steps and devices",
    "half_ratio": "compute in 16 bits",
    "input_verdict": "input-bound",
}
"""The display name of each metric that is not about a kernel."""

STATUSES: Final = {
    "same": Look("same", "same", ink="dim"),
    "reproduced": Look("reproduced", "explained"),
    "known": Look("known", "known"),
    "unexplained": Look("unexplained", "not explained", ink="bold red"),
}
"""How a difference is classified, the clearest first."""

_LEGEND: Final = (
    "Explained: this trace, counted by XProf's rules, gives XProf's number. Known: XProf counts by another rule, "
    "which traceview does not recompute."
)


def crosscheck_section(run: str, xprof_version: str, rows: Sequence[Compared]) -> doc.Section:
    """A table of numbers and a table of kernels, with the reasons that they refer to by number."""
    numbered = _numbered_reasons(rows)
    shown, zeros = _shown(rows)
    kernels = [row for row in rows if row.is_of_kernel]
    return doc.Section(
        "crosscheck",
        f"traceview {VERSION} and XProf {xprof_version}, run {run}",
        (
            *doc.table("Numbers of both", _number_columns(shown, numbered)),
            *doc.remarks(f"Zero in both: {', '.join(zeros)}." if zeros else None),
            *(
                (doc.Subheading("Kernels", "by name, over all devices and the whole profile"),)
                if kernels
                else ()
            ),
            *doc.table("Kernels of both", _kernel_columns(kernels, numbered)),
            *((doc.Subheading("Reasons"),) if numbered else ()),
            *doc.notes(*(f"({number}) {REASONS[code]}." for code, number in numbered.items())),
            *doc.remarks(_legend(xprof_version)),
        ),
        is_folded=False,
    )


def _legend(xprof_version: str) -> str:
    """What the words of the last column mean, and whether the rules of this XProf are the known ones."""
    if xprof_version == KNOWN_VERSION:
        return _LEGEND
    return f"{_LEGEND} The rules are those of XProf {KNOWN_VERSION}; this is another version."


def _numbered_reasons(rows: Sequence[Compared]) -> dict[str, int]:
    """The reasons that occur, numbered in the order in which they do."""
    codes = dict.fromkeys(code for row in rows for code in row.reasons)
    return {code: number for number, code in enumerate(codes, 1)}


def _shown(rows: Sequence[Compared]) -> tuple[list[Compared], list[str]]:
    """The numbers to show, and the labels of those that are zero in both."""
    compared = [row for row in rows if not row.is_of_kernel]
    zero = [row for row in compared if row.status == "same" and not row.theirs]
    return [row for row in compared if row not in zero], [LABELS[row.metric] for row in zero]


def _number_columns(rows: Sequence[Compared], numbered: Mapping[str, int]) -> Iterator[doc.Column]:
    yield doc.column("words", "mean per step, and totals", [LABELS[row.metric] for row in rows])
    yield doc.column("number", "traceview", map(_range, rows))
    yield doc.column("number", "XProf", [numbers.measured(row.metric, row.theirs) for row in rows])
    yield doc.column("look", "difference", [_outcome(row, numbered) for row in rows])


def _range(row: Compared) -> str:
    """The number of traceview, or the least and the most of the devices."""
    least = numbers.measured(row.metric, row.ours_least)
    most = numbers.measured(row.metric, row.ours_most)
    return most if least == most else f"{least} to {most}"


def _outcome(row: Compared, numbered: Mapping[str, int]) -> Look:
    """The status with the numbers of its reasons."""
    look = STATUSES[row.status]
    reasons = ", ".join(str(numbered[code]) for code in row.reasons)
    return replace(look, words=f"{look.words} ({reasons})") if reasons else look


def _kernel_columns(rows: Sequence[Compared], numbered: Mapping[str, int]) -> Iterator[doc.Column]:
    """Each kernel has two rows in succession: its count and its time."""
    counts, times = rows[::2], rows[1::2]
    order = list(STATUSES)
    worst = [
        max(pair, key=lambda row: order.index(row.status))
        for pair in zip(counts, times, strict=True)
    ]
    yield doc.column("name", "kernel", [row.name for row in worst])
    yield doc.column(
        "number", "traceview", [numbers.measured("_ps", row.ours_most) for row in times]
    )
    yield doc.column(
        "number", "count", [numbers.measured("", row.ours_most) for row in counts], priority=2
    )
    yield doc.column("number", "XProf", [numbers.measured("_ps", row.theirs) for row in times])
    yield doc.column(
        "number", "count", [numbers.measured("", row.theirs) for row in counts], priority=1
    )
    yield doc.column("look", "difference", [_outcome(row, numbered) for row in worst])
