"""What did the profiled process run in, as `traceview capture` wrote it down?

Each class is a group of fields of the sidecar, with its names. None: the sidecar does not say; where it was
asked and could not be had, `missing` holds the reason by the name of the field.
"""

from __future__ import annotations

from traceview.record import (
    Argument,
    BusId,
    DeviceKey,
    Integer,
    ModelName,
    Record,
    SettingValue,
    VersionText,
)


class Command(Record, frozen=True):
    """How Python was started, and what the script got; credentials are masked when it is written.

    Attributes:
        python: How Python was started.
        script: What the script got.
    """

    python: tuple[Argument, ...]
    script: tuple[Argument, ...]


class ClusterTask(Record, frozen=True):
    """Place of the process in its cluster, from TF_CONFIG. `sizes`: tasks by role.

    Attributes:
        role: Type of the task.
        index: Index of the task.
        sizes: Role to the number of its tasks.
        missing: Field that could not be had to the reason, as recorded.
    """

    role: str | None
    index: Integer | None
    sizes: dict[str, Integer] | None
    missing: dict[str, str]


class Versions(Record, frozen=True):
    """Of what the script had imported and loaded; `…_build`: what this TensorFlow was built with.

    Attributes:
        tensorflow: TensorFlow.
        tensorflow_git: Revision of TensorFlow.
        keras: Keras.
        tf_keras: Legacy tf_keras.
        python: Python.
        numpy: NumPy.
        is_cuda_build: Whether this TensorFlow was built with CUDA.
        cuda: CUDA runtime that is loaded.
        cuda_build: CUDA that TensorFlow was built with.
        cudnn: cuDNN that is loaded.
        cudnn_build: cuDNN that TensorFlow was built with.
        nccl: NCCL that is loaded.
        driver: Driver of the GPUs.
        cuda_of_driver: Newest CUDA that the driver serves.
        missing: Field that could not be had to the reason, as recorded.
    """

    tensorflow: VersionText | None
    tensorflow_git: VersionText | None
    keras: VersionText | None
    tf_keras: VersionText | None
    python: VersionText | None
    numpy: VersionText | None
    is_cuda_build: bool | None
    cuda: VersionText | None
    cuda_build: VersionText | None
    cudnn: VersionText | None
    cudnn_build: VersionText | None
    nccl: VersionText | None
    driver: VersionText | None
    cuda_of_driver: VersionText | None
    missing: dict[str, str]


class StrategySetup(Record, frozen=True):
    """The distribution strategy. `found_by`: variables or input of the step; memory: the script has it.

    What was only in memory is found by the recording if that shows replicas (`traceview.trace.replicas`).
    `devices`: one per replica, in their order. `bytes_per_pack`: 0 as TensorFlow sees fit.

    Attributes:
        class_: Its class.
        found_by: Where it was seen: variables or input of the step; recording: only there, by replicas that
            ran; memory: the script has it and the step does not show it.
        replicas: Replicas in sync, in all processes.
        devices: Devices of the replicas of this process, in their order.
        parameter_devices: Devices of mirrored variables.
        cross_device_ops: Class that reduces gradients.
        packs: Packs that gradients are reduced in.
        bytes_per_pack: Size of a pack in bytes; 0: as TensorFlow sees fit.
        implementation: Implementation of collectives that was asked for.
        missing: Field that could not be had to the reason, as recorded.
    """

    class_: str | None
    found_by: str | None
    replicas: Integer | None
    devices: tuple[DeviceKey, ...] | None
    parameter_devices: tuple[DeviceKey, ...] | None
    cross_device_ops: str | None
    packs: Integer | None
    bytes_per_pack: Integer | None
    implementation: str | None
    missing: dict[str, str]

    @property
    def is_used(self) -> bool:
        """Whether the step itself shows it."""
        return self.class_ is not None and self.found_by in ("variables", "input", "recording")


