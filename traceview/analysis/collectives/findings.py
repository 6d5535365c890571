"""Concludes whether training waits for collectives, for other devices in them, or for a reduction without NCCL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from traceview.analysis.base import Confidence, Evidence, Finding, Rule
from traceview.analysis.collectives.result import CollectiveResult, HostCollectives
from traceview.analysis.cost import Bound, Cost
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.selection import Selection
from traceview.analysis.steps.result import Steps
from traceview.document import numbers

EXPOSED: Final = Rule(
    code="collective-exposed",
    starts_at="exposed transfer of collectives from {warning_ratio} of the mean step; critical from {critical_ratio}",
    limits={"warning_ratio": 0.10, "critical_ratio": 0.30},
    severities=("warning", "critical"),
    meaning=(
        "Devices exchange gradients while they compute nothing. Only the transfer counts, which is the shortest time "
        "that any device spends in each collective. Waiting for a late device is another finding."
    ),
    evidence="mean_exposed_transfer_per_step_ps of results.collectives over the mean step",
    advice=(
        "Use fewer and larger calls: tf.distribute.NcclAllReduce(num_packs=1), or CommunicationOptions without "
        "bytes_per_pack. Exchange gradients less often: a larger batch per replica."
    ),
    example="exposed transfer on GPU:0 takes 12.0 ms of the mean 50.0 ms step (24.0%)",
    path_causes=("collective",),
    jax_advice=(
        "Exchange less often: a larger batch per device. Check the shardings: an array that two ops want in "
        "different shardings is exchanged between them."
    ),
)

WAIT: Final = Rule(
    code="collective-wait",
    starts_at=(
        "exposed waiting for other devices in collectives from {warning_ratio} of the mean step, unless a straggler or a "
        "late input shard explains it"
    ),
    limits={"warning_ratio": 0.05},
    meaning=(
        "A collective ends on all devices together, so devices that arrive early wait in it for the last one."
    ),
    evidence="mean_exposed_wait_per_step_ps of results.collectives over the mean step; last_count per device",
    advice=(
        "Give all replicas equal work: the same batch size on each (dataset.batch(n, drop_remainder=True)), input that "
        "is ready for all of them (dataset.prefetch(tf.data.AUTOTUNE)), GPUs of one model. traceview collectives "
        "LOGDIR lists the last device of each collective."
    ),
    example="GPU:2 waits for other devices in collectives for 6.00 ms of the mean 50.0 ms step (12.0%)",
    idle_causes=("peer",),
    jax_advice=(
        "Give all devices equal work: equal shards of the batch, batches copied ahead with jax.device_put, "
        "GPUs of one model. traceview collectives LOGDIR lists the last device of each collective."
    ),
)

OFF_GPU: Final = Rule(
    code="reduction-off-gpu",
    starts_at="gradients that are summed on the CPU, or on one of {least_count} GPUs or more",
    limits={"least_count": 3},
    meaning=(
        "NCCL does not sum the gradients over the links between GPUs. They are copied to the CPU and back, or all to "
        "one GPU. A scalar loss that is summed this way is normal and does not count."
    ),
    evidence=(
        "path and path_ops of results.collectives: copies as large as gradients, and sums that belong to no replica"
    ),
    advice=(
        "Let NCCL reduce: tf.distribute.MirroredStrategy() without cross_device_ops uses it when every replica has a "
        "GPU of its own. Create variables under strategy.scope() and outside of tf.device('/CPU:0'); do not divide "
        "GPUs into virtual devices."
    ),
    example="host0 sums the gradients of 4 GPUs on one GPU",
    path_causes=("d2h", "d2d"),
)

_ALIKE_RATIO: Final = 0.995
"""A title names no single device if the shares of all are at least this much of the largest."""

_PACKING: Final = (
    "Use fewer and larger calls: tf.distribute.MirroredStrategy(cross_device_ops="
    "tf.distribute.NcclAllReduce(num_packs=1)). MultiWorkerMirroredStrategy makes one call for all gradients, unless "
    "CommunicationOptions has bytes_per_pack."
)
_SPLIT: Final = "Use fewer and larger calls: without bytes_per_pack in CommunicationOptions all gradients go in one call."
_PACKED: Final = (
    "Look for other calls: tensors of another type, metrics, synchronised batch normalisation, clipping by a global "
    "norm (traceview collectives LOGDIR)."
)
_NOBODY_IS_LATE: Final = (
    "Now one device is late and now another, so equal work alone does not help: look at what comes before single "
    "collectives, which traceview collectives LOGDIR lists with the last device of each. On CPU devices other work on the "
    "cores is enough."
)
_LARGER_BATCH: Final = "Exchange gradients less often: a larger batch per replica, so that one exchange serves more examples."
_NOT_HALF: Final = "Mixed precision does not help: the gradients of float32 variables stay float32."


def diagnose(
    result: CollectiveResult,
    times: DeviceTime,
    steps: Steps | None,
    selection: Selection,
    bytes_per_pack: int | None,
) -> list[Finding]:
    """What collectives cost. `bytes_per_pack`: of the strategy; 0: all in one, None: not known."""
    kinds = {row.device: row.kind for row in times.devices if row.is_in_use}
    costs = _Costs(result, selection, kinds, bytes_per_pack)
    findings = [costs.exposed(), costs.wait()]
    findings += [_off_gpu(host, times, steps, selection) for host in result.hosts]
    return [finding for finding in findings if finding is not None]


class _Costs:
    """What collectives cost the step of each device; `kinds` of the devices in use by their keys."""

    def __init__(
        self,
        result: CollectiveResult,
        selection: Selection,
        kinds: Mapping[str, str],
        bytes_per_pack: int | None,
    ) -> None:
        self._bytes_per_pack = bytes_per_pack
        self._result = result
        self._kinds = kinds
        self._selection = selection
        self._few_steps = selection.few_steps

    @property
    def _is_alone(self) -> bool:
        """Whether most collectives lack devices, so that transfer and waiting cannot be separated."""
        return 2 * self._result.incomplete_count >= max(self._result.count, 1)

    @property
    def _lacks_members(self) -> bool:
        """Whether workers take part that were not recorded."""
        return self._result.member_count > self._result.device_count

    def exposed(self) -> Finding | None:
        """The transfer that no kernel hides."""
        result = self._result
        costs = self._by_device(
            result.mean_exposed_transfer_per_step_ps, result.exposed_transfer_ps
        )
        if self._is_alone:
            meaning = "This may be transfer or waiting: the other devices are not recorded."
        elif self._lacks_members:
            meaning = "Part of this may be waiting for workers that were not recorded."
        else:
            meaning = "The transfer itself, without waiting for other devices, runs while no kernel hides it."
        return self._finding(
            EXPOSED,
            costs,
            "exposed_transfer_ratio",
            title="exposed transfer on {devices} takes {cost}",
            explanation=f"{meaning}{self._calls()}{self._speed()}",
            advice=" ".join(self._less_transfer()),
        )

    def wait(self) -> Finding | None:
        """The waiting for other devices that no kernel hides."""
        result, transfers = self._result, self._result.exposed_transfer_ps
        waits = {key: exposed - transfers[key] for key, exposed in result.exposed_ps.items()}
        last = max(result.last_count, key=lambda key: result.last_count[key], default="")
        return self._finding(
            WAIT,
            self._by_device(result.mean_exposed_wait_per_step_ps, waits),
            "exposed_wait_ratio",
            title="{devices} waits for other devices in collectives for {cost}",
            explanation=(
                f"{WAIT.meaning} {self._last(last)} The cost is an upper bound: what the device that waits longest would save."
            ),
            evidence=(Evidence("last_count", result.last_count.get(last, 0), None, last),),
            advice=None if self._is_mostly_last(last) else _NOBODY_IS_LATE,
            bound="upper",
        )

    def _is_mostly_last(self, device: str) -> bool:
        """Whether one device comes last to most collectives, or the trace does not show which one does."""
        result = self._result
        count, complete = result.last_count.get(device, 0), result.count - result.incomplete_count
        return not count or 2 * count > complete

    def _last(self, device: str) -> str:
        """How often the device came last that did so most often; its name only if that is most of the time."""
        result = self._result
        count, complete = result.last_count.get(device, 0), result.count - result.incomplete_count
        collectives = numbers.plural(complete, "collective")
        if not count:
            return "The trace does not show which device comes last."
        if not self._is_mostly_last(device):
            return f"No device came last to more than {count} of {collectives}."
        return f"{device} came last to {count} of {collectives}."

    def _by_device(
        self, per_step: Mapping[str, int] | None, total: Mapping[str, int]
    ) -> dict[str, Cost]:
        """The cost on each device in use, largest first."""
        parts = per_step if per_step is not None and self._selection.used_steps else total
        costs = {
            key: self._selection.cost("mean", ps) for key, ps in parts.items() if key in self._kinds
        }
        return dict(sorted(costs.items(), key=lambda pair: -(pair[1].ratio or 0.0)))

    def _calls(self) -> str:
        count, packs = self._result.count_per_step, self._result.packs
        if not count:
            return ""
        calls = f" There {'is' if count == 1 else 'are'} {numbers.plural(count, 'call')} per step"
        if not packs:
            return f"{calls}."
        if count > packs:
            return f"{calls}, though the strategy is set up to pack all gradients into {packs}."
        return f"{calls}; the strategy is set up to pack the gradients into {packs}."

    def _less_transfer(self) -> Iterator[str]:
        packing = self._packing()
        if packing and packing != _PACKED:
            yield packing
        yield _LARGER_BATCH
        if packing == _PACKED:
            yield packing
        yield _NOT_HALF

    def _packing(self) -> str:
        """What to do about the number of calls; NCCL packs by number, other collectives by size (TensorFlow 2.21)."""
        packs, count = self._result.packs, self._result.count_per_step
        if count == 1:
            return ""
        if packs is not None:
            return _PACKED if packs <= 1 and (count or 0) > packs else _PACKING
        if self._bytes_per_pack is not None:
            return _SPLIT if self._bytes_per_pack else _PACKED
        # NCCL does not serve the CPU.
        return _PACKING if "gpu" in self._kinds.values() else ""

    def _speed(self) -> str:
        result = self._result
        speed, link = result.bus_bytes_per_second, result.link_bytes_per_second
        if speed is None:
            return ""
        if not link:
            # Only collectives of GPUs have a library, and links.
            carrier = "link carries" if result.library else "device sends"
            return f" Each {carrier} {numbers.rate(speed)}."
        if speed > link:
            return (
                f" Each link carries {numbers.rate(speed)}, more than the recorded link can "
                f"({numbers.rate(link)}): the devices use another link."
            )
        words = f" Each link carries {numbers.rate(speed)} of {numbers.rate(link)}"
        if result.expected_ps is not None:
            words += f"; at full speed the gradients would take {numbers.time(result.expected_ps)}"
        return f"{words}."

    def _finding(
        self,
        rule: Rule,
        costs: Mapping[str, Cost],
        metric: str,
        *,
        title: str,
        explanation: str,
        advice: str | None = None,
        evidence: tuple[Evidence, ...] = (),
        bound: Bound | None = None,
    ) -> Finding | None:
        """A finding about the devices past the limit; `title` has places for `devices` and `cost`."""
        limit = rule.limits["warning_ratio"]
        ratios = {key: cost.ratio for key, cost in costs.items() if cost.ratio is not None}
        devices = [key for key, ratio in ratios.items() if ratio >= limit]
        if not devices:
            return None
        ratio = ratios[devices[0]]
        on_cpu = all(self._kinds[key] == "replica" for key in devices)
        are_alike = len(devices) == len(ratios) > 1 and ratios[devices[-1]] >= _ALIKE_RATIO * ratio
        whose = f"each of the {len(devices)} devices" if are_alike else devices[0]
        return rule.finding(
            title.format(devices=whose, cost=costs[devices[0]].stated),
            (*(Evidence(metric, ratios[key], limit, key) for key in devices), *evidence),
            severity="info" if on_cpu or self._few_steps else rule.severity_of(ratio),
            confidence=self._confidence(on_cpu=on_cpu),
            explanation=explanation,
            advice=advice,
            devices=devices,
            cost=costs[devices[0]].as_bound(bound) if bound else costs[devices[0]],
        )

    def _confidence(self, *, on_cpu: bool) -> tuple[Confidence, str]:
        if on_cpu:
            return "low", "replicas on the CPU share its cores"
        if self._few_steps:
            return self._few_steps
        if self._is_alone:
            return "low", "other devices are not recorded, so this may be waiting for them"
        if self._lacks_members:
            return "medium", "not all workers are recorded, so part of this may be waiting for them"
        if self._result.matched_by != "keys":
            return "medium", "collectives matched by their order: keys are not recorded"
        return "high", "every device of these collectives is recorded"


def _off_gpu(
    host: HostCollectives, times: DeviceTime, steps: Steps | None, selection: Selection
) -> Finding | None:
    gpus = tuple(
        row.device
        for row in times.devices
        if row.host == host.host and row.kind == "gpu" and row.is_in_use
    )
    is_on_cpu = host.path == "cpu_bounce"
    is_on_one = host.path == "one_device" and len(gpus) >= OFF_GPU.limits["least_count"]
    if not is_on_cpu and not is_on_one:
        return None
    copied_ps = _copied_ps(steps, gpus, "exposed_d2h_ps" if is_on_cpu else "exposed_d2d_ps")
    place = "the CPU" if is_on_cpu else "one GPU"
    way = (
        "The gradients are copied to the host, summed by the CPU and copied back. The links to the host and its "
        "memory are slower than those between GPUs."
        if is_on_cpu
        else "All gradients go to one GPU and the sum comes back from it, so its links carry what a ring would spread "
        "over all links."
    )
    reason = f" The reason: {host.path_reason}." if host.path_reason else ""
    return OFF_GPU.finding(
        f"{host.host} sums the gradients of {numbers.plural(len(gpus), 'GPU')} on {place}",
        (
            Evidence("path", host.path or "", None, host.host),
            *(Evidence("path_op", op, None, host.host) for op in host.path_ops),
        ),
        severity="info" if selection.few_steps else "warning",
        confidence=selection.few_steps
        or ("medium", "recognised by copies as large as gradients and by the names of sums"),
        explanation=(
            f"{way}{reason} The cost is an upper bound: the exposed copies of gradients on the GPU where they take longest."
        ),
        devices=gpus,
        cost=None if copied_ps is None else selection.cost("mean", copied_ps).as_bound("upper"),
    )


def _copied_ps(steps: Steps | None, gpus: tuple[str, ...], part: str) -> int | None:
    """The largest mean over the used steps of an exposed part of these devices, rounded down."""
    parts: dict[str, list[int]] = {}
    for step in steps.steps if steps else ():
        for device in step.devices if step.used else ():
            if device.device in gpus:
                parts.setdefault(device.device, []).append(getattr(device, part))
    return max((sum(lengths) // len(lengths) for lengths in parts.values()), default=None)
