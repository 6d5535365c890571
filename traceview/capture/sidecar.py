"""What does a trace not tell by itself? It stands in a file beside it, written as the run goes on.

`<host>.traceview.json`: one JSON object with `schema_version`, `state`, and named groups of fields. Each group is
set by whoever knows it, any of them may be missing, and readers ignore those that they do not know. The file is
replaced as a whole, so that after a crash it says how far the run came: `waiting` for the window, `recording`
in it, then `saved` or `failed`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

SCHEMA_VERSION: Final = 1
SUFFIX: Final = ".traceview.json"

State = Literal["waiting", "recording", "saved", "failed"]


@dataclass
class Sidecar:
    """The fields so far. `path`: where they are written, None as long as there is no place."""

    path: Path | None = None
    state: State = "waiting"
    groups: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, group: str, values: Mapping[str, Any]) -> None:
        """Set fields of a group; those that it has already are replaced one by one."""
        self.groups[group] = {**self.groups.get(group, {}), **values}

    def as_json(self) -> dict[str, Any]:
        """The whole object."""
        return {"schema_version": SCHEMA_VERSION, "state": self.state, **self.groups}

    def write(self) -> None:
        """Replace the file by the fields as they are now; raises `OSError`."""
        if self.path is None:
            return
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        text = json.dumps(self.as_json(), indent=2, ensure_ascii=False, default=str)
        try:
            with partial.open("w", encoding="utf-8", errors="replace") as file:
                file.write(f"{text}\n")
            partial.replace(self.path)
        finally:
            partial.unlink(missing_ok=True)


class WindowListener(Protocol):
    """Adds groups to the sidecar of a capture.

    It is called in the script's process, where TensorFlow is imported. What it raises is noted in the
    sidecar (`notes.listeners`) and ends nothing.
    """

    def opening(self, sidecar: Sidecar) -> None:
        """The window is about to open; what is done here is not recorded."""

    def opened(self, sidecar: Sidecar) -> None:
        """The profile runs: what is started here sees the window, and is in the trace."""

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """The profile is written to `trace`, which will be moved; the sidecar is written after this."""
