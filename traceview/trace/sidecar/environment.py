"""Records of the profiled process and its machine, as `traceview capture` writes them.

Each class is a group of fields of the sidecar, with the same names. None means that the sidecar has no value; if the
capture tried and failed to read it, `missing` holds the reason by the name of the field.
"""

from __future__ import annotations

import types
from functools import cache
from math import inf
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, ValidationError, convert

from traceview.base.record import (
    Argument,
    AxisName,
    DeviceKey,
    Integer,
    Message,
    ModelName,
    Record,
    RecordedCount,
    Setting,
    SourceLine,
    StageName,
    TaskName,
    VersionText,
)
from traceview.base.text import encodable


class Command(Record, frozen=True):
    """The command line of the process; names of options, numbers, booleans and scripts; every other value is `***`.

    Attributes:
        script: Arguments of the script.
    """

    script: tuple[Argument, ...]


class ClusterTask(Record, frozen=True):
    """The task of the process in its cluster, from TF_CONFIG or its launcher.

    Attributes:
        role: Type of the task.
        index: Index of the task.
        sizes: Role to its number of tasks.
    """

    role: TaskName | None
    index: Integer | None
    sizes: dict[TaskName, Integer] | None


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

    tensorflow: VersionText | None
    jax: VersionText | None
    keras: VersionText | None
    tf_keras: VersionText | None
    python: VersionText | None
    numpy: VersionText | None
    cuda: VersionText | None
    cudnn: VersionText | None
    nccl: VersionText | None
    driver: VersionText | None


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
        missing: Name of each field that could not be read to the recorded reason.
    """

    class_: Setting | None
    found_by: Setting | None
    replicas: RecordedCount | None
    devices: tuple[DeviceKey, ...] | None
    parameter_devices: tuple[DeviceKey, ...] | None
    cross_device_ops: Setting | None
    packs: RecordedCount | None
    bytes_per_pack: RecordedCount | None
    missing: dict[Message, Message]

    @property
    def is_used(self) -> bool:
        """Whether the step uses it: its variables, its input or the replicas that ran show it."""
        return self.class_ is not None and self.found_by in ("variables", "input", "recording")


class PipelineFunction(Record, frozen=True):
    """What a stage of the input pipeline calls.

    Attributes:
        stage: Kind of the stage.
        line: First line of the function; null for one that is not the user's.
    """

    stage: StageName | None
    line: SourceLine | None


class PipelineFunctions(Record, frozen=True):
    """What the stages of an input pipeline call, in one of its branches.

    Attributes:
        functions: From the last stage to the first.
    """

    functions: tuple[PipelineFunction, ...]


class BatchSize(Record, frozen=True):
    """Examples per step, and what makes them.

    Attributes:
        global_: Examples of all replicas.
        per_replica: Examples of each replica.
        found_by: What showed it: arguments of the step, the dataset that it reads, or the Python generator that makes the
            batches.
        missing: Name of each field that could not be read to the recorded reason.
        branches: What the stages of the dataset call.
    """

    global_: RecordedCount | None
    per_replica: RecordedCount | None
    found_by: Setting | None
    missing: dict[Message, Message]
    branches: tuple[PipelineFunctions, ...] = ()


class TrainedVariables(Record, frozen=True):
    """Trainable variables that the step functions use; mirrored variables count once.

    Attributes:
        parameters: Their elements.
        gradient_bytes: Bytes of one dense gradient of each.
        accumulation_steps: Steps over which the optimizer of a Keras model accumulates gradients; null where it updates
            the variables in each step, or the model is not one of Keras.
    """

    parameters: RecordedCount | None
    gradient_bytes: RecordedCount | None
    accumulation_steps: RecordedCount | None = None


class PrecisionSettings(Record, frozen=True):
    """Settings of numeric precision.

    Attributes:
        policy: Keras module to its mixed-precision policy.
    """

    policy: dict[Setting, Setting] | None


class XlaSettings(Record, frozen=True):
    """Settings of XLA.

    Attributes:
        auto_jit: off, or the level of automatic compilation.
    """

    auto_jit: Setting | None


class DeviceDetails(Record, frozen=True):
    """Properties of a GPU as the driver gives them to TensorFlow.

    Attributes:
        device_name: Model of the GPU.
    """

    device_name: ModelName | None


class PhysicalDevice(Record, frozen=True):
    """A device of the machine as TensorFlow lists it.

    Attributes:
        type: CPU, GPU or another type.
        details: Properties from the driver; null for devices other than GPUs.
        logical_devices: Number of logical devices that TensorFlow makes of it.
    """

    type: Setting | None
    details: DeviceDetails | None
    logical_devices: RecordedCount | None


class DeviceSettings(Record, frozen=True):
    """Devices of the machine, the ones visible to TensorFlow, and the logical devices it makes of them.

    Attributes:
        physical: Devices of the machine.
        visible: Names of the devices that TensorFlow may use.
        logical: Names of the logical devices.
    """

    physical: tuple[PhysicalDevice, ...] | None
    visible: tuple[DeviceKey, ...] | None
    logical: tuple[DeviceKey, ...] | None


class GpuLink(Record, frozen=True):
    """How one GPU of the machine is attached.

    Attributes:
        pcie_generation: PCIe generation during the capture; an idle GPU may lower it.
        pcie_width: PCIe lanes in use during the capture.
        pcie_generation_max: Highest PCIe generation.
        pcie_width_max: Highest number of PCIe lanes.
    """

    pcie_generation: RecordedCount | None
    pcie_width: RecordedCount | None
    pcie_generation_max: RecordedCount | None
    pcie_width_max: RecordedCount | None


class GpuLinks(Record, frozen=True):
    """All GPUs of the machine, visible to TensorFlow or not.

    Attributes:
        gpus: The GPUs.
    """

    gpus: tuple[GpuLink, ...] | None


class ProcessorCores(Record, frozen=True):
    """Processor cores.

    Attributes:
        usable_count: Cores that the process may use, by its affinity and the quota of its container.
    """

    usable_count: Integer | None


class ProfilerOverhead(Record, frozen=True):
    """The cost of profiling: median step times before the window and in it.

    Attributes:
        ratio: Added time of a profiled step, relative to the unprofiled one.
        spread_ratio: Normal variation of the step time, relative to the unprofiled one; a smaller ratio may be
            chance.
    """

    ratio: float | None
    spread_ratio: float | None


class PythonTracing(Record, frozen=True):
    """What was on that slows down all Python, or each call of a step.

    Attributes:
        hooks: tracemalloc, sys.settrace, sys.setprofile, sys.monitoring, and modes of JAX and TensorFlow that find
            mistakes, such as jax_debug_nans.
    """

    hooks: tuple[Setting, ...]


class CompiledArgument(Record, frozen=True):
    """An array that a compiled function of JAX was given.

    Attributes:
        mesh: Axis of the mesh to its size.
    """

    mesh: dict[AxisName, Integer] | None


class CompiledFunction(Record, frozen=True):
    """A function of the script that JAX compiled.

    Attributes:
        is_step: Whether its calls are the steps.
        arguments: The arrays it was last compiled for, 200 at most.
    """

    is_step: bool | None
    arguments: tuple[CompiledArgument, ...]


class JaxSetup(Record, frozen=True):
    """Devices of JAX, and the functions of a script that it compiled.

    Attributes:
        device_kind: Model of the devices.
        device_count: Devices of all processes.
        process_count: Processes.
        functions: Functions of the script.
    """

    device_kind: ModelName | None
    device_count: RecordedCount | None
    process_count: RecordedCount | None
    functions: tuple[CompiledFunction, ...]


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
        links: How the GPUs of the machine are connected.
        overhead: Cost of profiling.
    """

    command: Command
    cluster: ClusterTask
    versions: Versions
    strategy: StrategySetup
    batch: BatchSize
    training: TrainedVariables
    precision: PrecisionSettings
    xla: XlaSettings
    jax: JaxSetup
    tracing: PythonTracing
    variables: dict[Setting, Setting] | None
    devices: DeviceSettings
    cores: ProcessorCores
    links: GpuLinks
    overhead: ProfilerOverhead


