"""Machine load: how many cores other processes kept busy while the run was recorded.

Ops, dispatch and input then take longer, each a little, and nothing in the trace shows why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Names, Number, Part
from traceview.base.record import Count, Hostname, Record, Share

LEAST_RATIO: Final = 0.25
"""Of the cores: what other processes take from here on is worth a finding; a choice of ours."""

MOST_FREE_RATIO: Final = 0.15
"""Of the cores: where more of them are idle, other processes take nothing away; a choice of ours."""

OTHER_PROCESSES: Final = Rule(
    code="other-processes",
    severity="warning",
    title="Other processes take {share} of the {cores} of {hosts}",
    meaning=(
        "Processes beside the one that was recorded kept cores busy, and hardly a core was free. Ops on the CPU, dispatch and the "
        "input pipeline take longer then, so times on the host say little about the program."
    ),
    starts_at=(
        "{least_ratio} of the cores busy with other processes, and less than {most_free_ratio} of them idle, while the capture "
        "recorded; on Linux"
    ),
    limits={"least_ratio": LEAST_RATIO, "most_free_ratio": MOST_FREE_RATIO},
    action="Record again while nothing else runs, or give the training cores of its own: `taskset`, or a limit for the others.",
    advice="Processes that the script starts itself, such as those of a data loader, count too.",
    metrics={"other_ratio": "share of the cores"},
    example="Other processes take 80% of the 2 cores of host0",
)


class HostLoad(Record, frozen=True):
    """The cores of one host while the window was open.

    Attributes:
        host: Host.
        core_count: Cores of the machine.
        own_ratio: Share of their time that the recorded process took.
        other_ratio: Share of their time that all other processes took.
    """

    host: Hostname
    core_count: Count
    own_ratio: Share
    other_ratio: Share


class MachineLoad(Record, frozen=True):
    """The load of the hosts of which the capture recorded it.

    Attributes:
        hosts: In the order of hosts.
    """

    hosts: tuple[HostLoad, ...]


def compute(context: Context) -> MachineLoad | Skipped:
    """The load of each host."""
    found = []
    for host in context.trace.hosts:
        load = host.sidecar.load if host.sidecar is not None else None
        if load is None or not load.elapsed_ns or not load.cores or load.busy_ns is None:
            continue
        whole, own = load.elapsed_ns * load.cores, load.own_ns or 0
        # Ticks are coarse: a share may come out above all.
        own_ratio = min(own / whole, 1.0)
        other_ratio = min(max(load.busy_ns - own, 0) / whole, 1.0 - own_ratio)
        found.append(HostLoad(host.name, load.cores, own_ratio, other_ratio))
    return MachineLoad(tuple(found)) if found else Skipped("the capture recorded no load")


def diagnose(_: Context, result: MachineLoad) -> Iterator[Finding]:
    """Hosts whose cores other processes take."""
    for row in result.hosts:
        free_ratio = 1.0 - row.own_ratio - row.other_ratio
        if row.other_ratio >= LEAST_RATIO and free_ratio < MOST_FREE_RATIO:
            yield OTHER_PROCESSES.finding(
                arguments={
                    "share": Part(row.other_ratio),
                    "cores": Number(row.core_count, "core"),
                    "hosts": Names((row.host,), "host"),
                },
                evidence=[Evidence("other_ratio", row.other_ratio, LEAST_RATIO, row.host)],
            )


ANALYSIS: Final = Analysis[MachineLoad](
    "machine_load", compute=compute, rules=(OTHER_PROCESSES,), diagnose=diagnose
)
