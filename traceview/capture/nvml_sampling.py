"""What does NVML say of each GPU, ten times a second, while something else runs?

A thread asks, with every signal left to the script's threads. It ends when it is told to, when its recording is
over in any other way, and with the process. A question that a GPU does not answer is not asked again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from threading import Event, Thread
from time import perf_counter, time_ns
from typing import Any, Final, TypeAlias

from traceview.capture.gpu_neighbours import Neighbours

INTERVAL_SECONDS: Final = 0.1
MOST_SAMPLES: Final = 600
"""Of one GPU; with more every second one is dropped, and half as many are taken from then on."""
_SECONDS_BETWEEN_LOOKS: Final = 1.0
"""Other processes come and go slowly."""
_PATIENCE_SECONDS: Final = 2.0
_LONGEST_REASON: Final = 200
_HZ: Final = 1_000_000
_KB: Final = 1000

_FIELDS: Final = (
    "gpu_utilization_ratio",
    "memory_utilization_ratio",
    "memory_used_bytes",
    "sm_clock_hz",
    "memory_clock_hz",
    "throttle_reasons",
    "power_watts",
    "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
)


_Questions: TypeAlias = dict[tuple[str, ...], Callable[[], tuple[Any, ...]]]
"""By the fields that one question answers."""


class GpuSamples:
    """One GPU: columns of equal length, None where a question had no answer or was not asked.

    `t_ns`: Unix nanoseconds. `missing`: fields without a column, and why.
    """

    def __init__(self, nvml: Any, handle: Any, neighbours: Neighbours) -> None:
        self.neighbours = neighbours
        self.missing: dict[str, str] = {}
        self._nvml = nvml
        self._handle = handle
        self._columns: dict[str, list[Any]] = {"t_ns": [], **{field: [] for field in _FIELDS}}
        self._questions: _Questions = {
            _FIELDS[:2]: self._utilization,
            _FIELDS[2:3]: lambda: (int(nvml.nvmlDeviceGetMemoryInfo(handle).used),),
            _FIELDS[3:4]: lambda: (self._clock_hz(nvml.NVML_CLOCK_SM),),
            _FIELDS[4:5]: lambda: (self._clock_hz(nvml.NVML_CLOCK_MEM),),
            _FIELDS[5:6]: lambda: (self._reasons(),),
            _FIELDS[6:7]: lambda: (nvml.nvmlDeviceGetPowerUsage(handle) / 1000,),
        }
        self._pcie: _Questions = {
            _FIELDS[7:8]: lambda: (self._throughput(nvml.NVML_PCIE_UTIL_RX_BYTES),),
            _FIELDS[8:9]: lambda: (self._throughput(nvml.NVML_PCIE_UTIL_TX_BYTES),),
        }

    def take(self, *, with_pcie: bool) -> None:
        """Add one sample."""
        sample: dict[str, Any] = {"t_ns": time_ns()}
        questions = self._questions | self._pcie if with_pcie else self._questions
        for fields, question in questions.items():
            if fields[0] not in self.missing:
                sample.update(zip(fields, self._answers(fields, question), strict=True))
        for field, column in self._columns.items():
            column.append(sample.get(field))

    def thin(self) -> bool:
        """Drop every second sample if there are too many; whether there were."""
        if len(self._columns["t_ns"]) < MOST_SAMPLES:
            return False
        for column in self._columns.values():
            del column[1::2]
        return True

    def between(self, started_ns: int, stopped_ns: int) -> dict[str, list[Any]]:
        """The samples of a span, by field. A field that nothing answered is left out and in `missing`."""
        # The thread may still be at it, where it did not end in time.
        columns = {field: list(column) for field, column in self._columns.items()}
        length = min(map(len, columns.values()))
        kept = [i for i in range(length) if started_ns <= columns["t_ns"][i] <= stopped_ns]
        found = {field: [column[i] for i in kept] for field, column in columns.items()}
        for field in _FIELDS:
            if all(value is None for value in found[field]):
                del found[field]
                self.missing.setdefault(field, "the window was over before it was asked")
        return found

    def _answers(
        self, fields: tuple[str, ...], question: Callable[[], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        try:
            return question()
        except Exception as error:
            if all(value is None for value in self._columns[fields[0]]):
                reason = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
                self.missing.update(dict.fromkeys(fields, reason))
            return (None,) * len(fields)

    def _utilization(self) -> tuple[float, float]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        return rates.gpu / 100, rates.memory / 100

    def _clock_hz(self, clock: int) -> int:
        return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, clock)) * _HZ

    def _reasons(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except Exception:
            # Drivers before 535, and their packages, call the same bits throttle reasons.
            return int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def _throughput(self, counter: int) -> int:
        return int(self._nvml.nvmlDeviceGetPcieThroughput(self._handle, counter)) * _KB


class Sampler:
    """Samples some GPUs from `start` to `stop`, as long as `is_open` says so."""

    def __init__(self, gpus: Sequence[GpuSamples], is_open: Callable[[], bool]) -> None:
        self.interval_seconds = INTERVAL_SECONDS
        self.spent_seconds = 0.0
        self.problem: str | None = None
        self.held: object = None
        """What must not be let go before the thread has ended."""
        self._gpus = gpus
        self._is_open = is_open
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="traceview-nvml", daemon=True)

    def start(self) -> None:
        """Take the first sample now, and more from then on."""
        self._thread.start()

    def stop(self) -> bool:
        """Take no more; False if NVML does not let go of the thread."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._sample()
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]

    def _sample(self) -> None:
        rounds, looked = 0, float("-inf")
        while not self._stopping.is_set() and self._is_open():
            begun = perf_counter()
            for place, gpu in enumerate(self._gpus):
                # A PCIe counter is read for 20 ms (nvml.h), so that each round asks one GPU for its two.
                gpu.take(with_pcie=place == rounds % len(self._gpus))
            if begun - looked >= _SECONDS_BETWEEN_LOOKS:
                looked = begun
                for gpu in self._gpus:
                    gpu.neighbours.look()
            thinned = [gpu.thin() for gpu in self._gpus]
            if any(thinned):
                self.interval_seconds *= 2
            rounds += 1
            spent = perf_counter() - begun
            self.spent_seconds += spent
            # Where the driver is slow, half of the time is still the script's.
            self._stopping.wait(max(self.interval_seconds - spent, self.interval_seconds / 2))
