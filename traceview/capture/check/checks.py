"""Checks the framework that a script imports, its GPUs, a profile of a product on each in another process, and the folder of traces."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from traceview.base.errors import CaptureError, TraceFormatError
from traceview.capture.process.saying import VARIABLE
from traceview.capture.record.destination import Destination

_NAMES: Final = {"tensorflow": "TensorFlow", "jax": "JAX"}
_TESTED: Final = {"tensorflow": ((2, 15), (2, 21)), "jax": ((0, 4), (0, 11))}
"""Oldest and newest version that traceview is tested with; of JAX from 0.4.30 on."""
_GPU_PACKAGES: Final = {"tensorflow": "tensorflow[and-cuda]", "jax": "jax[cuda12]"}
_IMPORTS: Final = {"tensorflow": "tensorflow|keras|tf_keras", "jax": "jax|flax|optax|equinox"}
_IMPORTED: Final = r"(?m)^\s*(?:import|from)\s+(?:{})\b"
_COMPILED: Final = (
    "traceview.capture.process.native",
    "traceview.capture.sampling.stacks",
    "traceview.capture.sampling.thread_clocks",
)
_AS_TEXT: Final[dict[str, Any]] = {
    "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"
}  # fmt: skip
_LIST_GPUS: Final = ("nvidia-smi", "-L")
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_MARK: Final = "traceview-trial:"
_START: Final = f"""
import json, sys
sys.path[:] = [path for path in sys.path if path]
def tell(version, gpus):
    print("\\n{_MARK}" + json.dumps([version, gpus]), flush=True)
"""
_PROGRAMS: Final = {
    "tensorflow": """
import tensorflow as tf
tell(tf.__version__, len(tf.config.list_physical_devices("GPU")))
tf.profiler.experimental.start(sys.argv[1])
for device in tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"):
    with tf.device(device.name):
        tf.matmul(tf.ones((64, 64)), tf.ones((64, 64))).numpy()
tf.profiler.experimental.stop()
""",
    "jax": """
import jax
devices = jax.local_devices()
tell(jax.__version__, sum(device.platform in ("cuda", "gpu", "rocm") for device in devices))
jax.profiler.start_trace(sys.argv[1])
for device in devices:
    matrix = jax.device_put(jax.numpy.ones((64, 64)), device)
    (matrix @ matrix).block_until_ready()
