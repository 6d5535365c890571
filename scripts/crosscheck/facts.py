"""Collects the facts of a trace that make XProf count in another way; each is the ground of a reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scripts.crosscheck.recount import (
    MANY_STEPS,
    has_gpu_events,
    has_roots,
    is_named_for_xprof,
    steps_of_events,
)
from traceview.base.ids import groups_of, unique_ids
from traceview.base.intervals import union
from traceview.trace.model import NONE, Trace
from traceview.xplane.planes import ActivityClass


@dataclass(frozen=True)
class Facts:
    """What holds of a trace.

    `misread`: classes, as the report names them, with events whose names say something else to XProf.
    `classes`: classes with events. `has_unlinked`: some events have no launch or no step. `has_overlap`: kernels of a
    device ran at the same time. `has_unnamed`: some events of devices carry no op.
    """

    has_gpu_events: bool
    has_several_hosts: bool
    has_duplicates: bool
    is_marked: bool
    has_many_steps: bool
    has_unlinked: bool
    has_overlap: bool
    has_unnamed: bool
    classes: frozenset[str]
    misread: frozenset[str]


def facts_of(trace: Trace) -> Facts:
    """Look at every device event once."""
    columns = trace.device_columns
    first = np.array([of[0] for of in groups_of(columns.name, columns.class_)], dtype=np.int64)
    pairs = list(zip(columns.name[first].tolist(), columns.class_[first].tolist(), strict=True))
    return Facts(
        has_gpu_events=has_gpu_events(trace),
        has_several_hosts=len(trace.hosts) > 1,
        has_duplicates=any(file.duplicate_of is not None for file in trace.files),
        is_marked=has_roots(trace),
        has_many_steps=any(len(of_host.steps) > MANY_STEPS for of_host in trace.steps_by_host),
        has_unlinked=bool((steps_of_events(trace) == NONE).any()),
        has_overlap=_has_overlap(trace),
        has_unnamed=bool((columns.op == NONE).any()),
        classes=frozenset(trace.class_name(class_) for _, class_ in pairs),
        misread=frozenset(
            trace.class_name(class_)
            for name, class_ in pairs
            if not is_named_for_xprof(trace.names[name], class_)
        ),
    )


def _has_overlap(trace: Trace) -> bool:
    columns = trace.device_columns
    for device in unique_ids(columns.device).tolist():
        rows = columns.rows_of(device)
        kernel = columns.class_[rows] <= ActivityClass.COLLECTIVE
        start, end = columns.start_ps[rows][kernel], columns.end_ps[rows][kernel]
        if union(start, end).length < int((end - start).sum()):
            return True
    return False
