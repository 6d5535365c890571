"""Shows how the devices sum their gradients, what it costs, and which devices wait for which."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from traceview.analysis.collectives.heat_map import heat_map
from traceview.analysis.collectives.result import CollectiveResult, CollectiveTimes
from traceview.analysis.context import View
from traceview.document import model as doc
from traceview.document import numbers

TITLE: Final = "Collectives"
HIDDEN_REMARK: Final = "Waiting that compute hides counts as waiting, not as exposed."
TRANSFER_REMARK: Final = (
    "The sum has the transfer of each collective once, in full. Exposed transfer is that of one device: transfers at the same "
    "time count once, and only while their op runs there and nothing computes."
)
SUM_REMARK: Final = (
    f"Times per step are medians over the steps, which need not add up. {HIDDEN_REMARK}"
)

_PATHS: Final = {
    "collective_nccl": "collective ops sum the gradients through {library}",
    "collective_ring": "collective ops sum the gradients without {library}",
    "nccl": "{library} sums the gradients",
    "hierarchical_copy": "gradients are copied between devices and summed on several of them",
    "one_device": "gradients are copied to one device and summed there",
    "cpu_bounce": "gradients are copied to the host and summed on the CPU",
}
_LINKS: Final = {"nvlink": "NVLink", "pcie": "PCIe"}
_ROUNDING_RATIO: Final = 0.02
"""Numbers of three digits are off by up to 0.5 % each: within this share nobody sees that they do not add up."""

MOST_HOSTS: Final = 16
"""Hosts with a row each; more of them fill a screen before the first collective is listed."""


def collectives_section(view: View, result: CollectiveResult) -> doc.Section | None:
    """The path of the gradients and the times; nothing for a run that reduces nothing."""
    if not result.count and result.path in (None, "none"):
        return None
    blocks: tuple[doc.Block, ...] = ()
    if result.count:
        blocks = (
            *doc.facts(*_facts(result)),
            *heat_map(view),
            *_by_device(view, result),
            *_by_host(view, result),
        )
    return doc.Section(
        "collectives",
        TITLE,
        blocks,
        lead=numbers.sentence(path_words(result)),
        terms=("exposed",),
    )


def path_words(collectives: CollectiveTimes) -> str:
    """How the devices reduce gradients, and why."""
    library = (collectives.library or "nccl").upper()
    path = _PATHS.get(collectives.path or "", "").format(library=library)
    if path or collectives.path_reason:
        return ": ".join(part for part in (path, collectives.path_reason) if part)
    if collectives.count:
        return "the trace does not show which op launches the collectives"
    return "no collective and no copy of gradients was recorded"


def unclear_words(last_count: int, collective_count: int) -> str | None:
    """In how many collectives no device was clearly the last; None if there are none."""
    if last_count >= collective_count:
        return None
    of_all = f"{collective_count - last_count:,} of {collective_count:,} collectives"
    return f"In {of_all} no device was clearly the last."


def _facts(result: CollectiveResult) -> Iterator[str]:
    per_step = f", {result.count_per_step:,} per step (median)" if result.count_per_step else ""
    yield f"{numbers.plural(result.count, 'collective')}{per_step}"
    if result.transfer_per_step_ps is not None:
        yield f"transfers {numbers.time(result.transfer_per_step_ps)} per step in sum (median)"
    else:
        yield f"transfers {numbers.time(result.transfer_ps)} in the window in sum"
    yield f"{numbers.share(result.overlap_ratio)} of the time in collectives hidden by compute"
    if result.expected_ps is not None and not _is_beyond_link(result):
        yield f"{numbers.time(result.expected_ps)} expected at the speed of the link"
    if result.bus_bytes_per_second is not None:
        yield _speed(result)
    if result.incomplete_count:
        on_all = f"on all {numbers.plural(result.device_count, 'device')}"
        yield f"{numbers.count(result.incomplete_count)} not recorded {on_all}"
    if result.member_count > result.device_count:
        members = numbers.plural(result.member_count, "device")
        yield f"only {result.device_count:,} of {members} recorded: transfer may include waiting"


def _is_beyond_link(result: CollectiveResult) -> bool:
    """Whether something faster than the recorded link connects the devices."""
    return (result.bus_bytes_per_second or 0) > (result.link_bytes_per_second or math.inf)


def _speed(result: CollectiveResult) -> str:
    # Only collectives of GPUs have a library, and links.
    carrier = "over each link" if result.library else "per device"
    speed = f"{numbers.rate(result.bus_bytes_per_second)} {carrier}"
    if result.link_bytes_per_second is None:
        return speed
    limit = f"{_LINKS.get(result.link or '', 'the link')} carries {numbers.rate(result.link_bytes_per_second)}"
    return f"{speed}; {limit}" + (
        ", so the devices use another link" if _is_beyond_link(result) else ""
    )


def _by_device(view: View, result: CollectiveResult) -> Iterator[doc.Block]:
    """What each device spends in collectives; devices that took no part are left out."""
    is_per_step = result.transfer_per_step_ps is not None
    exposed, transfer, wait = (
        ((per_step or {}) if is_per_step else total)
        for per_step, total in (
            (result.exposed_per_step_ps, result.exposed_ps),
            (result.exposed_transfer_per_step_ps, result.exposed_transfer_ps),
            (result.wait_per_step_ps, result.wait_ps),
        )
    )
    keys = [
        key
        for key in result.exposed_ps
        if result.exposed_ps[key] or result.wait_ps[key] or result.last_count[key]
    ]
    others = [key for key in keys if key in view.others]
    shown = [key for key in keys if key not in view.others]
    costly = set(sorted(shown, key=lambda key: -exposed.get(key, 0))[: view.most_rows])
    shown = [key for key in shown if key in costly]
    each = " per step" if is_per_step else ""
    yield from doc.table(
        "Collectives by device",
        (
            doc.devices("device", shown),
            doc.times(f"exposed{each}", map(exposed.get, shown)),
            doc.times(f"exposed transfer{each}", map(transfer.get, shown), priority=2),
            doc.times(
                f"waiting{each}",
                map(wait.get, shown),
                meaning="for other devices, whether or not compute hides it",
            ),
            doc.counts(
                "last to arrive",
                map(result.last_count.get, shown),
                priority=1,
                meaning="collectives that it started after all other devices",
            ),
        ),
        row_count=len(keys) - len(others),
        rest=view.command("collectives"),
    )
    if any(not _is_sum(exposed.get(key), transfer.get(key), wait.get(key)) for key in shown):
        yield from doc.remarks(SUM_REMARK if is_per_step else HIDDEN_REMARK)
    whole_ps = result.transfer_per_step_ps if is_per_step else result.transfer_ps
    if any(not _is_sum(whole_ps, transfer.get(key), 0) for key in shown):
        yield from doc.remarks(TRANSFER_REMARK)
    complete_count = result.count - result.incomplete_count
    yield from doc.remarks(unclear_words(sum(result.last_count.values()), complete_count))
    if others:
        yield doc.Remark(
            f"{numbers.plural(len(others), 'other device')}: "
            f"exposed {numbers.time_range(map(exposed.get, others))}, "
            f"waiting {numbers.time_range(map(wait.get, others))}. All devices:",
            f"{view.command('collectives')} -o collectives.csv",
        )


def _is_sum(exposed: int | None, transfer: int | None, wait: int | None) -> bool:
    """Whether a reader who adds transfer and waiting gets about what is exposed."""
    if exposed is None or transfer is None or wait is None:
        return True
    return abs(exposed - transfer - wait) <= _ROUNDING_RATIO * max(exposed, transfer + wait)


def _by_host(view: View, result: CollectiveResult) -> tuple[doc.Table, ...]:
    """The collectives of each host, where there are several."""
    if view.is_brief or len(result.hosts) < 2:
        return ()
    hosts = result.hosts[: min(view.most_rows, MOST_HOSTS)]
    return doc.table(
        "Collectives by host",
        (
            doc.names("host", [host.host for host in hosts]),
            doc.counts("devices", [host.device_count for host in hosts], priority=3),
            doc.counts("collectives", [host.count for host in hosts], priority=2),
            doc.times("transfer per step", [host.transfer_per_step_ps for host in hosts]),
            doc.shares("hidden by compute", [host.overlap_ratio for host in hosts], priority=1),
            doc.rates("over each link", [host.bus_bytes_per_second for host in hosts], priority=4),
            doc.words("path", [path_words(host) for host in hosts], priority=5),
        ),
        row_count=len(result.hosts),
        rest="the JSON report",
    )
