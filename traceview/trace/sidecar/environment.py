"""Records of the profiled process and its machine, as `traceview capture` writes them.

Each class is a group of fields of the sidecar, with the same names. None means that the sidecar has no value; if the
capture tried and failed to read it, `missing` holds the reason by the name of the field.
"""

from __future__ import annotations

from traceview.base.record import (
    Argument,
    BusId,
    DeviceKey,
    FunctionName,
    Integer,
    Message,
    ModelName,
    Record,
    RecordedCount,
    SettingValue,
    TaskName,
    VersionText,
)


class Command(Record, frozen=True):
    """The command line of the process; names of options, numbers, booleans and scripts; every other value is `***`.

    Attributes:
        python: How Python was started.
        script: Arguments of the script.
    """

    python: tuple[Argument, ...]
    script: tuple[Argument, ...]


class ClusterTask(Record, frozen=True):
    """The task of the process in its cluster, from TF_CONFIG or its launcher.

    Attributes:
        role: Type of the task.
        index: Index of the task.
        sizes: Role to its number of tasks.
        missing: Name of each field that could not be read to the recorded reason.
    """

    role: TaskName | None
    index: Integer | None
    sizes: dict[TaskName, Integer] | None
    missing: dict[Message, Message]


class Versions(Record, frozen=True):
    """Versions of the software that the script had imported and loaded; `…_build`: what TensorFlow was built with.

    Attributes:
        tensorflow: TensorFlow.
        jax: JAX.
        jaxlib: The compiled part of JAX.
        tensorflow_git: Revision of TensorFlow.
        keras: Keras.
        tf_keras: Legacy tf_keras.
        python: Python.
        numpy: NumPy.
        is_cuda_build: Whether this TensorFlow was built with CUDA.
        cuda: Loaded CUDA runtime.
        cuda_build: CUDA that TensorFlow was built with.
        cudnn: Loaded cuDNN.
        cudnn_build: cuDNN that TensorFlow was built with.
        nccl: Loaded NCCL.
        driver: Driver of the GPUs.
        cuda_of_driver: Newest CUDA that the driver supports.
        missing: Name of each field that could not be read to the recorded reason.
    """

    tensorflow: VersionText | None
    jax: VersionText | None
    jaxlib: VersionText | None
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
    missing: dict[Message, Message]


class StrategySetup(Record, frozen=True):
    """The distribution strategy.

    Attributes:
        class_: Class of the strategy.
        found_by: Where it was detected: variables or input of the step; recording: the script only has it in
            memory, and replicas that ran show that it is used; memory: the script has it, nothing shows its use.
        replicas: Replicas in sync, in all processes.
        devices: Devices of the replicas of this process, in the order of the replicas.
        parameter_devices: Devices of mirrored variables.
        cross_device_ops: Class that reduces gradients.
        packs: Number of packs in which gradients are reduced.
        bytes_per_pack: Size of a pack in bytes; 0 leaves it to TensorFlow.
        implementation: Requested implementation of collectives.
        missing: Name of each field that could not be read to the recorded reason.
    """

    class_: Message | None
    found_by: Message | None
    replicas: RecordedCount | None
    devices: tuple[DeviceKey, ...] | None
    parameter_devices: tuple[DeviceKey, ...] | None
    cross_device_ops: Message | None
    packs: RecordedCount | None
    bytes_per_pack: RecordedCount | None
    implementation: Message | None
    missing: dict[Message, Message]

    @property
    def is_used(self) -> bool:
        """Whether the step uses it: its variables, its input or the replicas that ran show it."""
        return self.class_ is not None and self.found_by in ("variables", "input", "recording")


class BatchSize(Record, frozen=True):
    """Examples per step.

    Attributes:
        global_: Examples of all replicas.
        per_replica: Examples of each replica.
        found_by: What showed it: arguments of the step, the dataset that it reads, or the Python generator that makes the
            batches.
        missing: Name of each field that could not be read to the recorded reason.
    """

    global_: RecordedCount | None
    per_replica: RecordedCount | None
    found_by: Message | None
    missing: dict[Message, Message]


class TrainedVariables(Record, frozen=True):
    """Trainable variables that the step functions use; mirrored variables count once.

    Attributes:
        trainable_variables: Number of variables.
        parameters: Their elements.
        parameter_bytes: Their bytes.
        gradient_bytes: Bytes of one dense gradient of each.
        accumulation_steps: Steps over which the optimizer of a Keras model accumulates gradients; null where it updates
            the variables in each step, or the model is not one of Keras.
        missing: Name of each field that could not be read to the recorded reason.
    """

    trainable_variables: RecordedCount | None
    parameters: RecordedCount | None
    parameter_bytes: RecordedCount | None
    gradient_bytes: RecordedCount | None
    missing: dict[Message, Message]
    accumulation_steps: RecordedCount | None = None


