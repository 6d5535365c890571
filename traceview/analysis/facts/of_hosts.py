"""Holds the results of a topic for each host of a run, to be joined to that of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Generic, TypeVar

from traceview.trace.model import Recording

R = TypeVar("R")
Row = TypeVar("Row")


def by_device(recording: Recording, hosts: Iterable[int]) -> list[int]:
    """These hosts in the order of their devices, in which replicas come last; those without any at the end."""
    devices, last = recording.devices_of_host, (len(recording.device_list),)
    return sorted(hosts, key=lambda host: devices[host] or last)


class OfHosts(Generic[R]):
    """What a topic found on the hosts that have a result, by index."""

    def __init__(self, recording: Recording, results: Mapping[int, R]) -> None:
        self._recording = recording
        self._results = results

    @property
    def by_host(self) -> tuple[R, ...]:
        """In the order of hosts."""
        return tuple(self._results[host] for host in sorted(self._results))

    @property
    def by_device(self) -> tuple[R, ...]:
        """In the order of their devices, in which replicas come last; those without any at the end."""
        return tuple(self._results[host] for host in by_device(self._recording, self._results))

    def rows(self, of: Callable[[R], Iterable[Row]]) -> tuple[Row, ...]:
        """The rows about the devices of all hosts, in the order of devices."""
        return tuple(chain.from_iterable(of(result) for result in self.by_device))
