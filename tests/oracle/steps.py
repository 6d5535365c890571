"""Recomputes the steps of one host: markers, periods, basis, numbers (docs/method.md, "Steps")."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tests.oracle.classes import Activity
from tests.oracle.host_names import is_compilation
from tests.oracle.links import Links
from tests.oracle.reading import Event, Host

METHODS = ("marker", "keras", "group", "function", "period")


@dataclass(eq=False)
class Step:
    host: str
    recorded_number: int | None
    start: int
    end: int
    kind: str = "train"
    number: int = 0
    used: bool = True  # in medians


@dataclass(eq=False)
class Mark:
    """The start of a step on the host: one marker, or the runs of one function call."""

    number: int | None
    start: int
    end: int
    kind: str
    events: list[Event]


def median(values: list[int]) -> int | None:
    """The median of integers, rounded down."""
    if not values:
        return None
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def _kind(name: str) -> str:
    """The kind of a step: eval if the name begins with `test` or contains `eval`."""
    return "eval" if name.startswith("test") or "eval" in name.lower() else "train"


def _is_marker(event: Event) -> bool:
    if "step_num" not in event.stats:
        return False
    named = event.name.startswith(("train", "test", "TraceContext")) and "/" not in event.name
    return named or "_r" in event.stats


def _outermost(events: list[Event]) -> list[Event]:
    """The events that are not inside the time of another one, on whichever thread of the host."""
    ordered = sorted(events, key=lambda e: (e.start, -e.end, e.order))
    result: list[Event] = []
    for event in ordered:
        if not any(other.start <= event.start and event.end <= other.end for other in result):
            result.append(event)
    return result


def _marks_of_events(keep: list[Event]) -> list[Mark]:
    outer = _outermost(keep)
    marks = [Mark(e.integer("step_num") or 0, e.start, e.end, _kind(e.name), [e]) for e in outer]
    for inner in keep:
        for mark in marks:
            if inner not in mark.events and mark.start <= inner.start and inner.end <= mark.end:
                mark.events.append(inner)
    return marks


def _function_marks(host: Host, links: Links) -> list[Mark]:
    """Root FunctionRuns by calling thread and function; runs of one call share their `id`."""
    runs = [e for e in host.host_events() if e.name == "FunctionRun"]
    if any("_r" in e.stats for e in runs):
        runs = [e for e in runs if "_r" in e.stats]
    data_ids = {
        e.integer("id")
        for e in host.host_events()
        if e.name.startswith("InstantiatedCapturedFunction::Run")
    }
    calls: dict[tuple[int, str], dict[int, list[Event]]] = {}
    for run in runs:
        if run.line.name.startswith("tf_data_") or run.integer("id") in data_ids:
            continue
        function = ""
        around = links.around(run)
        for outer in around:
            # The function is the outermost event around it with `tf_function_call`, else the eager op;
            # without either all runs of the thread are one function.
            if "tf_function_call" in outer.stats:
                function = outer.name
            elif outer.text("eager_op") and not function:
                function = outer.text("eager_op")
        if not any(outer.name == "FunctionRun" for outer in around):
            call = calls.setdefault((run.line.id, function), {})
            call.setdefault(run.integer("id") or 0, []).append(run)
    repeated = [list(call.values()) for call in calls.values() if len(call) >= 2]
    if not repeated:
        return []
    # Of several repeated functions the one called most often counts, then the earliest.
    chosen = min(repeated, key=lambda c: (-len(c), min(e.start for runs in c for e in runs)))
    chosen.sort(key=lambda runs: min(e.start for e in runs))
    return [
        Mark(None, min(e.start for e in runs), max(e.end for e in runs), "train", runs)
        for runs in chosen
    ]


def find_marks(host: Host, links: Links, method: str) -> list[Mark]:
    events = host.host_events()
    if method == "marker":
        return _marks_of_events([e for e in events if _is_marker(e)])
    if method == "keras":
        named = [e for e in events if e.name == "Profiled batch" and "step_num" in e.stats]
        return _marks_of_events(named)
    if method == "function":
        return _function_marks(host, links)
    return []


def group_steps(host: Host, activities: list[Activity]) -> list[Step]:
    """Stored `Steps` lines, or `group_id` of device events; one step per number."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for plane in host.planes.values():
        for line in plane.lines:
            if not plane.name.startswith("/device:"):
                continue
            if line.name != "Steps" and line.id % 2**32 != 0xDEADBEEF:
                continue
            for event in line.events:
                text = event.name if event.name.lstrip("-").isdigit() else event.text("step_name")
                number = int(text) if text.lstrip("-").isdigit() else event.integer("group_id")
                if number is not None:
                    spans.setdefault(number, []).append((event.start, event.end))
    if not spans:
        # Without a Steps line only the group_id of counted device events is used.
        for activity in activities:
            group = activity.event.integer("group_id")
            if group is not None:
                spans.setdefault(group, []).append(activity.span)
    steps = [
        Step(host.name, number, min(s for s, _ in own), max(e for _, e in own))
        for number, own in spans.items()
    ]
    return sorted(steps, key=lambda s: (s.start, s.end))