# Samples of NVML, by the number that CUDA gives a GPU, which is also the number in the name of its plane

_Number = TypeVar("_Number", int, float)


class NvmlSamples(Struct, frozen=True):
    """Columns of equal length; `t_ns` is Unix nanoseconds. None where NVML returned no value.

    Utilizations are averages over the last period of NVML, which is between a sixth of a second and a second
    (nvml.h, nvmlUtilization_t). `throttle_reasons`: bits as in nvml.h, clocks event reasons.
    """

    t_ns: tuple[int, ...]
    gpu_utilization_ratio: tuple[float | None, ...]
    memory_used_bytes: tuple[int | None, ...]
    sm_clock_hz: tuple[int | None, ...]
    throttle_reasons: tuple[int | None, ...]
    power_watts: tuple[float | None, ...]

    def known(self, column: tuple[_Number | None, ...], most: float = inf) -> list[_Number]:
        """The values of a column from 0 to `most`; empty if the column and the times differ in length."""
        if len(column) != len(self.t_ns):
            return []
        return [value for value in column if value is not None and 0 <= value <= most]


class NvmlProcess(Struct, frozen=True):
    """Another process on the GPU: its largest memory and its mean utilization, if the driver reports them."""

    pid: int | None
    memory_bytes: RecordedCount | None
    utilization_ratio: float | None


