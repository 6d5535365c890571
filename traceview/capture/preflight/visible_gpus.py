"""Which of a machine's GPUs does CUDA show to a program? `CUDA_VISIBLE_DEVICES` says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traceview.capture.preflight.gpu_inventory import Gpu


@dataclass(frozen=True)
class VisibleGpus:
    """The GPUs that are visible, in their order, and what of the variable was not understood.

    `unknown`: the first entry that names no GPU; CUDA ignores it and everything after it. `repeated`: an
    entry that names a GPU for the second time. `unchecked`: entries that cannot be looked up (MIG slices).
    """

    gpus: tuple[Gpu, ...]
    unknown: str | None = None
    repeated: str | None = None
    unchecked: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many devices a program sees."""
        return len(self.gpus) + len(self.unchecked)


def visible_gpus(gpus: Sequence[Gpu], variable: str | None) -> VisibleGpus:
    """Read the variable as CUDA does (CUDA C++ Programming Guide, environment variables)."""
    if variable is None:
        return VisibleGpus(tuple(gpus))
    seen: list[Gpu] = []
    unchecked: list[str] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.startswith("MIG-"):
            unchecked.append(entry)
            continue
        gpu = _named(gpus, entry)
        if gpu is None:
            is_end = entry in ("", "-1", "NoDevFiles")
            return VisibleGpus(tuple(seen), None if is_end else entry, unchecked=tuple(unchecked))
        if gpu in seen:
            return VisibleGpus(tuple(seen), repeated=entry, unchecked=tuple(unchecked))
        seen.append(gpu)
    return VisibleGpus(tuple(seen), unchecked=tuple(unchecked))


def _named(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    if entry.isascii() and entry.isdecimal():
        return next(
            (gpu for gpu in gpus if str(gpu.index) == entry.lstrip("0").rjust(1, "0")), None
        )
    if entry.startswith("GPU-"):
        found = [gpu for gpu in gpus if gpu.uuid.lower().startswith(entry.lower())]
        return found[0] if len(found) == 1 else None
    return None
