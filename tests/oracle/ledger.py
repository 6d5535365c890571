"""Recomputes the sums of the ledger (docs/method.md, "Ledger")."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle.model import Row, device_name
from tests.oracle.segments import STATES, Ledger, Segment


def ledger_answer(ledger: Ledger, several: bool) -> Row:
    """The GPU time by state, and the mean step of each device with any."""
    rows, total = [], dict.fromkeys(STATES, 0)
    for answer in ledger.answers:
        count = sum(step.used for step in answer.steps) if ledger.has_steps else 0
        for device in answer.devices:
            name = device_name(device, several)["device"]
            own = [one for one in ledger.segments[id(device)] if ledger.counts(one)]
            sums = _by_state(own)
            whole = sum(sums.values())
            if not whole:
                continue
            for state, ps in sums.items():
                total[state] += ps
            awaited = _awaited(ledger, own)
            place, ratio = awaited if awaited else (None, None)
            waits_for = None if place is None else device_name(ledger.devices[place], several)
            rows.append(
                {
                    "device": name,
                    "host": answer.host.name,
                    "step_count": count,
                    "step_ps": whole // (count or 1),
                    "states": _mean(sums, count or 1),
                    "waits_for": waits_for["device"] if waits_for else None,
                    "waits_for_ratio": ratio,
                }
            )
    return {
        "gpu_time_ps": sum(total.values()),
        "by_state": {state: ps for state, ps in total.items() if ps},
        "devices": rows,
    }


def plain_rows(ledger: Ledger, several: bool) -> list[Row]:
    """The segments of each device before what happens beside it changes states; those that touch are joined."""
    rows = []
    for device in ledger.devices:
        joined: list[tuple[int, int, str]] = []
        for one in ledger.plain[id(device)]:
            if joined and joined[-1][2] == one.state:
                joined[-1] = (joined[-1][0], one.end, one.state)
            else:
                joined.append((one.start, one.end, one.state))
        rows.append({"device": device_name(device, several)["device"], "segments": joined})
    return rows


def _by_state(segments: list[Segment]) -> dict[str, int]:
    sums = dict.fromkeys(STATES, 0)
    for one in segments:
        sums[one.state] += one.end - one.start
    return sums


def _mean(sums: dict[str, int], count: int) -> dict[str, int]:
    """Parts that sum to the rounded mean: each is the difference of two rounded means of sums."""
    mean, before = {}, 0
    for key, value in sums.items():
        mean[key] = (before + value) // count - before // count
        before += value
    return {key: value for key, value in mean.items() if value}


def _awaited(ledger: Ledger, segments: list[Segment]) -> tuple[int, Fraction] | None:
    """The device waited for longest, of equal ones the first, and its share of the waiting."""
    waits = [one for one in segments if one.state == "device_wait"]
    by_place: dict[int, int] = {}
    for one in waits:
        if one.by is not None:
            place = ledger.devices.index(one.by)
            by_place[place] = by_place.get(place, 0) + one.end - one.start
    if not by_place:
        return None
    longest = min(by_place, key=lambda place: (-by_place[place], place))
    return longest, Fraction(by_place[longest], sum(one.end - one.start for one in waits))
