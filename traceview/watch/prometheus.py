"""Writes the newest run as metrics in the text format of Prometheus, for the text-file collector of its node exporter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from traceview.base.units import PS_PER_S
from traceview.document.sanitize import encodable, sanitize
from traceview.watch.facts import RunFacts, StepChange

FIRST_LINE: Final = "# Written by traceview watch"
"""What a file begins with that may be replaced."""

_NS_PER_S: Final = 10**9
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(
    logdir: str, facts: RunFacts, change: StepChange | None, run_count: int, unreadable_count: int
) -> str:
    """The content of the file. `run_count` and `unreadable_count`: runs since the watch began."""
    return "\n".join((FIRST_LINE, *_lines(logdir, facts, change, run_count, unreadable_count), ""))


def _lines(
    logdir: str, facts: RunFacts, change: StepChange | None, run_count: int, unreadable_count: int
) -> Iterator[str]:
    place = {"logdir": logdir}
    yield from _metric("run_info", "gauge", "The newest run.", [({**place, "run": facts.run}, 1.0)])
    started = None if facts.started_ns is None else facts.started_ns / _NS_PER_S
    yield from _metric(
        "run_start_time_seconds", "gauge", "When its profile began, Unix time.", [(place, started)]
    )
    step = None if facts.step_ps is None else facts.step_ps / PS_PER_S
    yield from _metric("step_time_seconds", "gauge", "Median time of its steps.", [(place, step)])
    yield from _metric(
        "step_time_change_ratio",
        "gauge",
        "Its step time over the median of the runs before, minus 1.",
        [(place, change.ratio if change else None)],
    )
    yield from _metric(
        "step_time_noise_ratio",
        "gauge",
        "How large a change says nothing.",
        [(place, change.noise_ratio if change else None)],
    )
    yield from _metric(
        "verdict",
        "gauge",
        "1 for the status of its verdict.",
        [({**place, "status": facts.status}, 1.0)],
    )
    yield from _metric(
        "compute_ratio",
        "gauge",
        "Share of the GPU time of all visible devices in which they compute.",
        [(place, facts.compute_ratio)],
    )
    yield from _metric(
        "state_ratio",
        "gauge",
        "Share of the GPU time of all visible devices in each state.",
        [({**place, "state": state}, ratio) for state, ratio in facts.states.items()],
    )
    yield from _metric(
        "device_compute_ratio",
        "gauge",
        "Share of its steps in which the device computes.",
        [({**place, "device": device.key}, device.compute_ratio) for device in facts.devices],
    )
    yield from _metric(
        "finding",
        "gauge",
        "1 for each finding about the newest run.",
        [
            ({**place, "code": finding.code, "severity": finding.severity}, 1.0)
            for finding in facts.findings
        ],
    )
    yield from _metric(
        "finding_gpu_time_ratio",
        "gauge",
        "Share of the GPU time of all visible devices that the finding costs.",
        [({**place, "code": finding.code}, finding.gpu_time_ratio) for finding in facts.findings],
    )
    yield from _metric(
        "runs_total", "counter", "Runs read since the watch began.", [(place, float(run_count))]
    )
    yield from _metric(
        "unreadable_runs_total",
        "counter",
        "Runs that could not be read since the watch began.",
        [(place, float(unreadable_count))],
    )


def _metric(
    name: str, kind: str, meaning: str, samples: Iterable[tuple[dict[str, str], float | None]]
) -> Iterator[str]:
    known = [(labels, value) for labels, value in samples if value is not None]
    if not known:
        return
    yield f"# HELP traceview_{name} {meaning}"
    yield f"# TYPE traceview_{name} {kind}"
    for labels, value in known:
        text = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
        yield f"traceview_{name}{{{text}}} {value!r}"


def _escaped(text: str) -> str:
    return encodable(sanitize(text)).translate(_ESCAPES)
