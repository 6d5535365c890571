"""Messages of compiled XLA programs, and a plane that holds such: what `traceview.xplane.hlo` reads, written by protobuf.

Field numbers and types: openxla/xla `xla/service/hlo.proto` and `xla/xla_data.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scripts.xspace import Messages, XSpace, classes_of

_FIELDS: Final = """
HloProto: 1 hlo_module HloModuleProto, 3 buffer_assignment BufferAssignmentProto
BufferAssignmentProto: 1 *logical_buffers LogicalBufferProto,
    3 *buffer_allocations BufferAllocationProto, 4 *heap_simulator_traces HeapSimulatorTrace
LogicalBufferProto: 1 id int64, 2 size int64, 3 defined_at Location
Location: 2 instruction_name bytes, 4 instruction_id int64
BufferAllocationProto: 1 index int64, 2 size int64, 3 is_thread_local bool,
    5 is_entry_computation_parameter bool, 7 maybe_live_out bool, 9 *assigned Assigned,
    12 is_constant bool
Assigned: 1 logical_buffer_id int64, 3 size int64
HeapSimulatorTrace: 1 *events Event, 3 buffer_allocation_index int64
Event: 1 kind int32, 2 buffer_id int64, 5 share_with_canonical_id int64
HloModuleProto: 1 name bytes, 3 *computations HloComputationProto, 6 entry_computation_id int64,
    7 schedule HloScheduleProto, 8 input_output_alias HloInputOutputAliasProto,
    14 *spmd_parameters_shardings OpSharding, 15 device_assignment DeviceAssignmentProto,
    17 stack_frame_index StackFrameIndexProto, 18 buffer_donor HloBufferDonorProto
HloInputOutputAliasProto: 1 *entries AliasEntryProto
AliasEntryProto: 2 parameter_number int64
HloBufferDonorProto: 1 *entries BufferDonorEntryProto
BufferDonorEntryProto: 1 parameter_number int64
OpSharding: 1 type int32, 3 *tile_assignment_dimensions int64, 7 *metadata OpMetadata
DeviceAssignmentProto: 1 replica_count int32, 2 computation_count int32,
    3 *computation_devices ComputationDevice
ComputationDevice: 1 *replica_device_ids int64
HloScheduleProto: 1 *sequences SequencesEntry
SequencesEntry: 1 key int64, 2 value InstructionSequence
InstructionSequence: 1 *instruction_ids int64
HloComputationProto: 1 name bytes, 2 *instructions HloInstructionProto, 5 id int64, 6 root_id int64
HloInstructionProto: 1 name bytes, 2 opcode bytes, 3 shape ShapeProto, 7 metadata OpMetadata,
    8 literal LiteralProto, 9 parameter_number int64, 13 tuple_index int64, 14 *dimensions int64,
    15 window Window, 33 gather_dimension_numbers GatherDimensionNumbers,
    34 *gather_slice_sizes int64, 48 scatter_dimension_numbers ScatterDimensionNumbers,
    16 convolution_dimension_numbers ConvolutionDimensionNumbers, 28 custom_call_target bytes,
    30 dot_dimension_numbers DotDimensionNumbers, 32 *fft_length int64, 35 id int64, 36 *operand_ids int64,
    38 *called_computation_ids int64, 43 backend_config bytes, 49 *replica_groups ReplicaGroup, 50 feature_group_count int64,
    52 *source_target_pairs SourceTarget, 63 comparison_direction bytes, 65 custom_call_has_side_effect bool,
    71 use_global_device_ids bool, 87 collective_device_list CollectiveDeviceListProto,
    92 iota_collective_device_list IotaReplicaGroupListProto,
    93 mesh_axes_replica_group_list MeshAxesReplicaGroupListProto
LiteralProto: 1 shape ShapeProto, 8 *f32s float
GatherDimensionNumbers: 1 *offset_dims int64, 2 *collapsed_slice_dims int64,
    3 *start_index_map int64, 4 index_vector_dim int64
