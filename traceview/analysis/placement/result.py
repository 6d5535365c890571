"""Defines the records of the placement: what the graphs place on each device, and which devices ran work."""

from __future__ import annotations

from traceview.record import DeviceKey, FunctionName, Hostname, Integer, Record
from traceview.trace.placement import FunctionPlacement


class ActiveDevices(Record, frozen=True):
    """Consecutive steps in which the same devices ran work, that is, computed or communicated.

    Attributes:
        first_step: Number of the first step.
        last_step: Number of the last step.
        step_count: Number of steps.
        devices: Keys of the devices.
    """

    first_step: Integer
    last_step: Integer
    step_count: Integer
    devices: tuple[DeviceKey, ...]


class PlacedDevice(Record, frozen=True):
    """What the graph of one function places on one device, and in how many steps that device ran work.

    Attributes:
        device: TensorFlow's name for it.
        op_count: Ops that the graph places on it; null without a graph.
        variable_count: Variables that it holds; null if unknown.
        mirrored_count: Mirrored variables among them.
        trainable_count: Trainable variables among them.
        variable_bytes: Bytes of the variables.
        recorded: Key of the same device in this report; null if unknown.
        step_count: Steps in which it ran work; null without steps or if the device is not in this report.
    """

    device: DeviceKey
    op_count: Integer | None
    variable_count: Integer | None
    mirrored_count: Integer | None
    trainable_count: Integer | None
    variable_bytes: Integer | None
    recorded: DeviceKey | None
    step_count: Integer | None


class PlacedFunction(Record, frozen=True):
    """One step function and its devices.

    Attributes:
        graph: Its graph as recorded, with short names of devices.
        devices: What it places on each device, and what was recorded there.
    """

    graph: FunctionPlacement
    devices: tuple[PlacedDevice, ...]


class HostPlacement(Record, frozen=True):
    """Placement and recorded work of one host.

    Attributes:
        host: Name of the host.
        step_count: Steps in the window.
        active: Which devices ran work, over the steps.
        functions: The step functions; empty without a sidecar.
        statements: What the comparison shows, in sentences.
        missing: Step function to the reason why it has no graph, as recorded.
    """

    host: Hostname
    step_count: Integer
    active: tuple[ActiveDevices, ...]
    functions: tuple[PlacedFunction, ...]
    statements: tuple[str, ...]
    missing: dict[FunctionName, str]


class Placement(Record, frozen=True):
    """Placement and recorded work.

    Attributes:
        hosts: Host by host.
    """

    hosts: tuple[HostPlacement, ...]
