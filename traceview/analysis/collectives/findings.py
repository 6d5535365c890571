"""Does the training wait for collectives, for other devices in them, or for a reduction that left the GPUs?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from traceview.analysis.base import Confidence, Evidence, Finding, Severity, Skipped
from traceview.analysis.collectives.result import CollectiveResult, HostCollectives
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.selection import Selection
from traceview.analysis.steps.result import Steps
from traceview.document import numbers
from traceview.robust import low_median

EXPOSED_RATIO: Final = 0.10
EXPOSED_CRITICAL_RATIO: Final = 0.30
"""Exposed transfer over the step from which it is a warning, and critical (METRICS 12: collective-exposed)."""

WAIT_RATIO: Final = 0.05
"""Waiting for other devices over the step (METRICS 12: collective-wait)."""

ONE_DEVICE_GPUS: Final = 3
"""GPUs from which on summing on one of them is a bottleneck (METRICS 12: reduction-off-gpu)."""

LEAST_USED_STEPS: Final = 2
"""With fewer used steps a finding on performance is only told (METRICS 12)."""

_ALIKE: Final = 0.995
"""Devices whose shares are at least so much of the largest are not told apart in a title."""

_AT_WORK: Final = ("active", "marginal")
_PACKING: Final = (
    "Fewer and larger calls: tf.distribute.MirroredStrategy(cross_device_ops="
    "tf.distribute.NcclAllReduce(num_packs=1)), or for MultiWorkerMirroredStrategy "
    "tf.distribute.experimental.CommunicationOptions(bytes_per_pack=50 * 1024 * 1024)."
)


def diagnose(
    result: CollectiveResult | Skipped,
    device_time: DeviceTime,
    steps: Steps | Skipped,
    selection: Selection,
    *,
    is_wait_explained: bool = False,
) -> list[Finding]:
    """What collectives cost; `is_wait_explained`: another finding says why devices come late to them."""
    if isinstance(result, Skipped):
        return []
    kinds = {row.device: row.kind for row in device_time.devices if row.status in _AT_WORK}
    judge = _Judge(result, selection, kinds)
    found = [judge.exposed(), None if is_wait_explained else judge.wait()]
    found += [_off_gpu(host, device_time, steps, selection) for host in result.hosts]
    return [one for one in found if one is not None]


def _whose(affected: list[str], ratios: Mapping[str, float]) -> str:
    """The device that is affected most, or how many are about equally."""
    first, last = ratios[affected[0]], ratios[affected[-1]]
    if len(affected) == len(ratios) > 1 and last >= _ALIKE * first:
        return f"each of the {len(affected)} devices"
    return affected[0]


class _Judge:
    """Weighs the parts of a step in collectives; `kinds` of the devices at work by their keys."""

    def __init__(
        self, result: CollectiveResult, selection: Selection, kinds: Mapping[str, str]
    ) -> None:
        self._result = result
        self._kinds = kinds
        self._used_count = len(selection.used_steps)
        self._step_ps = selection.median_step_ps
        self._window_ps = max((one.length_ps for one in selection.windows.values()), default=0)
        self._whole = "step" if self._step_ps else "window"

    @property
    def _is_alone(self) -> bool:
        """Whether most collectives lack devices, so that transfer and waiting cannot be told apart."""
        return 2 * self._result.incomplete_count >= max(self._result.count, 1)

    @property
    def _lacks_members(self) -> bool:
        """Whether workers take part that were not recorded."""
        return self._result.member_count > self._result.device_count

    def exposed(self) -> Finding | None:
        result = self._result
        ratios = self._ratios(result.exposed_transfer_per_step_ps, result.exposed_transfer_ps)
        affected = [key for key, ratio in ratios.items() if ratio >= EXPOSED_RATIO]
        if not affected:
            return None
        ratio = ratios[affected[0]]
        return self._finding(
            "collective-exposed",
            "critical" if ratio >= EXPOSED_CRITICAL_RATIO else "warning",
            affected,
            ratio,
            title=f"collectives take {numbers.share(ratio)} of the {self._whole} on {_whose(affected, ratios)} while nothing is computed",
            explanation=(
                (
                    "Whether this is transfer or waiting cannot be told: the other devices are not recorded."
                    if self._is_alone
                    else "How much of this is waiting for workers that were not recorded cannot be told."
                    if self._lacks_members
                    else "The transfer itself, without waiting for other devices, runs when no kernel hides "
                    "it."
                )
                + f"{self._calls()}{self._speed()}"
            ),
            advice=(
                f"{self._packing()}Send less: mixed precision "
                "(keras.mixed_precision.set_global_policy('mixed_float16')) or a larger batch per GPU makes "
                "the same gradients serve more work."
            ),
            evidence=[
                Evidence("exposed_transfer_ratio", ratios[key], EXPOSED_RATIO, key)
                for key in affected
            ],
        )

    def wait(self) -> Finding | None:
        result = self._result
        per_step = result.exposed_wait_per_step_ps
        waits = {
            key: one - result.exposed_transfer_ps[key] for key, one in result.exposed_ps.items()
        }
        ratios = self._ratios(per_step, waits)
        affected = [key for key, ratio in ratios.items() if ratio >= WAIT_RATIO]
        if not affected:
            return None
        worst = affected[0]
        latest = max(result.last_count, key=lambda key: result.last_count[key])
        return self._finding(
            "collective-wait",
            "warning",
            affected,
            ratios[worst],
            title=f"{_whose(affected, ratios)} waits {numbers.share(ratios[worst])} of the {self._whole} in collectives for other "
            "devices",
            explanation=(
                "A collective ends on all devices when the last one has come; until then the others wait in it. "
                f"{self._latest(latest)} The cost is a bound: what the device that waits most would save."
            ),
            advice=(
                "Let all replicas do equal work: the same batch size on each "
                "(dataset.batch(n, drop_remainder=True)), input that is ready for all of them "
                "(dataset.prefetch(tf.data.AUTOTUNE)), GPUs of one model. traceview collectives LOGDIR shows "
                "who came last to which."
            ),
            evidence=[
                *(Evidence("exposed_wait_ratio", ratios[key], WAIT_RATIO, key) for key in affected),
                Evidence("last_count", result.last_count[latest], None, latest),
            ],
        )

    def _latest(self, latest: str) -> str:
        """How often the device came last that did so most often; its name if that is most of the time."""
        result = self._result
        count, of_count = result.last_count[latest], result.count - result.incomplete_count
        if not count:
            return "Who comes last to them cannot be told."
        if 2 * count <= of_count:
            return f"No device came last to more than {count} of {numbers.plural(of_count, 'collective')}."
        return f"{latest} came last to {count} of {numbers.plural(of_count, 'collective')}."

    def _ratios(
        self, per_step: Mapping[str, int] | None, total: Mapping[str, int]
    ) -> dict[str, float]:
        """The share of the step of each device at work, without steps that of the window; largest first."""
        whole = self._step_ps if per_step is not None and self._step_ps else self._window_ps
        parts = per_step if per_step is not None and self._step_ps else total
        ratios = {key: parts[key] / whole for key in parts if whole and key in self._kinds}
        return dict(sorted(ratios.items(), key=lambda pair: -pair[1]))

    def _calls(self) -> str:
        result = self._result
        if not result.count_per_step:
            return ""
        packs = f", packed by the strategy into {result.packs}" if result.packs else ""
        if result.packs and result.count_per_step > result.packs:
            packs = f", though the strategy was told to pack all gradients into {result.packs}"
        verb = "is" if result.count_per_step == 1 else "are"
        return f" There {verb} {numbers.plural(result.count_per_step, 'call')} per step{packs}."

    def _packing(self) -> str:
        packs, count = self._result.packs, self._result.count_per_step
        if count == 1:
            return ""
        if packs is None or packs > 1 or count is None or count <= packs:
            return f"{_PACKING} "
        return (
            "Look at what is called besides: tensors of another type, metrics, synchronised batch normalisation, "
            "clipping by a global norm (traceview collectives LOGDIR). "
        )

    def _speed(self) -> str:
        result = self._result
        if result.bus_bytes_per_second is None:
            return ""
        told = f" Each link carries {numbers.size(result.bus_bytes_per_second)} per second"
        if result.link_bytes_per_second:
            if result.bus_bytes_per_second > result.link_bytes_per_second:
                return (
                    f"{told}, more than the {numbers.size(result.link_bytes_per_second)} of the recorded link: something else "
                    "links these devices."
                )
            told += f" of the {numbers.size(result.link_bytes_per_second)} that it can"
        if result.expected_ps is not None:
            told += f"; at that speed the gradients would take {numbers.time(result.expected_ps)}"
        return told + "."

    def _finding(
        self,
        code: str,
        severity: Severity,
        devices: list[str],
        ratio: float,
        *,
        title: str,
        explanation: str,
        advice: str,
        evidence: list[Evidence],
    ) -> Finding:
        on_cpu = all(self._kinds[key] == "replica" for key in devices)
        is_enough = self._used_count >= LEAST_USED_STEPS
        confidence: Confidence = "high"
        reason = "every device of these collectives is recorded"
        if on_cpu:
            confidence, reason = "low", "replicas on the CPU share its cores"
        elif not is_enough:
            confidence, reason = "low", f"fewer than {LEAST_USED_STEPS} steps to judge by"
        elif self._is_alone:
            confidence = "low"
            reason = "other devices are not recorded, so that this may be waiting for them"
        elif self._lacks_members:
            confidence = "medium"
            reason = "not all workers are recorded, so that a part of this may be waiting for them"
        elif self._result.matched_by != "keys":
            confidence, reason = "medium", "matched by their order: keys are not recorded"
        return Finding(
            code=code,
            severity="info" if on_cpu or not is_enough else severity,
            title=title,
            explanation=explanation,
            advice=advice,
            confidence=confidence,
            confidence_reason=reason,
            evidence=tuple(evidence),
            devices=tuple(devices),
            cost_ps_per_step=None if self._step_ps is None else int(ratio * self._step_ps),
            cost_ratio=ratio,
        )


def _off_gpu(
    host: HostCollectives, device_time: DeviceTime, steps: Steps | Skipped, selection: Selection
) -> Finding | None:
    gpus = tuple(
        row.device
        for row in device_time.devices
        if row.host == host.host and row.kind == "gpu" and row.status in _AT_WORK
    )
    bounces = host.path == "cpu_bounce"
    if not bounces and not (host.path == "one_device" and len(gpus) >= ONE_DEVICE_GPUS):
        return None
    cost = _copied_ps(steps, gpus, "exposed_d2h_ps" if bounces else "exposed_d2d_ps")
    step = selection.median_step_ps
    is_enough = len(selection.used_steps) >= LEAST_USED_STEPS
    where = "on the CPU" if bounces else "on one GPU"
    reason = f" The reason: {host.path_reason}." if host.path_reason else ""
    return Finding(
        code="reduction-off-gpu",
        severity="warning" if is_enough else "info",
        title=f"the gradients of {numbers.plural(len(gpus), 'GPU')} of {host.host} are summed {where}",
        explanation=(
            (
                "They are copied to the host, summed by the CPU and copied back; the links to the host and "
                "its memory are slower than those between GPUs."
                if bounces
                else "All of them go to one GPU and the sum back from it, so its links carry what a ring "
                "would spread over all."
            )
            + f"{reason} The cost is a bound: the copies of gradients that nothing hides, on the GPU where they "
            "take longest."
        ),
        advice=(
            "Let NCCL reduce: tf.distribute.MirroredStrategy() without cross_device_ops takes it when every "
            "replica has a GPU of its own. Create variables under strategy.scope() and outside of "
            "tf.device('/CPU:0'); do not divide GPUs into virtual devices."
        ),
        confidence="medium" if is_enough else "low",
        confidence_reason=(
            "recognised from copies as large as gradients and from the names of sums"
            if is_enough
            else f"fewer than {LEAST_USED_STEPS} steps to judge by"
        ),
        evidence=(
            Evidence("path", host.path or "", None, host.host),
            *(Evidence("path_op", op, None, host.host) for op in host.path_ops),
        ),
        devices=gpus,
        cost_ps_per_step=cost,
        cost_ratio=None if cost is None or not step else cost / step,
    )


def _copied_ps(steps: Steps | Skipped, devices: tuple[str, ...], part: str) -> int | None:
    """The largest median over the used steps of an exposed part of these devices."""
    if isinstance(steps, Skipped):
        return None
    parts: dict[str, list[int]] = {}
    for row in steps.steps:
        for one in row.devices if row.used else ():
            if one.device in devices:
                parts.setdefault(one.device, []).append(getattr(one, part))
    medians = [low_median(values) or 0 for values in parts.values()]
    return max(medians, default=None)
