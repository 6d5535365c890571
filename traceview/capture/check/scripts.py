"""Reads, without running it, which framework a training script imports, and whether it profiles itself or hides GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

_LARGEST_BYTES: Final = 4 << 20
"""Nobody writes longer scripts by hand."""
_IMPORTS: Final = {
    "tensorflow": re.compile(r"^\s*(?:import|from)\s+(?:tensorflow|keras|tf_keras)\b", re.M),
    "jax": re.compile(r"^\s*(?:import|from)\s+(?:jax|flax|optax|equinox)\b", re.M),
}
_ONE_PROFILE: Final = "only one profile can run at a time"
_SPOILS: Final = (
    (
        "script-profiler",
        re.compile(
            r"profiler\.experimental\.(?:start|Profile|server\.start|client\.trace)\b"
            r"|\bprofiler\.(?:start_trace|trace|start_server)\(|\btrace_on\([^\n]{0,200}profiler\s{0,9}="
        ),
        f"the script profiles itself, and {_ONE_PROFILE}",
        "remove it, or choose --steps in which it does not run: inside the window it records nothing",
    ),
    (
        "script-tensorboard",
        re.compile(r"\bprofile_batch\s*=\s*(?![\"']?0[\"']?\s*[,)])"),
        f"TensorBoard profiles too, and {_ONE_PROFILE}",
        "set profile_batch=0, or choose other --steps; profile_batch counts from 1 over all epochs",
    ),
    (
        "script-devices",
        re.compile(r"environ\[[\"']CUDA_VISIBLE_DEVICES[\"']\]\s*="),
        "the script chooses which GPUs it sees, whatever the other checks say",
        "remove it to use all GPUs",
    ),
)
"""What would spoil a capture: name of the check, how a line looks, what is wrong with it, and the fix."""


class Check(NamedTuple):
    """The result of one check: what the machine or script has, and how to fix it.

    `failed`: a capture here would fail, or lack its main content. `warning`: it may, or its numbers would mislead.
    `not applicable`: there is nothing to check here.
    """

    name: str
    status: Literal["ok", "warning", "failed", "not applicable"]
    detail: str
    fix: str = ""


def read_scripts(paths: Sequence[Path]) -> tuple[set[str], list[Check]]:
    """The frameworks that scripts import, and what would spoil their capture; one that cannot be read is a failed check."""
    imports: set[str] = set()
    checks: list[Check] = []
    for path in paths:
        file = path / "__main__.py" if path.is_dir() else path
        try:
            with file.open(encoding="utf-8", errors="replace") as opened:
                text = opened.read(_LARGEST_BYTES)
        except OSError as error:
            reason = f"{path} cannot be read: {error.strerror or error}"
            if isinstance(error, FileNotFoundError):
                reason = f"script not found: {path}"
            checks.append(Check("script", "failed", reason, "give the path of a Python file"))
            continue
        imports.update(name for name, pattern in _IMPORTS.items() if pattern.search(text))
        found = list(_spoils(file, text))
        checks += found or [Check("script", "ok", f"{file}: no problem found")]
    return imports, checks


def _spoils(path: Path, text: str) -> Iterator[Check]:
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0]
        for name, pattern, detail, fix in _SPOILS:
            if pattern.search(code):
                yield Check(name, "warning", f"{path}:{number}: {detail}", fix)
