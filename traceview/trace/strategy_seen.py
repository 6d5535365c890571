"""Does the recording show a strategy at work that `traceview capture` found only in the script's memory?

The capture looks at the variables and the input of the step functions. A model that was built outside of the
strategy's scope, or a step without a `tf.function`, shows nothing there; that several replicas ran does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from traceview.trace.model import Host, Trace
from traceview.trace.op_phase import least_replica_counts

_SEVERAL: Final = 2


def with_strategy_seen(trace: Trace) -> Trace:
    """The trace with `found_by` of such strategies set to `recording`; replicas on CPUs have to be known."""
    in_memory = [
        index
        for index, host in enumerate(trace.hosts)
        if host.sidecar is not None and host.sidecar.environment.strategy.found_by == "memory"
    ]
    if not in_memory:
        return trace
    named = least_replica_counts(trace)
    on_cpu = [one.host for one in trace.roster if one.kind == "replica"]
    return replace(
        trace,
        hosts=tuple(
            _seen(host)
            if index in in_memory and (index in named or on_cpu.count(index) >= _SEVERAL)
            else host
            for index, host in enumerate(trace.hosts)
        ),
    )


def _seen(host: Host) -> Host:
    if host.sidecar is None:
        return host
    environment = host.sidecar.environment
    strategy = replace(environment.strategy, found_by="recording")
    environment = replace(environment, strategy=strategy)
    return replace(host, sidecar=replace(host.sidecar, environment=environment))
