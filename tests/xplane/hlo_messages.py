"""Messages of compiled XLA programs, and a plane that holds such: what `traceview.xplane.hlo` reads, written by protobuf.

Field numbers and types: openxla/xla `xla/service/hlo.proto` and `xla/xla_data.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scripts.xspace import Messages, XSpace, classes_of

MESSAGES: Final[Messages] = {
    "HloProto": [
        (1, "hlo_module", "HloModuleProto", "one"),
        (3, "buffer_assignment", "BufferAssignmentProto", "one"),
    ],
    "BufferAssignmentProto": [
        (1, "logical_buffers", "LogicalBufferProto", "rep"),
        (3, "buffer_allocations", "BufferAllocationProto", "rep"),
        (4, "heap_simulator_traces", "HeapSimulatorTrace", "rep"),
    ],
    "LogicalBufferProto": [
        (1, "id", "int64", "one"),
        (2, "size", "int64", "one"),
        (3, "defined_at", "Location", "one"),
    ],
    "Location": [(2, "instruction_name", "bytes", "one"), (4, "instruction_id", "int64", "one")],
    "BufferAllocationProto": [
        (1, "index", "int64", "one"),
        (2, "size", "int64", "one"),
        (3, "is_thread_local", "bool", "one"),
        (5, "is_entry_computation_parameter", "bool", "one"),
        (7, "maybe_live_out", "bool", "one"),
        (9, "assigned", "Assigned", "rep"),
        (12, "is_constant", "bool", "one"),
    ],
    "Assigned": [(1, "logical_buffer_id", "int64", "one"), (3, "size", "int64", "one")],
    "HeapSimulatorTrace": [
        (1, "events", "Event", "rep"),
        (3, "buffer_allocation_index", "int64", "one"),
    ],
    "Event": [
        (1, "kind", "int32", "one"),
        (2, "buffer_id", "int64", "one"),
        (5, "share_with_canonical_id", "int64", "one"),
    ],
    "HloModuleProto": [
        (1, "name", "bytes", "one"),
        (3, "computations", "HloComputationProto", "rep"),
        (6, "entry_computation_id", "int64", "one"),
        (7, "schedule", "HloScheduleProto", "one"),
        (8, "input_output_alias", "HloInputOutputAliasProto", "one"),
        (14, "spmd_parameters_shardings", "OpSharding", "rep"),
        (15, "device_assignment", "DeviceAssignmentProto", "one"),
        (17, "stack_frame_index", "StackFrameIndexProto", "one"),
        (18, "buffer_donor", "HloBufferDonorProto", "one"),
    ],
    "HloInputOutputAliasProto": [(1, "entries", "AliasEntryProto", "rep")],
    "AliasEntryProto": [(2, "parameter_number", "int64", "one")],
    "HloBufferDonorProto": [(1, "entries", "BufferDonorEntryProto", "rep")],
    "BufferDonorEntryProto": [(1, "parameter_number", "int64", "one")],
    "OpSharding": [
        (1, "type", "int32", "one"),
        (3, "tile_assignment_dimensions", "int64", "rep"),
        (7, "metadata", "OpMetadata", "rep"),
    ],
    "DeviceAssignmentProto": [
        (1, "replica_count", "int32", "one"),
        (2, "computation_count", "int32", "one"),
        (3, "computation_devices", "ComputationDevice", "rep"),
    ],
    "ComputationDevice": [(1, "replica_device_ids", "int64", "rep")],
    "HloScheduleProto": [(1, "sequences", "SequencesEntry", "rep")],
    "SequencesEntry": [(1, "key", "int64", "one"), (2, "value", "InstructionSequence", "one")],
    "InstructionSequence": [(1, "instruction_ids", "int64", "rep")],
    "HloComputationProto": [
        (1, "name", "bytes", "one"),
        (2, "instructions", "HloInstructionProto", "rep"),
        (5, "id", "int64", "one"),
        (6, "root_id", "int64", "one"),
    ],
    "HloInstructionProto": [
        (1, "name", "bytes", "one"),
        (2, "opcode", "bytes", "one"),
        (3, "shape", "ShapeProto", "one"),
        (7, "metadata", "OpMetadata", "one"),
        (9, "parameter_number", "int64", "one"),
        (15, "window", "Window", "one"),
        (16, "convolution_dimension_numbers", "ConvolutionDimensionNumbers", "one"),
        (28, "custom_call_target", "bytes", "one"),
        (30, "dot_dimension_numbers", "DotDimensionNumbers", "one"),
        (35, "id", "int64", "one"),
        (36, "operand_ids", "int64", "rep"),
        (38, "called_computation_ids", "int64", "rep"),
        (43, "backend_config", "bytes", "one"),
        (49, "replica_groups", "ReplicaGroup", "rep"),
        (52, "source_target_pairs", "SourceTarget", "rep"),
        (65, "custom_call_has_side_effect", "bool", "one"),
        (71, "use_global_device_ids", "bool", "one"),
        (87, "collective_device_list", "CollectiveDeviceListProto", "one"),
        (92, "iota_collective_device_list", "IotaReplicaGroupListProto", "one"),
        (93, "mesh_axes_replica_group_list", "MeshAxesReplicaGroupListProto", "one"),
    ],
    "ReplicaGroup": [(1, "replica_ids", "int64", "rep")],
    "SourceTarget": [(1, "source", "int64", "one"), (2, "target", "int64", "one")],
    "CollectiveDeviceListProto": [
        (1, "replica_groups", "ReplicaGroup", "rep"),
        (2, "iota_replica_group_list", "IotaReplicaGroupListProto", "one"),
    ],
    "IotaReplicaGroupListProto": [
        (1, "num_replica_groups", "int64", "one"),
        (2, "num_devices_per_group", "int64", "one"),
        (3, "iota_reshape_dims", "int64", "rep"),
        (4, "iota_transpose_perm", "int32", "rep"),
    ],
    "MeshAxesReplicaGroupListProto": [
        (1, "mesh", "MeshProto", "one"),
        (2, "axes", "AxisRefProto", "rep"),
    ],
    "MeshProto": [(1, "axes", "MeshAxis", "rep"), (2, "device_ids", "int64", "rep")],
    "MeshAxis": [(1, "name", "bytes", "one"), (2, "size", "int64", "one")],
    "AxisRefProto": [
        (1, "mesh_axis_index", "int64", "one"),
        (2, "sub_axis_info", "SubAxis", "one"),
    ],
    "SubAxis": [(1, "pre_size", "int64", "one"), (2, "size", "int64", "one")],
    "ShapeProto": [
        (2, "element_type", "int32", "one"),
        (3, "dimensions", "int64", "rep"),
        (4, "tuple_shapes", "ShapeProto", "rep"),
    ],
    "DotDimensionNumbers": [
        (1, "lhs_contracting_dimensions", "int64", "rep"),
        (2, "rhs_contracting_dimensions", "int64", "rep"),
        (3, "lhs_batch_dimensions", "int64", "rep"),
        (4, "rhs_batch_dimensions", "int64", "rep"),
    ],
    "Window": [(1, "dimensions", "WindowDimension", "rep")],
    "WindowDimension": [
        (1, "size", "int64", "one"),
        (2, "stride", "int64", "one"),
        (6, "base_dilation", "int64", "one"),
    ],
    "ConvolutionDimensionNumbers": [
        (3, "kernel_input_feature_dimension", "int64", "one"),
        (4, "kernel_output_feature_dimension", "int64", "one"),
        (6, "kernel_spatial_dimensions", "int64", "rep"),
        (7, "input_batch_dimension", "int64", "one"),
        (8, "input_feature_dimension", "int64", "one"),
        (9, "output_batch_dimension", "int64", "one"),
        (10, "output_feature_dimension", "int64", "one"),
        (11, "input_spatial_dimensions", "int64", "rep"),
        (12, "output_spatial_dimensions", "int64", "rep"),
    ],
    "OpMetadata": [
        (1, "op_type", "bytes", "one"),
        (2, "op_name", "bytes", "one"),
        (3, "source_file", "bytes", "one"),
        (4, "source_line", "int32", "one"),
        (15, "stack_frame_id", "int32", "one"),
    ],
    "StackFrameIndexProto": [
        (1, "file_names", "bytes", "rep"),
        (2, "function_names", "bytes", "rep"),
        (3, "file_locations", "FileLocation", "rep"),
        (4, "stack_frames", "StackFrame", "rep"),
    ],
    "FileLocation": [
        (1, "file_name_id", "int32", "one"),
        (2, "function_name_id", "int32", "one"),
        (3, "line", "int32", "one"),
    ],
    "StackFrame": [(1, "file_location_id", "int32", "one"), (2, "parent_frame_id", "int32", "one")],
}

_CLASSES: Final = classes_of("hlo_for_tests", MESSAGES)
HloProto: Final = _CLASSES["HloProto"]
HloModule: Final = _CLASSES["HloModuleProto"]

F32, F64, TUPLE, C64, BF16 = 11, 12, 13, 15, 16


class ModuleWriter:
    """A program whose entry computation has the id 1; instructions are numbered as they come."""

    def __init__(self) -> None:
        self.message = HloModule(entry_computation_id=1)
        self._count = 0

    def computation(self, number: int = 1) -> Any:
        """The computation of this id, made at the first call."""
        for each in self.message.computations:
            if each.id == number:
                return each
        return self.message.computations.add(id=number)

    def divide(self, partitions: int, *is_divided: bool) -> None:
        """Let so many devices run it, and say of each parameter of the entry whether they share it or have it whole."""
        self.message.device_assignment.replica_count = 1
        self.message.device_assignment.computation_count = partitions
        for number, divided in enumerate(is_divided):
            sharding = self.message.spmd_parameters_shardings.add(type=3 if divided else 0)
            sharding.tile_assignment_dimensions.extend((partitions, 1) if divided else ())
            parameters = [
                each for each in self.computation().instructions if each.opcode == b"parameter"
            ]
            parameters[number].parameter_number = number

    def last(self, computation: int = 1) -> Any:
        """The message of the last instruction of a computation."""
        return self.computation(computation).instructions[-1]

    def add(
        self,
        name: str,
        opcode: str,
        *operands: int,
        scope: str = "",
        line: tuple[str, int] | None = None,
        element: int = F32,
        shape: tuple[int, ...] = (),
        calls: tuple[int, ...] = (),
        computation: int = 1,
    ) -> int:
        """An instruction; returns its id."""
        self._count += 1
        written = self.computation(computation).instructions.add(
            name=name.encode(),
            opcode=opcode.encode(),
            id=self._count,
            operand_ids=operands,
            called_computation_ids=calls,
        )
        written.shape.element_type = element
        written.shape.dimensions.extend(shape)
        if scope:
            written.metadata.op_name = scope.encode()
        if line:
            written.metadata.source_file = line[0].encode()
            written.metadata.source_line = line[1]
        return self._count


def add_programs(path: Path, programs: Mapping[str, Any]) -> None:
    """Append to a trace the plane with compiled programs, by name `jit_step(5)`: modules, or bytes of an `HloProto`."""
    space = XSpace()
    plane = space.planes.add(name=b"/host:metadata")
    plane.stat_metadata[1].id = 1
    plane.stat_metadata[1].name = b"Hlo Proto"
    for number, (name, program) in enumerate(programs.items(), start=1):
        entry = plane.event_metadata[number]
        entry.id, entry.name = number, name.encode()
        content = (
            program
            if isinstance(program, bytes)
            else HloProto(hlo_module=program.message).SerializeToString()
        )
        entry.stats.add(metadata_id=1, bytes_value=content)
    path.write_bytes(path.read_bytes() + space.SerializeToString())