class BatchSize(Record, frozen=True):
    """Examples of one step, of all replicas and of each. `found_by`: arguments or dataset.

    Attributes:
        global_: Of all replicas.
        per_replica: Of each replica.
        found_by: Where it was seen: arguments or dataset.
        missing: Field that could not be had to the reason, as recorded.
    """

    global_: Integer | None
    per_replica: Integer | None
    found_by: str | None
    missing: dict[str, str]


class TrainedVariables(Record, frozen=True):
    """Trainable variables that the step functions use, once however many replicas mirror them.

    Attributes:
        trainable_variables: How many.
        parameters: Their elements.
        parameter_bytes: Their bytes.
        gradient_bytes: Bytes of one dense gradient of each.
        missing: Field that could not be had to the reason, as recorded.
    """

    trainable_variables: Integer | None
    parameters: Integer | None
    parameter_bytes: Integer | None
    gradient_bytes: Integer | None
    missing: dict[str, str]


class PrecisionSettings(Record, frozen=True):
    """`policy`: the mixed-precision policy by Keras module.

    Attributes:
        policy: Keras module to its mixed-precision policy.
        auto_mixed_precision: Whether TensorFlow's own rewriter is on.
        tf32: Whether TF32 is allowed.
        missing: Field that could not be had to the reason, as recorded.
    """

    policy: dict[str, str] | None
    auto_mixed_precision: bool | None
    tf32: bool | None
    missing: dict[str, str]


class XlaSettings(Record, frozen=True):
    """`auto_jit`: off, or the level at which XLA compiles by itself.

    Attributes:
        auto_jit: off, or the level at which it compiles by itself.
        tf_xla_flags: TF_XLA_FLAGS.
        xla_flags: XLA_FLAGS.
        missing: Field that could not be had to the reason, as recorded.
    """

    auto_jit: str | None
    tf_xla_flags: SettingValue | None
    xla_flags: SettingValue | None
    missing: dict[str, str]


class DeviceDetails(Record, frozen=True):
    """What the driver told TensorFlow of a GPU.

    Attributes:
        device_name: Its model.
        compute_capability: Major and minor number.
    """

    device_name: ModelName | None
    compute_capability: tuple[Integer, ...]


class PhysicalDevice(Record, frozen=True):
    """`logical_devices`: into how many TensorFlow divided it.

    Attributes:
        name: TensorFlow's name.
        type: CPU, GPU or another.
        details: What the driver says; null for other devices than GPUs.
        logical_devices: Into how many TensorFlow divides it.
        memory_limits_mb: Memory limit of each of these, megabytes; null for none.
        memory_growth: Whether memory is taken as it is needed.
        missing: Field that could not be had to the reason, as recorded.
    """

    name: DeviceKey | None
    type: str | None
    details: DeviceDetails | None
    logical_devices: Integer | None
    memory_limits_mb: tuple[Integer | None, ...] | None
    memory_growth: bool | None
    missing: dict[str, str]


class DeviceSettings(Record, frozen=True):
    """Devices of the machine, those TensorFlow was let see, and the logical ones it made of them.

    Attributes:
        physical: Those of the machine.
        visible: Names of those it may use.
        logical: Names of what it made of these.
        soft_placement: Whether ops may go where they can run instead of where they ask.
        missing: Field that could not be had to the reason, as recorded.
    """

    physical: tuple[PhysicalDevice, ...] | None
    visible: tuple[DeviceKey, ...] | None
    logical: tuple[DeviceKey, ...] | None
    soft_placement: bool | None
    missing: dict[str, str]


class NvLinks(Record, frozen=True):
    """Active NVLinks of a GPU, and their number by the bus id at the other end.

    Attributes:
        active: Active links.
        peers: Bus id at the other end to the number of links.
    """

    active: Integer | None
    peers: dict[BusId, Integer]


