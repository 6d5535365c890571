"""Checks whether a shared library loads, from where, and which version it is.

It is loaded in another process: a crash there does no harm, and TensorFlow in this process would otherwise use the copy
loaded here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TIMEOUT_SECONDS: Final = 20
"""Loading a library of CUDA from a network file system takes seconds."""
_MARK: Final = "traceview-library:"
_PROBE: Final = f"""
import ctypes, json, sys
candidates, function = json.loads(sys.argv[1])
errors = []
for candidate in candidates:
    try:
        library = ctypes.CDLL(candidate)
    except OSError as error:
        errors.append(str(error)[:300])
        continue
    number = ctypes.c_uint32(0)
    try:
        code = getattr(library, function)(ctypes.byref(number))
    except AttributeError:
        errors.append(f"{{candidate}} has no {{function}}")
        continue
    answer = {{"path": candidate, "version": number.value if code == 0 else 0, "code": code}}
    print("{_MARK}" + json.dumps(answer), flush=True)
    break
else:
    print("{_MARK}" + json.dumps({{"errors": errors}}), flush=True)
"""


@dataclass(frozen=True)
class Library:
    """A library that loads from `path`, or does not load because of `error`. `version`: the number it reports."""

    path: str = ""
    version: int = 0
    error: str = ""


def load_library(
    candidates: Sequence[str], function: str, environment: Mapping[str, str]
) -> Library:
    """The first of `candidates` (paths, or names for the loader to look up) that loads; never raises.

    `function` stores the library's version in its argument, and returns 0.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROBE, json.dumps([list(candidates), function])],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Library(error=f"loading it was not possible: {error}")
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith(_MARK):
            answer = json.loads(line.removeprefix(_MARK))
            if "path" in answer:
                return Library(answer["path"], answer["version"])
            return Library(error=_first(answer["errors"]))
    return Library(error=f"loading it crashed with exit code {done.returncode}")


def _first(errors: Sequence[str]) -> str:
    """The most specific error: that of a file that exists, rather than of a name that the loader did not find."""
    specific = [error for error in errors if "cannot open shared object file" not in error]
    return (specific or list(errors) or ["no candidate"])[0]


def packaged(site_packages: Iterable[Path], cuda_major: int) -> list[str]:
    """Paths of CUPTI in NVIDIA's pip packages, where TensorFlow's wheel looks for it (RPATH)."""
    paths: list[str] = []
    for site in site_packages:
        for place in (
            site / "nvidia" / "cuda_cupti" / "lib",
            site / "nvidia" / f"cu{cuda_major}" / "lib",
        ):
            paths += [str(path) for path in sorted(place.glob("libcupti.so*"))]
    return paths


def in_toolkits(root: Path, environment: Mapping[str, str], name: str) -> list[str]:
    """Paths of CUPTI in CUDA toolkits, where no loader looks for it."""
    homes = [
        Path(environment[key])
        for key in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
        if environment.get(key)
    ]
    homes += [root / "usr/local/cuda", *sorted((root / "usr/local").glob("cuda-*"), reverse=True)]
    places = ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib")
    paths = [home / place / name for home in homes for place in places]
    return list(dict.fromkeys(os.fspath(path) for path in paths if path.exists()))
