"""Records of the profiled process and its machine, as `traceview capture` writes them.

Each class is a group of fields of the sidecar, with the same names. None means that the sidecar has no value; if the
capture tried and failed to read it, `missing` holds the reason by the name of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Annotated, Final, TypeAlias, TypeVar

from msgspec import Meta, Struct

from traceview.base.record import (
    Argument,
    AxisName,
    DeviceKey,
    Integer,
    Message,
    ModelName,
    OpName,
    Record,
    RecordedCount,
    Setting,
    SourceLine,
    StageName,
    TaskName,
    VersionText,
)

LARGEST: Final = 2**62
"""No count and no time that traceview writes is larger."""

Number: TypeAlias = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Measured: TypeAlias = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class Command(Record, frozen=True):
    """The command line of the process; names of options, numbers, booleans and scripts; every other value is `***`.

    Attributes:
        script: Arguments of the script.
    """

    script: tuple[Argument, ...] = ()


class ClusterTask(Record, frozen=True):
    """The task of the process in its cluster, from TF_CONFIG or its launcher.

    Attributes:
        role: Type of the task.
        index: Index of the task.
        sizes: Role to its number of tasks.
    """

    role: TaskName | None = None
    index: Integer | None = None
    sizes: dict[TaskName, Integer] | None = None


class Versions(Record, frozen=True):
    """Versions of the software that the script had imported and loaded.

    Attributes:
        tensorflow: TensorFlow.
        jax: JAX.
        keras: Keras.
        tf_keras: Legacy tf_keras.
        python: Python.
        numpy: NumPy.
        cuda: Loaded CUDA runtime.
        cudnn: Loaded cuDNN.
        nccl: Loaded NCCL.
        driver: Driver of the GPUs.
    """

    tensorflow: VersionText | None = None
    jax: VersionText | None = None
    keras: VersionText | None = None
    tf_keras: VersionText | None = None
    python: VersionText | None = None
    numpy: VersionText | None = None
    cuda: VersionText | None = None
    cudnn: VersionText | None = None
    nccl: VersionText | None = None
    driver: VersionText | None = None


class StrategySetup(Record, frozen=True):
    """The distribution strategy.

    Attributes:
        class_: Class of the strategy.
        found_by: Where it was detected: variables or input of the step; recording: the script only has it in
            memory, and replicas that ran show that it is used; memory: the script has it, nothing shows its use.
        replicas: Replicas in sync, in all processes.
        devices: Devices of the replicas of this process, in the order of the replicas.
        cross_device_ops: Class that reduces gradients.
        packs: Number of packs in which gradients are reduced.
        bytes_per_pack: Size of a pack in bytes; 0 leaves it to TensorFlow.
        missing: Name of each field that could not be read to the recorded reason.
    """

    class_: Setting | None = None
    found_by: Setting | None = None
    replicas: RecordedCount | None = None
    devices: tuple[DeviceKey, ...] | None = None
    cross_device_ops: Setting | None = None
    packs: RecordedCount | None = None
    bytes_per_pack: RecordedCount | None = None
    missing: Mapping[Message, Message] = {}

    @property
    def is_used(self) -> bool:
        """Whether the step uses it: its variables, its input or the replicas that ran show it."""
        return self.class_ is not None and self.found_by in ("variables", "input", "recording")


class PipelineFunction(Record, frozen=True):
    """What a stage of the input pipeline calls.

    Attributes:
        stage: Kind of the stage.
        line: First line of the function; null for one that is not the user's.
        draws: Whether its ops draw random numbers; null where that is not known.
        line_of: The line that made each of its ops, by name.
    """

    stage: StageName | None = None
    line: SourceLine | None = None
    draws: bool | None = None
    line_of: Mapping[OpName, SourceLine] = {}


class PipelineFunctions(Record, frozen=True):
    """What the stages of an input pipeline call, in one of its branches.

    Attributes:
        functions: From the last stage to the first.
    """

    functions: tuple[PipelineFunction, ...] = ()


class BatchSize(Record, frozen=True):
    """Examples per step, and what makes them.

    Attributes:
        global_: Examples of all replicas.
        per_replica: Examples of each replica.
        found_by: What showed it: arguments of the step, the dataset that it reads, or the Python generator that makes the
            batches.
        branches: What the stages of the dataset call.
    """

    global_: RecordedCount | None = None
    per_replica: RecordedCount | None = None
    found_by: Setting | None = None
    branches: tuple[PipelineFunctions, ...] = ()


class TrainedVariables(Record, frozen=True):
    """Trainable variables that the step functions use; mirrored variables count once.

    Attributes:
        parameters: Their elements.
        gradient_bytes: Bytes of one dense gradient of each.
        accumulation_steps: Steps over which the optimizer of a Keras model accumulates gradients; null where it updates
            the variables in each step, or the model is not one of Keras.
    """

    parameters: RecordedCount | None = None
    gradient_bytes: RecordedCount | None = None
    accumulation_steps: RecordedCount | None = None


class PrecisionSettings(Record, frozen=True):
    """Settings of numeric precision.

    Attributes:
        policy: Keras module to its mixed-precision policy.
    """

    policy: dict[Setting, Setting] | None = None


class XlaSettings(Record, frozen=True):
    """Settings of XLA.

    Attributes:
        auto_jit: off, or the level of automatic compilation.
    """

    auto_jit: Setting | None = None


class DeviceDetails(Record, frozen=True):
    """Properties of a GPU as the driver gives them to TensorFlow.

    Attributes:
        device_name: Model of the GPU.
    """

    device_name: ModelName | None = None


class PhysicalDevice(Record, frozen=True):
    """A device of the machine as TensorFlow lists it.

    Attributes:
        type: CPU, GPU or another type.
        details: Properties from the driver; null for devices other than GPUs.
        logical_devices: Number of logical devices that TensorFlow makes of it.
    """

    type: Setting | None = None
    details: DeviceDetails | None = None
    logical_devices: RecordedCount | None = None


class DeviceSettings(Record, frozen=True):
    """Devices of the machine, and the logical devices that TensorFlow makes of them.

    Attributes:
        physical: Devices of the machine.
        logical: Names of the logical devices.
    """

    physical: tuple[PhysicalDevice, ...] | None = None
    logical: tuple[DeviceKey, ...] | None = None


class ProcessorCores(Record, frozen=True):
    """Processor cores.

    Attributes:
        usable_count: Cores that the process may use, by its affinity and the quota of its container.
    """

    usable_count: Integer | None = None


class ProfilerOverhead(Record, frozen=True):
    """The cost of profiling: median step times before the window and in it.

    Attributes:
        ratio: Added time of a profiled step, relative to the unprofiled one.
        spread_ratio: Normal variation of the step time, relative to the unprofiled one; a smaller ratio may be
            chance.
    """

    ratio: Measured | None = None
    spread_ratio: Measured | None = None


class PythonTracing(Record, frozen=True):
    """What was on that slows down all Python, or each call of a step.

    Attributes:
        hooks: tracemalloc, sys.settrace, sys.setprofile, sys.monitoring, and modes of JAX and TensorFlow that find
            mistakes, such as jax_debug_nans.
    """

    hooks: tuple[Setting, ...] = ()


class CompiledArgument(Record, frozen=True):
    """An array that a compiled function of JAX was given.

    Attributes:
        mesh: Axis of the mesh to its size.
    """

    mesh: dict[AxisName, Integer] | None = None


class CompiledFunction(Record, frozen=True):
    """A function of the script that JAX compiled.

    Attributes:
        is_step: Whether its calls are the steps.
        arguments: The arrays it was last compiled for, 200 at most.
    """

    is_step: bool | None = None
    arguments: tuple[CompiledArgument, ...] = ()


class JaxSetup(Record, frozen=True):
    """Devices of JAX, and the functions of a script that it compiled.

    Attributes:
        device_kind: Model of the devices.
        device_count: Devices of all processes.
        process_count: Processes.
        functions: Functions of the script.
    """

    device_kind: ModelName | None = None
    device_count: RecordedCount | None = None
    process_count: RecordedCount | None = None
    functions: tuple[CompiledFunction, ...] = ()


class RecordedEnvironment(Record, frozen=True):
    """One profiled process and its machine.

    Attributes:
        command: Command line.
        cluster: Task of the process in its cluster.
        versions: Versions of software.
        strategy: Distribution strategy.
        batch: Batch size.
        training: Trainable variables.
        precision: Settings of numeric precision.
        xla: Settings of XLA.
        jax: Devices and functions of JAX.
        tracing: What slows down all Python.
        variables: Values of a fixed list of environment variables, where set.
        devices: Devices as TensorFlow sees them.
        cores: Processor cores.
        overhead: Cost of profiling.
    """

    command: Command = Command()
    cluster: ClusterTask = ClusterTask()
    versions: Versions = Versions()
    strategy: StrategySetup = StrategySetup()
    batch: BatchSize = BatchSize()
    training: TrainedVariables = TrainedVariables()
    precision: PrecisionSettings = PrecisionSettings()
    xla: XlaSettings = XlaSettings()
    jax: JaxSetup = JaxSetup()
    tracing: PythonTracing = PythonTracing()
    variables: dict[Setting, Setting] | None = None
    devices: DeviceSettings = DeviceSettings()
    cores: ProcessorCores = ProcessorCores()
    overhead: ProfilerOverhead = ProfilerOverhead()


# Samples of NVML, by the number that CUDA gives a GPU, which is also the number in the name of its plane

_Number = TypeVar("_Number", int, float)


class NvmlSamples(Struct, frozen=True):
    """Columns of equal length; `t_ns` is Unix nanoseconds. None where NVML returned no value.

    Utilizations are averages over the last period of NVML, which is between a sixth of a second and a second
    (nvml.h, nvmlUtilization_t). `throttle_reasons`: bits as in nvml.h, clocks event reasons.
    """

    t_ns: tuple[Number, ...] = ()
    gpu_utilization_ratio: tuple[Measured | None, ...] = ()
    memory_used_bytes: tuple[Number | None, ...] = ()
    sm_clock_hz: tuple[Number | None, ...] = ()
    throttle_reasons: tuple[Number | None, ...] = ()
    power_watts: tuple[Measured | None, ...] = ()

    def known(self, column: tuple[_Number | None, ...], most: float = inf) -> list[_Number]:
        """The values of a column from 0 to `most`; empty if the column and the times differ in length."""
        if len(column) != len(self.t_ns):
            return []
        return [value for value in column if value is not None and 0 <= value <= most]


class NvmlProcess(Struct, frozen=True):
    """Another process on the GPU: its largest memory and its mean utilization, if the driver reports them."""

    pid: Number | None = None
    memory_bytes: RecordedCount | None = None
    utilization_ratio: Measured | None = None


class NvmlGpu(Struct, frozen=True):
    """One GPU. `other_processes`: None where unknown. `missing`: why a field could not be read."""

    ordinal: RecordedCount | None = None
    name: str | None = None
    samples: NvmlSamples = NvmlSamples()
    sm_clock_max_hz: RecordedCount | None = None
    power_limit_watts: Measured | None = None
    memory_total_bytes: RecordedCount | None = None
    other_processes: tuple[NvmlProcess, ...] | None = None
    missing: Mapping[str, str] = {}


class NvmlRecord(Struct, frozen=True):
    """The samples of all GPUs; `reason`: why there are none."""

    reason: str | None = None
    devices: tuple[NvmlGpu, ...] = ()
