"""Machine load: how many cores other processes kept busy while the run was recorded, and what devices lost by that.

Ops and dispatch then take longer, each a little, and no event shows why; the clocks of the threads do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Evidence, Finding, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Number, Part
from traceview.base.record import Count, Hostname, Record, Share
from traceview.ledger.states import State

OTHER_PROCESSES: Final = Rule(
    code="other-processes",
    title="{who:loses/lose} {loss} to other processes, which take {share} of the {cores}",
    meaning=(
        "Threads of the step were ready to run and had no core while other processes ran, as the kernel counted: ops on the "
        "CPU, dispatch and launches took longer."
    ),
    starts_at=(
        "{limit} of the GPU time in which ops on CPU devices, dispatch or launches wait for cores that other processes have, "
        "by the clocks of the threads, which the capture reads on Linux"
    ),
    states=(State.NO_CORE,),
    action="Record again while nothing else runs, or give the training cores of its own: `taskset`, or a limit for the others.",
    advice="Processes that the script starts itself, such as those of a data loader, count too.",
    reasons={"": "the kernel counts how long threads wait for a core"},
    metrics={"other_ratio": "share of the cores"},
    example="Both replicas lose 14.1 of 40.2 ms (35%) to other processes, which take 80% of the 2 cores",
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


def diagnose(context: Context, result: MachineLoad) -> Iterator[Finding | None]:
    """What devices lose because other processes have the cores."""
    most = max(result.hosts, key=lambda row: row.other_ratio)
    yield OTHER_PROCESSES.of_rows(
        context,
        context.ledger.rows(states=OTHER_PROCESSES.states),
        arguments={"share": Part(most.other_ratio), "cores": Number(most.core_count, "core")},
        evidence=[Evidence("other_ratio", most.other_ratio, None, most.host)],
        keeps_waiting=True,
    )


ANALYSIS: Final = Analysis[MachineLoad](
    "machine_load", compute=compute, rules=(OTHER_PROCESSES,), diagnose=diagnose
)
