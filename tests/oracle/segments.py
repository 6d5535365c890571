"""Cuts the time of each device into segments of one state each (docs/method.md, "Ledger")."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tests.oracle.balance import overlap_of
from tests.oracle.classes import CLASSES, Activity, is_side_work
from tests.oracle.collectives import Collective, Part, find_collectives
from tests.oracle.host_causes import BACK_TO_BACK_PS, HostCauses
from tests.oracle.host_names import kind_of
from tests.oracle.idle import causes_in, find_gaps
from tests.oracle.intervals import Cover, Interval, clip, joined, length, subtract, union
from tests.oracle.model import Device, HostAnswer
from tests.oracle.replicas import bodies_of_loops, replica_in_name
from tests.oracle.steps import Step, median

STATES = (
    *("compute", "communication", "device_wait", "h2d", "d2h", "d2d", "input", "host_ops"),
    *(
        "launch",
        "python",
        "between_calls",
        "python_thread",
        "no_core",
        "garbage_collection",
        "between",
        "evaluation",
        "checkpoint",
        "compile",
        "sync",
    ),
    *("turn", "dependency", "latency", "no_work", "unknown"),
)
OF_CLASS = {"compute": "compute", "collective": "communication", "memset": "d2d"}

SHORT_KERNEL_PS = 10_000_000
MS = 10**9
MANY_KERNELS = 500

KINDS = ("gpu", "tpu", "replica")
OWN = ("compute", "communication", "evaluation", "no_work")
"""States that a device without work keeps."""

_SENDS = re.compile(r"send_?recv|collective-?permute", re.I)
"""Kernels with which devices send to others."""

NOT_ITS_TURN = (
    *("device_wait", "host_ops", "launch", "python", "between", "sync"),
    *("dependency", "latency", "unknown"),
)


@dataclass(frozen=True)
class Segment:
    """`activity`: what runs, of several of a class the first begun; `by`: the device that is waited for; `step`: the step that
    it lies in, of several the last begun.
    """

    start: int
    end: int
    state: str
    activity: Activity | None
    by: Device | None
    step: Step | None

    @property
    def length(self) -> int:
        return self.end - self.start

    def cut(self, cover: Cover) -> list[Segment]:
        """Its parts inside and outside of a cover."""
        bounds = [self.start, *cover.edges(self.start, self.end), self.end]
        return [replace(self, start=low, end=high) for low, high in pairwise(bounds)]

    def ending_with(self, length: int, **changes: Any) -> list[Segment]:
        """Itself with changes in its last part."""
        middle = self.end - length
        parts = replace(self, end=middle), replace(self, start=middle, **changes)
        return [part for part in parts if part.length]


class Ledger:
    """The segments of every device of the hosts that recorded a device event, in order.

    `plain`: before what happens beside it changes states; `segments`: after that.
    """

    def __init__(self, answers: list[HostAnswer]) -> None:
        self.answers = [answer for answer in answers if answer.activities()]
        self._all = answers
        self.collectives = find_collectives(answers)
        self.hosts = {answer.host.name: answer for answer in answers}
        self.devices = [device for answer in self.answers for device in answer.devices]
        causes = {answer.host.name: HostCauses(answer) for answer in self.answers}
        self._work = {
            id(device): Cover(activity.span for activity in device.activities)
            for device in self.devices
        }
        self.plain = {
            id(device): self._plain(causes[answer.host.name], device)
            for answer in self.answers
            for device in answer.devices
        }
        self.segments = dict(self.plain)
        for answer in self.answers:
            self._own_dispatch(answer)
            self._evaluations(causes[answer.host.name], answer)
            self._dispatch(causes[answer.host.name], answer)
            self._in_flight(answer)
        self._turns()
        self._sections()
        self._no_work()
        self._meetings()
        for answer in self.answers:
            self._without_frames(causes[answer.host.name], answer)
            self._short_kernels(answer)

    def answer_of(self, device: Device) -> HostAnswer:
        """The answer of the host of a device."""
        return self.hosts[device.host]

    @property
    def has_steps(self) -> bool:
        """Whether any host has a used step."""
        return any(step.used for answer in self._all for step in answer.steps)

    def counts(self, segment: Segment) -> bool:
        """Whether a segment takes part in sums."""
        return not self.has_steps or (segment.step is not None and segment.step.used)

    def states_of(self, device: Device, step: Step) -> dict[str, int]:
        """The time of a device in a step by state, in their order."""
        sums = dict.fromkeys(STATES, 0)
        for segment in self.segments.get(id(device), []):
            if segment.step is step:
                sums[segment.state] += segment.length
        return {state: ps for state, ps in sums.items() if ps}

    def clocks_agree(self, devices: Collection[Device]) -> bool:
        """Whether instants of these devices can be compared."""
        # The host that the others were compared with shares no ends itself.
        hosts = {device.host: self.answer_of(device) for device in devices}
        return len(hosts) == 1 or sum(not answer.shares_ends for answer in hosts.values()) <= 1

    # What a device does, and what it is idle for

    def _plain(self, host: HostCauses, device: Device) -> list[Segment]:
        answer = self.answer_of(device)
        pieces: list[tuple[int, int, str, Activity | None]] = [
            (start, end, "device_wait" if is_wait else OF_CLASS.get(one.cls, one.cls), one)
            for start, end, one, is_wait in self._busy(device, answer.window)
        ]
        for gap in find_gaps(self._all, answer, host, device):
            pieces += [(a, b, cause, None) for a, b, cause in joined(gap.parts)]
        edges = sorted({edge for step in answer.steps for edge in (step.start, step.end)})
        segments = []
        for start, end, state, activity in sorted(pieces, key=lambda piece: piece[0]):
            inside = edges[bisect_right(edges, start) : bisect_left(edges, end)]
            for low, high in pairwise([start, *inside, end]):
                around = [step for step in answer.steps if step.start <= low < step.end]
                step = max(around, key=lambda step: (step.start, -step.end), default=None)
                by = None
                if state == "device_wait":
                    by = self._awaited(device, low, high, in_collective=activity is not None)
                segments.append(Segment(low, high, state, activity, by, step))
        assert sum(s.length for s in segments) == answer.window[1] - answer.window[0]
        return segments

    def _busy(self, device: Device, window: Interval) -> list[tuple[int, int, Activity, bool]]:
        """Pieces of one event each, the first of its class, and whether it transfers nothing yet."""
        transfers = Cover(
            (max(start, end - collective.transfer) if collective.complete else start, end)
            for collective, part in self._parts(device)
            for start, end in [part.activity.span]
        )
        events = sorted(
            (a for a in device.activities if a.span[0] < a.span[1]),
            key=lambda a: (a.span[0], -a.span[1]),
        )
        cuts = {edge for a in events for edge in (*a.span, a.event.end)} | set(window)
        cuts |= {edge for span in transfers.spans for edge in span}
        edges = sorted(edge for edge in cuts if window[0] <= edge <= window[1])
        # Side work of a replica has only the instants that no op of the model has.
        untrained = self.answer_of(device).untrained
        side = {
            id(a)
            for a in events
            if device.kind == "replica"
            and (is_side_work(a) or (a.cls == "compute" and a.op in untrained))
        }
        result: list[tuple[int, int, Activity, bool]] = []
        running, place = list(events[:0]), 0
        for start, end in pairwise(edges):
            while place < len(events) and events[place].span[0] <= start:
                running.append(events[place])
                place += 1
            running = [activity for activity in running if activity.span[1] > start]
            if not running:
                continue
            # An op of a CPU goes on like side work where its own event has ended, and begins to there.
            ended = {
                id(one): one.event.end
                for one in running
                if device.kind == "replica" and one.cls == "compute" and one.event.end <= start
            }

            def order(one: Activity, ended: dict[int, int] = ended) -> tuple[int, bool, int]:
                is_late = id(one) in side or id(one) in ended
                begun = one.span[0] if id(one) in side else ended.get(id(one), one.span[0])
                return CLASSES.index(one.cls), is_late, begun

            # `min` keeps the first of equals, which began first.
            first = min(running, key=order)
            is_wait = first.cls == "collective" and not transfers.holds(start)
            if result and result[-1][1] == start and result[-1][2:] == (first, is_wait):
                result[-1] = (result[-1][0], end, first, is_wait)
            else:
                result.append((start, end, first, is_wait))
        return result

    def _parts(self, device: Device) -> list[tuple[Collective, Part]]:
        return [
            (collective, part)
            for collective in self.collectives
            for part in collective.parts
            if part.device is device
        ]

    def _awaited(
        self, device: Device, start: int, end: int, *, in_collective: bool
    ) -> Device | None:
        """The device that a device waits for in a collective, or that holds up its next work."""
        if in_collective:
            begun = [row for row in self._parts(device) if row[1].activity.span[0] <= start]
            collective, _ = max(begun, key=lambda row: row[1].activity.span[0])
            other = _came_last(collective) if collective.complete else None
        elif device.kind == "replica":
            pauses = [
                (high, place)
                for place, peer in enumerate(self.devices)
                if peer is not device and peer.host == device.host and peer.kind == "replica"
                for low, high in self._work[id(peer)].spans
                if low < end <= high
            ]
            other = self.devices[min(pauses)[1]] if pauses else None
        else:
            begun = [
                (collective, part)
                for collective in self.collectives
                for part in collective.parts
                if part.device is not device and part.activity.span[0] < end
            ]
            if not begun:
                return None
            collective, part = max(begun, key=lambda row: row[1].activity.span[0])
            if part.activity.span[1] < end:
                return None
            other = _came_last(collective) if collective.complete else part.device
        return None if other is device else other

    # What happens beside it

    def _recast(
        self,
        device: Device,
        cover: Cover,
        among: Collection[str],
        state: str,
        by: Device | None = None,
    ) -> None:
        """Another state for what lies in a cover."""

        def changed(segment: Segment) -> list[Segment]:
            if segment.state not in among:
                return [segment]
            return [
                replace(part, state=state, by=by or part.by) if cover.holds(part.start) else part
                for part in segment.cut(cover)
            ]

        self._change(device, changed)

    def _change(self, device: Device, changed: Callable[[Segment], list[Segment]]) -> None:
        """Other segments in the place of each."""
        self.segments[id(device)] = [
            new for segment in self.segments[id(device)] for new in changed(segment)
        ]

    def _own_dispatch(self, answer: HostAnswer) -> None:
        """While a thread executes the part of a graph that has a replica's ops, that replica waits for no other."""
        for device in answer.devices:
            executors = []
            for activity in device.activities if device.kind == "replica" else ():
                around = answer.links.around(activity.event)
                executors += [e for e in around if e.name == "ExecutorState::Process"][:1]
            cover = Cover((event.start, event.end) for event in executors)

            def changed(segment: Segment, cover: Cover = cover) -> list[Segment]:
                if segment.state != "device_wait" or segment.activity is not None:
                    return [segment]
                return [
                    replace(part, state="host_ops", by=None)
                    if part.length <= BACK_TO_BACK_PS and cover.holds(part.start)
                    else part
                    for part in segment.cut(cover)
                ]

            self._change(device, changed)

    def _evaluations(self, host: HostCauses, answer: HostAnswer) -> None:
        """Between two markers the host calls a graph and asks for input, or it saves variables."""
        markers = Cover(host.markers).spans
        between = [(before[1], after[0]) for before, after in pairwise(markers)]
        if host.caller is None or not between:
            return
        every = [event for events in host.events for event in events]
        own = [event for event in host.events[host.caller] if event.name == "FunctionRun"]
        asks = [event.start for event in every if kind_of(event.name) in ("input", "async_input")]
        asks += [event.start for event in host.async_requests()]
        checkpoints = [e for e in host.events[host.caller] if kind_of(e.name) == "checkpoint"]
        saved = [event.start for event in checkpoints]
        restored = [
            (event.start, min(start for start, _ in markers if start >= event.start))
            for event in checkpoints
            if "Restore" in event.name and event.start < markers[-1][0]
        ]
        ends = [event.end for event in [*own, *host.ends_of_input(host.caller)]]
        ends += [a.event.end for device in answer.devices for a in device.of_class("compute")]
        evaluated = [
            (start, max((one for one in ends if start < one <= end), default=end))
            for start, end in between
            if any(start <= event.start < end for event in own)
            and any(start <= one < end for one in asks)
        ]
        saves = [(start, end) for start, end in between if any(start <= one < end for one in saved)]
        if 2 * len(evaluated) > len(between):
            evaluated = []
        for device in answer.devices:
            among = [state for state in STATES if state != "no_work"]
            self._recast(device, Cover(evaluated), among, "evaluation")
            self._recast(device, Cover(saves), ("between",), "checkpoint")
            self._recast(device, Cover(restored), ("compile",), "checkpoint")

    def _dispatch(self, host: HostCauses, answer: HostAnswer) -> None:
        """What keeps back a copy that the host waits for is that wait, and so is what it does later because of one.

        That is as much as it has waited while the device worked, each wait counted once, and the time that a thread which
        records nothing takes to wake up.
        """
        if host.caller is None:
            return
        low, high = answer.window
        # It may have begun to wait before the window.
        first = min((event.start for event in host.events[host.caller]), default=low)
        shown = [
            (a, b)
            for a, b, cause in causes_in(host, host.caller, min(first, low), high)
            if cause == "sync"
        ]
        waits = Cover(shown)
        spoken = Cover((e.start, e.end) for e in host.events[host.caller] if host.shows(e)).spans
        for device in answer.devices:
            if device.kind == "replica":
                continue
            gaps = find_gaps(self._all, answer, host, device)
            asked = [(gap.start, gap.end) for gap in gaps if gap.is_read]
            both = [one for span in asked for one in clip(waits.spans, span)]
            self._recast(device, Cover(both), ("dependency",), "sync")
            # A loop or a branch of XLA reads its condition: the runtime does, to launch what follows.
            read = {
                one.event.end
                for one in device.of_class("d2h")
                if one.event.text("hlo_op").startswith(("while", "conditional"))
            }
            chosen, before = [], []
            for gap in gaps:
                if gap.turn > gap.start and waits.holds(gap.start - 1) and gap.start not in read:
                    begun = max(a for a, _ in waits.spans if a < gap.start)
                    silent = max((b for a, b in spoken if a < begun), default=begun)
                    chosen.append(gap)
                    before.append((min(begun, max(silent, begun - MS)), gap.start))
            silence = []
            for gap in chosen:
                wakes = min((a for a, _ in spoken if a >= gap.start), default=gap.end)
                if not any(a <= gap.start <= b for a, b in spoken):
                    silence.append((gap.start, min(wakes, gap.end)))
            self._recast(device, Cover(silence), ("launch", "latency"), "sync")
            idle = [(gap.start, gap.end) for gap in gaps]
            waited = subtract(clip(union([*waits.spans, *before]), answer.window), idle)
            left, known, follow = 0, low, []
            for gap in chosen:
                left += length(clip(waited, (known, gap.start)))
                late = sum(
                    length([part])
                    for each in self.segments[id(device)]
                    if each.state in ("launch", "latency")
                    for part in clip([(each.start, each.end)], (gap.start, gap.end))
                )
                ahead = min(left, late)
                left, known = left - ahead, gap.start
                follow.append((gap.end - ahead, gap.end))
            self._recast(device, Cover(follow), ("launch", "latency"), "sync")

    def _short_kernels(self, answer: HostAnswer) -> None:
        """Many short kernels are their launches."""
        for device in answer.devices:
            if device.kind != "gpu":
                continue
            own = device.of_class("compute")
            lengths: dict[str, list[int]] = {}
            for one in own:
                lengths.setdefault(one.event.name, []).append(one.event.end - one.event.start)
            usual = {name: median(every) or 0 for name, every in lengths.items()}
            short = [one for one in own if usual[one.event.name] < SHORT_KERNEL_PS]
            used = [step for step in answer.steps if step.used]
            begun = sum(step.start <= one.event.start < step.end for one in short for step in used)
            if short and begun >= MANY_KERNELS * max(len(used), 1):
                chosen = {id(one) for one in short}

                def changed(one: Segment, chosen: set[int] = chosen) -> list[Segment]:
                    is_short = one.state == "compute" and id(one.activity) in chosen
                    return [replace(one, state="launch") if is_short else one]

                self._change(device, changed)

    def _without_frames(self, host: HostCauses, answer: HostAnswer) -> None:
        """Nothing shows Python where no frame is open; the oracle reads runs without samples."""
        every = [event for events in host.events for event in events]
        frames = Cover((e.start, e.end) for e in every if e.name.startswith("$"))
        for device in answer.devices:
            edges = [-(10**30), *(edge for span in frames.spans for edge in span), 10**30]
            silent = Cover(zip(edges[::2], edges[1::2], strict=True))
            self._recast(device, silent, ("python",), "between_calls")

    def _in_flight(self, answer: HostAnswer) -> None:
        """Data sets that graphs run are input, but for the body of the loop over them; other waits are host ops."""
        flights = flights_of(answer)
        runs = [(a, b) for a, b, _, type_ in flights if DATA_SET.fullmatch(type_)]
        bodies = body_spans(answer)
        among = ("host_ops", "launch", "input", "dependency", "latency", "unknown")
        for device in answer.devices:
            self._recast(device, Cover(subtract(union(runs), bodies)), among, "input")
            inside = [one for span in union(runs) for one in clip(bodies, span)]
            self._recast(device, Cover(inside), ("unknown",), "host_ops")
            named = [(a, b) for a, b, name, type_ in flights if name and type_]
            self._recast(device, Cover(named), ("unknown",), "host_ops")

    def _sections(self) -> None:
        """Replicas wait for the one that was given the lock of a critical section last."""
        for answer in self.answers:
            locks = [row for row in flights_of(answer) if row[3] == "MutexLock"]
            for asked, given, name, _ in locks:
                device = _replica_of(answer, name)
                before = [row for row in locks if row[1] < given]
                for place, (_, held, owner, _) in enumerate(before):
                    until = [*(row[1] for row in before), given][place + 1]
                    other = _replica_of(answer, owner)
                    if device is None or other is None or other is device:
                        continue
                    spans = clip([(max(held, asked), until)], answer.window) if held < until else []
                    idle = subtract(spans, list(self._work[id(device)].spans))
                    self._turn(device, [one for one in idle if one[0] < one[1]], other)

    def _turn(self, device: Device, spans: list[Interval], other: Device) -> None:
        """A device waits for its turn; one on a CPU only while another op could run beside those that do."""
        answer = self.answer_of(device)
        if device.kind == "replica" and answer.cores:
            spans = subtract(spans, full_spans(answer, answer.cores))
        self._recast(device, Cover(spans), NOT_ITS_TURN, "turn", other)

    def _turns(self) -> None:
        """Devices that run one after another wait for their turn."""
        computing = {
            id(device): Cover(activity.span for activity in device.of_class("compute"))
            for device in self.devices
        }
        inside = {
            id(device): clip(computing[id(device)].spans, self.answer_of(device).window)
            for device in self.devices
        }
        used = [device for device in self.devices if length(inside[id(device)])]
        kind = next((kind for kind in KINDS if any(one.kind == kind for one in used)), None)
        used = [device for device in used if device.kind == kind]
        if len(used) < 2 or not self.clocks_agree(used):
            return
        if not self._is_serial(used, [list(computing[id(device)].spans) for device in used]):
            return
        waits = [
            (one.length, bool(_SENDS.search(one.activity.event.name)))
            for device in self.devices
            for one in self.segments[id(device)]
            if one.state == "device_wait" and one.activity is not None
        ]
        if 2 * sum(ps for ps, sent in waits if sent) > sum(ps for ps, _ in waits):
            return
        for device in used:
            for other in used:
                if other is not device:
                    self._turn(device, list(computing[id(other)].spans), other)
        self._beside_each_other(used)

    def _beside_each_other(self, used: list[Device]) -> None:
        """Of each step only what the device waits that waits least would be saved; the rest is a wait for the others."""
        numbers = {step.number for answer in self.answers for step in answer.steps}

        def place(one: Segment, whole: bool) -> int | None:
            return None if whole or one.step is None else one.step.number

        def waited(whole: bool) -> dict[int, dict[int | None, int]]:
            sums: dict[int, dict[int | None, int]] = {id(device): {} for device in used}
            for device in used:
                for one in self.segments[id(device)]:
                    if one.state == "turn":
                        of = sums[id(device)]
                        key = place(one, whole)
                        of[key] = of.get(key, 0) + one.length
            return sums

        sums = waited(False)
        shared = [n for n in numbers if all(sums[id(device)].get(n, 0) for device in used)]
        whole = 2 * len(shared) < len(numbers)
        sums = waited(whole)
        for device in used:

            def changed(one: Segment, device: Device = device) -> list[Segment]:
                if one.state != "turn":
                    return [one]
                key = place(one, whole)
                least = min(sums[id(other)].get(key, 0) for other in used)
                rest = int(one.length * (1 - least / sums[id(device)][key]))
                return one.ending_with(rest, state="device_wait")

            self._change(device, changed)

    def _is_serial(self, devices: list[Device], spans: list[list[Interval]]) -> bool:
        """Whether compute overlaps less than half as much as by chance, which chance hardly ever does."""
        hosts = {device.host: self.answer_of(device) for device in devices}
        overlap = overlap_of(spans, list(hosts.values()))
        count = min(sum(step.used for step in answer.steps) for answer in hosts.values())
        pairs = len(devices) * (len(devices) - 1) // 2
        meetings = float(overlap.chance) * pairs * max(count, 1)
        return float(overlap.ratio) < float(overlap.chance) / 2 and meetings >= 1.5

    def _no_work(self) -> None:
        """A device that only copies has no work, and one that computes little has none while others compute."""
        compute = {
            id(device): length(activity.span for activity in device.of_class("compute"))
            for answer in self._all
            for device in answer.devices
        }
        for device in self.devices:
            if not device.activities:
                continue
            idle = tuple(state for state in STATES if state not in OWN)
            window = Cover([self.answer_of(device).window])
            if not device.of_class("compute", "collective"):
                self._recast(device, window, idle, "no_work")
            elif 5 * compute[id(device)] < max(compute.values()):
                others = [
                    other
                    for other in self.devices
                    if other is not device and self.clocks_agree((device, other))
                ]
                at_work = Cover(a.span for other in others for a in other.of_class("compute"))
                among = [state for state in idle if state != "device_wait"]
                self._recast(device, at_work if others else window, among, "no_work")

    def _meetings(self) -> None:
        """What all devices wait in the collectives of a step is what it costs to meet more than once."""
        crowds = {answer.host.name: self._crowd(answer) for answer in self.answers}
        # Whoever is in a collective meanwhile has no core to go on with.
        for device in self.devices:
            if device.kind == "replica":
                self._recast(device, crowds[device.host], ("communication",), "device_wait")
        of_step: dict[int, dict[int, int]] = {}
        for device in self.devices:
            for one in self.segments[id(device)]:
                if (
                    one.step is not None
                    and one.activity is not None
                    and one.activity.cls == "collective"
                    and not _SENDS.search(one.activity.event.name)
                ):
                    waited = of_step.setdefault(one.step.number, {})
                    waited.setdefault(id(device), 0)
                    if one.state == "device_wait" and one.by is not None:
                        waited[id(device)] += self._own_wait(one, crowds[device.host])
        for device in self.devices:

            def changed(one: Segment, device: Device = device) -> list[Segment]:
                waited = of_step.get(one.step.number, {}) if one.step is not None else {}
                is_wait = (
                    one.state == "device_wait"
                    and one.activity is not None
                    and one.by is not None
                    and not _SENDS.search(one.activity.event.name)
                )
                whole = waited.get(id(device), 0)
                if not is_wait or len(waited) < 2 or not whole:
                    return [one]
                own = self._own_wait(one, crowds[device.host])
                part = int(own * (min(waited.values()) / whole))
                return one.ending_with(part, state="communication", by=None)

            self._change(device, changed)

    @staticmethod
    def _own_wait(segment: Segment, crowd: Cover) -> int:
        return segment.length - length(clip(crowd.spans, (segment.start, segment.end)))

    def _crowd(self, answer: HostAnswer) -> Cover:
        """When as many replicas of a host compute as it has cores."""
        spans = [
            (one.start, one.end)
            for device in answer.devices
            if device.kind == "replica"
            for one in self.segments[id(device)]
            if one.activity is not None and one.activity.cls == "compute"
        ]
        if not answer.cores:
            return Cover([])
        changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
        crowded, running = [], 0
        for (at, change), (until, _) in pairwise(changes):
            running += change
            if running >= answer.cores:
                crowded.append((at, until))
        return Cover(crowded)


