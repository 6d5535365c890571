"""What is a scenario, and how is its truth written down?

A scenario is the traces of one run and the answers that a person worked out for them. The truth is
plain nested data in the words of METRICS.md, below the key it would have in the JSON report:

    windows      {host: {kind, start_ps, window_ps}}
    steps        {method, basis, count, used_count, start_ps, duration_ps, median_ps}, in time order
    device_time  {device: {status, window_ps, busy_ps, exposed parts, idle_ps}}; `None`: the trace does not hold it
    idle         {device: {states: {state: ps}}}
    precision    {device: {precision: ps}, tensor_core_ratio}, every precision that has any time
    collectives, balance, gradients, input, capture
    outside_view {device: what NVML said}
    clocks       {host: {method, reference, offset_ps, residual_ps, …, role, missing_steps}}
    findings     {"must": codes that have to be reported, "must_not": codes that would be wrong}

What a truth does not mention is not decided by it: the oracle recomputes windows, steps, times of devices, copies and
collectives of all scenarios. Ratios are floats to three digits; everything else is exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts.cuda_trace import BASE_NS, MS, NCCL_NAME, PROFILE_START_NS, CudaTrace, Line

Truth = dict[str, Any]

ORIGIN_PS = BASE_NS * 1000
CLASSES = ("compute", "collective", "h2d", "d2h", "d2d", "memset")


@dataclass(frozen=True)
class Scenario:
    """The traces of one run and any sidecars, by the host name in their file's name, and what is true of them."""

    traces: Mapping[str, CudaTrace]
    truth: Truth = field(repr=False)
    sidecars: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    def write(self, logdir: Path, run: str = "run1") -> list[Path]:
        """Store the run below `logdir` and return its files."""
        paths = []
        for file_host, trace in self.traces.items():
            path = trace.write(logdir, run, file_host=file_host)
            paths.append(path)
            if file_host in self.sidecars:
                sidecar = path.with_name(f"{file_host}.traceview.json")
                sidecar.write_text(json.dumps(self.sidecars[file_host]), encoding="utf-8")
        return paths


Builder = Callable[[], Scenario]


def builders(module: ModuleType) -> dict[str, Builder]:
    """The scenarios of a module by name: its functions that take nothing and return one."""
    return {
        name: function
        for name, function in vars(module).items()
        if getattr(function, "__module__", None) == module.__name__
        and getattr(function, "__annotations__", None) == {"return": "Scenario"}
    }


def ms(value: float) -> int:
    """Milliseconds as integer picoseconds; exact for the one or two decimals that scenarios use."""
    return round(value * MS)


def new_trace(host: str = "host0", *, length_ms: float = 250) -> CudaTrace:
    """A recording with a `Task Environment` that says when it began and ended."""
    stop_ns = PROFILE_START_NS + round(length_ms * 1_000_000)
    return CudaTrace(host, start_ns=PROFILE_START_NS, stop_ns=stop_ns)


class Step:
    """Puts events on a trace in milliseconds after the start of one step, and launches each.

    The launches of a step follow one another 4 µs apart from 11 µs after its start, in the order of
    the calls, on the main thread unless `thread` is given.
    """

    def __init__(
        self,
        trace: CudaTrace,
        start_ms: float,
        *,
        launch_name: str | None = None,
        thread: Line | None = None,
    ) -> None:
        self.trace = trace
        self.start_ms = start_ms
        self._launch_name = launch_name
        self._thread = thread
        self._launch_ms = 0.011

    def at(self, offset_ms: float) -> int:
        """Picoseconds of a moment of the step."""
        return ms(self.start_ms) + ms(offset_ms)

    def _launch(self, options: dict[str, Any]) -> dict[str, Any]:
        launch_ms = options.pop("launch_ms", None)
        if launch_ms is None:
            launch_ms = self._launch_ms
            self._launch_ms += 0.004
        defaults = {
            "launch_ps": self.at(launch_ms),
            "launch_name": self._launch_name,
            "launch_thread": self._thread,
        }
        return {**defaults, **options}

    def kernel(self, ordinal: int, start_ms: float, end_ms: float, **options: Any) -> int:
        """A kernel; `launch_ms` moves its launch, the rest are options of `CudaTrace.kernel`."""
        chosen = self._launch(options)
        return self.trace.kernel(ordinal, self.at(start_ms), self.at(end_ms), **chosen)

    def copy(
        self, ordinal: int, direction: str, start_ms: float, end_ms: float, **options: Any
    ) -> int:
        """A copy; options as for `kernel`, and those of `CudaTrace.copy`."""
        chosen = self._launch(options)
        del chosen["launch_thread"]
        return self.trace.copy(ordinal, direction, self.at(start_ms), self.at(end_ms), **chosen)

    def all_reduce(self, ordinal: int, start_ms: float, end_ms: float) -> None:
        """The part of one GPU in an all-reduce, without what hosts record of it."""
        op = "CollectiveReduceV2:CollectiveReduceV2"
        self.kernel(ordinal, start_ms, end_ms, name=NCCL_NAME, op=op, stream=22)

    def host(self, name: Any, start_ms: float, end_ms: float, *args: Any, **options: Any) -> None:
        """A host event, as `CudaTrace.host_event`."""
        self.trace.host_event(name, self.at(start_ms), self.at(end_ms), *args, **options)