def holds_tracing(host: Host, start: int, end: int) -> bool:
    """Whether a span includes a call `traced-*` or a compilation, by these names without op scopes."""
    return any(
        event.text("tf_function_call").startswith("traced") or is_compilation(event.name)
        for event in host.host_events()
        if start <= event.start < end
    )


def begins_with_tracing(host: Host, steps: list[Step]) -> bool:
    """Whether the first step is a warm-up: it holds tracing, and none after the second does."""
    first, last = steps[0], steps[-1]
    goes_on = len(steps) > 2 and holds_tracing(host, steps[2].start, last.end)
    return holds_tracing(host, first.start, first.end) and not goes_on


def _step_of_activity(
    activity: Activity, links: Links, roots: dict[Event, int], marks: list[Mark]
) -> tuple[int | None, bool]:
    """(index of the step, whether links show it); without links the step in which it starts."""
    event = activity.event
    calls = [event, *links.calls(event)]  # an op of a replica is its own host event
    linked = links.root_of(calls, roots)
    if linked is not None:
        return linked, True
    before = [i for i, mark in enumerate(marks) if mark.start <= event.start]
    return (before[-1] if before else None), False


def marked_steps(
    host: Host, links: Links, marks: list[Mark], activities: list[Activity]
) -> tuple[list[Step], list[Step] | None]:
    """Steps cut at the markers, and cut at the devices when the host runs ahead of them."""
    marks = sorted(marks, key=lambda m: (m.start, m.end))
    if not marks:
        return [], None
    roots = {event: i for i, mark in enumerate(marks) for event in mark.events}
    first_linked: dict[int, int] = {}
    last_end, late, whole = marks[-1].end, 0, 0
    for activity in activities:
        index, linked = _step_of_activity(activity, links, roots, marks)
        if index is None or not linked:
            continue
        start, end = activity.event.start, activity.event.end
        first_linked[index] = min(start, first_linked.get(index, start))
        if index == len(marks) - 1:
            last_end = max(last_end, end)
        else:
            whole += end - start
            late += max(end - max(start, marks[index + 1].start), 0)

    steps = []
    for i, mark in enumerate(marks):
        end = marks[i + 1].start if i + 1 < len(marks) else last_end
        steps.append(Step(host.name, mark.number, mark.start, end, mark.kind))
    steps[0].used = not begins_with_tracing(host, steps)

    # The host runs ahead if the devices spend more than a tenth of their time for all steps but the last after
    # the marker that follows. If a step has no linked device event, or they are not in order, the steps cannot be
    # cut at the devices.
    in_order = all(a < b for a, b in pairwise(first_linked[i] for i in sorted(first_linked)))
    on_planes = any(name.startswith("/device:") for name in host.planes)
    cannot_cut = len(marks) < 2 or len(first_linked) < len(marks) or not in_order or not on_planes
    if cannot_cut or 10 * late <= whole:
        return steps, None

    # A step without a linked device event is merged into the one before; the last step ends with its
    # marker or last event, as on the basis of the host.
    cut = sorted(first_linked.items(), key=lambda item: (item[1], item[0]))
    shifted = []
    for place, (i, start) in enumerate(cut):
        end = cut[place + 1][1] if place + 1 < len(cut) else max(last_end, start)
        step = Step(host.name, marks[i].number, start, end, marks[i].kind)
        step.used = steps[i].used and place + 1 < len(cut)
        shifted.append(step)
    return steps, shifted


def number_steps(steps: list[Step]) -> None:
    """Set the recorded numbers, or 0, 1, 2 … in time order if they restart.

    A number that is not larger than the one before it is a restart.
    """
    recorded = [step.recorded_number for step in steps if step.recorded_number is not None]
    restarts = len(recorded) < len(steps) or any(b <= a for a, b in pairwise(recorded))
    for place, step in enumerate(steps):
        step.number = place if restarts else recorded[place]