class NvmlGpu(Struct, frozen=True):
    """One GPU. `other_processes`: None where unknown. `missing`: why a field could not be read."""

    ordinal: RecordedCount | None
    name: str | None
    samples: NvmlSamples
    sm_clock_max_hz: RecordedCount | None
    power_limit_watts: float | None
    memory_total_bytes: RecordedCount | None
    other_processes: tuple[NvmlProcess, ...] | None
    missing: dict[str, str]


class NvmlRecord(Struct, frozen=True):
    """The samples of all GPUs; `reason`: why there are none."""

    reason: str | None
    devices: tuple[NvmlGpu, ...]


LARGEST: Final = 2**62
"""No count and no time that traceview writes is larger."""

_Record = TypeVar("_Record")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields with their bounds."""
    return get_type_hints(kind, include_extras=True)


def read_as(kind: type[_Record], value: Any, wrong: list[str], path: str = "") -> _Record:
    """`value` as a struct of text, numbers, booleans, tuples, dictionaries with text keys, and such structs.

    The dotted names of fields of another type are added to `wrong`, each prefixed with `path`. A trailing
    underscore, which Python needs in `class_`, is not part of a key.
    """
    if value is not None and not isinstance(value, dict):
        wrong.append(path or "the whole file")
    fields = value if isinstance(value, dict) else {}
    read: dict[str, Any] = {}
    hashable: Any = kind
    for name, hint in _hints(hashable).items():
        key = name.removesuffix("_")
        read[name] = _field(fields.get(key), hint, wrong, f"{path}.{key}" if path else key)
    return kind(**read)


def _field(value: Any, hint: Any, wrong: list[str], path: str) -> Any:
    if value is not None:
        try:
            return _typed(value, hint, wrong, path)
        except ValidationError:
            wrong.append(path)
    return _empty(hint, wrong, path)


def _empty(hint: Any, wrong: list[str], path: str) -> Any:
    if get_origin(hint) in (tuple, dict):
        return get_origin(hint)()
    if isinstance(hint, type) and issubclass(hint, Struct):
        return read_as(hint, None, wrong, path)
    return None


def _only(kind: type[Any], value: Any) -> Any:
    """A list or an object; `convert` would fail otherwise for a text with half of a surrogate pair."""
    if not isinstance(value, kind):
        raise ValidationError
    return value


def _typed(value: Any, hint: Any, wrong: list[str], path: str) -> Any:
    """The value as one of its type; raises `ValidationError` for another type, or outside of its bounds."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _typed(value, hint, wrong, path)
    # All elements or none: a list with a hole in it would mean something else.
    if origin is tuple:
        return tuple(_typed(item, arguments[0], wrong, path) for item in _only(list, value))
    if origin is dict:
        items = _only(dict, value).items()
        return {encodable(key): _typed(item, arguments[1], wrong, path) for key, item in items}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return read_as(hint, _only(dict, value), wrong, path)
    # Written so that NaN is refused too.
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValidationError
    return convert(encodable(value) if isinstance(value, str) else value, hint)
