"""Steps from what repeats once per step, where nothing marks them (METRICS.md section 2)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tests.oracle.classes import Activity
from tests.oracle.host_names import kind_of
from tests.oracle.model import HostAnswer
from tests.oracle.steps import Step

FEWEST = 3
MOST_ANCHORS = 200
FEWEST_KERNELS = 2  # different ones in a step


def _steps(host: str, starts: list[int], last_end: int) -> list[Step]:
    return [Step(host, None, a, b) for a, b in pairwise([*starts, max(last_end, starts[-1])])]


def iterator_steps(answer: HostAnswer) -> list[Step]:
    """From one request for input to the next; the last ends with the recording."""
    asked = {
        event.start
        for event in answer.host.host_events()
        if kind_of(event.name) in ("input", "async_input")
        and event.name.rpartition(":" if "::" not in event.name else "\0")[2].startswith(
            "IteratorGetNext"
        )
        and not event.line.name.startswith("tf_data")
    }
    starts = first_of_bursts(sorted(asked))
    if len(starts) < FEWEST:
        return []
    ends = [activity.event.end for activity in answer.activities()]
    ends = ends or [event.end for event in answer.host.host_events()]
    return _steps(answer.host.name, starts, max(ends))


def first_of_bursts(starts: list[int]) -> list[int]:
    """AMBIGUITY "once per replica": bursts of one size, at least 4 times as far apart as their calls are.

    Of several ways to part them the one with the clearest jump of the distances, then the shortest.
    """
    lengths = sorted({b - a for a, b in pairwise(starts)})
    jumps = [(high / max(low, 1), -high) for low, high in pairwise(lengths)]
    for ratio, negative in sorted(jumps, reverse=True):
        bursts = [[start] for start in starts[:1]]
        for before, start in pairwise(starts):
            if start - before >= -negative:
                bursts.append([])
            bursts[-1].append(start)
        sizes = Counter(len(burst) for burst in bursts)
        usual = min(sizes, key=lambda size: (-sizes[size], size))
        is_regular = len(bursts) >= FEWEST and sizes[usual] >= 0.8 * len(bursts)
        if ratio >= 4 and usual > 1 and is_regular:
            return [burst[0] for burst in bursts]
    return starts


def periodic_steps(answer: HostAnswer) -> list[Step]:
    """From one occurrence of the anchor to the next on the device with most kernels."""
    kernels: list[Activity] = []
    for device in answer.devices:
        own = device.of_class("compute", "collective")
        if device.kind != "replica" and len(own) > len(kernels):
            kernels = sorted(own, key=lambda activity: activity.event.start)
    names = [activity.event.name for activity in kernels]
    counts = Counter(names)
    repeated = [name for name in counts if counts[name] >= FEWEST]
    # AMBIGUITY: the rarest name, of equally rare ones the earliest.
    for anchor in sorted(repeated, key=lambda name: (counts[name], names.index(name)))[
        :MOST_ANCHORS
    ]:
        places = [place for place, name in enumerate(names) if name == anchor]
        periods = Counter(tuple(names[a:b]) for a, b in pairwise(places))
        period, alike = periods.most_common(1)[0]
        regular = alike >= FEWEST - 1 and alike >= 0.8 * (len(places) - 1)
        begins = {kernels[place].event.start for place in places}
        if len(set(period)) < FEWEST_KERNELS:
            continue
        if not regular or len(begins) < len(places) or len(places) * len(period) < 0.8 * len(names):
            continue
        lengths = sorted(b - a for a, b in pairwise(places))
        middle = len(lengths) // 2
        usual = (lengths[middle] + lengths[-middle - 1]) // 2
        last = kernels[places[-1] : places[-1] + usual]
        starts = [kernels[place].event.start for place in places]
        steps = _steps(answer.host.name, starts, max(a.event.end for a in last))
        return steps[:-1] if len(last) < usual else steps
    return []
