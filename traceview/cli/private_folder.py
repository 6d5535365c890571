"""Makes the folder in which output is written before it is moved to its place, safe from other users and from signals."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = ".traceview_partial-"


@contextmanager
def private_folder(target: Path) -> Iterator[Path]:
    """A new folder on the disk of `target`, which only this user can enter; it is removed in the end.

    Its name cannot be foreseen, so nobody can put a link in its place. SIGTERM and SIGHUP end the process after the
    folder is removed. Raises `OSError` if it cannot be made.
    """
    import tempfile

    from traceview.capture.process.script import terminable

    with terminable():
        beside = Path(os.path.realpath(target)).parent
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=beside))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
