"""Makes the trace of one host of a run from its part, where the other hosts are not: on another process or machine.

What a host has to know of the others is `KnownOfRun`: its clock, when others were in collectives, and in which order
the run has its names. Its devices, lines, rows and names then have other numbers than in the run, in the same order.
So whatever looks at one host only finds the same there.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.location import Location
from traceview.trace.collective_peers import CollectivePeers
from traceview.trace.host.gaps import Gaps
from traceview.trace.model import NONE, Host, Names, Trace
from traceview.trace.reading.merge import merged
from traceview.trace.reading.part import HostFile
from traceview.trace.strategy.clocks import AlignedClocks


class Numbers(Struct, frozen=True):
    """Where a host of a run begins: its first device, its first row of the device columns, and its first line."""

    device: int
    row: int
    line: int


class KnownOfRun(Struct, frozen=True, eq=False):
    """What a host knows of its run. `name_order`: its own names in the order of the run."""

    logdir: Location
    run: str
    run_dir: Location
    sha256: str | None
    is_one_of_several: bool
    host: Host
    device_count: int
    name_order: Int64Array
    peers: CollectivePeers


class HostOfRun(Trace, frozen=True, eq=False, kw_only=True):
    """A run of several hosts, of which only one is here. It has neither files nor problems."""

    known: KnownOfRun

    def device_key(self, device: int) -> str:
        """The name of a device in the report of the whole run."""
        name = self.device_list[device].name
        return f"{self.hosts[0].name}/{name}" if self.known.is_one_of_several else name

    @property
    def collective_peers(self) -> CollectivePeers:
        """When other devices of the whole run than each were in a collective."""
        return self.known.peers


def first_numbers(trace: Trace, host: int) -> Numbers:
    """Where a host begins in the numbers of its run."""
    devices = trace.devices_of_host[host]
    first = devices[0] if devices else 0
    return Numbers(
        first,
        trace.device_columns.rows_of(first).start,
        int(np.searchsorted(trace.host_of_line, host)),
    )


def gaps_in_run(gaps: Gaps, first: Numbers) -> Gaps:
    """The gaps of a device of a host in the numbers of the run."""

    def moved(numbers: Int32Array, by: int) -> Int32Array:
        return np.where(numbers == NONE, numbers, numbers + np.int32(by))

    return replace(
        gaps,
        device=gaps.device + first.device,
        before=moved(gaps.before, first.row),
        after=moved(gaps.after, first.row),
        thread=moved(gaps.thread, first.line),
    )


def known_by_file(trace: Trace) -> dict[int, tuple[int, KnownOfRun]]:
    """Each host of a run, and what it has to know of the run, by the number of its file."""
    number_of = {file.name: number for number, file in enumerate(trace.files)}
    return {
        number_of[host.file]: (index, _known_by(trace, index, number_of[host.file]))
        for index, host in enumerate(trace.hosts)
    }


def _known_by(trace: Trace, host: int, file: int) -> KnownOfRun:
    devices = trace.devices_of_host[host]
    first = devices[0] if devices else 0
    return KnownOfRun(
        logdir=trace.logdir,
        run=trace.run,
        run_dir=trace.run_dir,
        sha256=trace.files[file].sha256,
        is_one_of_several=len(trace.hosts) > 1,
        host=trace.hosts[host],
        device_count=len(devices),
        name_order=np.argsort(trace.name_of_host[host]),
        peers=trace.collective_peers.on(range(first, first + len(devices))),
    )


def host_of_run(file: HostFile, known: KnownOfRun) -> HostOfRun | None:
    """The trace of a host; None if its file is not what the run was made of any more."""
    part = file.part
    if part is None or part.sha256 != known.sha256:
        return None
    own = part.recording
    if len(own.device_list) != known.device_count or len(own.names) != known.name_order.size:
        return None
    clocks = AlignedClocks((known.host,), np.array([known.host.start_ps]), ())
    names = Names.of([own.names[name] for name in known.name_order.tolist()])
    recording, steps = merged([part], clocks, names)
    return HostOfRun(
        **asdict(recording),
        logdir=known.logdir,
        run=known.run,
        run_dir=known.run_dir,
        other_runs=(),
        files=(),
        steps_by_host=steps,
        problems=(),
        known=known,
    )
