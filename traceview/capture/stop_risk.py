"""Can the end of a profile crash TensorFlow here, and the training with it?

It can in a worker of several (TensorFlow 2.21 for Linux). When a profile stops, `TraceMeRecorder::Consume` pairs
the ends of activities with starts that other threads recorded, through pointers into queues of which a growing
`std::vector` has kept copies and freed the originals. A request to another worker for the parameters of a collective
(`CollectiveExecutor::CompleteParams`) ends in another thread than it began in. Where the allocator has
written its own pointers over the freed end, moving the name there frees one of those. jemalloc keeps its
pointers elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from traceview.capture.cluster import place_of
from traceview.capture.sidecar import Sidecar

RISK: Final = (
    "TensorFlow 2.21 can crash a worker when its profile ends (README, Capture): save a checkpoint before, or "
    "preload jemalloc"
)


def is_stop_risky(environment: Mapping[str, str]) -> bool:
    """Whether TF_CONFIG names several workers and no allocator is preloaded that keeps what is freed."""
    place = place_of(environment)
    if place is None or not place.partners:
        return False
    return "jemalloc" not in environment.get("LD_PRELOAD", "")


class StopRiskListener:
    """Says so once: before the run, or when the window opens where the script itself has set TF_CONFIG by then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._is_said = False

    def check(self) -> None:
        """Say so if it is the case now."""
        if not self._is_said and is_stop_risky(os.environ):
            self._is_said = True
            self._say(f"note: {RISK}")

    def opening(self, sidecar: Sidecar) -> None:
        """Look again, before anything is recorded."""
        self.check()

    def opened(self, sidecar: Sidecar) -> None:
        """Nothing: it is said."""

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Nothing: the profile has ended well."""