def marked_steps(
    trace: CudaTrace,
    *,
    count: int = 4,
    period_ms: float = 50,
    marker_ms: float = 49.9,
    launch_name: str | None = None,
    first_ms: float = 0,
) -> list[Step]:
    """Steps with explicit `train` markers, numbered from 0."""
    steps = []
    for index in range(count):
        start_ms = first_ms + index * period_ms
        trace.marker(index, ms(start_ms), ms(start_ms) + ms(marker_ms))
        steps.append(Step(trace, start_ms, launch_name=launch_name))
    return steps


# Truth


def window_truth(
    window_ms: float, *, host: str = "host0", kind: str = "steps", start_ps: int = ORIGIN_PS
) -> Truth:
    """The `windows` entry of one host."""
    return {host: {"kind": kind, "start_ps": start_ps, "window_ps": ms(window_ms)}}


def steps_truth(
    durations_ms: Sequence[float],
    median_ms: float,
    *,
    starts_ms: Sequence[float] | None = None,
    method: str = "marker",
    basis: str = "marker",
    used_count: int | None = None,
    origin_ps: int = ORIGIN_PS,
) -> Truth:
    """The `steps` entry: durations as worked out by hand, starts every 50 ms unless given."""
    count = len(durations_ms)
    starts = [50 * index for index in range(count)] if starts_ms is None else starts_ms
    return {
        "method": method,
        "basis": basis,
        "count": count,
        "used_count": count if used_count is None else used_count,
        "start_ps": [origin_ps + ms(start) for start in starts],
        "duration_ps": [ms(duration) for duration in durations_ms],
        "median_ps": ms(median_ms),
    }


def device_truth(window_ms: float, *, idle: float, status: str = "active", **parts: float) -> Truth:
    """The `device_time` entry of one device: exclusive parts in ms, by class."""
    exposed = {f"exposed_{name}_ps": ms(parts.get(name, 0)) for name in CLASSES}
    return {
        "status": status,
        "window_ps": ms(window_ms),
        "busy_ps": sum(exposed.values()),
        **exposed,
        "idle_ps": ms(idle),
    }


def idle_truth(*, states: Mapping[str, float]) -> Truth:
    """The `idle` entry of one device; states that are not named stay undecided."""
    return {"states": {state: ms(value) for state, value in states.items()}}


def scenario(
    trace: CudaTrace,
    must: Sequence[str] = (),
    must_not: Sequence[str] = (),
    *,
    sidecar: Mapping[str, Any] | None = None,
    **truth: Truth,
) -> Scenario:
    """A run of one host; `must`, `must_not`: its findings."""
    findings = findings_truth(must, must_not)
    sidecars = {} if sidecar is None else {"host0": sidecar}
    return Scenario({"host0": trace}, {"findings": findings, **truth}, sidecars)


def findings_truth(must: Sequence[str] = (), must_not: Sequence[str] = ()) -> Truth:
    """Codes that a right report holds, and codes that would be a false alarm."""
    return {"must": list(must), "must_not": list(must_not)}