class PrecisionSettings(Record, frozen=True):
    """Settings of numeric precision.

    Attributes:
        policy: Keras module to its mixed-precision policy.
        auto_mixed_precision: Whether TensorFlow's own rewriter is on.
        tf32: Whether TF32 is allowed.
        missing: Name of each field that could not be read to the recorded reason.
    """

    policy: dict[Message, Message] | None
    auto_mixed_precision: bool | None
    tf32: bool | None
    missing: dict[Message, Message]


class XlaSettings(Record, frozen=True):
    """Settings of XLA.

    Attributes:
        auto_jit: off, or the level of automatic compilation.
        tf_xla_flags: TF_XLA_FLAGS.
        xla_flags: XLA_FLAGS.
        missing: Name of each field that could not be read to the recorded reason.
    """

    auto_jit: Message | None
    tf_xla_flags: SettingValue | None
    xla_flags: SettingValue | None
    missing: dict[Message, Message]


class DeviceDetails(Record, frozen=True):
    """Properties of a GPU as the driver gives them to TensorFlow.

    Attributes:
        device_name: Model of the GPU.
        compute_capability: Major and minor number.
    """

    device_name: ModelName | None
    compute_capability: tuple[Integer, ...]


class PhysicalDevice(Record, frozen=True):
    """A device of the machine as TensorFlow lists it.

    Attributes:
        name: Name in TensorFlow.
        type: CPU, GPU or another type.
        details: Properties from the driver; null for devices other than GPUs.
        logical_devices: Number of logical devices that TensorFlow makes of it.
        memory_limits_mb: Memory limit of each logical device in megabytes; null for none.
        memory_growth: Whether TensorFlow allocates memory as needed.
        missing: Name of each field that could not be read to the recorded reason.
    """

    name: DeviceKey | None
    type: Message | None
    details: DeviceDetails | None
    logical_devices: RecordedCount | None
    memory_limits_mb: tuple[Integer | None, ...] | None
    memory_growth: bool | None
    missing: dict[Message, Message]


class DeviceSettings(Record, frozen=True):
    """Devices of the machine, the ones visible to TensorFlow, and the logical devices it makes of them.

    Attributes:
        physical: Devices of the machine.
        visible: Names of the devices that TensorFlow may use.
        logical: Names of the logical devices.
        soft_placement: Whether TensorFlow may move an op to another device if it cannot run on the requested one.
        missing: Name of each field that could not be read to the recorded reason.
    """

    physical: tuple[PhysicalDevice, ...] | None
    visible: tuple[DeviceKey, ...] | None
    logical: tuple[DeviceKey, ...] | None
    soft_placement: bool | None
    missing: dict[Message, Message]


class NvLinks(Record, frozen=True):
    """Active NVLinks of a GPU.

    Attributes:
        active: Number of active links.
        peers: Bus id at the other end to the number of links to it.
    """

    active: RecordedCount | None
    peers: dict[BusId, RecordedCount]


class GpuLink(Record, frozen=True):
    """How one GPU of the machine is attached.

    Attributes:
        name: Model of the GPU.
        bus_id: PCI bus id.
        pcie_generation: PCIe generation during the capture; an idle GPU may lower it.
        pcie_width: PCIe lanes in use during the capture.
        pcie_generation_max: Highest PCIe generation.
        pcie_width_max: Highest number of PCIe lanes.
        memory_bytes: Memory in bytes.
        nvlinks: NVLinks; null without any.
        missing: Name of each field that could not be read to the recorded reason.
    """

    name: ModelName | None
    bus_id: BusId | None
    pcie_generation: RecordedCount | None
    pcie_width: RecordedCount | None
    pcie_generation_max: RecordedCount | None
    pcie_width_max: RecordedCount | None
    memory_bytes: RecordedCount | None
    nvlinks: NvLinks | None
    missing: dict[Message, Message]


class GpuPath(Record, frozen=True):
    """The connection between two GPUs of the machine.

    Attributes:
        gpus: Indices of the two in the list of GPUs.
        over: What connects them.
    """

    gpus: tuple[Integer, ...]
    over: Message | None


class GpuLinks(Record, frozen=True):
    """All GPUs of the machine, visible to TensorFlow or not.

    Attributes:
        gpus: The GPUs.
        paths: The connection between each two.
        missing: Name of each field that could not be read to the recorded reason.
    """

    gpus: tuple[GpuLink, ...] | None
    paths: tuple[GpuPath, ...] | None
    missing: dict[Message, Message]


class ProcessorCores(Record, frozen=True):
    """Processor cores.

    Attributes:
        machine_count: Cores of the machine.
        usable_count: Cores that the process may run on; a quota of a container does not show in it.
    """

    machine_count: Integer | None
    usable_count: Integer | None