class GpuLink(Record, frozen=True):
    """How one GPU of the machine is attached; generation and width of PCIe as they were, and at most.

    Attributes:
        name: Its model.
        bus_id: PCI bus id.
        pcie_generation: PCIe generation when it was asked; an idle GPU may have lowered it.
        pcie_width: PCIe lanes when it was asked.
        pcie_generation_max: Highest PCIe generation.
        pcie_width_max: Most PCIe lanes.
        memory_bytes: Memory in bytes.
        nvlinks: NVLinks; null without any.
        missing: Field that could not be had to the reason, as recorded.
    """

    name: ModelName | None
    bus_id: BusId | None
    pcie_generation: Integer | None
    pcie_width: Integer | None
    pcie_generation_max: Integer | None
    pcie_width_max: Integer | None
    memory_bytes: Integer | None
    nvlinks: NvLinks | None
    missing: dict[str, str]


class GpuPath(Record, frozen=True):
    """What lies between two GPUs of the machine, by their places in the list.

    Attributes:
        gpus: Their places in the list of GPUs.
        over: What lies between.
    """

    gpus: tuple[Integer, ...]
    over: str | None


class GpuLinks(Record, frozen=True):
    """All GPUs of the machine, visible to TensorFlow or not.

    Attributes:
        gpus: The GPUs.
        paths: What lies between each two.
        missing: Field that could not be had to the reason, as recorded.
    """

    gpus: tuple[GpuLink, ...] | None
    paths: tuple[GpuPath, ...] | None
    missing: dict[str, str]


class ProfilerOverhead(Record, frozen=True):
    """Median step times, nanoseconds, before the window and in it; `ratio`: longer by, over the former.

    Attributes:
        unprofiled_ns: Before the window, nanoseconds.
        unprofiled_count: Steps that is the median of.
        profiled_ns: In the window, nanoseconds.
        profiled_count: Steps that is the median of.
        ratio: How much longer, over the time without.
        spread_ratio: How far steps vary by themselves, over the same: a smaller ratio may be chance.
    """

    unprofiled_ns: Integer | None
    unprofiled_count: Integer | None
    profiled_ns: Integer | None
    profiled_count: Integer | None
    ratio: float | None
    spread_ratio: float | None


class EdgeSync(Record, frozen=True):
    """Waiting for the devices at the edges of the window: nanoseconds by moment.

    Attributes:
        is_asked: Whether it was asked for.
        ns: Moment to the time it took, nanoseconds.
    """

    is_asked: bool | None
    ns: dict[str, Integer]


class EventCounts(Record, frozen=True):
    """Events recorded by kind, what the tracer can hold of them, and what the user allowed.

    Attributes:
        recorded: Kind of event to the number recorded.
        limit: Kind of event to the most that one profile can hold.
        max_events: Most events that the user allowed.
        allowed_calls: Calls of the step that this leaves room for.
    """

    recorded: dict[str, Integer] | None
    limit: dict[str, Integer] | None
    max_events: Integer | None
    allowed_calls: Integer | None


class TracerOptions(Record, frozen=True):
    """Levels of the tracers, by name; `in_force` None where TensorFlow does not record them.

    Attributes:
        asked: Those asked for, by name.
        in_force: Those in force, by name; null where TensorFlow does not record them.
        is_ignored: Whether this release of TensorFlow takes no options.
        missing: Field that could not be had to the reason, as recorded.
    """

    asked: dict[str, Integer] | None
    in_force: dict[str, Integer] | None
    is_ignored: bool | None
    missing: dict[str, str]


class RecordedEnvironment(Record, frozen=True):
    """One process. `state`: waiting, recording, saved or failed, as the capture left it.

    Attributes:
        state: How far the capture came: waiting, recording, saved or failed.
        command: How it was started.
        cluster: Its place in the cluster.
        versions: Versions of software.
        strategy: Distribution strategy.
        batch: Batch size.
        training: Trainable variables.
        precision: Precision of numbers.
        xla: Settings of XLA.
        variables: Environment variables that are set, of a fixed list.
        devices: Devices as TensorFlow sees them.
        links: How the GPUs of the machine are connected.
        overhead: What profiling cost.
        sync: Waiting for the devices at the edges of the window.
        events: How full the tracer was.
        options: Levels of the tracers.
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
