"""Messages of compiled XLA programs, and a plane that holds such: what `traceview.xplane.hlo` reads, written by protobuf.

Field numbers and types: openxla/xla `xla/service/hlo.proto` and `xla/xla_data.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from scripts.xspace import XSpace

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "int64": _FIELD.TYPE_INT64,
    "int32": _FIELD.TYPE_INT32,
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
}
MESSAGES: Final[dict[str, list[tuple[int, str, str, bool]]]] = {
    "HloProto": [
        (1, "hlo_module", "HloModuleProto", False),
        (3, "buffer_assignment", "BufferAssignmentProto", False),
    ],
    "BufferAssignmentProto": [
        (1, "logical_buffers", "LogicalBufferProto", True),
        (3, "buffer_allocations", "BufferAllocationProto", True),
        (4, "heap_simulator_traces", "HeapSimulatorTrace", True),
    ],
    "LogicalBufferProto": [
        (1, "id", "int64", False),
        (2, "size", "int64", False),
        (3, "defined_at", "Location", False),
    ],
    "Location": [(2, "instruction_name", "bytes", False), (4, "instruction_id", "int64", False)],
    "BufferAllocationProto": [
        (1, "index", "int64", False),
        (2, "size", "int64", False),
        (3, "is_thread_local", "bool", False),
        (5, "is_entry_computation_parameter", "bool", False),
        (7, "maybe_live_out", "bool", False),
        (9, "assigned", "Assigned", True),
        (12, "is_constant", "bool", False),
    ],
    "Assigned": [(1, "logical_buffer_id", "int64", False), (3, "size", "int64", False)],
    "HeapSimulatorTrace": [
        (1, "events", "Event", True),
        (3, "buffer_allocation_index", "int64", False),
    ],
    "Event": [
        (1, "kind", "int32", False),
        (2, "buffer_id", "int64", False),
        (5, "share_with_canonical_id", "int64", False),
    ],
    "HloModuleProto": [
        (1, "name", "bytes", False),
        (3, "computations", "HloComputationProto", True),
        (6, "entry_computation_id", "int64", False),
        (7, "schedule", "HloScheduleProto", False),
        (17, "stack_frame_index", "StackFrameIndexProto", False),
    ],
    "HloScheduleProto": [(1, "sequences", "SequencesEntry", True)],
    "SequencesEntry": [(1, "key", "int64", False), (2, "value", "InstructionSequence", False)],
    "InstructionSequence": [(1, "instruction_ids", "int64", True)],
    "HloComputationProto": [
        (1, "name", "bytes", False),
        (2, "instructions", "HloInstructionProto", True),
        (5, "id", "int64", False),
        (6, "root_id", "int64", False),
    ],
    "HloInstructionProto": [
        (1, "name", "bytes", False),
        (2, "opcode", "bytes", False),
        (3, "shape", "ShapeProto", False),
        (7, "metadata", "OpMetadata", False),
        (9, "parameter_number", "int64", False),
        (15, "window", "Window", False),
        (16, "convolution_dimension_numbers", "ConvolutionDimensionNumbers", False),
        (28, "custom_call_target", "bytes", False),
        (30, "dot_dimension_numbers", "DotDimensionNumbers", False),
        (35, "id", "int64", False),
        (36, "operand_ids", "int64", True),
        (38, "called_computation_ids", "int64", True),
        (43, "backend_config", "bytes", False),
        (65, "custom_call_has_side_effect", "bool", False),
    ],
    "ShapeProto": [
        (2, "element_type", "int32", False),
        (3, "dimensions", "int64", True),
        (4, "tuple_shapes", "ShapeProto", True),
    ],
    "DotDimensionNumbers": [
        (1, "lhs_contracting_dimensions", "int64", True),
        (2, "rhs_contracting_dimensions", "int64", True),
        (3, "lhs_batch_dimensions", "int64", True),
        (4, "rhs_batch_dimensions", "int64", True),
    ],
    "Window": [(1, "dimensions", "WindowDimension", True)],
    "WindowDimension": [
        (1, "size", "int64", False),
        (2, "stride", "int64", False),
        (6, "base_dilation", "int64", False),
    ],
    "ConvolutionDimensionNumbers": [
        (3, "kernel_input_feature_dimension", "int64", False),
        (4, "kernel_output_feature_dimension", "int64", False),
        (6, "kernel_spatial_dimensions", "int64", True),
        (7, "input_batch_dimension", "int64", False),
        (8, "input_feature_dimension", "int64", False),
        (9, "output_batch_dimension", "int64", False),
        (10, "output_feature_dimension", "int64", False),
        (11, "input_spatial_dimensions", "int64", True),
        (12, "output_spatial_dimensions", "int64", True),
    ],
    "OpMetadata": [
        (1, "op_type", "bytes", False),
        (2, "op_name", "bytes", False),
        (3, "source_file", "bytes", False),
        (4, "source_line", "int32", False),
        (15, "stack_frame_id", "int32", False),
    ],
    "StackFrameIndexProto": [
        (1, "file_names", "bytes", True),
        (2, "function_names", "bytes", True),
        (3, "file_locations", "FileLocation", True),
        (4, "stack_frames", "StackFrame", True),
    ],
    "FileLocation": [
        (1, "file_name_id", "int32", False),
        (2, "function_name_id", "int32", False),
        (3, "line", "int32", False),
    ],
    "StackFrame": [(1, "file_location_id", "int32", False), (2, "parent_frame_id", "int32", False)],
}
"""Per message its fields: number, name, type, and whether it is repeated."""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="hlo_for_tests.proto", package="hlo_for_tests", syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, type_, is_repeated in fields:
            added = message.field.add(name=field, number=number)
            added.label = _FIELD.LABEL_REPEATED if is_repeated else _FIELD.LABEL_OPTIONAL
            added.type = _TYPES.get(type_, _FIELD.TYPE_MESSAGE)
            if type_ not in _TYPES:
                added.type_name = f".hlo_for_tests.{type_}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"hlo_for_tests.{name}"))
        for name in MESSAGES
    }


_CLASSES: Final = _classes()
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
