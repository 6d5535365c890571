"""Links an event to its causes: nesting, producers, launches (docs/xplane.md, "From kernel to step")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tests.oracle.reading import Event, Host, Line

Producer = tuple[int, int]


class Links:
    """The causes of one host's events."""

    def __init__(self, host: Host) -> None:
        self._around: dict[Event, list[Event]] = {}
        self._producers: dict[Producer, list[Event]] = {}
        self._calls: dict[int, list[Event]] = {}
        self._threadless: set[int] = set()  # python ids of driver-call lines without a thread
        self.threads = self._timelines(host.host_lines())
        for timeline in self.threads:
            self._nest([event for line in timeline for event in line.events])
        for event in host.host_events():
            kind, number = event.integer("_pt"), event.integer("_p")
            if kind is not None and number is not None:
                self._producers.setdefault((kind, number % 2**64), []).append(event)
            correlation = event.integer("correlation_id")
            if correlation is not None:
                self._calls.setdefault(correlation % 2**64, []).append(event)

    def _timelines(self, lines: list[Line]) -> list[list[Line]]:
        """Lines of one id are one timeline; `Host Threads/<tid>` joins its thread (docs/xplane.md, "Host lines")."""
        threads: dict[int, list[Line]] = {}
        driver: list[Line] = []
        for line in lines:
            if line.name.startswith("Host Threads/"):
                driver.append(line)
            else:
                threads.setdefault(line.id, []).append(line)
        lonely: dict[int, list[Line]] = {}
        for line in driver:
            number = re.search(r"-?\d+", line.name)
            home = [key for key in threads if key == line.id]
            home += [key for key in threads if (key - line.id) % 2**32 == 0]
            home += [
                key
                for key, own in threads.items()
                if number and own[0].name.rsplit("/", 1)[-1] == number.group()
            ]
            if home:
                threads[home[0]].append(line)
            else:
                lonely.setdefault(line.id, []).append(line)
                self._threadless.add(id(line))
        return [*threads.values(), *lonely.values()]

    def _nest(self, events: list[Event]) -> None:
        """An event lies inside every event that is open when it starts; `_a` events take no part.

        Whether it also ends inside does not matter: a launch that starts inside a marker is of that step, even if
        another call around it outlasts the marker.
        """
        events = sorted(events, key=lambda e: (e.start, -e.end, e.order))
        open_events: list[Event] = []
        for event in events:
            open_events = [other for other in open_events if other.end > event.start]
            if event.integer("_a"):
                continue
            self._around[event] = open_events[::-1]
            open_events.append(event)

    def around(self, event: Event) -> list[Event]:
        """The events around an event on its thread, the innermost first."""
        return self._around.get(event, [])

    def calls(self, device_event: Event) -> list[Event]:
        """Host events with the correlation_id of the device event; 0 links nothing."""
        correlation = device_event.integer("correlation_id")
        if not correlation:
            return []
        return self._calls.get(correlation % 2**64, [])

    def producers(self, event: Event) -> list[Event]:
        """Events that produce what this one consumes."""
        kind, number = event.integer("_ct"), event.integer("_c")
        if kind is None or number is None:
            return []
        # XProf does not connect groups of 64 × 64; here every equal pair counts.
        return self._producers.get((kind, number % 2**64), [])

    def causes(self, events: Iterable[Event]) -> Iterator[Event]:
        """Events with those around them, then what these consume with the events around that, and so on."""
        queue = list(events)
        visited = set(queue)
        while queue:
            nest = [queue[0], *self.around(queue.pop(0))]
            yield from nest
            for consumer in nest:
                for producer in self.producers(consumer):
                    if producer not in visited:
                        visited.add(producer)
                        queue.append(producer)

    def root_of(self, events: Iterable[Event], roots: dict[Event, int]) -> int | None:
        """The step of the nearest root among the causes of events; `roots` gives each root's step."""
        for cause in self.causes(events):
            if cause in roots:
                return roots[cause]
            if id(cause.line) in self._threadless:
                # A driver call without a thread belongs to the root around it in time.
                around = [r for r in roots if r.start <= cause.start < r.end]
                if around:
                    return roots[min(around, key=lambda r: (r.start, r.order))]
        return None
