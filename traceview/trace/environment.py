"""What did the profiled process run in, as `traceview capture` wrote it down?

Each class is a group of fields of the sidecar, with its names. None: the sidecar does not say; where it was
asked and could not be had, `missing` holds the reason by the name of the field.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """How Python was started, and what the script got; credentials are masked when it is written."""

    python: tuple[str, ...]
    script: tuple[str, ...]


@dataclass(frozen=True)
class ClusterTask:
    """Place of the process in its cluster, from TF_CONFIG. `sizes`: tasks by role."""

    role: str | None
    index: int | None
    sizes: dict[str, int] | None
    missing: dict[str, str]


@dataclass(frozen=True)
class Versions:
    """Of what the script had imported and loaded; `…_build`: what this TensorFlow was built with."""

    tensorflow: str | None
    tensorflow_git: str | None
    keras: str | None
    tf_keras: str | None
    python: str | None
    numpy: str | None
    is_cuda_build: bool | None
    cuda: str | None
    cuda_build: str | None
    cudnn: str | None
    cudnn_build: str | None
    nccl: str | None
    driver: str | None
    cuda_of_driver: str | None
    missing: dict[str, str]


@dataclass(frozen=True)
class StrategySetup:
    """The distribution strategy. `found_by`: variables or input of the step; memory: the script has it.

    What was only in memory is found by the recording if that shows replicas (`traceview.trace.replicas`).
    `devices`: one per replica, in their order. `bytes_per_pack`: 0 as TensorFlow sees fit.
    """

    class_: str | None
    found_by: str | None
    replicas: int | None
    devices: tuple[str, ...] | None
    parameter_devices: tuple[str, ...] | None
    cross_device_ops: str | None
    packs: int | None
    bytes_per_pack: int | None
    implementation: str | None
    missing: dict[str, str]

    @property
    def is_used(self) -> bool:
        """Whether the step itself shows it."""
        return self.class_ is not None and self.found_by in ("variables", "input", "recording")


@dataclass(frozen=True)
class BatchSize:
    """Examples of one step, of all replicas and of each. `found_by`: arguments or dataset."""

    global_: int | None
    per_replica: int | None
    found_by: str | None
    missing: dict[str, str]


@dataclass(frozen=True)
class TrainedVariables:
    """Trainable variables that the step functions use, once however many replicas mirror them."""

    trainable_variables: int | None
    parameters: int | None
    parameter_bytes: int | None
    gradient_bytes: int | None
    missing: dict[str, str]


@dataclass(frozen=True)
class PrecisionSettings:
    """`policy`: the mixed-precision policy by Keras module."""

    policy: dict[str, str] | None
    auto_mixed_precision: bool | None
    tf32: bool | None
    missing: dict[str, str]


@dataclass(frozen=True)
class XlaSettings:
    """`auto_jit`: off, or the level at which XLA compiles by itself."""

    auto_jit: str | None
    tf_xla_flags: str | None
    xla_flags: str | None
    missing: dict[str, str]


@dataclass(frozen=True)
class DeviceDetails:
    """What the driver told TensorFlow of a GPU."""

    device_name: str | None
    compute_capability: tuple[int, ...]


@dataclass(frozen=True)
class PhysicalDevice:
    """`logical_devices`: into how many TensorFlow divided it."""

    name: str | None
    type: str | None
    details: DeviceDetails | None
    logical_devices: int | None
    memory_limits_mb: tuple[int | None, ...] | None
    memory_growth: bool | None
    missing: dict[str, str]


@dataclass(frozen=True)
class DeviceSettings:
    """Devices of the machine, those TensorFlow was let see, and the logical ones it made of them."""

    physical: tuple[PhysicalDevice, ...] | None
    visible: tuple[str, ...] | None
    logical: tuple[str, ...] | None
    soft_placement: bool | None
    missing: dict[str, str]


@dataclass(frozen=True)
class NvLinks:
    """Active NVLinks of a GPU, and their number by the bus id at the other end."""

    active: int | None
    peers: dict[str, int]


@dataclass(frozen=True)
class GpuLink:
    """How one GPU of the machine is attached; generation and width of PCIe as they were, and at most."""

    name: str | None
    bus_id: str | None
    pcie_generation: int | None
    pcie_width: int | None
    pcie_generation_max: int | None
    pcie_width_max: int | None
    memory_bytes: int | None
    nvlinks: NvLinks | None
    missing: dict[str, str]


@dataclass(frozen=True)
class GpuPath:
    """What lies between two GPUs of the machine, by their places in the list."""

    gpus: tuple[int, ...]
    over: str | None


@dataclass(frozen=True)
class GpuLinks:
    """All GPUs of the machine, visible to TensorFlow or not."""

    gpus: tuple[GpuLink, ...] | None
    paths: tuple[GpuPath, ...] | None
    missing: dict[str, str]


@dataclass(frozen=True)
class ProfilerOverhead:
    """Median step times, nanoseconds, before the window and in it; `ratio`: longer by, over the former.

    `spread_ratio`: how far steps vary by themselves, over the same; a smaller `ratio` may be chance.
    """

    unprofiled_ns: int | None
    unprofiled_count: int | None
    profiled_ns: int | None
    profiled_count: int | None
    ratio: float | None
    spread_ratio: float | None


@dataclass(frozen=True)
class EdgeSync:
    """Waiting for the devices at the edges of the window: nanoseconds by moment."""

    is_asked: bool | None
    ns: dict[str, int]


@dataclass(frozen=True)
class EventCounts:
    """Events recorded by kind, what the tracer can hold of them, and what the user allowed."""

    recorded: dict[str, int] | None
    limit: dict[str, int] | None
    max_events: int | None
    allowed_calls: int | None


@dataclass(frozen=True)
class TracerOptions:
    """Levels of the tracers, by name; `in_force` None where TensorFlow does not record them.

    `is_ignored`: this release of TensorFlow takes no options, whether or not any were asked for.
    """

    asked: dict[str, int] | None
    in_force: dict[str, int] | None
    is_ignored: bool | None
    missing: dict[str, str]


@dataclass(frozen=True)
class RecordedEnvironment:
    """One process. `state`: waiting, recording, saved or failed, as the capture left it.

    `variables`: those set of a fixed list, which is all that is ever written down.
    """

    state: str | None
    command: Command
    cluster: ClusterTask
    versions: Versions
    strategy: StrategySetup
    batch: BatchSize
    training: TrainedVariables
    precision: PrecisionSettings
    xla: XlaSettings
    variables: dict[str, str] | None
    devices: DeviceSettings
    links: GpuLinks
    overhead: ProfilerOverhead
    sync: EdgeSync
    events: EventCounts
    options: TracerOptions