ScatterDimensionNumbers: 1 *update_window_dims int64, 2 *inserted_window_dims int64,
    3 *scatter_dims_to_operand_dims int64, 4 index_vector_dim int64
ReplicaGroup: 1 *replica_ids int64
SourceTarget: 1 source int64, 2 target int64
CollectiveDeviceListProto: 1 *replica_groups ReplicaGroup,
    2 iota_replica_group_list IotaReplicaGroupListProto
IotaReplicaGroupListProto: 1 num_replica_groups int64, 2 num_devices_per_group int64,
    3 *iota_reshape_dims int64, 4 *iota_transpose_perm int32
MeshAxesReplicaGroupListProto: 1 mesh MeshProto, 2 *axes AxisRefProto
MeshProto: 1 *axes MeshAxis, 2 *device_ids int64
MeshAxis: 1 name bytes, 2 size int64
AxisRefProto: 1 mesh_axis_index int64, 2 sub_axis_info SubAxis
SubAxis: 1 pre_size int64, 2 size int64
ShapeProto: 2 element_type int32, 3 *dimensions int64, 4 *tuple_shapes ShapeProto
DotDimensionNumbers: 1 *lhs_contracting_dimensions int64, 2 *rhs_contracting_dimensions int64,
    3 *lhs_batch_dimensions int64, 4 *rhs_batch_dimensions int64
Window: 1 *dimensions WindowDimension
WindowDimension: 1 size int64, 2 stride int64, 6 base_dilation int64
ConvolutionDimensionNumbers: 3 kernel_input_feature_dimension int64,
    4 kernel_output_feature_dimension int64, 6 *kernel_spatial_dimensions int64,
    7 input_batch_dimension int64, 8 input_feature_dimension int64, 9 output_batch_dimension int64,
    10 output_feature_dimension int64, 11 *input_spatial_dimensions int64,
    12 *output_spatial_dimensions int64
OpMetadata: 1 op_type bytes, 2 op_name bytes, 3 source_file bytes, 4 source_line int32,
    15 stack_frame_id int32
StackFrameIndexProto: 1 *file_names bytes, 2 *function_names bytes, 3 *file_locations FileLocation,
    4 *stack_frames StackFrame
FileLocation: 1 file_name_id int32, 2 function_name_id int32, 3 line int32
StackFrame: 1 file_location_id int32, 2 parent_frame_id int32
"""
"""Of each message the number, name and type of its fields; those with a star repeat."""


def _messages(text: str) -> Messages:
    """The messages, whose lines begin at the margin, and go on further in."""
    found: Messages = {}
    for message in text.strip().replace("\n    ", " ").splitlines():
        name, _, fields = message.partition(": ")
        found[name] = []
        for number, field, type_ in map(str.split, fields.split(", ")):
            label = "rep" if field.startswith("*") else "one"
            found[name].append((int(number), field.removeprefix("*"), type_, label))
    return found


MESSAGES: Final = _messages(_FIELDS)
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
        **fields: Any,
    ) -> int:
        """An instruction, with further fields of its message; returns its id."""
        self._count += 1
        written = self.computation(computation).instructions.add(
            name=name.encode(),
            opcode=opcode.encode(),
            id=self._count,
            operand_ids=operands,
            called_computation_ids=calls,
            **fields,
        )
        written.shape.element_type = element
        written.shape.dimensions.extend(shape)
        if scope:
            written.metadata.op_name = scope.encode()
        if line:
            written.metadata.source_file = line[0].encode()
            written.metadata.source_line = line[1]
        return self._count

    def made_in(self, function: str, file: str = "model.py", line: int = 7) -> None:
        """Say that the last instruction added was made in a function of Python."""
        frames = self.message.stack_frame_index
        frames.file_names.append(file.encode())
        frames.function_names.append(function.encode())
        number = len(frames.file_names)
        frames.file_locations.add(file_name_id=number, function_name_id=number, line=line)
        frames.stack_frames.add(file_location_id=number)
        self.last().metadata.stack_frame_id = number


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
