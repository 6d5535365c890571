"""Steps from events that repeat once per step, for traces without markers (docs/method.md, "Steps without a marker")."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tests.oracle.classes import Activity
from tests.oracle.model import HostAnswer
from tests.oracle.steps import Step, median

FEWEST = 3
MOST_ANCHORS = 200
FEWEST_KERNELS = 2  # different kernels in a step


def _steps(host: str, starts: list[int], last_end: int) -> list[Step]:
    return [Step(host, None, a, b) for a, b in pairwise([*starts, max(last_end, starts[-1])])]


def periodic_steps(answer: HostAnswer) -> list[Step]:
    """Steps from one occurrence of the busiest device's anchor to the next, on the device where it is first."""
    of_device: list[list[Activity]] = []
    kernels: list[Activity] = []
    for device in answer.devices:
        own = sorted(device.of_class("compute", "collective"), key=lambda activity: activity.order)
        if device.kind != "replica":
            of_device.append(own)
            kernels = own if len(own) > len(kernels) else kernels
    names = [activity.event.name for activity in kernels]
    counts = Counter(names)
    repeated = [name for name in counts if counts[name] >= FEWEST]
    # The rarest name first, of equally rare names the earliest.
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
        usual = median([b - a for a, b in pairwise(places)]) or 0
        starts, end = _over_devices(kernels, of_device, anchor, usual)
        steps = _steps(answer.host.name, starts, end)
        is_cut = len(kernels) - places[-1] < usual
        return steps[:-1] if is_cut else steps
    return []


def _over_devices(
    kernels: list[Activity], of_device: list[list[Activity]], anchor: str, usual: int
) -> tuple[list[int], int]:
    """Starts and last end of the periods: the first of the devices that repeat equally often begins each.

    If a device begins a period only when another is at the next, the busiest device alone counts.
    """
    wanted = sum(kernel.event.name == anchor for kernel in kernels)
    alike = [own for own in of_device if sum(a.event.name == anchor for a in own) == wanted]
    while True:
        begins = [[a.event.start for a in own if a.event.name == anchor] for own in alike]
        starts = [min(times) for times in zip(*begins, strict=True)]
        latest = [max(times) for times in zip(*begins, strict=True)]
        if len(alike) == 1 or all(a < b for a, b in zip(latest, starts[1:], strict=False)):
            break
        alike = [kernels]
    ends = []
    for own in alike:
        at = max(place for place, a in enumerate(own) if a.event.name == anchor)
        ends += [a.event.end for a in own[at : at + usual]]
    return starts, max(ends)
