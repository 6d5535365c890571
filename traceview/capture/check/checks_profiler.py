"""Checks what the profiler needs to record GPU events: CUPTI, permission, and no other profiler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from traceview.capture.check.check import NO_GPU, Check, Subject, listed
from traceview.capture.check.libraries import in_toolkits, packaged
from traceview.capture.check.machine import Machine

DISABLED: Final = "TF_DISABLE_PROFILING"
_FALSE: Final = ("", "0", "false", "no")
_CAP_SYS_ADMIN: Final = 21
_CAP_PERFMON: Final = 38
_SESSIONS: Final = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_NSIGHT_INJECTION_PORT_BASE": "Nsight Compute",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "Nsight Compute",
    "NVPROF_ID": "nvprof",
    "CUDA_INJECTION64_PATH": "a tool injected into CUDA",
}
"""Variables that a tool sets in the programs it starts."""
_INJECTED: Final = ("toolsinjection", "nsys", "nsight", "libcupti", "nvperf", "cuda-injection")
_RUNNING_TOOLS: Final = ("nsys", "ncu", "nvprof", "nv-hostengine", "dcgm-exporter")
_CONCURRENT: Final = "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL"


def check_cupti(machine: Machine, *, has_gpus: bool, cuda: int) -> Check:
    """Whether CUPTI loads, and belongs to the CUDA that TensorFlow was compiled for."""
    subject = Subject("cupti")
    if not has_gpus:
        return subject.not_applicable(NO_GPU)
    soname = f"libcupti.so.{cuda}"
    in_packages = packaged(machine.site_packages, cuda)
    reachable = [*(path for path in in_packages if path.endswith(soname)), soname]
    library = machine.load(reachable, "cuptiGetVersion", machine.environment)
    if library.path:
        version = cupti_cuda(library.version)
        detail = f"{library.path}{f', of CUDA {version}' if version else ''}"
        if version and int(version.partition(".")[0]) != cuda:
            return subject.failed(
                f"{detail}, but TensorFlow was built for CUDA {cuda}",
                "pip install 'tensorflow[and-cuda]'",
            )
        return subject.ok(detail)
    elsewhere = [
        *in_packages,
        *in_toolkits(machine.root, machine.environment, soname),
        *in_toolkits(machine.root, machine.environment, "libcupti.so"),
    ]
    if elsewhere:
        folder = Path(elsewhere[0]).parent
        return subject.failed(
            f"{soname} does not load ({library.error}), but {elsewhere[0]} exists",
            f"if it belongs to CUDA {cuda}: export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH",
        )
    return subject.failed(
        f"{soname} does not load ({library.error}): a trace would have no GPU events",
        f"pip install 'tensorflow[and-cuda]' or nvidia-cuda-cupti-cu{cuda}",
    )


def cupti_cuda(version: int) -> str:
    """The CUDA that a number of `cuptiGetVersion` belongs to (cupti_version.h); empty if unknown."""
    if version >= 130_000:
        return f"{version // 10_000}.{version % 10_000 // 100}"
    known = {
        13: "11.0", 14: "11.1", 15: "11.2 to 11.4", 16: "11.5", 17: "11.6", 18: "11.8", 19: "12.0",
        20: "12.2", 21: "12.3", 22: "12.4", 23: "12.5", 24: "12.6", 26: "12.8", 27: "12.9", 28: "12.9",
    }  # fmt: skip
    return known.get(version, "")


def check_permission(proc: Path, *, has_gpus: bool) -> Check:
    """Whether the driver lets this user profile."""
    subject = Subject("profiling-permission")
    if not has_gpus:
        return subject.not_applicable(NO_GPU)
    try:
        text = (proc / "driver" / "nvidia" / "params").read_text("utf-8", "replace")
    except OSError as error:
        return subject.not_applicable(f"the driver's parameters cannot be read ({error.strerror})")
    values = dict(line.partition(": ")[::2] for line in text.splitlines())
    value = values.get("RmProfilingAdminOnly", "").strip()
    if value != "1":
        return subject.ok(
            "the driver lets every user profile" if value == "0" else "not restricted"
        )
    if _has_capability(proc):
        return subject.ok("only administrators may profile, and this process has CAP_SYS_ADMIN")
    return subject.warning(
        "only administrators may read performance counters (RmProfilingAdminOnly: 1), and this process lacks "
        "CAP_SYS_ADMIN. With current drivers kernels are recorded anyway; with older ones GPU rows are empty",
        "if GPU rows are empty: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, or "
        "docker run --cap-add SYS_ADMIN",
    )


def _has_capability(proc: Path) -> bool:
    try:
        lines = (proc / "self" / "status").read_text("utf-8", "replace").splitlines()
        mask = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return False
    return bool(mask >> _CAP_SYS_ADMIN & 1 or mask >> _CAP_PERFMON & 1)


def check_other_profiler(environment: Mapping[str, str], proc: Path) -> Check:
    """Whether another profiler prevents the capture."""
    subject = Subject("other-profiler")
    if environment.get(DISABLED, "").strip().lower() not in _FALSE:
        return subject.failed(
            f"{DISABLED} is set: TensorFlow refuses every profile", f"unset {DISABLED}"
        )
    sessions = list(_sessions(environment))
    if sessions:
        return subject.failed(
            f"{listed(sessions)}: CUPTI serves one tool at a time, so a trace would have no GPU events",
            "run traceview capture without the other tool",
        )
    running = list(_running_tools(proc))
    if running:
        return subject.warning(
            f"{listed(running)}: if it profiles these GPUs, a trace has no GPU events",
            "pause it for the capture (dcgmi profile --pause)",
        )
    if environment.get(_CONCURRENT, "1").strip().lower() in _FALSE:
        return subject.warning(
            f"{_CONCURRENT}={environment[_CONCURRENT]}: the profiler serializes kernels",
            f"unset {_CONCURRENT}",
        )
    preloaded = environment.get("LD_PRELOAD", "")
    return subject.ok(f"none (LD_PRELOAD={preloaded})" if preloaded else "none")


def _sessions(environment: Mapping[str, str]) -> Iterator[str]:
    for variable, tool in _SESSIONS.items():
        if environment.get(variable):
            yield f"{variable} is set by {tool}"
    for library in environment.get("LD_PRELOAD", "").replace(":", " ").split():
        if any(part in library.lower() for part in _INJECTED):
            yield f"LD_PRELOAD brings {library}"


def _running_tools(proc: Path) -> Iterator[str]:
    try:
        folders = [path for path in proc.iterdir() if path.name.isdecimal()]
    except OSError:
        return
    for folder in sorted(folders, key=lambda path: int(path.name)):
        try:
            command = (folder / "comm").read_text("utf-8", "replace").strip()
        except OSError:
            continue
        if command in _RUNNING_TOOLS:
            yield f"process {folder.name} is {command}"
