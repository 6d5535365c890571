"""Sums the ledger up by state: the GPU time, and the mean step of each device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.measures.device_report import alike_groups
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.record import Count, DeviceKey, Picoseconds, Record, Share, Words
from traceview.document import numbers
from traceview.document.model import AnatomyPart, AnatomyRow
from traceview.document.vocabulary import STATES, look_of
from traceview.ledger.columns import By
from traceview.ledger.states import KEYS, State
from traceview.ledger.table import Ledger, by_size, totals

MOST_ROWS: Final = 8
"""With their legend they fill half of a terminal; devices that are alike share a row."""


class DeviceStates(OfDevice, frozen=True):
    """The mean of the used steps of one device by state.

    Attributes:
        step_count: Used steps of its host inside the window; 0 in a run without any, where the window takes their place.
        step_ps: Mean length of these steps, rounded down, picoseconds; without steps the length of the window.
        states: Picoseconds of the mean step in each state that occurs, in the order of states; they sum to step_ps.
        waits_for: Device that it waits for during most of its waiting for devices; null where there is none.
    """

    step_count: Count
    step_ps: Picoseconds
    states: dict[Words, Count]
    waits_for: DeviceKey | None


class LedgerSums(Record, frozen=True):
    """Where the GPU time went: the used steps, or without any the windows, of all visible devices.

    Attributes:
        gpu_time_ps: All of it, picoseconds.
        by_state: Picoseconds by state, largest first; they sum to it.
        share_by_state: The same as shares.
        devices: One entry per visible device of the hosts that recorded device events, in the order of the device list.
    """

    gpu_time_ps: Picoseconds
    by_state: dict[Words, Count]
    share_by_state: dict[Words, Share]
    devices: tuple[DeviceStates, ...]


def compute(context: Context) -> LedgerSums | Skipped:
    """The sums of every visible device."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    ledger = context.ledger
    whole = sum(ledger.gpu_ps_by_device.values())
    if not whole:
        return Skipped("the window holds no time of a device")
    counted = np.where(ledger.counts, ledger.columns.duration_ps, 0)
    sums = totals(ledger.columns.state, counted, len(State)).tolist()
    by_state = by_size(dict(zip(KEYS, sums, strict=True)))
    return LedgerSums(
        gpu_time_ps=whole,
        by_state=by_state,
        share_by_state={key: ps / whole for key, ps in by_state.items()},
        devices=tuple(
            _of_device(ledger, device) for device, ps in ledger.gpu_ps_by_device.items() if ps
        ),
    )


def _of_device(ledger: Ledger, device: int) -> DeviceStates:
    sums = ledger.by_state(device)
    step_count = ledger.steps_of_device[device]
    means = mean_parts(sums.values(), step_count or 1)
    return DeviceStates(
        *ledger.trace.identity(device),
        step_count=step_count,
        step_ps=sum(sums.values()) // (step_count or 1),
        states={state.key: ps for state, ps in zip(sums, means, strict=True) if ps},
        waits_for=_longest_awaited(ledger, device),
    )


def _longest_awaited(ledger: Ledger, device: int) -> str | None:
    own = ledger.rows_of(device)
    columns = ledger.columns
    waits = (columns.state[own] == State.DEVICE_WAIT) & ledger.counts[own]
    known = waits & (columns.by_kind[own] == By.DEVICE)
    durations = columns.duration_ps[own]
    by_device = totals(columns.by[own][known], durations[known], len(ledger.trace.device_list))
    longest = int(by_device.argmax())
    is_clear = by_device[longest] and 2 * int(by_device[longest]) >= int(durations[waits].sum())
    return ledger.trace.device_key(longest) if is_clear else None


def mean_parts(total_ps: Iterable[int], count: int) -> list[int]:
    """The mean of each part over `count` steps, so rounded that they sum to the mean of the sum, rounded down."""
    whole = np.cumsum([0, *total_ps], dtype=np.int64) // count
    mean: list[int] = np.diff(whole).tolist()
    return mean


# A row per kind of device


def anatomy_rows(devices: Sequence[DeviceStates]) -> tuple[AnatomyRow, ...]:
    """A row per group of alike devices, at most `MOST_ROWS`: of many different ones the limit grows until they fit."""
    of_key = {device.device: device for device in devices}
    groups = alike_groups({key: device.states for key, device in of_key.items()}, MOST_ROWS)
    return tuple(_row([of_key[key] for key in group]) for group in groups)


def _row(devices: Sequence[DeviceStates]) -> AnatomyRow:
    """The mean of alike devices."""
    means = mean_parts(
        (sum(device.states.get(key, 0) for device in devices) for key in KEYS), len(devices)
    )
    step_ps = sum(means)
    return AnatomyRow(
        label=device_range([device.device for device in devices]),
        devices=tuple(device.device for device in devices),
        step_count=max(device.step_count for device in devices),
        step_ps=step_ps,
        parts=tuple(
            AnatomyPart(look_of(STATES, key), _words(key, devices), ps, ps / step_ps)
            for key, ps in zip(KEYS, means, strict=True)
            if ps
        ),
    )


def _words(key: str, devices: Sequence[DeviceStates]) -> str:
    """The name of a state; waiting for a device names it, if it is the same one for all and none of them."""
    own = {device.device for device in devices}
    awaited = {device.waits_for for device in devices if device.waits_for is not None}
    if key == State.DEVICE_WAIT.key and len(awaited) == 1 and awaited.isdisjoint(own):
        return f"waiting for {awaited.pop()}"
    return look_of(STATES, key).words


def device_range(keys: Sequence[str]) -> str:
    """`GPU:0–3`, `GPU:0, 2`; of several hosts `GPU:0–7 on 16 hosts`, or how many there are."""
    of_host: dict[str, list[str]] = {}
    for key in keys:
        of_host.setdefault(key.rpartition("/")[0], []).append(numbers.without_host(key))
    if len(of_host) == 1:
        return numbers.joined_devices(keys)
    alike = {tuple(names) for names in of_host.values()}
    if len(alike) == 1:
        return f"{numbers.joined_devices(alike.pop())} on {len(of_host)} hosts"
    return f"{len(keys)} devices on {len(of_host)} hosts"


ANALYSIS: Final = Analysis[LedgerSums]("ledger", compute=compute)
