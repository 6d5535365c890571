"""Turns the newest run of each job into metrics, in Prometheus' text format for its file collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from traceview.base.units import PS_PER_S
from traceview.document.sanitize import encodable, sanitize
from traceview.watch.facts import RunFacts, StepChange

FIRST_LINE: Final = "# Written by traceview watch"
"""What a file begins with that may be replaced."""

_NS_PER_S: Final = 10**9
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Samples: TypeAlias = Iterable[tuple[dict[str, str], float | None]]


class NewestRun(NamedTuple):
    """The newest run of a job. `run_count` and `unreadable_count`: runs since the watch began."""

    job: str
    logdir: str
    facts: RunFacts
    change: StepChange | None
    run_count: int
    unreadable_count: int


class _Metric(NamedTuple):
    name: str
    kind: str
    meaning: str
    samples: Callable[[NewestRun], Samples]


def _one(value: Callable[[NewestRun], float | None]) -> Callable[[NewestRun], Samples]:
    return lambda run: [({}, value(run))]


def _seconds(count: int | None, per_second: int) -> float | None:
    return None if count is None else count / per_second


_METRICS: Final = (
    _Metric("run_info", "gauge", "The newest run.", lambda run: [({"run": run.facts.run}, 1.0)]),
    _Metric(
        "run_start_time_seconds",
        "gauge",
        "When its profile began, Unix time.",
        _one(lambda run: _seconds(run.facts.started_ns, _NS_PER_S)),
    ),
    _Metric(
        "step_time_seconds",
        "gauge",
        "Median time of its steps.",
        _one(lambda run: _seconds(run.facts.step_ps, PS_PER_S)),
    ),
    _Metric(
        "step_time_change_ratio",
        "gauge",
        "Its step time over that of the runs before, minus 1.",
        _one(lambda run: run.change.ratio if run.change else None),
    ),
    _Metric(
        "step_time_noise_ratio",
        "gauge",
        "How large a change says nothing.",
        _one(lambda run: run.change.noise_ratio if run.change else None),
    ),
    _Metric(
        "verdict",
        "gauge",
        "1 for the status of its verdict.",
        lambda run: [({"status": run.facts.status}, 1.0)],
    ),
    _Metric(
        "compute_ratio",
        "gauge",
        "Share of the GPU time of all visible devices in which they compute.",
        _one(lambda run: run.facts.compute_ratio),
    ),
    _Metric(
        "state_ratio",
        "gauge",
        "Share of the GPU time of all visible devices in each state.",
        lambda run: [({"state": state}, ratio) for state, ratio in run.facts.states.items()],
    ),
    _Metric(
        "device_compute_ratio",
        "gauge",
        "Share of its steps in which the device computes.",
        lambda run: [({"device": row.key}, row.compute_ratio) for row in run.facts.devices],
    ),
    _Metric(
        "finding",
        "gauge",
        "1 for each finding about the newest run.",
        lambda run: [
            ({"code": row.code, "severity": row.severity}, 1.0) for row in run.facts.findings
        ],
    ),
    _Metric(
        "finding_gpu_time_ratio",
        "gauge",
        "Share of the GPU time of all visible devices that the finding costs.",
        lambda run: [({"code": row.code}, row.gpu_time_ratio) for row in run.facts.findings],
    ),
    _Metric(
        "runs_total",
        "counter",
        "Runs read since the watch began.",
        _one(lambda run: float(run.run_count)),
    ),
    _Metric(
        "unreadable_runs_total",
        "counter",
        "Runs that could not be read since the watch began.",
        _one(lambda run: float(run.unreadable_count)),
    ),
)


def metrics_text(newest: Sequence[NewestRun]) -> str:
    """The content of the file: each metric once, with the samples of all jobs."""
    return "\n".join((FIRST_LINE, *_lines(newest), ""))


def _lines(newest: Sequence[NewestRun]) -> Iterator[str]:
    for metric in _METRICS:
        known = [
            ({"job": run.job, "logdir": run.logdir, **labels}, value)
            for run in newest
            for labels, value in metric.samples(run)
            if value is not None
        ]
        if known:
            yield f"# HELP traceview_{metric.name} {metric.meaning}"
            yield f"# TYPE traceview_{metric.name} {metric.kind}"
        for labels, value in known:
            text = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
            yield f"traceview_{metric.name}{{{text}}} {value!r}"


def _escaped(text: str) -> str:
    return encodable(sanitize(text)).translate(_ESCAPES)
