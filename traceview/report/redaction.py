"""What does a report look like that may leave the house? The same numbers, and no name that tells whose they are.

Names of hosts, paths, files, runs, threads, functions, ops, layers, kernels, iterators and XLA modules, command
lines and values of settings become pseudonyms. In every other text, also of fields that this module has never heard
of, a word stays only if traceview's own code uses it or TensorFlow has an op of that name.

Kept: types of TensorFlow's ops, words of kernel names that known libraries use, names that TensorFlow gives to its
threads, kinds of iterators, models of devices, versions, times, and the checksums of the files, by which their owner
can find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeAlias, cast

from msgspec.structs import replace

from traceview.report.model import Report
from traceview.report.pseudonyms import Pseudonyms

_Hide: TypeAlias = Callable[[Pseudonyms, str], str]

_FIELDS: Final[Mapping[str, _Hide]] = {
    "after": Pseudonyms.activity,
    "before": Pseudonyms.activity,
    "Command.python": Pseudonyms.argument,
    "Command.script": Pseudonyms.argument,
    "d2h_op": Pseudonyms.op,
    "device": Pseudonyms.device,
    "devices": Pseudonyms.device,
    "DeviceDetails.device_name": Pseudonyms.kept,
    "Evidence.metric": Pseudonyms.metric,
    "FunctionPlacement.name": Pseudonyms.function,
    "FunctionPlacement.step": Pseudonyms.function,
    "GpuLink.bus_id": Pseudonyms.kept,
    "GpuLink.name": Pseudonyms.kept,
    "h2d_op": Pseudonyms.op,
    "host": Pseudonyms.host,
    "HostEnvironment.variables": Pseudonyms.value,
    "InputStage.name": Pseudonyms.stage,
    "Bottleneck.name": Pseudonyms.stage,
    "Bottleneck.kind": Pseudonyms.stage,
    "kernel": Pseudonyms.kernel,
    "Lanes.names": Pseudonyms.slice,
    "logdir": Pseudonyms.path,
    "logical": Pseudonyms.device,
    "model": Pseudonyms.kept,
    "modules": Pseudonyms.module,
    "names": Pseudonyms.op,
    "op": Pseudonyms.op,
    "op_type": Pseudonyms.type,
    "other_runs": Pseudonyms.run,
    "parameter_devices": Pseudonyms.device,
    "path_ops": Pseudonyms.op,
    "PhysicalDevice.name": Pseudonyms.device,
    "recorded": Pseudonyms.device,
    "HostClock.reference": Pseudonyms.host,
    "ReportFile.duplicate_of": Pseudonyms.file,
    "ReportFile.name": Pseudonyms.file,
    "run": Pseudonyms.run,
    "sha256": Pseudonyms.kept,
    "shared_with": Pseudonyms.device,
    "tf_xla_flags": Pseudonyms.value,
    "thread": Pseudonyms.thread,
    "threads": Pseudonyms.threads,
    "training_loop": Pseudonyms.function,
    "traceview_version": Pseudonyms.kept,
    "unknown": Pseudonyms.host,
    "visible": Pseudonyms.device,
    "xla_flags": Pseudonyms.value,
}
"""By the name of a field, with its class where the name alone does not tell; all others hold text."""

_KEYS: Final[Mapping[str, _Hide]] = {
    "HostPlacement.missing": Pseudonyms.function,
    "OutsideView.absent": Pseudonyms.host,
    "NvLinks.peers": Pseudonyms.kept,
    "exposed_ps": Pseudonyms.device,
    "exposed_per_step_ps": Pseudonyms.device,
    "exposed_transfer_per_step_ps": Pseudonyms.device,
    "exposed_transfer_ps": Pseudonyms.device,
    "exposed_wait_per_step_ps": Pseudonyms.device,
    "last_count": Pseudonyms.device,
    "ops_per_device": Pseudonyms.device,
    "ops_per_type": Pseudonyms.type,
    "per_device": Pseudonyms.device,
    "wait_per_step_ps": Pseudonyms.device,
    "wait_ps": Pseudonyms.device,
}
"""The same for the keys of dictionaries."""

_TEXT: Final[_Hide] = Pseudonyms.text
_VERSION_CLASS: Final = "Versions"
_LOGDIR_PLACE: Final = 2
"""`traceview report LOGDIR …`"""

_VALUE_OF: Final[Mapping[str, _Hide]] = {
    "--run": Pseudonyms.run,
    "--baseline": Pseudonyms.path,
}


def redacted(report: Report) -> Report:
    """The report with a pseudonym for every name, the same one for the same name wherever it stands."""
    names = Pseudonyms()
    # First all names, so that a sentence is known to hold one that only stands in a later field.
    _Pass(names, only_names=True).of(report, "Report", "")
    hidden = cast("Report", _Pass(names, only_names=False).of(report, "Report", ""))
    return replace(hidden, command=tuple(_command(names, report.command)))


def _command(names: Pseudonyms, command: tuple[str, ...]) -> list[str]:
    """The command line: the program, its options and their plain values stay."""
    before = ("", *command)
    return [
        Pseudonyms.path(names, argument)
        if place == _LOGDIR_PLACE
        else _VALUE_OF.get(before[place], _TEXT)(names, argument)
        for place, argument in enumerate(command)
    ]


class _Pass:
    """Goes through everything once, in the order of the fields."""

    def __init__(self, names: Pseudonyms, *, only_names: bool) -> None:
        self.names = names
        self.only_names = only_names

    def of(self, value: Any, owner: str, field: str) -> Any:
        """`value` of the field of a data class, with its names hidden."""
        if is_dataclass(value) and not isinstance(value, type):
            kind = type(value).__name__
            found = {
                one.name: self.of(getattr(value, one.name), kind, one.name) for one in fields(value)
            }
            return value if self.only_names else replace(value, **found)
        if isinstance(value, tuple):
            return tuple(self.of(one, owner, field) for one in value)
        if isinstance(value, dict):
            hide_key = _chosen(_KEYS, owner, field)
            return {
                self.hidden(hide_key, key): self.of(one, owner, field) for key, one in value.items()
            }
        if isinstance(value, str):
            return self.hidden(_chosen(_FIELDS, owner, field), value)
        return value

    def hidden(self, hide: _Hide, text: str) -> str:
        """One text; sentences wait until all names are known."""
        if self.only_names and hide is _TEXT:
            return text
        return hide(self.names, text)


def _chosen(of: Mapping[str, _Hide], owner: str, field: str) -> _Hide:
    if of is _FIELDS and owner == _VERSION_CLASS and field != "missing":
        return Pseudonyms.version
    return of.get(f"{owner}.{field}") or of.get(field) or _TEXT