DATA_SET = re.compile(r"(Reduce|Save)Dataset(V\d+)?|DatasetToSingleElement|MakeIterator")
SHOWN_ELSEWHERE = re.compile(
    r"_(Host)?Recv|RemoteCall|(Collective|Nccl).*|.*PartitionedCall|(Stateless)?(While|If|Case)|(MultiDevice)?IteratorGetNext.*"
)
Flight = tuple[int, int, str, str]
"""An asynchronous op: when it began and ended, its name and type."""


def flights_of(answer: HostAnswer) -> list[Flight]:
    """The asynchronous ops of a host that wait for what nothing else shows, in the order in which they end."""
    found = []
    for event in answer.host.host_events():
        if event.name == "ExecutorState::ProcessAsync::Done":
            begun = answer.links.producers(event)
            if begun and not SHOWN_ELSEWHERE.fullmatch(event.text("kernel_type")):
                first = min(begun, key=lambda one: one.start)
                name, type_ = first.text("name"), first.text("kernel_type")
                if first.start < event.start:
                    found.append((first.start, event.start, name, type_))
    return sorted(found, key=lambda row: row[1])


def body_spans(answer: HostAnswer) -> list[Interval]:
    """When data sets that graphs run call the body of a loop."""
    bodies = bodies_of_loops(answer.host, answer.links)
    return union(
        (event.start, event.end)
        for event in answer.host.host_events()
        if event.name == "InstantiatedCapturedFunction::Run" and event.integer("id") in bodies
    )


def full_spans(answer: HostAnswer, cores: int) -> list[Interval]:
    """When as many ops of a host run as it has cores, or more."""
    spans = [activity.span for device in answer.devices for activity in device.activities]
    edges = sorted({edge for span in spans for edge in span})
    counted = [
        (a, b, sum(low <= a and b <= high for low, high in spans)) for a, b in pairwise(edges)
    ]
    return union((a, b) for a, b, count in counted if count >= cores)


def _replica_of(answer: HostAnswer, name: str) -> Device | None:
    """The device with the number of the replica in a name, 0 without."""
    number = replica_in_name(name, 0) or 0
    return next((one for one in answer.devices if one.ordinal == number), None)


def _came_last(collective: Collective) -> Device:
    return min(
        collective.parts,
        key=lambda part: (part.activity.span[1] - part.start, -part.start),
    ).device
