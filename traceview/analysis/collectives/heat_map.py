"""Makes the heat map of collectives: how long each device was in them, exposed, in each step."""

from __future__ import annotations

from traceview.analysis import steps
from traceview.analysis.context import View
from traceview.document.figures import HeatMap

MOST_ROWS = 32
MOST_COLUMNS = 120


def heat_map(view: View) -> tuple[HeatMap, ...]:
    """A row per device and a column per step; nothing without steps, or where no device communicates.

    Of more steps than there is room for, each column is the longest of a few; of more devices, those that stand out.
    """
    result = view.result(steps.ANALYSIS)
    times = {
        (part.device, row.number): part.exposed_collective_ps
        for row in (result.steps if result else ())
        for part in row.devices
    }
    if len({number for _, number in times}) < 2 or not any(times.values()):
        return ()
    devices = list(dict.fromkeys(device for device, _ in times))
    rows = [device for device in devices if device not in view.others][:MOST_ROWS]
    numbers = sorted({number for _, number in times})
    size = -(-len(numbers) // MOST_COLUMNS)
    columns = [numbers[place : place + size] for place in range(0, len(numbers), size)]
    values = tuple(
        tuple(
            max(
                (times[device, number] for number in group if (device, number) in times),
                default=None,
            )
            for group in columns
        )
        for device in rows
    )
    names = tuple(
        str(group[0]) if len(group) == 1 else f"{group[0]}–{group[-1]}" for group in columns
    )
    return (HeatMap("communication and waiting in a step", tuple(rows), names, values),)
