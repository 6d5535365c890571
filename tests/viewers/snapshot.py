"""Describes the content of a folder, to show that nothing in it was touched."""

from __future__ import annotations

import hashlib
from pathlib import Path


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """The hash and the time of change of each file, and the time of each folder."""
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in [folder, *folder.rglob("*")]
    }
