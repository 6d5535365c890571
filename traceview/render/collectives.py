"""How do the devices sum their gradients, what does it cost, and who waits for whom?"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.collectives.compute import CollectiveResult
from traceview.analysis.collectives.table import CollectiveRow
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.balance import unclear_words
from traceview.render.columns import (
    ROWS_IN,
    Column,
    add_columns,
    add_fitting,
    add_left_out,
    fitting,
    room_beside,
)
from traceview.render.ops import told_apart
from traceview.report.model import Report
from traceview.report.standing_out import standing_out

_PATH_WORDS: Final = {
    "collective_nccl": "{library}, asked for by collective ops",
    "collective_ring": "collective ops without {library}",
    "nccl": "{library}",
    "hierarchical_copy": "copies between devices, summed on several of them",
    "one_device": "copies to one device, summed there",
    "cpu_bounce": "copies to the host, summed on the CPU",
}
_LINK_WORDS: Final = {"nvlink": "NVLink", "pcie": "PCIe"}
_NARROWEST_OP: Final = 20
_ROUNDING: Final = 0.02
HIDDEN_REMARK: Final = "Waiting that compute hides is not exposed."
SUM_REMARK: Final = f"Medians over the steps, so they need not add up. {HIDDEN_REMARK}"


def add_collectives(page: Page, report: Report) -> None:
    """The collectives of a run that has any, or reduces in another way; nothing of others."""
    found = report.results.collectives
    if found is not None and (found.count or found.path not in (None, "none")):
        add_summary(
            page,
            found,
            has_steps=report.results.steps is not None,
            chosen=standing_out(report).shown,
        )


def add_summary(
    page: Page, found: CollectiveResult, *, has_steps: bool, chosen: Collection[str] | None = None
) -> None:
    """How the devices reduce in a sentence, the times in another, and a row per device of `chosen`, None for all."""
    page.heading("Collectives", way(found))
    if not found.count:
        return
    per_step = found.transfer_per_step_ps is not None and has_steps
    transfer = found.transfer_per_step_ps if per_step else found.transfer_ps
    each = " per step" if per_step else ""
    facts: list[Text | str] = [
        f"{numbers.plural(found.count, 'collective')}"
        + (f", {numbers.count(found.count_per_step)} per step" if found.count_per_step else ""),
        Text.assemble("transfer ", (page.text(numbers.time(transfer)), "bold"), each),
        f"{numbers.share(found.overlap_ratio)} hidden by compute",
    ]
    if found.expected_ps is not None and not is_beyond_link(found):
        facts.append(f"{numbers.time(found.expected_ps)} expected of the link")
    if found.bus_bytes_per_second is not None:
        facts.append(speed(found))
    page.facts([*facts, *unrecorded(found)])
    _add_devices(page, found, per_step=per_step, chosen=chosen)


def way(found: CollectiveResult) -> str:
    """How the devices reduce, and what shows it."""
    library = (found.library or "nccl").upper()
    words = _PATH_WORDS.get(found.path or "", "").format(library=library)
    way = f"through {words}" if words else ""
    if found.path_reason:
        return f"{way}: {found.path_reason}" if way else found.path_reason
    if way:
        return way
    if found.count:
        return "what asks for them does not show"
    return "none was recorded, and no copies of gradients"


def unrecorded(found: CollectiveResult) -> list[str]:
    """What is missing of the collectives, a few words each."""
    told = []
    if found.incomplete_count:
        cut = numbers.count(found.incomplete_count)
        told.append(f"{cut} not recorded on all {numbers.count(found.device_count)} devices")
    if found.member_count > found.device_count:
        devices = numbers.plural(found.member_count, "device")
        told.append(
            f"recorded on {numbers.count(found.device_count)} of {devices}: transfer may hold waiting for the others"
        )
    return told


def is_beyond_link(found: CollectiveResult) -> bool:
    """Whether the devices are linked by something faster than the link that was recorded."""
    return (found.bus_bytes_per_second or 0) > (found.link_bytes_per_second or math.inf)


def speed(found: CollectiveResult) -> str:
    """How fast, beside what the link carries."""
    speed = f"{numbers.size(found.bus_bytes_per_second)}/s over each link"
    if found.link_bytes_per_second is None:
        return speed
    link = _LINK_WORDS.get(found.link or "", "")
    if is_beyond_link(found):
        return f"{speed}, more than {link} ({numbers.size(found.link_bytes_per_second)}/s): linked by something else"
    return f"{speed}, {link} carries {numbers.size(found.link_bytes_per_second)}/s"


def _add_devices(
    page: Page, found: CollectiveResult, *, per_step: bool, chosen: Collection[str] | None
) -> None:
    exposed = (found.exposed_per_step_ps or {}) if per_step else found.exposed_ps
    transfer = (found.exposed_transfer_per_step_ps or {}) if per_step else found.exposed_transfer_ps
    wait = (found.wait_per_step_ps or {}) if per_step else found.wait_ps
    devices = [
        key
        for key in found.exposed_ps
        if found.exposed_ps[key] or found.wait_ps[key] or found.last_count[key]
    ]
    shown = [key for key in devices if chosen is None or key in chosen]
    if not shown:
        return
    each = "/step" if per_step else ""
    add_fitting(
        page,
        [
            Column("device", [page.styled(key, "bold") for key in shown]),
            _times(page, f"exposed{each}", [exposed.get(key) for key in shown]),
            _times(page, "in transfer", [transfer.get(key) for key in shown], 2),
            _times(page, f"waited{each}", [wait.get(key) for key in shown]),
            Column(
                "came last",
                [page.styled(numbers.count(found.last_count[key])) for key in shown],
                right=True,
                droppable=1,
            ),
        ],
    )
    if any(not _is_sum(exposed.get(key), transfer.get(key), wait.get(key)) for key in shown):
        page.prose(page.styled(SUM_REMARK if per_step else HIDDEN_REMARK, "dim"))
    unclear = unclear_words(sum(found.last_count.values()), found.count - found.incomplete_count)
    if unclear is not None:
        page.prose(page.styled(f"{unclear[:1].upper()}{unclear[1:]}.", "dim"))
    if len(devices) > len(shown):
        others = [key for key in devices if key not in shown]
        told = (
            f"{numbers.plural(len(others), 'other')}: exposed "
            f"{numbers.times(exposed.get(key) for key in others)}, "
            f"waited {numbers.times(wait.get(key) for key in others)}"
        )
        page.prose(page.styled(f"{told}. traceview collectives LOGDIR -o FILE.csv has all.", "dim"))


def _is_sum(exposed: int | None, transfer: int | None, wait: int | None) -> bool:
    """Whether a reader who adds transfer and waiting gets what is exposed, about."""
    if exposed is None or transfer is None or wait is None:
        return True
    return abs(exposed - transfer - wait) <= _ROUNDING * max(exposed, transfer + wait)


def _times(page: Page, heading: str, times: list[int | None], droppable: int = 0) -> Column:
    cells = [page.styled(numbers.time(one)) for one in times]
    return Column(heading, cells, right=True, droppable=droppable)


def add_rows(page: Page, rows: Sequence[CollectiveRow]) -> None:
    """One line per collective and device, a line apart from that of the next collective."""
    if not rows:
        return
    page.gap()
    repeated = [
        place > 0 and rows[place - 1].collective == one.collective for place, one in enumerate(rows)
    ]
    columns = [
        Column(
            "number",
            [
                page.styled("" if again else numbers.count(one.collective))
                for one, again in zip(rows, repeated, strict=True)
            ],
            right=True,
            droppable=5,
        ),
        Column(
            "step",
            [page.styled("" if one.step is None else str(one.step), "dim") for one in rows],
            right=True,
            droppable=3,
        ),
        Column("device", [page.styled(one.device, "bold") for one in rows]),
        _times(page, "start", [one.start_ps for one in rows], 2),
        _times(page, "lasted", [one.duration_ps for one in rows]),
        _times(page, "waited", [one.wait_ps for one in rows]),
        Column("", [page.styled("last" if one.is_last else "", "yellow") for one in rows]),
        Column(
            "size", [page.styled(numbers.size(one.bytes)) for one in rows], right=True, droppable=4
        ),
    ]
    op = Column("op", [Text("x" * _NARROWEST_OP)], droppable=1)
    if all(one.bytes is None for one in rows):
        columns.pop()
    kept = fitting(page, [*columns, op])
    names_op = kept[-1] is op
    if names_op:
        room = room_beside(page, kept[:-1])
        names = [one.op or one.name for one in rows]
        ops = told_apart(page, set(names), room)
        named = zip(names, repeated, strict=True)
        kept[-1] = Column("op", [Text("" if again else ops[name]) for name, again in named])
    add_columns(page, kept)
    add_left_out(page, columns if names_op else [*columns, op], kept, rest=ROWS_IN)
