"""How does each device compare with the others, as one row? What `traceview balance` lists."""

from __future__ import annotations

from dataclasses import dataclass

from traceview.analysis.balance.result import Balance


@dataclass(frozen=True)
class BalanceLine:
    """One device that computed in the window; fields as in `DeviceBalance`, `Straggler` and `DevicePhases`.

    `straggler_cause` and `straggler_cost_ps_per_step` only of the device that the others wait for.
    """

    host: str
    device: str
    ordinal: int
    status: str
    compute_ps_per_step: int | None
    longer_ratio: float | None
    longest_count: int | None
    step_count: int
    start_lag_ps: int | None
    end_lead_ps: int | None
    last_count: int | None
    collective_count: int | None
    straggler_cause: str | None
    straggler_cost_ps_per_step: int | None
    forward_ps: int
    backward_ps: int
    optimizer_ps: int
    reduction_ps: int
    backward: bool | None
    model: str | None
    core_count: int | None
    clock_max_hz: int | None


def balance_table(found: Balance) -> list[BalanceLine]:
    """The devices in the order of hosts and numbers."""
    late = found.straggler
    phases = {row.device: row for row in found.gradients.devices}
    lines = []
    for row in found.devices:
        ran, is_late = phases[row.device], late is not None and late.device == row.device
        lines.append(
            BalanceLine(
                host=row.host,
                device=row.device,
                ordinal=row.ordinal,
                status=row.status,
                compute_ps_per_step=row.compute_ps_per_step,
                longer_ratio=row.longer_ratio,
                longest_count=row.longest_count,
                step_count=row.step_count,
                start_lag_ps=row.start_lag_ps,
                end_lead_ps=row.end_lead_ps,
                last_count=row.last_count,
                collective_count=row.collective_count,
                straggler_cause=late.cause if late and is_late else None,
                straggler_cost_ps_per_step=late.cost_ps_per_step if late and is_late else None,
                forward_ps=ran.forward_ps,
                backward_ps=ran.backward_ps,
                optimizer_ps=ran.optimizer_ps,
                reduction_ps=ran.reduction_ps,
                backward=ran.backward,
                model=row.hardware.model,
                core_count=row.hardware.core_count,
                clock_max_hz=row.hardware.clock_max_hz,
            )
        )
    return lines