class ProfilerOverhead(Record, frozen=True):
    """The cost of profiling: median step times before the window and in it.

    Attributes:
        unprofiled_ns: Median step time before the window, nanoseconds.
        unprofiled_count: Number of these steps.
        profiled_ns: Median step time in the window, nanoseconds.
        profiled_count: Number of these steps.
        ratio: Added time of a profiled step, relative to the unprofiled one.
        spread_ratio: Normal variation of the step time, relative to the unprofiled one; a smaller ratio may be
            chance.
    """

    unprofiled_ns: RecordedCount | None
    unprofiled_count: RecordedCount | None
    profiled_ns: RecordedCount | None
    profiled_count: RecordedCount | None
    ratio: float | None
    spread_ratio: float | None


class EdgeSync(Record, frozen=True):
    """Waits for the devices at the edges of the window.

    Attributes:
        is_asked: Whether the user requested them.
        ns: Moment of each wait to its nanoseconds.
    """

    is_asked: bool | None
    ns: dict[Message, Integer]


class EventCounts(Record, frozen=True):
    """Recorded events, the capacity of the tracer, and the limit set by the user.

    Attributes:
        recorded: Kind of event to the number recorded.
        limit: Kind of event to the largest number that one profile can hold.
        max_events: Largest number of events that the user allows.
        allowed_calls: Calls of the step that fit into that limit.
    """

    recorded: dict[Message, RecordedCount] | None
    limit: dict[Message, RecordedCount] | None
    max_events: RecordedCount | None
    allowed_calls: RecordedCount | None


class TracerOptions(Record, frozen=True):
    """Levels of the tracers.

    Attributes:
        asked: Requested levels by name.
        in_force: Levels in force by name; null where TensorFlow does not record them.
        is_ignored: Whether this release of TensorFlow ignores the options.
        missing: Name of each field that could not be read to the recorded reason.
    """

    asked: dict[Message, Integer] | None
    in_force: dict[Message, Integer] | None
    is_ignored: bool | None
    missing: dict[Message, Message]


class CompiledArgument(Record, frozen=True):
    """An array that a compiled function of JAX was given.

    Attributes:
        name: Its place in the arguments.
        shape: Its sizes, of all devices together.
        dtype: Its type.
        sharding: Axis of the mesh over which each dimension is split; null for a dimension that is not.
        mesh: Axis of the mesh to its size.
    """

    name: FunctionName | None
    shape: tuple[Integer, ...] | None
    dtype: Message | None
    sharding: tuple[Message | None, ...] | None
    mesh: dict[Message, Integer] | None


class CompiledFunction(Record, frozen=True):
    """A function of the script that JAX compiled.

    Attributes:
        name: Its name.
        is_step: Whether its calls are the steps.
        calls: Calls before and in the window.
        computes_gradients: Whether it has a backward pass.
        arguments: The arrays it was last compiled for, 200 at most.
    """

    name: FunctionName | None
    is_step: bool | None
    calls: RecordedCount | None
    computes_gradients: bool | None
    arguments: tuple[CompiledArgument, ...]


class JaxSetup(Record, frozen=True):
    """What a script with JAX runs on, and the functions that it compiled.

    Attributes:
        backend: Platform of the default devices.
        process_index: Index of this process among those of `jax.distributed`.
        process_count: Number of them.
        device_count: Devices of all processes.
        functions: Functions of the script.
        missing: Name of each field that could not be read to the recorded reason.
    """

    backend: Message | None
    process_index: Integer | None
    process_count: RecordedCount | None
    device_count: RecordedCount | None
    functions: tuple[CompiledFunction, ...]
    missing: dict[Message, Message]


class RecordedEnvironment(Record, frozen=True):
    """One profiled process and its machine.

    Attributes:
        state: How far the capture got: waiting, recording, saved or failed.
        command: Command line.
        cluster: Task of the process in its cluster.
        versions: Versions of software.
        strategy: Distribution strategy.
        batch: Batch size.
        training: Trainable variables.
        precision: Settings of numeric precision.
        xla: Settings of XLA.
        jax: Devices and functions of JAX.
        variables: Values of a fixed list of environment variables, where set.
        devices: Devices as TensorFlow sees them.
        cores: Processor cores.
        links: How the GPUs of the machine are connected.
        overhead: Cost of profiling.
        sync: Waits for the devices at the edges of the window.
        events: Recorded events and the capacity of the tracer.
        options: Levels of the tracers.
    """

    state: Message | None
    command: Command
    cluster: ClusterTask
    versions: Versions
    strategy: StrategySetup
    batch: BatchSize
    training: TrainedVariables
    precision: PrecisionSettings
    xla: XlaSettings
    jax: JaxSetup
    variables: dict[Message, Message] | None
    devices: DeviceSettings
    cores: ProcessorCores
    links: GpuLinks
    overhead: ProfilerOverhead
    sync: EdgeSync
    events: EventCounts
    options: TracerOptions
