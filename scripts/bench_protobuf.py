"""Reads a trace as the protobuf runtime offers it, one event after the other: one process of `scripts/bench.py`.

    python -m scripts.bench_protobuf FILE

Prints the number of events and the sum of their durations.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.xspace import XSpace


def main() -> None:
    space = XSpace.FromString(Path(sys.argv[1]).read_bytes())
    count = total_ps = 0
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                count += 1
                total_ps += event.duration_ps
    print(count, total_ps)


if __name__ == "__main__":
    main()
