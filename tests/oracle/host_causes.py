"""The cause of idle time that each thread of a host shows at an instant (docs/method.md, "State of a host thread")."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate

from tests.oracle.classes import Activity
from tests.oracle.host_names import is_begun_by_python, kind_of
from tests.oracle.intervals import Cover, Interval, Outside, subtract
from tests.oracle.model import HostAnswer
from tests.oracle.reading import Event, Line
from tests.oracle.steps import find_marks

BACK_TO_BACK_PS = 100_000_000
SCHEDULING_OP_PS = 50_000_000
HANDOVER_PS = 1_000_000_000
LONG_DELETE_PS = 1_000_000_000
STRONG = ("input", "h2d", "compile", "sync", "checkpoint")
LONGEST_CHAIN = 8
# A layer gives its cause at the instants that all of its covers hold.
Layer = tuple[str, list[Cover]]


def is_data_line(line: Line) -> bool:
    return line.name.startswith("tf_data")


@dataclass(eq=False)
class Shown:
    """What the events of some threads show."""

    strong: dict[str, Cover]
    launch: Cover
    host_compute: Cover
    pipeline: Cover
    scheduling: Cover
    other: Cover
    unlisted: Cover


def _with_driver_lines(threads: list[list[Line]]) -> list[list[Line]]:
    """The lines of each thread; one of eight driver calls or more joins the thread whose events hold all of them."""
    homes: dict[int, list[int]] = {}
    covers: dict[int, Cover] = {}
    for place, own in enumerate(threads):
        (line, *more) = own
        calls = [event for event in line.events if "correlation_id" in event.stats]
        if more or len(calls) < 8 or len(calls) < len(line.events):
            continue
        fitting = []
        for other, lines in enumerate(threads):
            for home in lines:
                if home.events and any("correlation_id" not in e.stats for e in home.events):
                    events = [e for e in home.events if not e.name.startswith("$")]
                    cover = covers.setdefault(id(home), Cover((e.start, e.end) for e in events))
                    if all(_inside(call, cover) for call in calls):
                        fitting.append((sum(b - a for a, b in cover.spans), other))
        if fitting:
            homes.setdefault(min(fitting)[1], []).append(place)
    result = [list(own) for own in threads]
    for owner, places in homes.items():
        if len(places) == 1:
            result[owner] += threads[places[0]]
            result[places[0]] = []
    return result


def _inside(event: Event, cover: Cover) -> bool:
    return any(start <= event.start and event.end <= end for start, end in cover.spans)


class HostCauses:
    """The causes that the threads of one host show."""

    def __init__(self, answer: HostAnswer) -> None:
        self.answer = answer
        links, host = answer.links, answer.host
        self.has_queue = any(device.kind != "replica" for device in answer.devices)
        threads = _with_driver_lines(links.threads)
        self.thread_of = {id(line): n for n, own in enumerate(threads) for line in own}
        self.events = [
            [event for line in own if not is_data_line(line) for event in line.events]
            for own in threads
        ]
        self.call_events = [
            event for own in self.events for event in own if self.kind_of(event) == "call"
        ]
        marks = sorted(
            find_marks(host, links, answer.step_method), key=lambda mark: (mark.start, mark.end)
        )
        self.marker_line = marks[0].events[0].line if marks else None
        explicit = answer.step_method in ("marker", "keras")
        self.markers = [(mark.start, mark.end) for mark in marks] if explicit else []
        self.caller = self._find_caller()
        self.calls = Cover(
            (event.start, event.end)
            for event in self.call_events
            if self.thread(event) == self.caller
        )
        self.reads = self._find_reads()
        self.constants = self._find_constants()
        self.captured = {
            _id(event)
            for event in answer.host.host_events()
            if event.name.startswith("InstantiatedCapturedFunction::Run")
        } - {None}
        self.shown = [self._shown(n) for n in range(len(self.events))]
        self.executors = self._joined(n for n in range(len(self.events)) if n != self.caller)
        self.handovers = self._find_handovers()
        self.python = [self._find_python(events) for events in self.events]
        self._layers: dict[int, list[Layer]] = {}

    def kind_of(self, event: Event) -> str:
        """The kind of its name; nothing is copied to devices that are threads themselves."""
        kind = kind_of(event.name)
        return "other" if kind == "h2d" and not self.has_queue else kind

    def shows(self, event: Event) -> bool:
        """Whether an event shows what its thread does: no scope, frame or note of an allocator."""
        is_known = self.kind_of(event) != "other"
        return is_known or "correlation_id" in event.stats or "tf_function_call" in event.stats

    def thread(self, event: Event) -> int:
        return self.thread_of[id(event.line)]

    def _find_caller(self) -> int | None:
        """The first rung that applies; of threads with equally many calls the one that called first."""
        if self.marker_line is not None:
            return self.thread_of[id(self.marker_line)]
        if self.call_events:
            return self._busiest(self.call_events)
        lines = self.answer.host.host_lines()
        for line in lines:
            if line.name.startswith("python"):
                return self.thread_of[id(line)]
        launches = [e for e in self.answer.host.host_events() if "correlation_id" in e.stats]
        if launches:
            return self._busiest(launches)
        return self.thread_of[id(lines[0])] if lines else None

    def _busiest(self, events: list[Event]) -> int:
        by_thread: dict[int, list[int]] = {}
        for event in events:
            by_thread.setdefault(self.thread(event), []).append(event.start)
        return min(by_thread, key=lambda n: (-len(by_thread[n]), min(by_thread[n]), n))

    def _find_reads(self) -> list[tuple[Event, int]]:
        """Calls that copy from a device, and the end of each copy."""
        return [(launch, activity.event.end) for launch, activity in self._copies("d2h")]

    def _find_constants(self) -> list[Event]:
        """Calls that copied a constant of a graph to a device."""
        return [
            launch
            for launch, activity in self._copies("h2d")
            if "MakeTensorFromProto" in (activity.op, activity.event.name)
        ]

    def _copies(self, direction: str) -> list[tuple[Event, Activity]]:
        """The copies of devices with a queue, by the calls that launched them."""
        copies = [
            a for d in self.answer.devices if d.kind != "replica" for a in d.of_class(direction)
        ]
        launches = [(launch_of(self.answer, activity), activity) for activity in copies]
        return [(launch, activity) for launch, activity in launches if launch is not None]

    def _find_handovers(self) -> Cover:
        """The short parts of graph calls in which no executor recorded anything."""
        shown = self.executors
        recorded = [shown.launch, shown.host_compute, shown.pipeline, shown.scheduling]
        busy = [span for cover in (*recorded, *shown.strong.values()) for span in cover.spans]
        silent = subtract(self.calls.spans, busy)
        return Cover((start, end) for start, end in silent if end - start <= HANDOVER_PS)

    def _find_python(self, events: list[Event]) -> Cover | None:
        """From the end of what a thread showed to the next thing that Python began; None for other threads."""
        frames = [(e.start, e.end) for e in events if e.name.startswith("$")]
        begun = [e for e in events if is_begun_by_python(e.name) or "tf_function_call" in e.stats]
        if not frames and not begun:
            return None
        starts = {e.start for e in begun}
        starts |= {e.start for e in events if self.kind_of(e) in ("h2d", "d2h", "sync")}
        spans: list[Interval] = []
        shown_until: int | None = None
        for event in sorted(filter(self.shows, events), key=lambda e: e.start):
            if shown_until is not None and event.start > shown_until and event.start in starts:
                spans.append((shown_until, event.start))
            shown_until = event.end if shown_until is None else max(shown_until, event.end)
        return Cover(spans + frames)

    def _prepared(self, thread: int) -> list[Interval]:
        """Around each copy of a constant, the time in which the thread showed nothing but copies to a device."""
        events = self.events[thread]
        showing = _cover(e for e in events if self.shows(e) and self.kind_of(e) != "h2d")
        own = [e for e in self.constants if self.thread(e) == thread and not is_data_line(e.line)]
        result = []
        for copy in own:
            if not showing.holds(copy.start):
                before = [end for _, end in showing.spans if end <= copy.start]
                after = [start for start, _ in showing.spans if start > copy.start]
                first, last = min(e.start for e in events), max(e.end for e in own)
                result.append((max(before, default=first), min(after, default=last)))
        return result

    def _in_pipeline(self, events: list[Event]) -> set[int]:
        """Which events began inside calls of the input pipeline, or inside what runs under the id of one."""
        calls = Cover(
            (event.start, event.end)
            for event in events
            if event.name.startswith(("Iterator::", "InstantiatedCapturedFunction::Run"))
            or _id(event) in self.captured
        )
        return {id(event) for event in events if calls.holds(event.start)}

    def _shown(self, thread: int) -> Shown:
        events = self.events[thread]
        piped = self._in_pipeline(events)
        strong = {
            cause: [(e.start, e.end) for e in events if self.kind_of(e) == cause]
            for cause in STRONG
        }
        for event in events:
            if event.text("tf_function_call").startswith("traced-"):
                runs = [
                    (-run.end, run.start)
                    for run in self.call_events
                    if run.line is event.line and event.start <= run.start and run.end <= event.end
                ]
                # That which ends last, of several the first to begin.
                strong["compile"].append((event.start, min(runs, default=(0, event.end))[1]))
        strong["compile"] += self._prepared(thread)
        jitted = Cover(
            (run.start, run.end)
            for run in self.call_events
            if self.thread(run) == thread and run.name.startswith("PjitFunction(")
        )
        for event in events:
            for start, end in jitted.spans:
                if self.kind_of(event) == "compile" and start <= event.start < end:
                    strong["compile"].append((start, min(event.end, end)))
        strong["input"] += [(event.start, event.end) for event in self.ends_of_input(thread)]
        for call, copied in self.reads:
            own = self.thread(call) == thread and not is_data_line(call.line)
            if own and not any(call.end <= event.start < copied for event in events):
                strong["sync"].append((call.start, copied))
        launches = [
            event
            for event in events
            if "correlation_id" in event.stats and self.kind_of(event) in ("other", "op")
        ]
        launching, computing = list(launches), []
        launching += [
            event for event in events if self.kind_of(event) == "launch" and id(event) not in piped
        ]
        shared = {id(activity.event) for activity in self.answer.shared}
        for op in events:
            if self.kind_of(op) != "op" or id(op) in piped:
                continue
            if not self.has_queue:
                computing += [op] if id(op) in shared else []
            elif op.end - op.start >= SCHEDULING_OP_PS and not any(
                op.start <= launch.start < op.end for launch in launches
            ):
                computing.append(op)
            else:
                launching.append(op)
        unknown = [
            event
            for event in events
            if self.kind_of(event) == "other"
            and id(event) not in piped
            and not event.name.startswith("$")
            and "correlation_id" not in event.stats
        ]
        handing_on = [
            event
            for event in events
            if (self.kind_of(event) in ("dispatch", "executor") and id(event) not in piped)
            or "tf_function_call" in event.stats
        ]
        pipeline = [
            event
            for event in events
            if self.kind_of(event) in ("op", "dispatch", "executor") and id(event) in piped
        ]
        return Shown(
            {cause: Cover(spans) for cause, spans in strong.items()},
            _cover(launching if self.has_queue else []).bridged(BACK_TO_BACK_PS),
            _cover(computing),
            _cover(pipeline),
            _cover(handing_on),
            _cover(unknown),
            _cover(
                event
                for event in unknown
                if event.end - event.start >= SCHEDULING_OP_PS
                and not any(event.start <= launch.start < event.end for launch in launches)
            ),
        )

    def _joined(self, threads: Iterable[int]) -> Shown:
        parts = [self.shown[n] for n in threads]
        strong = {cause: _union(shown.strong[cause] for shown in parts) for cause in STRONG}
        strong["input"] = _union((strong["input"], _cover(self.async_requests())))
        names = [field.name for field in fields(Shown)[1:]]
        return Shown(strong, *(_union(getattr(each, name) for each in parts) for name in names))

    def ends_of_input(self, thread: int) -> list[Event]:
        """Deletions of iterators on a thread: the last handle of one waits for the threads of its pipeline."""
        makes = any("MakeIterator" in event.name for event in self.answer.host.host_events())
        return [
            event
            for event in self.events[thread]
            if makes
            and event.name == "TFE_DeleteTensorHandle"
            and event.end - event.start >= LONG_DELETE_PS
        ]

    def async_requests(self) -> list[Event]:
        """Requests for input inside graphs, which threads of tf.data answer."""
        ids = {_id(event) for event in self.call_events} - {None}
        return [
            event
            for event in self.answer.host.host_events()
            if self.kind_of(event) == "async_input" and _id(event) in ids
        ]

    def layers(self, thread: int) -> list[Layer]:
        """The layers of a thread's timeline; the first that holds an instant gives its cause."""
        if thread not in self._layers:
            is_caller = thread == self.caller
            self._layers[thread] = (
                self._caller_layers(thread) if is_caller else self._executor_layers(thread)
            )
        return self._layers[thread]

    def _caller_layers(self, thread: int) -> list[Layer]:
        own, others, calls = self.shown[thread], self.executors, self.calls
        result: list[Layer] = [(cause, [own.strong[cause]]) for cause in STRONG]
        result += [(cause, [others.strong[cause], calls]) for cause in STRONG]
        result += [("launch", [own.launch]), ("launch", [others.launch, calls])]
        if self.markers:
            result.append(("between", [Outside(self.markers)]))
        result += self._peers()
        result += [("host_ops", [own.host_compute]), ("input", [own.pipeline])]
        result += [("host_ops", [others.host_compute, calls])]
        result.append((self._scheduling(), [own.scheduling]))
        result.append((self._scheduling(), [others.scheduling, calls]))
        if self.has_queue:
            long = [(a, b) for a, b in own.unlisted.spans if b - a > HANDOVER_PS]
            result.append(("host_ops", [Cover(long), calls]))
        dispatching = _union((own.scheduling, own.launch, calls)).bridged(BACK_TO_BACK_PS)
        result.append((self._scheduling(), [dispatching]))
        python = self.python[thread]
        return result if python is None else [*result, ("python", [python])]

    def _executor_layers(self, thread: int) -> list[Layer]:
        own, others = self.shown[thread], self.executors
        result: list[Layer] = [(cause, [own.strong[cause]]) for cause in STRONG]
        result.append(("launch", [own.launch]))
        if self.has_queue:
            result.append(("host_ops", [own.host_compute]))
        result.append(("input", [own.pipeline]))
        if self.has_queue:
            result.append(("host_ops", [own.unlisted]))
        result += [(cause, [others.strong[cause]]) for cause in STRONG]
        result.append(("launch", [others.launch]))
        result += self._peers()
        result.append(("host_ops", [others.host_compute]))
        result.append((self._scheduling(), [others.scheduling.bridged(BACK_TO_BACK_PS)]))
        result += [("input", [others.pipeline]), (self._scheduling(), [self.handovers])]
        python = self.python[thread]
        if python is not None:
            executors = [p for n, p in enumerate(self.python) if n != self.caller and p is not None]
            result += [("python", [python]), ("python", [_union(executors)])]
        else:
            result.append((self._scheduling(), [own.other]))
        if self.caller is not None:
            waiting = self.shown[self.caller].strong
            result += [(cause, [waiting[cause]]) for cause in STRONG]
        return result

    def _peers(self) -> list[Layer]:
        if self.has_queue:
            return []
        return [("device_wait", [_cover(activity.event for activity in self.answer.activities())])]

    def _scheduling(self) -> str:
        return "launch" if self.has_queue else "host_ops"

    def handed_over(self, event: Event) -> tuple[int | None, int]:
        """When the caller handed over the work of an event of another thread, and the thread that was late then.

        None if that was before all graph calls. The thread is the last one of Python on the chain, else the event's.
        """
        current, thread = event, self.thread(event)
        for _ in range(LONGEST_CHAIN):
            consumers = self._consumers[self.thread(current)].open_at(current.start)
            if not consumers:
                break
            inner = max(consumers, key=lambda e: (e.start, -e.end, e.order))
            current = min(self.answer.links.producers(inner), key=lambda e: (e.start, e.order))
            if self.thread(current) == self.caller:
                return current.start, thread
            if self.python[self.thread(current)] is not None:
                thread = self.thread(current)
        begun = [span for span in self.calls.spans if span[0] <= event.start]
        last = max(begun, default=None)
        if last is not None and last[1] > event.start:
            return last[0], thread
        starts = [start for start, _ in begun]
        starts += [start for start, _ in self._dispatched.spans if start <= event.start]
        return max(starts, default=None), thread

    @cached_property
    def _consumers(self) -> list[_OpenEvents]:
        """By thread, the events that consume what others produced."""
        links = self.answer.links
        return [
            _OpenEvents(e for line in own for e in line.events if links.producers(e))
            for own in links.threads
        ]

    @cached_property
    def _dispatched(self) -> Cover:
        """What Python called on the caller."""
        return _cover(
            e
            for e in (self.events[self.caller] if self.caller is not None else ())
            if is_begun_by_python(e.name) or "tf_function_call" in e.stats
        )


class _OpenEvents:
    """Events by their start, with the latest end up to each, so that those open at an instant are found at once."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = sorted(events, key=lambda e: e.start)
        self._starts = [e.start for e in self._events]
        self._reach = list(accumulate((e.end for e in self._events), max))

    def open_at(self, time: int) -> list[Event]:
        """The events that have begun by an instant and end after it."""
        place = bisect_right(self._starts, time)
        found = []
        while place > 0 and self._reach[place - 1] > time:
            place -= 1
            if self._events[place].end > time:
                found.append(self._events[place])
        return found


def launch_of(answer: HostAnswer, activity: Activity) -> Event | None:
    """The host call that launched a device event; an op of a replica is its own launch."""
    if activity.event.line.plane.startswith("/host:"):
        return activity.event
    calls = answer.links.calls(activity.event)
    return min(calls, key=lambda e: (e.start, e.order), default=None)


def _id(event: Event) -> int | None:
    number = event.integer("id")
    return event.integer("step_id") if number is None else number


def _cover(events: Iterable[Event]) -> Cover:
    return Cover((event.start, event.end) for event in events)


def _union(covers: Iterable[Cover]) -> Cover:
    return Cover(span for cover in covers for span in cover.spans)