jax.profiler.stop_trace()
""",
}
_ENVIRONMENT: Final = {
    # Only its log says why it sees no GPU, or records none.
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
_REASONS: Final = re.compile(
    r"cannot dlopen|could not load dynamic|could not find cuda drivers|failed call to cuInit|cupti[^\n]{0,80}(?:fail|error|could not)"
    r"|insufficient.privileges",
    re.I,
)
"""Lines of the log that say why no GPU is seen or recorded (tsl/platform, stream_executor/cuda, profiler/backends/gpu)."""


class Check(NamedTuple):
    """The result of one check. `failed`: a capture would fail, or lack its main content; `warning`: it may, or its numbers mislead."""

    name: str
    status: Literal["ok", "warning", "failed", "not applicable"]
    detail: str
    fix: str = ""


class Trial(NamedTuple):
    """What the process answered that records a profile: an empty `version` where the import failed, and a `reason` of its log.

    `gpus`: how many the framework sees; `recorded_gpus`: how many have events in the trace. `has_events`: whether it has any.
    """

    version: str = ""
    gpus: int = 0
    recorded_gpus: int = 0
    has_events: bool = False
    reason: str = ""


def examine(script: Path | None, out: Path) -> Iterator[Check]:
    """Run every check, which takes 4 to 15 s. The script is read and never run. A problem is a failed check, never an error."""
    text = ""
    if script is not None:
        file = script / "__main__.py" if script.is_dir() else script
        try:
            text = file.read_text("utf-8", "replace")
        except OSError as error:
            yield Check("script", "failed", f"{script}: {error.strerror}", "give a Python file")
    framework, installed = chosen(text)
    trial = try_profile(framework) if installed else Trial()
    yield check_framework(framework, installed, trial)
    yield check_gpus(framework, trial)
    yield check_profile(framework, trial)
    yield check_output(out)
    yield check_parts()


def chosen(script: str) -> tuple[str, dict[str, str]]:
    """The framework that a script with this text trains with, and the packages that install it with their versions."""
    packages = packages_distributions()
    imports = {name for name, each in _IMPORTS.items() if re.search(_IMPORTED.format(each), script)}
    has_only_jax = not imports and "jax" in packages and "tensorflow" not in packages
    framework = "jax" if imports == {"jax"} or has_only_jax else "tensorflow"
    return framework, {name: version(name) for name in sorted(set(packages.get(framework, ())))}


def check_framework(framework: str, installed: Mapping[str, str], trial: Trial) -> Check:
    """Whether it is installed, can be imported, and is of a tested version."""
    name = _NAMES[framework]
    packages = ", ".join(f"{package} {number}" for package, number in installed.items())
    release = re.match(r"(\d{1,4})\.(\d{1,4})", trial.version)
    oldest, newest = _TESTED[framework]
    if not installed:
        detail = f"not installed for {sys.executable}"
        fix = f"install {name} there, or traceview where {name} is"
        return Check(framework, "failed", detail, fix)
    if not trial.version:
        detail = f"{packages}: the import fails: {trial.reason}"
        fix = f"{sys.executable} -c 'import {framework}' shows the whole error"
        return Check(framework, "failed", detail, fix)
    if framework == "tensorflow" and len(installed) > 1:
        detail = f"{packages} overwrite each other: the one installed last is imported"
        fix = "pip uninstall all of them, then install only one (tf_keras depends on tensorflow)"
        return Check(framework, "warning", detail, fix)
    if release is None or not oldest <= (int(release[1]), int(release[2])) <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        fix = f"use {name} {tested}: in others traceview may not recognize the steps"
        return Check(framework, "warning", packages, fix)
    return Check(framework, "ok", packages)


def check_gpus(framework: str, trial: Trial) -> Check:
    """Compare what `nvidia-smi -L` prints with what the framework saw in its trial."""
    count = 0
    try:
        done = subprocess.run(
            _LIST_GPUS, stderr=subprocess.STDOUT, timeout=20, check=True, **_AS_TEXT
        )
        count = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    except FileNotFoundError:
        if not trial.gpus:
            detail = "no NVIDIA GPU: nvidia-smi is not installed"
            fix = "none needed to train on the CPU; in a container: docker run --gpus all"
            return Check("gpus", "warning", detail, fix)
    except (OSError, subprocess.SubprocessError) as error:
        detail = f"nvidia-smi: {getattr(error, 'stdout', '') or error}"
        fix = "restart the machine, or the container with GPUs: driver and library may not match"
        if isinstance(error, PermissionError):
            fix = "run as a user who may run nvidia-smi: this one may not see the GPUs"
        return Check("gpus", "failed", detail, fix)
    if not trial.version:
        return Check("gpus", "ok", f"{count} by nvidia-smi ({framework} could not be asked)")
    sees = f"{framework} sees {trial.gpus} of {max(count, trial.gpus)} GPUs"
    if trial.gpus >= count:
        return Check("gpus", "ok", sees)
    if _VISIBLE in os.environ:
        detail = f"{_VISIBLE}={os.environ[_VISIBLE]}: {sees}"
        return Check("gpus", "warning", detail, f"unset {_VISIBLE}, unless this is intended")
    fix = f"pip install '{_GPU_PACKAGES[framework]}' installs the CUDA libraries it needs; a driver older than that CUDA must be updated"
    return Check("gpus", "failed", f"{sees}: {trial.reason or 'its log gives no reason'}", fix)


def check_profile(framework: str, trial: Trial) -> Check:
    """Whether a profile of a small computation records it on each GPU."""
    reason = trial.reason or "no reason was logged"
    recorded = f"a profile recorded {trial.recorded_gpus} of {trial.gpus} GPUs"
    if not trial.version:
        return Check("profile", "not applicable", "not tried")
    if not trial.has_events:
        detail = f"a profile of one multiplication recorded nothing: {reason}"
        return Check("profile", "failed", detail, "run without other profilers")
    if not trial.gpus:
        return Check("profile", "ok", "a profile recorded the operations of the CPU")
    if trial.recorded_gpus == trial.gpus:
        return Check("profile", "ok", recorded)
    fix = (
        f"if CUPTI is missing: pip install '{_GPU_PACKAGES[framework]}'. If privileges are: options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, or docker run --cap-add SYS_ADMIN. CUPTI serves one "
        "tool at a time: run without nsys or ncu, and pause DCGM (dcgmi profile --pause)"
    )
    return Check("profile", "failed", f"{recorded}: {reason}", fix)


def check_output(out: Path) -> Check:
    """Whether a capture could be written to `out`. What the check creates is removed again."""
    destination = Destination(out)
    try:
        destination.prepare()
        free = shutil.disk_usage(destination.out).free
    except CaptureError as error:
        return Check("output", "failed", error.message, error.hint or "")
    finally:
        destination.clean()
    is_small = free < 1 << 30
    detail = f"{out} can be written, {free / 1e9:.1f} GB free"
    fix = "free some space: a trace may need more than 100 MB" if is_small else ""
    return Check("output", "warning" if is_small else "ok", detail, fix)


def check_parts() -> Check:
    """Whether what runs in C beside the training was compiled."""
    if all(map(find_spec, _COMPILED)):
        return Check("parts", "ok", "compiled")
    detail = "installed without a C compiler: unknown who waits for a core, and Python stacks are less exact"
    return Check("parts", "warning", detail, "install a C compiler, then traceview again")


def try_profile(
    framework: str, *, program: Sequence[str] | None = None, timeout_s: float = 120.0
) -> Trial:
    """Import `framework` in another process, and profile it there; never raises. `program`: what does it instead."""
    program = program or (sys.executable, "-c", _START + _PROGRAMS[framework])
    variables = {**os.environ, **_ENVIRONMENT, VARIABLE: ""}
    with tempfile.TemporaryDirectory(prefix="traceview-check-") as folder:
        try:
            command, pipe = [*program, folder], subprocess.PIPE
            done = subprocess.run(
                command, stderr=pipe, env=variables, timeout=timeout_s, check=False, **_AS_TEXT
            )
        except OSError as error:
            return Trial(reason=f"no process could be started for it: {error}")
        except subprocess.TimeoutExpired:
            return Trial(reason=f"importing it and one profile took longer than {timeout_s:g} s")
        return _answer(done.stdout, done.stderr.splitlines(), done.returncode, Path(folder))


def _answer(out: str, lines: Sequence[str], code: int, folder: Path) -> Trial:
    # Without the time and the source of a line.
    found = (line.partition("] ")[2] or line for line in lines if _REASONS.search(line))
    reason = "; ".join([*dict.fromkeys(found)][:3])
    if code:
        ending = f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        reason = reason or (lines[-1] if lines and code > 0 else ending)
    answers = [line.removeprefix(_MARK) for line in out.splitlines() if line.startswith(_MARK)]
    if not answers:
        return Trial(reason=reason or "it gave no answer")
    version, gpus = json.loads(answers[0])
    has_events, recorded_gpus = _recorded(folder)
    return Trial(str(version), int(gpus), recorded_gpus, has_events, reason)


def _recorded(folder: Path) -> tuple[bool, int]:
    """Whether there is a trace with events, and how many GPUs have some."""
    from traceview.xplane.planes import PlaneKind
    from traceview.xplane.read import read_file

    for path in folder.rglob("*.xplane.pb"):
        with suppress(TraceFormatError):
            every = read_file(path).planes
            planes = [each for each in every if any(line.columns.time.size for line in each.lines)]
            return bool(planes), sum(plane.kind is PlaneKind.GPU for plane in planes)
    return False, 0
