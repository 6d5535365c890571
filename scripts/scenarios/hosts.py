"""How far apart are the clocks of several hosts, and which hosts and steps are missing? Runs of workers.

Each host stamps the start of its profile with its own clock, and counts its times from there: what happens at a
moment stands at that moment plus the skew of the clock once profiles are laid side by side by their starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import (
    ORIGIN_PS,
    Scenario,
    Truth,
    findings_truth,
    marked_steps,
    ms,
    window_truth,
)

FIRST_MS = 20.0
"""When the first step begins after the first host began to record, by a clock that is right."""
_REDUCED_MS = 44.0
_MS_NS = 1_000_000


def _worker(
    host: str,
    *,
    delay_ms: float = 0,
    ahead_ms: float = 0,
    count: int = 4,
    period_ms: float = 50,
    ends_us: Sequence[float] = (),
    compute_ms: float = 45,
) -> CudaTrace:
    """One GPU whose all-reduce of each step hides under its compute.

    It began to record `delay_ms` after the first host, on a clock that is `ahead_ms`. `ends_us`: by how much the
    all-reduce of each step ends later than on the others.
    """
    start_ns = PROFILE_START_NS + round((delay_ms + ahead_ms) * _MS_NS)
    trace = CudaTrace(host, start_ns=start_ns, stop_ns=start_ns + 700 * _MS_NS)
    steps = marked_steps(trace, count=count, period_ms=period_ms, first_ms=FIRST_MS - delay_ms)
    for index, step in enumerate(steps):
        step.kernel(0, 0.1, compute_ms)
        late_ms = ends_us[index] / 1000 if ends_us else 0
        all_reduce(step, [(38, _REDUCED_MS + late_ms)], instance=100 + index, asked_ms=0.5)
    return trace


def _windows(starts_ms: Mapping[str, float], window_ms: float) -> Truth:
    return {
        host: window_truth(window_ms, host=host, start_ps=ORIGIN_PS + ms(start))[host]
        for host, start in starts_ms.items()
    }


def _clock(offset_ms: float, residual_ps: int, count: int) -> Truth:
    return {
        "method": "collectives",
        "reference": "host0",
        "offset_ps": ms(offset_ms),
        "residual_ps": residual_ps,
        "collective_count": count,
        "missing_steps": (),
    }


_REFERENCE: Truth = {
    "method": "profile_start",
    "reference": None,
    "offset_ps": 0,
    "residual_ps": None,
    "collective_count": 0,
}
_QUIET = ["straggler-gpu", "collective-exposed", "missing-host", "serial-gpus"]


def sixteen_skewed_clocks() -> Scenario:
    """Sixteen hosts with clocks up to 18.75 ms apart; ends of an all-reduce differ by 1 or 2 µs."""
    jitter_us = (-2.0, 1.0, 0.0, 2.0, -1.0)
    traces, clocks, skews_ms = {}, {}, {}
    for place in range(16):
        host = f"host{place}"
        skews_ms[host] = 1.25 * place * (-1) ** place
        turned = [jitter_us[(place + index) % 5] for index in range(5)]
        traces[host] = _worker(
            host,
            delay_ms=0.5 * place,
            ahead_ms=skews_ms[host],
            count=5,
            ends_us=turned if place else (),
        )
        # The differences are -2, -1, 0, 1 and 2 µs and the skew: their median deviation is 1 µs.
        clocks[host] = _clock(-skews_ms[host], 1_482_600, 5) if place else _REFERENCE
    # Moved as its clock says, each profile began when it did, host0's first.
    truth: Truth = {
        "clocks": clocks,
        "windows": _windows(dict.fromkeys(traces, FIRST_MS), 249.9),
        "findings": findings_truth([], _QUIET),
    }
    return Scenario(traces, truth)


def drifting_clock() -> Scenario:
    """The clock of the second host gains 50 µs per second, and is 5 ms ahead in the middle of the recording."""
    traces = {
        "host0": _worker("host0", count=11),
        # It gains 2.5 µs per step, five of them before the middle.
        "host1": _worker("host1", ahead_ms=4.9875, count=11, period_ms=50.0025),
    }
    truth: Truth = {
        "clocks": {
            "host0": _REFERENCE,
            # The ends are 0, 2.5, … 12.5 µs apart, before and after the middle: half of them by 7.5 µs or more.
            "host1": _clock(-5, 11_119_500, 11),
        },
        # The profile of host1 began 12.5 µs before that of host0, by the clocks of the middle.
        "windows": {
            **_windows({"host0": FIRST_MS + 0.0125}, 549.9),
            **_windows({"host1": FIRST_MS}, 549.925),
        },
        "findings": findings_truth([], _QUIET),
    }
    return Scenario(traces, truth)


def _task(role: str, index: int, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    cluster = {"is_configured": True, "role": role, "index": index, "sizes": dict(sizes)}
    return {"cluster": cluster, "window": {"edge_steps": []}}


def missing_worker() -> Scenario:
    """Workers 0, 1 and 3 of four were recorded; worker 3 has three of the four steps of the others."""
    counts = {"host0": 4, "host1": 4, "host3": 3}
    traces = {host: _worker(host, count=count) for host, count in counts.items()}
    lengths_ms = {host: 50 * count - 0.1 for host, count in counts.items()}
    truth: Truth = {
        "clocks": {
            "host0": {**_REFERENCE, "role": "worker 0", "missing_steps": ()},
            "host1": {
                "method": "profile_start",
                "offset_ps": 0,
                "role": "worker 1",
                "missing_steps": (),
            },
            "host3": {
                "method": "profile_start",
                "offset_ps": 0,
                "role": "worker 3",
                "missing_steps": (3,),
            },
        },
        "windows": {
            host: window_truth(length, host=host, start_ps=ORIGIN_PS + ms(FIRST_MS))[host]
            for host, length in lengths_ms.items()
        },
        # Of how many devices the fourth worker has nobody knows.
        "collectives": {
            "count": 4,
            "incomplete_count": 1,
            "device_count": 3,
            "bus_bytes_per_second": None,
        },
        "capture": {"quality": "degraded", "dropped_count": 0},
        "findings": findings_truth(
            ["missing-host"], [code for code in _QUIET if code != "missing-host"]
        ),
    }
    sidecars = {host: _task("worker", int(host[-1]), {"worker": 4}) for host in traces}
    return Scenario(traces, truth, sidecars)


def parameter_servers() -> Scenario:
    """Two workers of a parameter server, each at its own pace: that one computes longer holds up nobody."""
    traces = {}
    for host, compute_ms in (("vm_chief0", 32), ("vm_w0", 32), ("vm_w1", 44)):
        trace = CudaTrace(host, start_ns=PROFILE_START_NS, stop_ns=PROFILE_START_NS + 250 * _MS_NS)
        for step in marked_steps(trace):
            step.kernel(0, 2, compute_ms)
        traces[host] = trace
    sizes = {"chief": 1, "worker": 2, "ps": 1}
    sidecars = {
        "vm_chief0": _task("chief", 0, sizes),
        "vm_w0": _task("worker", 0, sizes),
        "vm_w1": _task("worker", 1, sizes),
    }
    truth: Truth = {
        "clocks": {
            host: {**_REFERENCE, "role": role, "missing_steps": ()}
            for host, role in zip(traces, ("chief 0", "worker 0", "worker 1"), strict=True)
        },
        "windows": {host: window_truth(199.9, host=host)[host] for host in traces},
        "findings": findings_truth([], [*_QUIET, "marginal-gpu"]),
    }
    return Scenario(traces, truth, sidecars)


def sixteen_hosts_of_eight() -> Scenario:
    """128 GPUs that train alike but two: one is a tenth slower, so that all wait for it, and one is not used."""
    traces, clocks, devices = {}, {}, []
    slow, unused = ("host5", 3), ("host9", 7)
    for place in range(16):
        host = f"host{place}"
        ahead_ms = 0.25 * place * (-1) ** place
        start_ns = PROFILE_START_NS + round(ahead_ms * _MS_NS)
        trace = CudaTrace(host, start_ns=start_ns, stop_ns=start_ns + 250 * _MS_NS)
        for ordinal in range(8):
            trace.gpu(ordinal)
            devices.append(f"{host}/GPU:{ordinal}")
        for index, step in enumerate(marked_steps(trace, first_ms=FIRST_MS)):
            spans = []
            for ordinal in range(8 if host != unused[0] else 7):
                end_ms = 44 if (host, ordinal) == slow else 40
                step.kernel(ordinal, 0.1, end_ms)
                spans.append((end_ms, 46))
            all_reduce(step, spans, instance=100 + index, asked_ms=0.5)
        traces[host] = trace
        clocks[host] = _clock(-ahead_ms, 0, 4) if place else _REFERENCE
    truth: Truth = {
        "clocks": clocks,
        "windows": _windows(dict.fromkeys(traces, FIRST_MS), 199.9),
        "collectives": {
            "count": 4,
            "device_count": 127,
            "transfer_ps": ms(8),
            "last_counts": {key: 4 * (key == "host5/GPU:3") for key in devices},
        },
        "findings": findings_truth(["straggler-gpu", "unused-gpu"]),
    }
    return Scenario(traces, truth)
