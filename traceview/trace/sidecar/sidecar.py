"""Reads the sidecar, the file that `traceview capture` writes beside a trace; any of its fields may be missing."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from traceview.base.location import Location
from traceview.base.record import RecordedCount
from traceview.trace.sidecar.environment import PhysicalDevice, RecordedEnvironment
from traceview.trace.sidecar.fields import LARGEST, read_as
from traceview.trace.sidecar.nvml import NvmlRecord
from traceview.trace.sidecar.placement import RecordedPlacement
from traceview.trace.sidecar.python_samples import PythonRecord, PythonSamples, python_samples
from traceview.trace.sidecar.thread_times import ThreadsRecord, ThreadTimes, thread_times

SUFFIX: Final = ".traceview.json"
_TRACE_SUFFIX: Final = ".xplane.pb"


class RecordedEvaluation(Struct, frozen=True):
    """What was evaluated after the step of number `after`: calls by function, and when, by the monotonic clock."""

    after: RecordedCount | None
    functions: dict[str, RecordedCount]
    begun_ns: RecordedCount | None
    ended_ns: RecordedCount | None


class GraphValues(Struct, frozen=True):
    """What the graphs of the step functions say of ops, by name.

    `float64_ops`, `constant_ops`: a thousand of each at most: those in float64, and those that compute the same in every step.
    `lines`: of the script, each once. `line_of`: which of them made each op, or, where a name ends with a slash, all ops of a
    scope; None where ops of several functions have the name. `flops`: the floating-point operations of each product of
    matrices and each convolution, by the name of the op and of what may be fused with it.
    """

    float64_ops: tuple[str, ...]
    constant_ops: tuple[str, ...]
    lines: tuple[str, ...]
    line_of: dict[str, RecordedCount | None]
    flops: dict[str, RecordedCount]


class RecordedLoad(Struct, frozen=True):
    """What the `cores` of the machine did while the window was open: busy time of all processes, and of this one."""

    elapsed_ns: RecordedCount | None
    busy_ns: RecordedCount | None
    own_ns: RecordedCount | None
    cores: RecordedCount | None


class Sidecar(Struct, frozen=True):
    """The part of the sidecar that the analysis uses. `evaluations`: what ran between steps.

    `edge_steps`: steps on either side of the requested window, recorded but not requested. `cut_steps`: steps that ended by an exception. `steps_per_call`: the numbers of training steps that a call with one marker
    made; empty if not recorded. `started_ns`, `stopped_ns`: Unix nanoseconds just before the profile started and stopped. `python`: samples of Python stacks. `threads`: clocks of all threads. `wrong_fields`: dotted names of fields of the wrong
    type, which were left out.
    """

    edge_steps: frozenset[int]
    cut_steps: frozenset[int]
    steps_per_call: tuple[int, ...]
    evaluations: tuple[RecordedEvaluation, ...]
    started_ns: int | None
    stopped_ns: int | None
    environment: RecordedEnvironment
    placement: RecordedPlacement
    graphs: GraphValues
    load: RecordedLoad
    outside_view: NvmlRecord
    python: PythonSamples | None
    threads: ThreadTimes | None
    wrong_fields: tuple[str, ...]

    @property
    def overhead_ratio(self) -> float | None:
        """The time that the profiler adds to a step, relative to a step without it."""
        return self.environment.overhead.ratio

    @property
    def physical_gpus(self) -> tuple[PhysicalDevice, ...]:
        """The GPUs that TensorFlow listed, in the order of their planes."""
        physical = self.environment.devices.physical or ()
        return tuple(device for device in physical if device.type == "GPU")

    @property
    def has_virtual_gpus(self) -> bool:
        """Whether a GPU is divided into several logical devices."""
        return any((gpu.logical_devices or 1) > 1 for gpu in self.physical_gpus)


class _Window(Struct, frozen=True):
    edge_steps: tuple[RecordedCount, ...]
    cut_steps: tuple[RecordedCount, ...]
    steps_per_call: tuple[RecordedCount, ...]
    evaluations: tuple[RecordedEvaluation, ...]


class _Reading(Struct, frozen=True):
    wall_ns: Annotated[int, Meta(ge=0, le=LARGEST)] | None


class _Clock(Struct, frozen=True):
    starting: _Reading
    stopped: _Reading


class _File(RecordedEnvironment, frozen=True):
    window: _Window
    clock: _Clock
    placement: RecordedPlacement
    graphs: GraphValues
    load: RecordedLoad
    outside_view: NvmlRecord
    python: PythonRecord
    threads: ThreadsRecord


class SidecarError(Exception):
    """The sidecar exists but is not readable; the message says why."""


def read_sidecar(trace: Location) -> Sidecar | None:
    """The sidecar beside a trace file; None if there is none. Raises `SidecarError` if it is not readable."""
    path = trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + SUFFIX)
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise SidecarError(f"{path.name} is not a regular file")
    except OSError:
        # The name is too long with this suffix.
        return None
    import json

    try:
        content = json.loads(path.read_text("utf-8", "strict"))
    except (OSError, ValueError, RecursionError) as error:
        raise SidecarError(f"{path.name} is not readable: {error}") from error
    wrong: list[str] = []
    file = read_as(_File, content, wrong)
    python = python_samples(file.python, wrong, "python")
    threads = thread_times(file.threads, wrong, "threads")
    return Sidecar(
        edge_steps=frozenset(file.window.edge_steps),
        cut_steps=frozenset(file.window.cut_steps),
        steps_per_call=file.window.steps_per_call,
        evaluations=file.window.evaluations,
        started_ns=file.clock.starting.wall_ns,
        stopped_ns=file.clock.stopped.wall_ns,
        environment=RecordedEnvironment(
            **{name: getattr(file, name) for name in RecordedEnvironment.__struct_fields__}
        ),
        placement=file.placement,
        graphs=file.graphs,
        load=file.load,
        outside_view=file.outside_view,
        python=python,
        threads=threads,
        wrong_fields=tuple(dict.fromkeys(wrong)),
    )
