"""Which TensorFlow would a script get, and does it see the GPUs?

What is installed is read from package metadata. What it sees, only TensorFlow knows: another process imports it
(4 to 10 s), and prints what it found as JSON.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

TIMEOUT_SECONDS: Final = 120.0
_NAMES: Final = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tensorflow-rocm",
    "tf-nightly",
    "tf-nightly-cpu",
    "intel-tensorflow",
)
_MARK: Final = "traceview-tensorflow:"
_PROBE: Final = f"""
import sys
sys.path[:] = [path for path in sys.path if path]
import json
import tensorflow as tf
found = {{"version": tf.__version__, "is_cuda_build": bool(tf.test.is_built_with_cuda())}}
try:
    found["build"] = {{key: str(value) for key, value in tf.sysconfig.get_build_info().items()}}
except Exception:
    pass
try:
    found["gpus"] = [device.name for device in tf.config.list_physical_devices("GPU")]
except Exception as error:
    found["error"] = str(error)[:500]
print("\\n{_MARK}" + json.dumps(found), flush=True)
"""
_TELLING: Final = re.compile(
    r"cannot dlopen|could not load dynamic|could not find cuda drivers|failed call to cuInit", re.I
)
"""Lines of TensorFlow's log that say why there is no GPU (tsl/platform, stream_executor/cuda)."""


@dataclass(frozen=True)
class Installed:
    """TensorFlow as the package metadata tells. `packages`: name and version of each that brings it.

    `build`: the constants of its build_info.py; versions of CUDA and cuDNN that it was compiled for.
    """

    packages: tuple[tuple[str, str], ...] = ()
    build: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The version, empty without TensorFlow."""
        return self.packages[0][1] if self.packages else ""

    @property
    def is_cpu_package(self) -> bool:
        """Whether it is the package without GPU support."""
        return bool(self.packages) and all(name.endswith("-cpu") for name, _ in self.packages)


@dataclass(frozen=True)
class Imported:
    """What TensorFlow said in a process of its own, or why it said nothing (`error`)."""

    version: str = ""
    is_cuda_build: bool = False
    cuda: str = ""
    gpus: tuple[str, ...] = ()
    error: str = ""
    log: tuple[str, ...] = ()


def read_installed(path: Sequence[str] | None = None) -> Installed:
    """Look for TensorFlow's packages on `path`, by default `sys.path`, without importing anything."""
    folders = sys.path if path is None else path
    packages: dict[str, str] = {}
    build: dict[str, Any] = {}
    for name in _NAMES:
        for distribution in distributions(name=name, path=list(folders)):
            packages.setdefault(name, str(distribution.version))
            break
    for folder in folders:
        file = Path(folder or ".", "tensorflow", "python", "platform", "build_info.py")
        if file.is_file():
            build = _build_info(file)
            break
    return Installed(tuple(packages.items()), build)


def _build_info(path: Path) -> dict[str, Any]:
    """The literal pairs in `build_info = collections.OrderedDict([...])`."""
    try:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                return {str(key): value for key, value in ast.literal_eval(node.value.args[0])}
    except (OSError, SyntaxError, ValueError, TypeError, IndexError):
        pass
    return {}


def import_tensorflow(
    environment: Mapping[str, str],
    *,
    program: Sequence[str] = (sys.executable, "-c", _PROBE),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Imported:
    """Import TensorFlow in another process with `environment`, and ask it; never raises."""
    # Its log is what says why there is no GPU, so it is asked for.
    asked = {**environment, "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = subprocess.run(
            program,
            env=asked,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Imported(error=f"importing it took longer than {timeout_seconds:.0f} s")
    except (OSError, ValueError) as error:
        return Imported(error=f"no process for it could be started: {error}")
    said = done.stderr.decode("utf-8", "replace").splitlines()
    log = tuple(dict.fromkeys(_message(line) for line in said if _TELLING.search(line)))
    answers = [
        line.removeprefix(_MARK)
        for line in done.stdout.decode("utf-8", "replace").splitlines()
        if line.startswith(_MARK)
    ]
    if not answers:
        last = said[-1] if said else ""
        return Imported(error=last or f"the process ended with {_ending(done.returncode)}", log=log)
    return _answered(answers[-1], log)


def _answered(text: str, log: tuple[str, ...]) -> Imported:
    try:
        found = json.loads(text)
        return Imported(
            version=str(found["version"]),
            is_cuda_build=bool(found["is_cuda_build"]),
            cuda=str(found.get("build", {}).get("cuda_version", "")),
            gpus=tuple(str(name) for name in found.get("gpus", ())),
            error=str(found.get("error", "")),
            log=log,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Imported(error=f"its answer was not understood: {error}", log=log)


def _message(line: str) -> str:
    """A log line without its time and place."""
    return line.partition("] ")[2] or line


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 and os.name == "posix" else f"exit code {code}"
